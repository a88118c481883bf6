// zeroplan models: known models as a table, or the parameter counts of any readable config.
#include <ostream>

#include "base/diagnostic.hpp"
#include "cli/commands.hpp"
#include "cli/table.hpp"
#include "cli/unknown_model.hpp"
#include "model/families/hf_config.hpp"

namespace zeroplan::cli {
namespace {

Json counts_json(const Model& model) {
  const ParameterCounts counts = count_parameters(model);
  return Json::object({{"total", counts.total.count()},
                       {"trainable", counts.trainable.count()},
                       {"active", counts.active.count()}});
}

Json model_json(const Model& model) {
  Json document = Json::object({{"schema", "zeroplan.model/1"},
                                {"name", model.name},
                                {"model_type", model.model_type},
                                {"architecture", model.architecture},
                                {"planned", model.planned},
                                {"parameters", counts_json(model)}});
  if (!model.planned) document["not_planned_reason"] = model.not_planned_reason;
  Json notes = Json::array();
  for (const Phrase& note : model.notes) notes.push_back(note.english());
  document["notes"] = notes;
  return document;
}

void print_model(const Model& model, std::ostream& out) {
  const ParameterCounts counts = count_parameters(model);
  out << printable(model.architecture) << " (" << model.model_type << ")\n"
      << "  parameters  " << count_text(counts.total.count()) << "\n"
      << "  trainable   " << count_text(counts.trainable.count()) << "\n"
      << "  active      " << count_text(counts.active.count()) << "\n";
  if (model.planned) {
    out << "  memory and time can be planned\n";
  } else {
    out << "  not planned: " << printable(model.not_planned_reason) << "\n";
  }
  for (const std::string& note : model.notes) out << "  note: " << printable(note) << "\n";
}

Json list_json() {
  Json presets = Json::array();
  for (const ModelPreset& preset : model_presets()) {
    Json aliases = Json::array();
    for (const std::string& alias : preset.aliases) aliases.push_back(alias);
    presets.push_back(Json::object({{"name", preset.name},
                                    {"aliases", aliases},
                                    {"parameters", preset.parameters},
                                    {"source", preset.source}}));
  }
  Json families = Json::array();
  for (const std::string& type : model_types()) {
    families.push_back(Json::object({{"model_type", type}}));
  }
  return Json::object(
      {{"schema", "zeroplan.models/1"}, {"presets", presets}, {"families", families}});
}

void print_list(std::ostream& out) {
  std::vector<std::vector<std::string>> rows;
  for (const ModelPreset& preset : model_presets()) {
    std::string aliases;
    for (const std::string& alias : preset.aliases)
      aliases += (aliases.empty() ? "" : ", ") + alias;
    rows.push_back({preset.name, count_text(preset.parameters), aliases});
  }
  out << table({{"model"}, {"parameters", Align::right}, {"also called"}}, rows);
  std::string types;
  for (const std::string& type : model_types()) types += (types.empty() ? "" : ", ") + type;
  out << "\nAny config.json of these model types can be planned: " << types
      << "; of any other, where python3 (ZEROPLAN_PYTHON) has a transformers that knows it"
      << ".\nA bare size such as 10B stands for a LLaMA-like model of that size.\n";
}

}  // namespace

int run_models(const Arguments& arguments, Streams streams) {
  if (const auto config = arguments.text("config")) {
    const bool is_inline = config->starts_with('{');
    const Json said = is_inline ? parse_json(*config, "command line --config").root : Json(*config);
    const Translation words(arguments.language);
    const auto traced = traced_if_unknown(said, kCommandLine, {}, streams.log, words);
    const Model model = traced ? load_model(traced->document, traced->place, "")
                               : load_model(said, kCommandLine, "--config");
    if (arguments.json) {
      streams.out << model_json(model).dump(2) << "\n";
    } else {
      print_model(model, streams.out);
    }
    return kDone;
  }
  if (arguments.json) {
    streams.out << list_json().dump(2) << "\n";
  } else {
    print_list(streams.out);
  }
  return kDone;
}

}  // namespace zeroplan::cli
