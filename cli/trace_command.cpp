// zeroplan trace: the forward pass of any PyTorch model as a document that stands for it.
#include <algorithm>
#include <array>
#include <filesystem>
#include <ostream>
#include <set>

#include "base/diagnostic.hpp"
#include "cli/commands.hpp"
#include "cli/language/translation.hpp"
#include "cli/table.hpp"
#include "cli/unknown_model.hpp"
#include "cli/write_file.hpp"
#include "model/families/hf_config.hpp"
#include "model/graph/traced_graph.hpp"
#include "model/implementations/traced_operations.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "rehearsal/process.hpp"
#include "rehearsal/rehearse.hpp"
#include "rehearsal/torch_install.hpp"
#include "rehearsal/trace.hpp"

namespace zeroplan::cli {
namespace {

constexpr std::size_t kSizes = 3;

// "2,3,5": three that grow, because two determine a line and the third must lie on it.
std::vector<std::int64_t> sizes_of(const Arguments& arguments, const std::string& key) {
  std::vector<std::int64_t> sizes;
  const auto said = arguments.text(key);
  if (!said) return sizes;
  constexpr std::size_t kMostDigits = 7;
  std::string digits;
  bool good = true;
  for (const char c : *said + ",") {
    if (c >= '0' && c <= '9') {
      digits += c;
      continue;
    }
    good = good && c == ',' && !digits.empty() && digits.size() <= kMostDigits;
    if (good) sizes.push_back(std::stoll(digits));
    digits.clear();
  }
  good =
      good && sizes.size() == kSizes && sizes[0] > 0 && sizes[0] < sizes[1] && sizes[1] < sizes[2];
  if (!good)
    throw InputError(
        {kCommandLine, "--" + key, "three numbers that grow, such as 2,3,5", in_quotes(*said), ""});
  return sizes;
}

std::string python_of(const Arguments& arguments) {
  const std::string said = arguments.text("python").value_or("python3");
  const std::string found = rehearsal::find_program(said);
  if (!found.empty()) return found;
  throw InputError({kCommandLine,
                    "--python",
                    "a Python that can be run",
                    in_quotes(said),
                    "the one that has the model's packages"});
}

// A preset or a size becomes the config behind it; everything else is for transformers to find.
std::string model_of(const Arguments& arguments, const rehearsal::ScratchFolder& scratch) {
  const std::string said = arguments.positionals.empty() ? "" : arguments.positionals.front();
  if (said.empty() || !is_model_name(said)) return said;
  const std::string path = scratch.path() + "/config.json";
  write_file(path, config_of_name(said).dump());
  return path;
}

// What --freeze names, said once or several times: an option that is repeated holds a line for
// each.
std::vector<std::string> names_of(const Arguments& arguments) {
  std::vector<std::string> names;
  std::string name;
  for (const char c : arguments.text("freeze").value_or("") + "\n") {
    if (c != '\n') {
      name += c;
      continue;
    }
    if (!name.empty()) names.push_back(name);
    name.clear();
  }
  return names;
}

// The scenario has those options that are its keys in other commands.
Scenario question_of(const Arguments& arguments) {
  Scenario question;
  for (const ScenarioKey key :
       {ScenarioKey::images, ScenarioKey::image_size, ScenarioKey::micro_batch_size}) {
    const ScenarioKeyInfo& row = info(key);
    if (const auto said = arguments.text(std::string(row.flag.substr(2)))) {
      question.set(key, parse_flag(row, *said), {kCommandLine, std::string(row.flag)});
    }
  }
  return question;
}

rehearsal::TraceRequest request_of(const Arguments& arguments,
                                   const rehearsal::ScratchFolder& scratch) {
  rehearsal::TraceRequest request;
  request.code = arguments.text("code").value_or("");
  request.family = arguments.has("family");
  const bool is_type = request.family && !arguments.positionals.empty();
  request.model = is_type ? arguments.positionals.front() : model_of(arguments, scratch);
  if (request.code.empty() == request.model.empty()) {
    throw InputError({kCommandLine,
                      "MODEL",
                      "a model, or --code FILE.py:FUNCTION",
                      request.code.empty() ? "nothing" : "both",
                      "a config.json, a folder with one, or a name that transformers knows"});
  }
  if (request.family && request.model.empty()) {
    throw InputError(
        {kCommandLine, "--family", "a type of transformers as MODEL", "--code", "olmo3"});
  }
  request.python = python_of(arguments);
  request.class_name = arguments.text("class").value_or("");
  request.attention = arguments.text("attention").value_or("");
  if (request.attention == "flash") request.attention = "flash_attention_2";
  constexpr std::array kAttentions{"", "eager", "sdpa", "flash_attention_2"};
  if (std::find(kAttentions.begin(), kAttentions.end(), request.attention) == kAttentions.end()) {
    throw InputError(
        {kCommandLine, "--attention", "eager, sdpa or flash", in_quotes(request.attention), ""});
  }
  request.frozen = names_of(arguments);
  const ModelUse use = model_use_of(question_of(arguments), ExpertLayout::modules);
  request.images = use.images;
  request.batch = use.micro_batch_size;
  request.batches = sizes_of(arguments, "batches");
  request.sequences = sizes_of(arguments, "sequences");
  const auto config =
      request.model.empty() ? std::nullopt : config_of_path(request.model, kCommandLine);
  if (config) stay_between_windows(request, *config, kUsualSequence);
  request.trust_remote_code = arguments.has("trust-remote-code");
  return request;
}

// Operations whose backward pass follows the general rule, by how many there are of them.
std::vector<std::string> general_operations(const TracedGraph& graph) {
  std::set<std::string> names;
  for (const TracedBlock& block : graph.blocks) {
    for (const TracedEvent& event : block.events) {
      const bool trains = !event.saves.empty();
      if (event.kind == TracedEvent::Kind::operation && trains && !has_formula(event.name))
        names.insert(event.name);
    }
  }
  return {names.begin(), names.end()};
}

std::string joined(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + printable(name);
  return list;
}

struct Summary {
  const Model& model;
  const TracedGraph& graph;
  std::string file;
};

void print(const Summary& summary, std::ostream& out, const Translation& words) {
  const ParameterCounts counts = count_parameters(summary.model);
  const auto line = [&](const Phrase& sentence) { out << words.text(sentence) << "\n"; };
  out << printable(summary.model.architecture) << "\n";
  line(phrase("parameters  {}", count_text(counts.total.count())));
  if (counts.trainable < counts.total)
    line(phrase("trainable   {}", count_text(counts.trainable.count())));
  line(phrase(
      "blocks      {}, of {} kinds", summary.graph.calls.size(), summary.graph.blocks.size()));
  const std::vector<std::string> general = general_operations(summary.graph);
  if (!general.empty())
    line(phrase("operations whose gradient is taken to be as large as their input: {}",
                joined(general)));
  line(phrase("wrote {}; it stands for the model: zeroplan fit {} 8xH100",
              printable(summary.file),
              printable(summary.file)));
}

Json to_json(const Summary& summary) {
  const ParameterCounts counts = count_parameters(summary.model);
  Json general = Json::array();
  for (const std::string& name : general_operations(summary.graph)) general.push_back(name);
  return Json::object(
      {{"schema", "zeroplan.trace/1"},
       {"file", summary.file},
       {"architecture", summary.model.architecture},
       {"parameters",
        Json::object({{"total", counts.total.count()}, {"trainable", counts.trainable.count()}})},
       {"blocks", static_cast<std::int64_t>(summary.graph.blocks.size())},
       {"calls", static_cast<std::int64_t>(summary.graph.calls.size())},
       {"general_operations", general}});
}

// Whether the file is what --family wrote of that model_type before.
bool is_recording(const std::string& path, const std::string& type) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  try {
    const Json known =
        parse_json(read_text_file(path), path, {.max_values = kMostRecordedValues}).root;
    const Json *schema = known.find("schema"), *own = known.find("model_type");
    return schema != nullptr && *schema == Json("zeroplan.family/1") && own != nullptr &&
           *own == Json(type);
  } catch (const InputError&) {
    return false;
  }
}

}  // namespace

int run_trace(const Arguments& arguments, Streams streams) {
  const auto output = arguments.text("output");
  if (!output)
    throw InputError(
        {kCommandLine, "--output", "a file for the document", "nothing", "-o graph.json"});
  require_writable(*output);
  const rehearsal::ScratchFolder scratch;
  rehearsal::TraceRequest request = request_of(arguments, scratch);
  if (request.family && is_recording(*output, request.model)) request.beside = *output;
  const std::string text = rehearsal::trace(request);
  if (request.family) {
    write_file(*output, text);
    const Json family = parse_json(text, *output, {.max_values = kMostRecordedValues}).root;
    const Translation words(arguments.language);
    streams.out << words.text(phrase("wrote {}: {} documents of {} blocks",
                                     printable(*output),
                                     family.find("documents")->items().size(),
                                     family.find("blocks")->items().size()))
                << "\n";
    return kDone;
  }
  const Model model = read_model(parse_json(text, *output).root, *output);
  write_file(*output, text);
  const Summary summary{model, *traced_graph_of(model), *output};
  if (arguments.json) {
    streams.out << to_json(summary).dump(2) << "\n";
  } else {
    print(summary, streams.out, Translation(arguments.language));
  }
  return kDone;
}

}  // namespace zeroplan::cli
