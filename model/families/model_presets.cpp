// Models by name: presets (configs/models/*.json) and bare sizes.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "base/embedded.hpp"
#include "base/written_names.hpp"
#include "model/families/hf_config.hpp"
#include "model/known_names.hpp"

namespace zeroplan {

namespace {

constexpr std::string_view kFolder = "configs/models/";

// The part of a path or a hub's name that names the model: the last one, or in the hub's cache
// ("models--Qwen--Qwen2.5-7B/snapshots/0a1b") the one behind its organization.
std::string_view model_part(std::string_view name) {
  constexpr std::string_view kCached = "models--";
  while (name.ends_with('/')) name.remove_suffix(1);
  const std::size_t cached = name.rfind(kCached);
  if (cached == std::string_view::npos) return without_organization(name);
  name = name.substr(cached + kCached.size());
  name = name.substr(0, name.find('/'));
  const std::size_t organization = name.find("--");
  return organization == std::string_view::npos ? name : name.substr(organization + 2);
}

// Names are compared without organization, case and separators. Points count at first, so that
// opt-1.3b is not opt-13b.
std::string key_of(std::string_view name, bool with_points) {
  return folded(model_part(name), with_points ? "-_ " : "-_ .");
}

// Endings of repositories with the same tensors as the model they are made from.
constexpr std::array<std::string_view, 7> kVariants = {
    "hf", "instruct", "chat", "base", "it", "deduped", "2507"};

// Endings of repositories with the same model in other bits.
struct CopyEnding {
  std::string_view ending;  // folded
  std::string_view format;
};
constexpr std::array kCopies = {CopyEnding{"unslothbnb4bit", kFourBitCopy},
                                CopyEnding{"bnb4bit", kFourBitCopy},
                                CopyEnding{"awqint4", "AWQ"},
                                CopyEnding{"awq", "AWQ"},
                                CopyEnding{"gptqint4", "GPTQ"},
                                CopyEnding{"gptqint8", kGptqOfEightBits},
                                CopyEnding{"gptq", "GPTQ"},
                                CopyEnding{"w4a16", "four bits of compressed-tensors"},
                                CopyEnding{"w8a8", "eight bits of compressed-tensors"},
                                CopyEnding{"fp8dynamic", kFp8Checkpoint},
                                CopyEnding{"fp8", kFp8Checkpoint},
                                CopyEnding{"bf16", kSixteenBitCopy},
                                CopyEnding{"gguf", "GGUF"}};

const CopyEnding* copy_ending(std::string_view key) {
  const auto found = std::find_if(kCopies.begin(), kCopies.end(), [&](const CopyEnding& copy) {
    return key.size() > copy.ending.size() && key.ends_with(copy.ending);
  });
  return found == kCopies.end() ? nullptr : &*found;
}

bool matches(const ModelPreset& preset, const std::string& key, bool with_points) {
  if (key_of(preset.name, with_points) == key) return true;
  return std::any_of(preset.aliases.begin(), preset.aliases.end(), [&](const std::string& alias) {
    return key_of(alias, with_points) == key;
  });
}

const ModelPreset* find_preset(const std::vector<ModelPreset>& presets,
                               std::string_view name,
                               bool with_points) {
  std::string key = key_of(name, with_points);
  while (!key.empty()) {
    for (const ModelPreset& preset : presets) {
      if (matches(preset, key, with_points)) return &preset;
    }
    if (const CopyEnding* copy = copy_ending(key)) {
      key.resize(key.size() - copy->ending.size());
      continue;
    }
    const auto variant = std::find_if(
        kVariants.begin(), kVariants.end(), [&](std::string_view v) { return key.ends_with(v); });
    if (variant == kVariants.end()) return nullptr;
    key.resize(key.size() - variant->size());
  }
  return nullptr;
}

const ModelPreset* find_preset(const std::vector<ModelPreset>& presets, std::string_view name) {
  const ModelPreset* exact = find_preset(presets, name, true);
  return exact != nullptr ? exact : find_preset(presets, name, false);
}

ModelPreset read_preset(const EmbeddedFile& file) {
  const JsonDocument document = parse_json(file.text, std::string(file.path));
  const auto member = [&](std::string_view key) -> const Json& {
    const Json* value = document.root.find(key);
    ZP_CHECK(value != nullptr, std::string(file.path) + " lacks " + std::string(key));
    return *value;
  };
  ModelPreset preset;
  preset.name = member("name").as_string();
  for (const Json& alias : member("aliases").items()) preset.aliases.push_back(alias.as_string());
  preset.parameters = member("parameters").as_integer();
  preset.source = member("source").as_string();
  preset.config = member("config");
  return preset;
}

// The shape of LLaMA at one width and depth (arXiv:2302.13971: feed-forward of 8/3 hidden, rounded
// up to 256; heads of 128; 32000 tokens; untied).
struct Shape {
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t parameters = 0;
  double strangeness = 0.0;  // how far depth and heads are from what real models have
};

constexpr std::int64_t kVocabulary = 32000;
constexpr std::int64_t kHeadDim = 128;

std::int64_t intermediate_of(std::int64_t hidden) { return round_up(ceil_div(8 * hidden, 3), 256); }

std::int64_t parameters_of(std::int64_t hidden, std::int64_t layers) {
  const std::int64_t layer =
      4 * hidden * hidden + 3 * hidden * intermediate_of(hidden) + 2 * hidden;
  return 2 * kVocabulary * hidden + hidden + layers * layer;
}

// Width over depth: 64 for GPT-2 small (768 x 12), 128 for LLaMA 7B (4096 x 32) and wider; straight
// between them.
double usual_layers(std::int64_t hidden) {
  const double width = static_cast<double>(hidden);
  const double ratio = std::clamp(64.0 + (width - 768.0) * 64.0 / (4096.0 - 768.0), 48.0, 128.0);
  return width / ratio;
}

// Heads that 8 or 4 tensor-parallel ranks can share are what real models have.
double awkwardness(std::int64_t hidden) {
  const std::int64_t heads = hidden / kHeadDim;
  if (heads % 8 == 0) return 0.0;
  return heads % 4 == 0 ? 0.1 : 0.5;
}

// Shapes of one width: all depths from half to 3.2 times the usual one.
void add_shapes(std::int64_t hidden, double above, double up_to, std::vector<Shape>& shapes) {
  const double usual = usual_layers(hidden);
  const auto last = std::llround(3.2 * usual);
  const std::int64_t without = parameters_of(hidden, 0);
  const auto enough = (above - static_cast<double>(without)) /
                      static_cast<double>(parameters_of(hidden, 1) - without);
  auto layers = std::max<std::int64_t>(2, std::llround(0.5 * usual));
  layers = std::max(layers, static_cast<std::int64_t>(enough));
  for (; layers <= last; ++layers) {
    const std::int64_t parameters = parameters_of(hidden, layers);
    if (static_cast<double>(parameters) <= above) continue;
    if (static_cast<double>(parameters) > up_to) return;
    const double depth = std::abs(std::log(static_cast<double>(layers) / usual));
    shapes.push_back({hidden, layers, parameters, depth + awkwardness(hidden)});
  }
}

// The next rung of a ladder of shapes, each at most 3.9 % above the one before: the nearest one to
// any size is then within 2 %, and a larger size never gets a smaller shape. It is the least
// strange that is a step of 1.2 % up, or the smallest, where none is less strange than that.
Shape next_rung(double current) {
  std::vector<Shape> shapes;
  for (std::int64_t hidden = 3 * kHeadDim; hidden <= 256 * kHeadDim; hidden += kHeadDim) {
    add_shapes(hidden, current, current * 1.039, shapes);
  }
  ZP_CHECK(!shapes.empty(), "the ladder of model sizes has a gap above " + std::to_string(current));
  std::sort(shapes.begin(), shapes.end(), [](const Shape& a, const Shape& b) {
    return std::pair(a.parameters, a.hidden) < std::pair(b.parameters, b.hidden);
  });
  const Shape* best = &shapes.front();
  for (const Shape& shape : shapes) {
    const bool a_step = static_cast<double>(shape.parameters) > current * 1.012;
    if (a_step && shape.strangeness < best->strangeness) best = &shape;
  }
  return *best;
}

Shape shape_of_size(std::int64_t parameters) {
  Shape below, shape = next_rung(0.97e8);
  while (shape.parameters < parameters) {
    below = std::exchange(shape, next_rung(static_cast<double>(shape.parameters)));
  }
  return parameters - below.parameters <= shape.parameters - parameters ? below : shape;
}

std::string in_billions(std::int64_t parameters) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(),
                                 text.data() + text.size(),
                                 static_cast<double>(parameters) / 1e9,
                                 std::chars_format::fixed,
                                 2);
  return std::string(text.data(), end.ptr) + " B";
}

