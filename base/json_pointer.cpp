#include "base/json_pointer.hpp"

#include <string>

namespace zeroplan {
namespace {

// "~1" and "~0" of a pointer's token, undone.
std::string unescaped(std::string_view token) {
  std::string text;
  for (std::size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size()) {
      text += token[++i] == '1' ? '/' : '~';
    } else {
      text += token[i];
    }
  }
  return text;
}

}  // namespace

Json& json_at(Json& root, std::string_view pointer) {
  Json* at = &root;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const std::size_t end = pointer.find('/');
    at = &(*at)[unescaped(pointer.substr(0, end))];
    pointer = end == std::string_view::npos ? std::string_view() : pointer.substr(end);
  }
  return *at;
}

}  // namespace zeroplan
