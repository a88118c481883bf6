#include "model/lint/place.hpp"

#include <charconv>
#include <optional>

#include "model/knobs/knobs.hpp"

namespace zeroplan {
namespace {

// "a~1b" is the key "a/b".
std::string key_of_token(std::string_view token) {
  std::string key;
  for (std::size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1')) {
      key += token[++i] == '0' ? '~' : '/';
    } else {
      key += token[i];
    }
  }
  return key;
}

const Json* child(const Json& value, const std::string& key) {
  if (value.is_object()) return value.find(key);
  if (!value.is_array()) return nullptr;
  std::size_t index = 0;
  const char* const end = key.data() + key.size();
  const auto [stop, error] = std::from_chars(key.data(), end, index);
  const bool inside = error == std::errc() && stop == end && index < value.items().size();
  return inside ? &value.items()[index] : nullptr;
}

// The deepest value on the way, and whether it is the one that is meant.
struct Found {
  const Json* value;
  bool whole;
};

Found follow(const Json& root, std::string_view pointer) {
  const Json* value = &root;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);  // '/'
    const std::size_t end = std::min(pointer.find('/'), pointer.size());
    const Json* next = child(*value, key_of_token(pointer.substr(0, end)));
    if (next == nullptr) return {value, false};
    value = next;
    pointer.remove_prefix(end);
  }
  return {value, true};
}

Place place(const Json& value) { return {value.line(), value.column()}; }

// The number behind `word` in text such as "line 3, column 7"; 0 where it is not there.
int number_behind(std::string_view text, std::string_view word) {
  const std::size_t at = text.find(word);
  if (at == std::string_view::npos) return 0;
  text.remove_prefix(at + word.size());
  int number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop != text.data() ? number : 0;
}

}  // namespace

Place place_of(const Json& root, std::string_view pointer) {
  const Found found = follow(root, pointer);
  if (found.whole) return place(*found.value);
  if (const std::optional<Knob> knob = find_knob(pointer)) {
    for (const KnobAlias& alias : knob_row(*knob).aliases) {
      const Found other = follow(root, alias.pointer);
      if (other.whole) return place(*other.value);
    }
  }
  return place(*found.value);
}

Place place_of(const Diagnostic& problem) {
  if (problem.pointer.starts_with("line ")) {
    return {number_behind(problem.pointer, "line "), number_behind(problem.pointer, "column ")};
  }
  if (!problem.pointer.empty() && !problem.pointer.starts_with('/')) return {};
  try {
    return place_of(read_json_file(problem.file).root, problem.pointer);
  } catch (const InputError&) {
    return {};  // the file is what is wrong
  }
}

}  // namespace zeroplan
