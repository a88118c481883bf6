#include "model/families/known_shapes.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "base/json.hpp"
#include "model/families/hf_config.hpp"

namespace zeroplan {
namespace {

// Rows that are added to a vocabulary: special tokens, and padding to a multiple of 64 or 128.
constexpr std::int64_t kRowsAdded = 256;

std::int64_t first_of(const Json& config, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const Json* value = config.find(key);
    if (value != nullptr && value->is_integer()) return value->as_integer();
  }
  return 0;
}

// Encoders are trained without logits of every token.
bool encodes(const Json& config) {
  const Json* type = config.find("model_type");
  return type != nullptr && type->is_string() &&
         type->as_string().find("bert") != std::string::npos;
}

// Text models first: one that also sees has the sizes of one of them.
std::vector<KnownShape> read_shapes() {
  std::vector<KnownShape> shapes;
  const auto add = [&](const ModelPreset& preset, const Json& config) {
    const KnownShape shape{preset.name,
                           first_of(config, {"vocab_size", "padded_vocab_size"}),
                           first_of(config, {"hidden_size", "n_embd", "d_model", "dim"}),
                           first_of(config, {"intermediate_size", "ffn_hidden_size", "d_ff"})};
    const bool known = std::any_of(shapes.begin(), shapes.end(), [&](const KnownShape& other) {
      return other.vocabulary == shape.vocabulary && other.hidden == shape.hidden &&
             other.intermediate == shape.intermediate;
    });
    if (!known && shape.vocabulary > 0 && shape.hidden > 0) shapes.push_back(shape);
  };
  for (const bool sees : {false, true}) {
    for (const ModelPreset& preset : model_presets()) {
      const Json* text = preset.config.find("text_config");
      const bool of_several = text != nullptr && text->is_object();
      if (of_several != sees || encodes(preset.config)) continue;
      add(preset, of_several ? *text : preset.config);
    }
  }
  return shapes;
}

}  // namespace

const std::vector<KnownShape>& known_shapes() {
  static const std::vector<KnownShape> shapes = read_shapes();
  return shapes;
}

std::optional<KnownMatrix> known_matrix(std::int64_t elements) {
  std::optional<KnownMatrix> nearest;
  const auto added = [](const KnownMatrix& matrix) {
    return matrix.rows_of_model == 0 ? 0 : matrix.rows - matrix.rows_of_model;
  };
  const auto take = [&](const KnownMatrix& matrix) {
    if (!nearest || added(matrix) < added(*nearest)) nearest = matrix;
  };
  for (const KnownShape& shape : known_shapes()) {
    if (elements % shape.hidden != 0) continue;
    const std::int64_t rows = elements / shape.hidden;
    if (rows >= shape.vocabulary && rows <= shape.vocabulary + kRowsAdded) {
      take({&shape, rows, shape.hidden, shape.vocabulary});
    }
    if (shape.intermediate > 0 && rows == shape.intermediate) {
      take({&shape, rows, shape.hidden, 0});
    }
  }
  return nearest;
}

}  // namespace zeroplan