Model model_of_size(std::int64_t parameters, std::string_view name) {
  const Json config = config_of_size(parameters);
  Model model = read_model(config, std::string(name));
  model.notes.push_back(
      phrase("{} was taken as a LLaMA-like model: {} layers, hidden size {}, {} heads, "
             "feed-forward {}, vocabulary {}: {} parameters.",
             name,
             model.shape.layers,
             model.shape.hidden,
             model.shape.heads,
             model.shape.intermediate,
             model.shape.vocabulary,
             in_billions(count_parameters(model).total.count())));
  return model;
}

// Presets that begin as `name` does up to its last part: of "qwen3-72b" those of qwen3.
std::string same_series(const std::vector<ModelPreset>& presets, std::string_view name) {
  const std::size_t end = name.find_last_of("-_ ");
  if (end == std::string_view::npos || end < 2) return "";
  const std::string stem = key_of(name.substr(0, end), true);
  std::string known;
  for (const ModelPreset& preset : presets) {
    const std::string_view full = preset.name;
    const std::size_t last = std::min(full.find_last_of('-'), full.size());
    if (key_of(full.substr(0, last), true) != stem) continue;
    known += (known.empty() ? "" : ", ") + preset.name;
  }
  return known;
}

// One that is named as its file is read alone: all of them take 20 million instructions.
std::optional<ModelPreset> preset_of(std::string_view name) {
  const std::string path = std::string(kFolder) + std::string(name) + ".json";
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path == path) return read_preset(file);
  }
  const ModelPreset* found = find_preset(model_presets(), name);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

