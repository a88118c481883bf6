#include "model/cost/coefficients.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/embedded.hpp"
#include "base/enum_names.hpp"
#include "base/json.hpp"

namespace zeroplan {
namespace {

constexpr auto kNames = enumerator_names<Coefficient>();
static_assert(kNames.names.size() == kCoefficientCount);

// profiles/coefficients.json, whose texts the rows point into.
class Table {
 public:
  Table() {
    ZP_CHECK(member(document_, "coefficients").members().size() == kCoefficientCount,
             "profiles/coefficients.json has a row for each coefficient");
    for (std::size_t i = 0; i < kCoefficientCount; ++i) rows[i] = row(i);
    for (const Json& set : member(document_, "gpus").items()) {
      for (const auto& [name, value] : member(set, "values").members()) {
        gpus.push_back({id_of(name),
                        text(set, "gpu"),
                        value.items()[0].as_number(),
                        value.items()[1].as_number(),
                        text(set, "provenance")});
      }
    }
    for (const Json& one : member(document_, "alike").items()) {
      alike.push_back({text(one, "gpu"), text(one, "like"), text(one, "reason")});
    }
  }

 private:
  static const Json& member(const Json& object, std::string_view key) {
    const Json* found = object.find(key);
    ZP_CHECK(found != nullptr, "profiles/coefficients.json: " + std::string(key));
    return *found;
  }
  static std::string_view text(const Json& object, std::string_view key) {
    return member(object, key).as_string();
  }
  static Coefficient id_of(std::string_view name) {
    const std::optional<Coefficient> found = find(kNames, name);
    ZP_CHECK(found.has_value(), "profiles/coefficients.json: " + std::string(name));
    return *found;
  }

  CoefficientInfo row(std::size_t i) const {
    const Json& said = member(member(document_, "coefficients"), kNames.names[i]);
    const std::vector<Json>& bounds = member(said, "bounds").items();
    return {static_cast<Coefficient>(i),
            kNames.names[i],
            text(said, "unit"),
            member(said, "value").as_number(),
            member(said, "relative_sd").as_number(),
            bounds[0].as_number(),
            bounds[1].as_number(),
            text(said, "provenance"),
            text(said, "used_by")};
  }

  static constexpr const char* kPath = "profiles/coefficients.json";
  Json document_ = parse_json(embedded_file(kPath), kPath).root;

 public:
  std::array<CoefficientInfo, kCoefficientCount> rows{};
  std::vector<GpuCoefficient> gpus;
  std::vector<GpuAnalogue> alike;
};

const Table& table() {
  static const Table once;
  return once;
}

}  // namespace

const std::array<CoefficientInfo, kCoefficientCount>& coefficient_rows() { return table().rows; }
std::span<const GpuCoefficient> gpu_coefficients() { return table().gpus; }
std::span<const GpuAnalogue> gpu_analogues() { return table().alike; }

const CoefficientInfo& info(Coefficient id) { return table().rows[static_cast<std::size_t>(id)]; }

Coefficients::Coefficients() {
  for (const CoefficientInfo& row : coefficient_rows()) set(row.id, row.value, row.relative_sd);
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
  for (const CoefficientInfo& row : coefficient_rows()) {
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
