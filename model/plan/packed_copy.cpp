#include "model/plan/packed_copy.hpp"

#include <string>

#include "model/dtype.hpp"
#include "model/families/hf_config.hpp"

namespace zeroplan {
namespace {

// Adapters are trained in their own format.
bool is_base_weight(const std::string& name) {
  return name.ends_with(".weight") && name.find(".lora_") == std::string::npos;
}

Elements in_linear_layers(const Model& model) {
  Elements sum;
  for (const Module& module : model.modules) {
    if (module.type.find("Linear") == std::string::npos || module.parent <= 0) continue;
    for (const int index : module.parameters) {
      const Parameter& parameter = model.parameters[static_cast<std::size_t>(index)];
      if (is_base_weight(parameter.name)) sum += parameter.numel;
    }
  }
  return sum;
}

}  // namespace

std::optional<PackedCopy> packed_copy(const Model& model) {
  const std::string_view format = quantized_format(model);
  if (!format.starts_with("AWQ") && !format.starts_with("GPTQ")) return std::nullopt;
  constexpr double kGroup = 128.0;
  const double bits = format == kGptqOfEightBits ? 8.0 : 4.0;
  const Elements n = in_linear_layers(model);
  const double packed = static_cast<double>(n.count()) * (bits + (16.0 + bits) / kGroup) / 8.0;
  return PackedCopy{format, n * DType::bf16, Bytes::nearest(packed)};
}

}  // namespace zeroplan
