// Members of one JSON object read with their bounds; what is wrong is collected, not thrown. For
// cluster_document.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/enum_names.hpp"
#include "base/json.hpp"
#include "base/units.hpp"
#include "model/hardware/hardware_catalog.hpp"

namespace zeroplan {

class Fields {
 public:
  // `diagnostics` and `object` outlive this.
  Fields(const Json& object,
         std::string file,
         std::string pointer,
         std::vector<Diagnostic>& diagnostics);

  const std::string& file() const { return file_; }
  std::string pointer(std::string_view key) const;

  // The member, unless it is missing or null.
  const Json* find(std::string_view key) const;

  void complain(std::string_view key, Phrase expected, Phrase got, Phrase hint = "");
  // Complains about members of other names.
  void only(std::span<const std::string_view> keys);

  // Readers: absent where the member is missing, or where it was complained about.
  std::optional<double> number(std::string_view key,
                               double least,
                               double most,
                               std::string_view unit,
                               std::string_view example);
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t least, std::int64_t most);
  std::optional<BytesPerSecond> rate(std::string_view key);
  std::optional<Bytes> bytes(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  std::optional<Fields> object(std::string_view key, std::string_view what);

  template <typename Enum, std::size_t N>
  std::optional<Enum> choice(std::string_view key,
                             const EnumNames<Enum, N>& table,
                             std::span<const Enum> allowed) {
    std::vector<std::string_view> names;
    for (const Enum value : allowed) names.push_back(name(table, value));
    const std::optional<std::size_t> chosen = choice_of(key, names);
    if (!chosen) return std::nullopt;
    return allowed[*chosen];
  }

 private:
  std::optional<std::size_t> choice_of(std::string_view key,
                                       std::span<const std::string_view> names);

  const Json& object_;
  std::string file_;
  std::string pointer_;
  std::vector<Diagnostic>& diagnostics_;
};

}  // namespace zeroplan
