#include "model/cost/coefficients.hpp"

#include "model/check.hpp"

namespace zeroplan {

const CoefficientInfo& info(Coefficient id) {
  const CoefficientInfo& row = kCoefficients[static_cast<std::size_t>(id)];
  ZP_CHECK(row.id == id, "kCoefficients is out of order");
  return row;
}

Coefficients::Coefficients() {
  for (const CoefficientInfo& row : kCoefficients) set(row.id, row.value, row.relative_sd);
}

Coefficients::Coefficients(std::string_view gpu_key) : Coefficients() {
  if (const CardAnalogue* analogue = card_analogue(gpu_key)) take_card(analogue->like);
  take_card(gpu_key);
}

// The longest prefix that fits decides, coefficient by coefficient.
void Coefficients::take_card(std::string_view gpu_key) {
  std::array<std::size_t, kCoefficientCount> longest{};
  for (const CardCoefficient& row : card_coefficients()) {
    std::size_t& length = longest[index(row.id)];
    if (!gpu_key.starts_with(row.gpu_key_prefix) || row.gpu_key_prefix.size() <= length) continue;
    length = row.gpu_key_prefix.size();
    set(row.id, row.value, row.relative_sd);
  }
}

const CardAnalogue* card_analogue(std::string_view gpu_key) {
  const CardAnalogue* best = nullptr;
  for (const CardAnalogue& row : card_analogues()) {
    const std::string_view words = row.gpu_key_words;
    if (!gpu_key.starts_with(words)) continue;
    if (gpu_key.size() > words.size() && gpu_key[words.size()] != '_') continue;
    if (best == nullptr || words.size() > best->gpu_key_words.size()) best = &row;
  }
  return best;
}

}  // namespace zeroplan
