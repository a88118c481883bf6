#include "rehearsal/trace.hpp"

#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/diagnostic.hpp"
#include "rehearsal/embedded.hpp"
#include "rehearsal/emulation.hpp"
#include "rehearsal/process.hpp"
#include "rehearsal/rehearse.hpp"
#include "rehearsal/torch_install.hpp"

namespace zeroplan::rehearsal {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTraceCommand = "command line";
constexpr std::string_view kTracer = "rehearsal/python/zeroplan_trace/";

void write_traced(const fs::path& path, std::string_view text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.flush();
  if (!file)
    throw InputError({path.string(), "", "a file that can be written", "one that cannot", ""});
}

Json numbers(const std::vector<std::int64_t>& values) {
  Json list = Json::array();
  for (const std::int64_t value : values) list.push_back(value);
  return list;
}

Json question(const TraceRequest& request, const fs::path& folder) {
  Json said = Json::object({{"output", (folder / "graph.json").string()},
                            {"errors", (folder / "errors.json").string()},
                            {"trust_remote_code", request.trust_remote_code}});
  const auto add = [&said](std::string_view key, const std::string& text) {
    if (!text.empty()) said[key] = text;
  };
  add(request.family ? "family" : "model", request.model);
  add("beside", request.beside);
  add("code", request.code);
  add("class", request.class_name);
  add("attention", request.attention);
  if (request.longer_than > 0) said["longer_than"] = request.longer_than;
  if (request.at_most > 0) said["at_most"] = request.at_most;
  if (request.images.count > 0) {
    said["images"] = request.images.count;
    said["image_size"] = numbers({request.images.width, request.images.height});
    said["batch"] = request.batch;
  }
  if (request.seconds) said["seconds"] = *request.seconds;
  if (!request.batches.empty()) said["batches"] = numbers(request.batches);
  if (!request.sequences.empty()) said["sequences"] = numbers(request.sequences);
  Json frozen = Json::array();
  for (const std::string& name : request.frozen) frozen.push_back(name);
  said["freeze"] = frozen;
  return said;
}

std::string text_in(const Json& object, std::string_view key) {
  const Json* found = object.find(key);
  return found != nullptr && found->is_string() ? found->as_string() : "";
}

// What the tracer says is wrong; nothing where it ended otherwise.
struct Said {
  std::string kind, expected, got, hint;
};
std::optional<Said> said_in(const fs::path& errors) {
  std::error_code ignored;
  if (!fs::exists(errors, ignored)) return std::nullopt;
  const Json root = parse_json(read_text_file(errors.string()), errors.string()).root;
  return Said{text_in(root, "kind"),
              text_in(root, "expected"),
              printable(text_in(root, "got")),
              printable(text_in(root, "hint"))};
}

// The last line that says something: of a Python that died.
std::string last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  const std::size_t line = text.rfind('\n');
  return std::string(line == std::string_view::npos ? text : text.substr(line + 1));
}

Output run(const TraceRequest& request,
           const fs::path& folder,
           const std::vector<std::string>& variables) {
  // Its own modules alone: PYTHONPATH of a rehearsal would watch this program. No GPU is asked, and
  // sets of a class have one order: the same class is the same document.
  std::vector<std::string> words = {
      "/usr/bin/env", "PYTHONDONTWRITEBYTECODE=1", "PYTHONHASHSEED=0", "CUDA_VISIBLE_DEVICES="};
  words.insert(words.end(), variables.begin(), variables.end());
  const char* const own = std::getenv("PYTHONPATH");
  words.push_back("PYTHONPATH=" + (folder / "python").string() +
                  (own == nullptr ? "" : ":" + std::string(own)));
  words.insert(words.end(),
               {request.python, "-m", "zeroplan_trace", (folder / "request.json").string()});
  return run_and_read(words);
}

// A torch for CUDA without CUDA's libraries cannot be imported.
bool lacks_libraries(const std::optional<Said>& said) {
  return said && said->kind == "import" && said->got.find(".so") != std::string::npos;
}

}  // namespace

std::string trace(const TraceRequest& request) {
  const ScratchFolder scratch;
  const fs::path folder = scratch.path();
  for (const EmbeddedFile& file : rehearsal_files()) {
    if (!file.path.starts_with(kTracer)) continue;
    write_traced(folder / "python" / "zeroplan_trace" / file.path.substr(kTracer.size()),
                 file.text);
  }
  write_traced(folder / "request.json", question(request, folder).dump());
  Output output = run(request, folder, {});
  if (output.exit != 0 && lacks_libraries(said_in(folder / "errors.json"))) {
    const Emulation emulation = emulation_for(find_torch(request.python));
    std::error_code ignored;
    fs::remove(folder / "errors.json", ignored);
    output = run(request, folder, {"LD_PRELOAD=" + emulation.preload, "ZEROPLAN_GPU_COUNT=0"});
  }
  if (output.exit == 0) return read_text_file((folder / "graph.json").string());
  const std::optional<Said> said = said_in(folder / "errors.json");
  if (said) throw InputError({kTraceCommand, "MODEL", said->expected, said->got, said->hint});
  throw InputError({kTraceCommand,
                    "--python",
                    "a Python that ends with a document",
                    phrase("{}, which ended with {}: {}",
                           request.python,
                           output.exit,
                           in_quotes(last_line(output.text))),
                    ""});
}

}  // namespace zeroplan::rehearsal