[[noreturn]] void unknown_model(const std::vector<ModelPreset>& presets,
                                std::string_view name,
                                const std::string& file,
                                const std::string& pointer) {
  std::vector<std::string_view> names;
  for (const ModelPreset& preset : presets) {
    names.emplace_back(preset.name);
    names.insert(names.end(), preset.aliases.begin(), preset.aliases.end());
  }
  Diagnostic problem{
      .file = file,
      .pointer = pointer,
      .expected =
          "a model's name (zeroplan models lists them), a size such as 10B, or a path to "
          "a config.json",
      .got = in_quotes(name),
      .hint = why_no_model(name)};
  if (!problem.hint.empty()) {
    problem.got += ", which is known and not built in";
    throw InputError(problem);
  }
  problem.hint = did_you_mean_same_number(name, names);
  const std::string series = same_series(presets, name);
  if (problem.hint.empty() && !series.empty()) {
    problem.hint =
        phrase("built in of that series: {}; for another give the path of its config.json", series);
  }
  if (problem.hint.empty()) problem.hint = "give the path of the model's config.json";
  throw InputError(problem);
}

}  // namespace

const std::vector<ModelPreset>& model_presets() {
  static const std::vector<ModelPreset> all = [] {
    std::vector<ModelPreset> presets;
    for (const EmbeddedFile& file : embedded_files()) {
      if (file.path.starts_with(kFolder)) presets.push_back(read_preset(file));
    }
    std::sort(presets.begin(), presets.end(), [](const ModelPreset& a, const ModelPreset& b) {
      return a.name < b.name;
    });
    return presets;
  }();
  return all;
}

std::string_view format_of_copy(std::string_view name) {
  const CopyEnding* copy = copy_ending(key_of(name, false));
  return copy == nullptr ? "" : copy->format;
}

bool is_model_name(std::string_view text) { return parse_model_size(text) || preset_of(text); }

std::optional<std::int64_t> parse_model_size(std::string_view text) {
  double number = 0.0;
  const auto parsed =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const std::string_view rest(parsed.ptr,
                              static_cast<std::size_t>(text.data() + text.size() - parsed.ptr));
  if (parsed.ec != std::errc() || rest.size() != 1 || !std::isfinite(number) || number <= 0.0) {
    return std::nullopt;
  }
  double unit = 0.0;
  switch (rest.front()) {
    case 'm':
    case 'M':
      unit = 1e6;
      break;
    case 'b':
    case 'B':
      unit = 1e9;
      break;
    case 't':
    case 'T':
      unit = 1e12;
      break;
    default:
      return std::nullopt;
  }
  if (number * unit < 1.0 || number * unit > 1e17) return std::nullopt;
  return std::llround(number * unit);
}

Json config_of_size(std::int64_t parameters) {
  ZP_CHECK(parameters >= 100'000'000 && parameters <= 1'000'000'000'000,
           "a bare size is between 100M and 1T");
  const Shape shape = shape_of_size(parameters);
  return Json::object({{"model_type", "llama"},
                       {"architectures", Json::array({"LlamaForCausalLM"})},
                       {"hidden_size", shape.hidden},
                       {"num_hidden_layers", shape.layers},
                       {"num_attention_heads", shape.hidden / kHeadDim},
                       {"num_key_value_heads", shape.hidden / kHeadDim},
                       {"intermediate_size", intermediate_of(shape.hidden)},
                       {"vocab_size", kVocabulary},
                       {"max_position_embeddings", 4096},
                       {"tie_word_embeddings", false}});
}

Json config_of_name(std::string_view name) {
  if (const auto size = parse_model_size(name)) return config_of_size(*size);
  const std::optional<ModelPreset> preset = preset_of(name);
  ZP_CHECK(preset.has_value(), std::string(name) + " is no preset");
  return preset->config;
}

Model model_from_name(std::string_view name,
                      const std::string& file,
                      const std::string& pointer,
                      const ModelUse& use) {
  if (const auto size = parse_model_size(name)) {
    if (*size >= 100'000'000 && *size <= 1'000'000'000'000) return model_of_size(*size, name);
    throw InputError(Diagnostic{.file = file,
                                .pointer = pointer,
                                .expected = "a size between 100M and 1T, or a model's name",
                                .got = in_quotes(name),
                                .hint = "a config.json can have any size: give its path"});
  }
  if (const std::optional<ModelPreset> preset = preset_of(name)) {
    Model model = read_model(preset->config, preset->name, "", use);
    if (key_of(preset->name, false) != key_of(name, false)) {
      model.notes.push_back(phrase("{} was taken for the preset {}.", name, preset->name));
      const std::string_view format = format_of_copy(name);
      if (!format.empty()) {
        model.torch_dtype = format == kSixteenBitCopy ? "bfloat16" : std::string(format);
      }
    }
    model.name = preset->name;
    return model;
  }
  unknown_model(model_presets(), name, file, pointer);
}

}  // namespace zeroplan
