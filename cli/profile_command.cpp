// zeroplan profile: what this machine reaches, as a document for --profile.
#include <ostream>

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/said_gpus.hpp"
#include "cli/table.hpp"
#include "cli/today.hpp"
#include "cli/write_file.hpp"
#include "runtime/cuda/gpu_profile.hpp"
#include "runtime/profile/machine_profile.hpp"

namespace zeroplan::cli {
namespace {

std::string value_text(double value) { return fmt::format("{:.4g}", value); }

// Settings of a row in one cell: "threads 2, array_bytes 67108864".
std::string settings_text(const Json& row) {
  std::string text;
  for (const auto& [key, value] : row.members()) {
    if (key == "unit") break;
    if (key == "what") continue;
    const std::string shown = value.is_string() ? value.as_string() : value.dump();
    text += (text.empty() ? "" : ", ") + key + " " + shown;
  }
  return text;
}

std::string profile_text(const Json& document) {
  std::vector<std::vector<std::string>> lines;
  for (const Json& row : document.find("measurements")->items()) {
    lines.push_back({row.find("what")->as_string(),
                     settings_text(row),
                     value_text(row.find("median")->as_number()),
                     value_text(row.find("q1")->as_number()),
                     value_text(row.find("q3")->as_number()),
                     row.find("unit")->as_string(),
                     row.find("n")->dump(),
                     row.find("discarded")->dump()});
  }
  std::string text = document.find("name")->as_string() + "\n\n" +
                     table({{"what"},
                            {"settings"},
                            {"median", Align::right},
                            {"quartile", Align::right},
                            {"quartile", Align::right},
                            {"unit"},
                            {"n", Align::right},
                            {"discarded", Align::right}},
                           lines);
  lines.clear();
  for (const Json& value : document.find("values")->items()) {
    lines.push_back({value.find("name")->as_string(),
                     value_text(value.find("value")->as_number()),
                     value.find("unit")->as_string(),
                     percent_text(value.find("relative_sd")->as_number()),
                     value.find("provenance")->as_string()});
  }
  text += "\nFor --profile:\n" +
          table({{"value"}, {"", Align::right}, {"unit"}, {"+-", Align::right}, {"from"}}, lines);
  text += "\n";
  for (const Json& note : document.find("notes")->items()) text += note.as_string() + "\n";
  return text;
}

}  // namespace

int run_profile(const Arguments& arguments, Streams streams) {
  runtime::MachineOptions options;
  options.quick = arguments.has("quick");
  options.nvme_path = arguments.text("nvme-path").value_or("");
  options.name = arguments.text("name").value_or("");
  options.date = today();
  options.progress = [&](const std::string& what) {
    streams.log << "measuring " << what << std::endl;
  };
  const runtime::cuda::Gpus gpus = said_gpus(arguments, "measures the CPU alone");
  options.no_gpu = gpus.problem;
  if (!gpus.found.empty()) {
    options.gpus = [progress = options.progress](const runtime::GpuScale& scale) {
      return runtime::cuda::measure_gpus(scale, progress);
    };
  }
  // Before what takes minutes.
  if (const auto path = arguments.text("output")) require_writable(*path);
  const Json document = runtime::measure_machine(options);
  if (const auto path = arguments.text("output")) {
    write_file(*path, document.dump(2) + "\n");
    streams.log << "wrote " << *path << "\n";
  }
  if (arguments.json) {
    streams.out << document.dump(2) << "\n";
  } else {
    streams.out << profile_text(document);
  }
  return kDone;
}

}  // namespace zeroplan::cli
