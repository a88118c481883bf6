#include "model/cost/coefficients.hpp"

#include "base/check.hpp"

namespace zeroplan {

const CoefficientInfo& info(Coefficient id) {
  const CoefficientInfo& row = kCoefficients[static_cast<std::size_t>(id)];
  ZP_CHECK(row.id == id, "kCoefficients is out of order");
  return row;
}

Coefficients::Coefficients() {
  for (const CoefficientInfo& row : kCoefficients) set(row.id, row.value, row.relative_sd);
}

Coefficients::Coefficients(std::string_view gpu_key, std::span<const CoefficientValue> profile)
    : Coefficients() {
  for (const CoefficientValue& row : profile) {
    if (row.gpu_key_prefix.empty()) set(row.id, row.value, row.relative_sd);
  }
  if (const GpuAnalogue* analogue = gpu_analogue(gpu_key)) take_gpu(analogue->like, profile);
  take_gpu(gpu_key, profile);
}

// The longest prefix that fits decides, coefficient by coefficient; the profile's over the table's.
void Coefficients::take_gpu(std::string_view gpu_key, std::span<const CoefficientValue> profile) {
  std::array<std::size_t, kCoefficientCount> longest{};
  for (const GpuCoefficient& row : gpu_coefficients()) {
    std::size_t& length = longest[index(row.id)];
    if (!gpu_key.starts_with(row.gpu_key_prefix) || row.gpu_key_prefix.size() <= length) continue;
    length = row.gpu_key_prefix.size();
    set(row.id, row.value, row.relative_sd);
  }
  for (const CoefficientValue& row : profile) {
    std::size_t& length = longest[index(row.id)];
    const std::string& prefix = row.gpu_key_prefix;
    if (prefix.empty() || !gpu_key.starts_with(prefix) || prefix.size() < length) continue;
    length = prefix.size();
    set(row.id, row.value, row.relative_sd);
  }
}

std::optional<Coefficient> find_coefficient(std::string_view name) {
  for (const CoefficientInfo& row : kCoefficients) {
    if (row.name == name) return row.id;
  }
  return std::nullopt;
}

std::string_view row_for_gpu(Coefficient id, std::string_view gpu_key) {
  const auto longest = [&](std::string_view key) {
    std::string_view prefix;
    for (const GpuCoefficient& row : gpu_coefficients()) {
      const bool fits = row.id == id && key.starts_with(row.gpu_key_prefix);
      if (fits && row.gpu_key_prefix.size() > prefix.size()) prefix = row.gpu_key_prefix;
    }
    return prefix;
  };
  const std::string_view own = longest(gpu_key);
  if (!own.empty()) return own;
  const GpuAnalogue* const analogue = gpu_analogue(gpu_key);
  return analogue != nullptr ? longest(analogue->like) : std::string_view();
}

const GpuAnalogue* gpu_analogue(std::string_view gpu_key) {
  const GpuAnalogue* best = nullptr;
  for (const GpuAnalogue& row : gpu_analogues()) {
    const std::string_view words = row.gpu_key_words;
    if (!gpu_key.starts_with(words)) continue;
    if (gpu_key.size() > words.size() && gpu_key[words.size()] != '_') continue;
    if (best == nullptr || words.size() > best->gpu_key_words.size()) best = &row;
  }
  return best;
}

}  // namespace zeroplan
