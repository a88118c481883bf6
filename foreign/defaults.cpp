// The defaults of other tools: settings that hold where nobody says them.
#include <string>
#include <utility>

#include "foreign/meaning.hpp"
#include "foreign/setting_table.hpp"
#include "foreign/sharding.hpp"
#include "foreign/swift.hpp"

namespace zeroplan::foreign {

void Meaning::assume(ScenarioKey key, Json value, const Phrase& sentence) {
  if (scenario.find(key) != nullptr) return;
  scenario.set(key, std::move(value), {training.file, ""});
  if (!sentence.empty()) assumed.push_back(sentence);
}

namespace {

// The parts that LLaMA-Factory and swift freeze where nobody says otherwise. Beside adapters
// nothing is frozen that is not: these tools leave the layers of a frozen tower without any.
void freeze_parts(Meaning& meaning) {
  const ExplicitValue* method = meaning.scenario.find(ScenarioKey::method);
  const bool full = method != nullptr && method->value == Json("full");
  if (!full) {
    const bool trains = meaning.freezes_tower == false || meaning.freezes_projector == false;
    if (trains) {
      meaning.assumed.emplace_back(
          "adapters stand beside the layers of the text alone: those that the tool puts on a tower "
          "or a projector that it does not freeze are not planned");
    }
    return;
  }
  const bool images = meaning.flags.contains(ScenarioKey::images);
  const bool usual = meaning.tool == Tool::llama_factory || meaning.tool == Tool::swift;
  std::string names;
  // Whether the model has such parts is not known here.
  const std::string where_any = images ? "" : "?";
  if (meaning.freezes_tower.value_or(usual)) names = "vision" + where_any;
  if (meaning.freezes_projector.value_or(usual))
    names += (names.empty() ? "projector" : ",projector") + where_any;
  if (names.empty()) return;
  const bool said = meaning.freezes_tower && meaning.freezes_projector;
  meaning.assume(
      ScenarioKey::freeze,
      names,
      said || !images ? "" : "--freeze vision,projector: the tool's default, where nobody says it");
}

}  // namespace

void add_defaults(Meaning& meaning) {
  finish_hybrid(meaning);
  if (meaning.training.name.empty()) return;
  meaning.assume(ScenarioKey::frontend, meaning.native ? "native" : "hf-trainer", "");
  const Processes& processes = meaning.processes;
  if (processes.threads > 0) {
    meaning.assume(ScenarioKey::omp_num_threads,
                   processes.threads,
                   processes.threads_launcher.empty() ? ""
                   : processes.threads_launcher == "torchrun"
                       ? "OMP_NUM_THREADS 1: torchrun's default for several processes"
                       : "OMP_NUM_THREADS 1: accelerate's default for several processes");
  }
  if (processes.expandable_segments) meaning.assume(ScenarioKey::expandable_segments, true, "");
  const bool own = has_own_arguments(meaning.tool);
  if (meaning.native && !own) return;  // batch and precision are the ds_config's
  if (!own) freeze_parts(meaning);
  for (const DefaultRow& row : default_rows()) {
    const bool its = is_named_in(row.tools, name(kToolNames, meaning.tool));
    if (its) meaning.assume(row.key, *row.value, std::string(row.says));
  }
  if (meaning.tool == Tool::swift) add_defaults_of_swift(meaning);
}

bool runs_ddp(const Meaning& meaning) {
  const bool trains = !meaning.training.name.empty() && !meaning.native;
  return (trains || meaning.says_ddp) && meaning.scenario.find(ScenarioKey::engine) == nullptr;
}

}  // namespace zeroplan::foreign
