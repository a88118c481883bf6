#include "cli/ds_config_flags.hpp"

#include <algorithm>

#include "base/diagnostic.hpp"
#include "base/json_pointer.hpp"
#include "model/knobs/knob_text.hpp"

namespace zeroplan::cli {
namespace {

constexpr const char* kSaidByFlags = "command line";

// The one key with that name, or with that end of its pointer; absent where there is none, or are
// several.
std::optional<Knob> only_knob(const std::string& key) {
  std::optional<Knob> found;
  for (const KnobRow& row : knob_rows()) {
    if (!row.pointer.ends_with("/" + key)) continue;
    if (found) return std::nullopt;
    found = row.id;
  }
  return found;
}

bool has_one_value(KnobType type) { return type != KnobType::list && type != KnobType::object; }

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
  if (text == "auto") return Json(text);
  const KnobType type = knob_row(knob).type;
  const std::optional<KnobValue> value = value_in_text(text, type);
  if (!value) throw InputError({kSaidByFlags, flag, expected_text(type), in_quotes(text), ""});
  return to_json(*value);
}

ExplicitValue with_ds_config_flags(const ExplicitValue* said,
                                   const std::vector<DsConfigFlag>& flags) {
  ExplicitValue result{Json::object(), {kSaidByFlags, ""}};
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

}  // namespace zeroplan::cli
