// zeroplan knobs: the table of ds_config keys.
#include <ostream>

#include "base/diagnostic.hpp"
#include "cli/commands.hpp"
#include "cli/table.hpp"
#include "model/knobs/knob_schema.hpp"
#include "model/knobs/knobs.hpp"

namespace zeroplan::cli {
namespace {

constexpr Version kOldestSchema{0, 12, 0};  // DeepSpeedVersion::v0_12 is the oldest described

std::string pointer(const KnobReferenceRow& row) {
  return row.section == "top level" ? row.key : row.section + "/" + row.key;
}

int print_schema(const Arguments& arguments, Streams streams) {
  const std::optional<std::string> said = arguments.text("deepspeed");
  const std::optional<Version> release = said ? parse_version(*said) : kNewestJudgedDeepSpeed;
  if (!release) {
    throw InputError(
        {kCommandLine, "--deepspeed", "a version such as 0.19.6", in_quotes(*said), ""});
  }
  if (*release < kOldestSchema) {
    throw InputError({kCommandLine,
                      "--deepspeed",
                      phrase("release {} or newer", to_string(kOldestSchema)),
                      in_quotes(*said),
                      "keys of older releases are not described"});
  }
  streams.out << knob_schema(*release).dump(2) << "\n";
  return kDone;
}

}  // namespace

int run_knobs(const Arguments& arguments, Streams streams) {
  if (arguments.has("json-schema")) {
    if (arguments.has("markdown")) {
      throw InputError(
          {kCommandLine, "--markdown", "either --json-schema or --markdown", "both", ""});
    }
    return print_schema(arguments, streams);
  }
  if (arguments.has("deepspeed")) {
    throw InputError(
        {kCommandLine, "--deepspeed", "--json-schema with it", "no --json-schema", ""});
  }
  if (arguments.has("markdown")) {
    if (arguments.json) {
      throw InputError({kCommandLine, "--markdown", "either --json or --markdown", "both", ""});
    }
    streams.out << knob_reference_markdown();
    return kDone;
  }
  if (!arguments.json) {
    std::vector<std::vector<std::string>> rows;
    for (const KnobReferenceRow& row : knob_reference()) {
      rows.push_back({pointer(row),
                      row.type,
                      row.unit,
                      row.default_value,
                      row.stages,
                      row.affects,
                      row.modelled ? "yes" : "no"});
    }
    streams.out << table(
        {{"key"}, {"type"}, {"unit"}, {"default"}, {"stages"}, {"affects"}, {"modelled"}}, rows);
    return kDone;
  }
  Json knobs = Json::array();
  for (const KnobReferenceRow& row : knob_reference()) {
    knobs.push_back(Json::object({{"key", pointer(row)},
                                  {"type", row.type},
                                  {"unit", row.unit},
                                  {"default", row.default_value},
                                  {"auto", row.automatic},
                                  {"stages", row.stages},
                                  {"affects", row.affects},
                                  {"modelled", row.modelled},
                                  {"other_names", row.other_names},
                                  {"description", row.description},
                                  {"source", row.source}}));
  }
  streams.out << Json::object({{"schema", "zeroplan.knobs/1"}, {"knobs", knobs}}).dump(2) << "\n";
  return kDone;
}

}  // namespace zeroplan::cli
