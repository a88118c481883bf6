#include "cli/unknown_model.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "base/embedded.hpp"
#include "base/fingerprint.hpp"
#include "base/output_file.hpp"
#include "cli/progress_bar.hpp"
#include "model/families/hf_config.hpp"
#include "model/families/traced_document.hpp"
#include "model/plan/plan.hpp"
#include "rehearsal/cache.hpp"
#include "rehearsal/embedded.hpp"
#include "rehearsal/process.hpp"
#include "rehearsal/rehearse.hpp"
#include "rehearsal/trace.hpp"

namespace zeroplan::cli {
namespace {

namespace fs = std::filesystem;

struct UnknownModel {
  std::string name;    // as the user calls it
  std::string source;  // for the tracer: a folder, or empty where `config` is all there is
  Json config;
};

std::optional<UnknownModel> unknown_model_of(const Json& said,
                                             const std::string& file,
                                             const ModelUse& use) {
  const bool with_images = use.images.count > 0;  // a class that is known is known without them
  if (said.is_object()) {
    if (is_traced_document(said) || (!with_images && is_planned(said, use))) return std::nullopt;
    return UnknownModel{"a config", "", said};
  }
  if (!said.is_string()) return std::nullopt;
  const std::string& text = said.as_string();
  std::optional<Json> config = config_of_path(text, file);
  if (!config && with_images && is_model_name(text)) config = config_of_name(text);
  if (!config || is_traced_document(*config)) return std::nullopt;
  if (!with_images && is_planned(*config, use)) return std::nullopt;
  std::error_code none;
  return UnknownModel{text, fs::is_directory(text, none) ? text : "", *config};
}

std::string python_to_ask() {
  const char* const named = std::getenv("ZEROPLAN_PYTHON");
  return rehearsal::find_program(named == nullptr || *named == '\0' ? "python3" : named);
}

// "transformers 5.17.0, torch 2.11.0"; nothing where the Python has not both.
std::optional<std::string> releases_of(const std::string& python) {
  if (python.empty()) return std::nullopt;
  const rehearsal::Output said =
      rehearsal::run_and_read({python,
                               "-c",
                               "import importlib.metadata as m; print('transformers', "
                               "m.version('transformers') + ', torch', "
                               "m.version('torch'), end='')"});
  if (said.exit != 0) return std::nullopt;
  return printable(said.text);
}

void add(Fingerprint& key, std::string_view text) {
  key.add_text(text);
  key.add(text.size());
}

// The place of the document in the cache.
fs::path place_of(const UnknownModel& model,
                  const std::string& releases,
                  const rehearsal::TraceRequest& request) {
  Fingerprint key;
  for (const std::string_view part : {std::string_view(model.source),
                                      std::string_view(releases),
                                      std::string_view(request.attention)}) {
    add(key, part);
  }
  for (const std::int64_t number : {request.longer_than,
                                    request.images.count,
                                    request.images.width,
                                    request.images.height,
                                    request.batch}) {
    key.add(static_cast<std::uint64_t>(number));
  }
  add(key, model.config.dump());
  for (const EmbeddedFile& file : rehearsal::rehearsal_files()) {
    if (file.path.find("/zeroplan_trace/") != std::string_view::npos) add(key, file.text);
  }
  return fs::path(rehearsal::cache_folder()) / "traced" /
         fmt::format("{:016x}{:016x}.json", key.high, key.low);
}

Json traced(const UnknownModel& model, rehearsal::TraceRequest request) {
  const rehearsal::ScratchFolder scratch;
  request.model = model.source;
  if (request.model.empty()) {
    request.model = scratch.path() + "/config.json";
    replace_file(request.model, model.config.dump());
  }
  Json document =
      parse_json(rehearsal::trace(request), model.name, {.max_values = kMostRecordedValues}).root;
  document["name"] = model.name;
  return document;
}

std::optional<TracedModel> traced_model_of(const Scenario& scenario,
                                           std::ostream& log,
                                           const Translation& words) {
  const ExplicitValue* said = scenario.find(ScenarioKey::model);
  if (said == nullptr) return std::nullopt;
  return traced_if_unknown(
      said->value, said->origin.file, model_use_of(scenario, ExpertLayout::modules), log, words);
}

// How many tokens a key of an indexer stands for: in DeepSeek-V4's layers that choose among
// compressed ones, by its config or by the class's default (configuration_deepseek_v4.py of 5.17).
std::int64_t tokens_of_a_key(const Json& config) {
  const Json* rates = config.find("compress_rates");
  const Json* own = rates != nullptr && rates->is_object()
                        ? rates->find("compressed_sparse_attention")
                        : config.find("compress_rate_csa");
  if (own != nullptr && own->is_integer() && own->as_integer() > 0) return own->as_integer();
  const Json* type = config.find("model_type");
  constexpr std::int64_t kOfDeepseekV4 = 4;
  return type != nullptr && type->is_string() && type->as_string() == "deepseek_v4" ? kOfDeepseekV4
                                                                                    : 1;
}

}  // namespace

void stay_between_windows(rehearsal::TraceRequest& request,
                          const Json& config,
                          std::int64_t sequence) {
  for (const auto& [key, value] : config.members()) {
    const bool chosen = key == "index_topk";  // so many keys for each query, or all there are
    const bool window = key.find("window") != std::string::npos || key == "attention_chunk_size" ||
                        key == "local_attention";
    if (value.is_object()) stay_between_windows(request, value, sequence);
    if (!(window || chosen) || !value.is_integer() || value.as_integer() <= 0) continue;
    const std::int64_t size = value.as_integer() * (chosen ? tokens_of_a_key(config) : 1);
    if (size <= sequence) {  // as long as a window: with its mask
      request.longer_than = std::max(request.longer_than, size - 1);
    } else if (request.at_most == 0 || size <= request.at_most) {
      request.at_most = size - 1;
    }
  }
}

std::optional<TracedModel> traced_if_unknown(const Json& said,
                                             const std::string& file,
                                             const ModelUse& use,
                                             std::ostream& log,
                                             const Translation& words) {
  const std::optional<UnknownModel> model = unknown_model_of(said, file, use);
  if (!model) return std::nullopt;
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  static const std::string python = python_to_ask();
  static const std::optional<std::string> releases = releases_of(python);
  if (!releases) return std::nullopt;
  constexpr std::int64_t kSeconds = 60;
  rehearsal::TraceRequest request;
  request.python = python;
  request.seconds = kSeconds;
  request.attention = use.attention;
  request.images = use.images;
  if (use.images.count > 0) request.batch = use.micro_batch_size;
  stay_between_windows(request, model->config, use.sequence_length);
  const fs::path place = place_of(*model, *releases, request);
  std::error_code none;
  if (fs::is_regular_file(place, none)) {
    const JsonOptions large{.max_values = kMostRecordedValues};
    return TracedModel{parse_json(read_text_file(place.string()), place.string(), large).root,
                       place.string()};
  }
  log << words.text(
             use.images.count > 0
                 ? phrase("{} with images: asking its class in {}, once",
                          printable(model->name),
                          *releases)
                 : phrase(
                       "{} is of a class that zeroplan does not know: asking the class in {}, once",
                       printable(model->name),
                       *releases))
      << "\n";
  log.flush();
  try {
    const Progress progress(log, words.text("still asking the class"));
    Json document = traced(*model, request);
    fs::create_directories(place.parent_path(), none);
    replace_file(place.string(), document.dump());
    return TracedModel{std::move(document), place.string()};
  } catch (const InputError& error) {
    log << words.text(error.text()) << "\n";
    return std::nullopt;
  }
}

Scenario with_known_model(Scenario scenario, std::ostream& log, const Translation& words) {
  auto traced = traced_model_of(scenario, log, words);
  if (traced) scenario.set(ScenarioKey::model, std::move(traced->document), {traced->place, ""});
  return scenario;
}

void trace_unknown_model(Arguments& arguments, std::ostream& log, const Translation& words) {
  auto traced = traced_model_of(scenario_of(arguments), log, words);
  if (!traced) return;
  arguments.flags.set(ScenarioKey::model, std::move(traced->document), {traced->place, ""});
}

}  // namespace zeroplan::cli
