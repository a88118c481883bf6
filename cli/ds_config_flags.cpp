#include "cli/ds_config_flags.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "model/diagnostic.hpp"
#include "model/json_pointer.hpp"

namespace zeroplan {
namespace {

constexpr const char* kCommandLine = "command line";

// The one key with that name, or with that end of its pointer; absent where there is none, or are
// several.
std::optional<Knob> only_knob(const std::string& key) {
  std::optional<Knob> found;
  for (const KnobRow& row : kKnobs) {
    if (!row.pointer.ends_with("/" + key)) continue;
    if (found) return std::nullopt;
    found = row.id;
  }
  return found;
}

bool has_one_value(KnobType type) { return type != KnobType::list && type != KnobType::object; }

[[noreturn]] void refuse(const std::string& flag, Phrase expected, const std::string& text) {
  throw InputError({kCommandLine, flag, std::move(expected), in_quotes(text), ""});
}

Json number_of(const KnobRow& row, const std::string& flag, const std::string& text) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = row.type == KnobType::integer;
  const bool read = error == std::errc() && end == text.data() + text.size();
  if (!read || (whole && (std::floor(number) != number || std::abs(number) > 9e18))) {
    refuse(flag, whole ? "a whole number" : "a number", text);
  }
  if (whole) return Json(static_cast<std::int64_t>(number));
  return Json(number);
}

// What a flag goes into is an object, or is not there yet. `pointer` is a row's: no escaped names.
void check_sections(const Json& root, std::string_view pointer, const std::string& file) {
  const Json* at = &root;
  for (std::size_t end = pointer.find('/', 1); end != std::string_view::npos;
       end = pointer.find('/', end + 1)) {
    const std::size_t begin = pointer.rfind('/', end - 1) + 1;
    at = at->find(pointer.substr(begin, end - begin));
    if (at == nullptr || at->is_null()) return;
    if (!at->is_object()) {
      throw InputError({file, std::string(pointer.substr(0, end)), "an object", at->dump(), ""});
    }
  }
}

}  // namespace

std::optional<Knob> knob_of_flag(std::string_view flag) {
  std::string key(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())));
  std::replace(key.begin(), key.end(), '-', '_');
  std::replace(key.begin(), key.end(), '.', '/');
  if (key == "zero" || key == "zero_stage") key = "stage";
  if (key == "offload_optimizer" || key == "offload_param") key += "/device";
  for (const char* prefix : {"", "stage3_", "zero_"}) {
    const std::optional<Knob> knob = only_knob(prefix + key);
    if (knob && has_one_value(knob_row(*knob).type)) return knob;
  }
  return std::nullopt;
}

Json ds_config_value(Knob knob, const std::string& flag, const std::string& text) {
  const KnobRow& row = knob_row(knob);
  if (text == "auto") return Json(text);
  switch (row.type) {
    case KnobType::boolean:
      if (text == "true" || text == "false") return Json(text == "true");
      refuse(flag, "true or false", text);
    case KnobType::integer:
    case KnobType::real:
      return number_of(row, flag, text);
    default:
      return Json(text);
  }
}

ExplicitValue with_ds_config_flags(const ExplicitValue* said,
                                   const std::vector<DsConfigFlag>& flags) {
  ExplicitValue result{Json::object(), {kCommandLine, ""}};
  if (said != nullptr && said->value.is_string()) {
    const std::string path = said->value.as_string();
    result = {read_json_file(path).root, {path, ""}};
  } else if (said != nullptr) {
    result = *said;
  }
  if (!result.value.is_object()) return result;  // refused where it is read
  for (const DsConfigFlag& flag : flags) {
    check_sections(result.value, knob_row(flag.knob).pointer, result.origin.file);
    json_at(result.value, knob_row(flag.knob).pointer) = flag.value;
  }
  return result;
}

}  // namespace zeroplan
