// configs/foreign.json: each row is read back from what it is written as.
#include "foreign/setting_table.hpp"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/embedded.hpp"
#include "cli/language/translation.hpp"
#include "foreign/form.hpp"
#include "model/plan/scenario_values.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;
using foreign::SettingRow;

namespace {

constexpr foreign::Form kFiles[] = {foreign::Form::llama_factory,
                                    foreign::Form::axolotl,
                                    foreign::Form::trl,
                                    foreign::Form::trainer};

std::string_view without_mark(std::string_view name) {
  return name.ends_with('?') ? name.substr(0, name.size() - 1) : name;
}

// The rows of files that are written, each once.
std::set<const SettingRow*> written_rows() {
  std::set<const SettingRow*> rows;
  for (const foreign::Form form : kFiles) {
    for (const std::string_view name : foreign::written_names(name(foreign::kFormNames, form))) {
      rows.insert(foreign::find_row(without_mark(name), foreign::Tool::trainer));
    }
  }
  return rows;
}

// Values that a row's part can have.
std::vector<Json> values_of(const SettingRow& row) {
  std::vector<Json> values;
  if (row.words != nullptr) {
    for (const auto& [ours, word] : row.words->members()) {
      if (!ours.empty() && ours != "*") values.emplace_back(ours);
    }
    return values;
  }
  switch (row.type) {
    case foreign::ValueType::flag:
      return {Json(true), Json(false)};
    case foreign::ValueType::names:
    case foreign::ValueType::joined:
      return {Json::array({"q_proj", "v_proj"}), Json::array({"q_proj"})};
    case foreign::ValueType::share:
    case foreign::ValueType::positive:
      return {Json(0.25)};
    case foreign::ValueType::count:
      return {Json(12)};
    default:
      return {Json(0.25), Json(12)};
  }
}

}  // namespace

TEST_CASE("a name that a file is written with has a row") {
  for (const foreign::Form form : kFiles) {
    const std::vector<std::string_view> names =
        foreign::written_names(name(foreign::kFormNames, form));
    CHECK(names.size() > 30);
    for (const std::string_view name : names) {
      INFO(name);
      CHECK(foreign::find_row(without_mark(name), foreign::Tool::trainer) != nullptr);
    }
  }
}

TEST_CASE("a value of the plan is read back from what its row writes") {
  int compared = 0;
  for (const SettingRow* row : written_rows()) {
    for (const Json& ours : values_of(*row)) {
      const std::optional<Json> theirs = foreign::written_value(*row, &ours);
      INFO(row->names << " " << ours.dump());
      REQUIRE(theirs);
      const std::optional<Json> back = foreign::read_value(*row, *theirs);
      // Other values have no word of their own, as formats beside the switch of one.
      const bool other = row->words != nullptr && row->words->find(ours.as_string()) == nullptr;
      if (other) continue;
      REQUIRE(back);
      // Of values with one word the first is read: LoRA, which another setting makes QLoRA.
      CHECK(foreign::written_value(*row, &*back) == theirs);
      const bool shared = row->words != nullptr && !(*back == ours);
      if (!shared) CHECK(*back == ours);
      // On a command line it is a text.
      if (theirs->is_boolean() || theirs->is_string()) {
        CHECK(foreign::read_value(
                  *row, Json(theirs->is_string() ? theirs->as_string() : theirs->dump())) == back);
      }
      ++compared;
    }
  }
  CHECK(compared > 60);
}

TEST_CASE("what rows say of a key is a value of that key") {
  for (const SettingRow& row : foreign::setting_rows()) {
    if (!row.key || !row.part.empty() || row.rule != foreign::Rule::none) continue;
    if (row.words == nullptr) continue;
    for (const auto& [ours, word] : row.words->members()) {
      if (ours.empty() || ours == "*") continue;
      INFO(row.names << " " << ours);
      Diagnostic problem{"", "", "", "", ""};
      CHECK(checked(info(*row.key), Json(ours), problem));
    }
  }
  for (const foreign::DefaultRow& row : foreign::default_rows()) {
    INFO(row.says);
    Diagnostic problem{"", "", "", "", ""};
    CHECK(checked(info(row.key), *row.value, problem));
  }
}

TEST_CASE("sentences of rows have a translation") {
  const cli::Translation chinese(cli::Language::zh);
  for (const SettingRow& row : foreign::setting_rows()) {
    const std::string text(row.refused);
    // Names of programs are the same.
    const bool words = text.find(' ') != std::string::npos && text != "Cut Cross Entropy";
    INFO(text);
    if (words) CHECK(chinese.text(Phrase(text)) != text);
  }
  for (const foreign::DefaultRow& row : foreign::default_rows()) {
    INFO(row.says);
    CHECK(chinese.text(Phrase(std::string(row.says))) != row.says);
  }
}

TEST_CASE("a name means one thing, and a tool's own meaning counts") {
  using foreign::Tool;
  CHECK(foreign::find_row("model", Tool::trainer) == nullptr);
  CHECK(foreign::find_row("model", Tool::swift)->is == "model");
  CHECK(foreign::find_row("cutoff_len", Tool::axolotl)->is == "sequence_length");
  CHECK(foreign::find_row("bnb_config_kwargs.bnb_4bit_quant_type", Tool::axolotl)->is ==
        "method.quant");
  CHECK(foreign::is_unused("warmup_ratio"));
  CHECK_FALSE(foreign::is_unused("warmup_ratios"));
}
