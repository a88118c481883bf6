#include "tuner/kit/kit_template.hpp"

#include "base/check.hpp"
#include "base/embedded.hpp"

namespace zeroplan::tuner {
namespace {

bool is_name(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    if (!((c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_')) return false;
  }
  return true;
}

}  // namespace

Phrase filled_in(std::string_view name, const KitValues& values) {
  std::string_view rest = embedded_file("configs/kit/" + std::string(name));
  Phrase text;
  while (true) {
    const std::size_t open = rest.find('@');
    if (open == std::string_view::npos) break;
    const std::size_t close = rest.find('@', open + 1);
    const std::string_view key = close == std::string_view::npos
                                     ? std::string_view()
                                     : rest.substr(open + 1, close - open - 1);
    if (!is_name(key)) {  // "$@"
      text += std::string(rest.substr(0, open + 1)).c_str();
      rest.remove_prefix(open + 1);
      continue;
    }
    const auto found = values.find(key);
    ZP_CHECK(found != values.end(),
             std::string(name) + " has no value for @" + std::string(key) + "@");
    text += std::string(rest.substr(0, open)).c_str();
    text += found->second;
    rest.remove_prefix(close + 1);
  }
  return text += std::string(rest).c_str();
}

}  // namespace zeroplan::tuner
