#include "cli/remedies.hpp"

#include <fmt/format.h>

#include "cli/table.hpp"
#include "model/predict/io_step_result.hpp"

namespace zeroplan {

std::string list_text(const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string text = "\n" + title + ":\n";
  for (const std::string& line : lines) text += "  - " + line + "\n";
  return text;
}

std::string remedy_lines(const std::vector<Remedy>& remedies) {
  std::string text;
  for (const Remedy& remedy : remedies) {
    text += fmt::format("  - {}:\n    then {}, {} per GPU, {:.0f} tokens/s per GPU\n",
                        remedy.change,
                        describe(remedy.best.strategy),
                        gib_text(remedy.best.result.gpu.peak_total),
                        remedy.best.result.step.tokens_per_second_per_gpu);
  }
  return text;
}

Json remedies_json(const std::vector<Remedy>& remedies) {
  Json array = Json::array();
  for (const Remedy& remedy : remedies) {
    array.push_back(Json::object({{"change", remedy.change},
                                  {"strategy", describe(remedy.best.strategy)},
                                  {"ds_config", emit(written_ds_config(remedy.best.plan))},
                                  {"result", to_json(remedy.best.result)}}));
  }
  return array;
}

}  // namespace zeroplan
