#include "base/written_names.hpp"

#include <cctype>

namespace zeroplan {

std::string folded(std::string_view text, std::string_view separators) {
  std::string result;
  for (const char c : text) {
    if (separators.find(c) != std::string_view::npos) continue;
    result.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  return result;
}

std::string_view without_organization(std::string_view name) {
  const auto slash = name.rfind('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

}  // namespace zeroplan
