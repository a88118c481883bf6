#include "rehearsal/rehearse.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/diagnostic.hpp"
#include "rehearsal/cache.hpp"
#include "rehearsal/process.hpp"

namespace zeroplan::rehearsal {
namespace {

namespace fs = std::filesystem;

std::string with_own_first(const std::string& first, const char* variable) {
  const char* const own = std::getenv(variable);
  return own == nullptr || *own == 0 ? first : first + ":" + own;
}

std::map<std::string, std::string> variables_of(const Request& request,
                                                const TorchInstall& torch,
                                                const Emulation& emulation,
                                                const std::string& folder) {
  const Gpu& gpu = request.gpu.gpu;
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  std::map<std::string, std::string> all = {
      {"LD_PRELOAD", with_own_first(emulation.preload, "LD_PRELOAD")},
      {"PYTHONPATH", with_own_first(emulation.python, "PYTHONPATH")},
      {"PYTHONDONTWRITEBYTECODE", "1"},
      {"ZEROPLAN_GPU_MEMORY", number(gpu.memory.value.count())},
      {"ZEROPLAN_GPU_CONTEXT", number(request.gpu.context.count())},
      {"ZEROPLAN_GPU_CAPABILITY",
       number(gpu.compute_capability.major) + "." + number(gpu.compute_capability.minor)},
      {"ZEROPLAN_GPU_MULTIPROCESSORS", number(gpu.sm_count.value)},
      {"ZEROPLAN_GPU_L2", number(gpu.l2.value.count())},
      {"ZEROPLAN_GPU_NAME", gpu.product_name},
      {"ZEROPLAN_GPU_COUNT", number(request.gpu.gpus_a_node)},
      {"ZEROPLAN_GPU_EVENTS", std::string(name(kEventsNames, request.events))},
      {"ZEROPLAN_GPU_CUDA", number(torch.cuda_number)},
      {"ZEROPLAN_GPU_CUDNN", number(torch.cudnn_number)},
      {"ZEROPLAN_GPU_NCCL", number(torch.nccl_number)},
      {"ZEROPLAN_REHEARSAL", folder},
      {"ZEROPLAN_REHEARSAL_STEPS", number(request.steps)},
      {"ZEROPLAN_REHEARSAL_RANKS", number(is_launcher(request.command) ? 0 : request.ranks)},
      {"ZEROPLAN_REHEARSAL_RANK", number(request.rank)},
  };
  if (request.events == Events::real) {
    all["ZEROPLAN_GPU_COLLECTIVES"] = folder + "/collectives";
  } else {
    // Triton links what it launches kernels with; and what it and torch.compile keep stays apart
    // from what was chosen by the clock of a real GPU.
    all["TRITON_LIBCUDA_PATH"] = emulation.libraries;
    all["TRITON_CACHE_DIR"] = cache_folder() + "/triton";
    all["TORCHINDUCTOR_CACHE_DIR"] = cache_folder() + "/inductor";
  }
  if (!request.work_file.empty()) {
    all["ZEROPLAN_GPU_WORK"] = fs::absolute(request.work_file).string();
  }
  if (request.keep_work != Request::KeepWork::no) all["ZEROPLAN_GPU_WORK"] = folder + "/work-%p";
  if (request.keep_work == Request::KeepWork::with_operations) {
    all["ZEROPLAN_REHEARSAL_OPERATIONS"] = "1";
  }
  if (!request.answers_file.empty()) all["ZEROPLAN_REHEARSAL_ANSWERS"] = request.answers_file;
  if (request.gives_answers) all["ZEROPLAN_REHEARSAL_GIVE_ANSWERS"] = "1";
  if (!request.snapshot_file.empty()) {
    all["ZEROPLAN_REHEARSAL_SNAPSHOT"] = fs::absolute(request.snapshot_file).string();
  }
  return all;
}

// --- reading

std::int64_t integer(const Json& line, std::string_view key) {
  const Json* found = line.find(key);
  return found != nullptr && found->is_integer() ? found->as_integer() : 0;
}
Bytes bytes(const Json& line, std::string_view key) { return Bytes::of(integer(line, key)); }
std::string text(const Json& line, std::string_view key) {
  const Json* found = line.find(key);
  return found != nullptr && found->is_string() ? found->as_string() : "";
}
bool truth(const Json& line, std::string_view key) {
  const Json* found = line.find(key);
  return found != nullptr && found->is_boolean() && found->as_boolean();
}

Frame frame_of(const Json& said) {
  return {text(said, "file"), integer(said, "line"), text(said, "function")};
}

std::vector<Frame> frames_of(const Json& line) {
  std::vector<Frame> frames;
  if (const Json* list = line.find("frames")) {
    for (const Json& frame : list->items()) frames.push_back(frame_of(frame));
  }
  return frames;
}

std::vector<LivingRow> living_of(const Json& line) {
  std::vector<LivingRow> rows;
  if (const Json* list = line.find("rows")) {
    for (const Json& row : list->items()) {
      rows.push_back({text(row, "kind"),
                      text(row, "module"),
                      frame_of(row),
                      bytes(row, "bytes"),
                      integer(row, "tensors")});
    }
  }
  return rows;
}

PhaseRow row_of(const Json& line) {
  PhaseRow row;
  row.phase = text(line, "phase");
  row.step = integer(line, "step");
  row.micro_batch = integer(line, "micro_batch");
  row.allocated = bytes(line, "allocated");
  row.peak_allocated = bytes(line, "peak_allocated");
  row.reserved = bytes(line, "reserved");
  row.peak_reserved = bytes(line, "peak_reserved");
  row.host = bytes(line, "host");
  row.peak_host = bytes(line, "peak_host");
  row.pinned = bytes(line, "pinned");
  row.peak_pinned = bytes(line, "peak_pinned");
  row.cuda_mallocs = integer(line, "cuda_mallocs");
  row.retries = integer(line, "retries");
  if (const Json* clock = line.find("clock"); clock != nullptr && clock->is_number()) {
    row.clock = clock->as_number();
  }
  return row;
}

ProcessEnd end_of(const Json& line) {
  ProcessEnd end;
  end.stopped = truth(line, "stopped");
  end.steps = integer(line, "steps");
  end.rank = integer(line, "rank");
  end.ranks = integer(line, "ranks");
  end.peak_allocated = bytes(line, "peak_allocated");
  end.peak_reserved = bytes(line, "peak_reserved");
  for (const char* name :
       {"kernels", "products", "collectives", "copies", "cuda_mallocs", "refused"}) {
    end.counts[name] = integer(line, name);
  }
  if (const Json* names = line.find("unknown_functions")) {
    for (const Json& name : names->items()) {
      if (name.is_string()) end.unknown_functions.push_back(name.as_string());
    }
  }
  return end;
}

void read_line(const Json& line, ProcessRecord& process) {
  const std::string kind = text(line, "kind");
  if (kind == "phase") {
    process.rows.push_back(row_of(line));
  } else if (kind == "fact") {
    if (const Json* value = line.find("value")) process.facts[text(line, "name")] = *value;
  } else if (kind == "out_of_memory") {
    process.out_of_memory = OutOfMemory{bytes(line, "requested"),
                                        bytes(line, "allocated"),
                                        bytes(line, "reserved"),
                                        bytes(line, "free"),
                                        text(line, "phase"),
                                        integer(line, "step"),
                                        frames_of(line)};
  } else if (kind == "living") {
    process.living = living_of(line);
  } else if (kind == "unknown_value") {
    process.unknown_values.push_back({text(line, "what"), frame_of(line), text(line, "source")});
  } else if (kind == "error") {
    process.error = ProgramError{
        text(line, "type"), text(line, "message"), truth(line, "out_of_memory"), frames_of(line)};
  } else if (kind == "end") {
    process.end = end_of(line);
  }
}

bool used_the_gpu(const ProcessRecord& process) {
  return !process.rows.empty() || process.out_of_memory.has_value();
}

constexpr std::int64_t kLargestFile = std::int64_t{1} << 32;

// "process-17.jsonl" wrote "work-17".
RecordedWork work_beside(const fs::path& process) {
  const std::string number = process.stem().string().substr(std::string_view("process-").size());
  const fs::path path = process.parent_path() / ("work-" + number);
  if (!fs::exists(path)) return {};
  return read_work(read_text_file(path.string(), kLargestFile), path.string());
}

void read_records(const std::string& folder, RunRecord& record) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".jsonl") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    ProcessRecord process =
        read_process_record(read_text_file(path.string(), kLargestFile), path.string());
    process.work = work_beside(path);
    if (process.error && !record.error) record.error = process.error;
    if (used_the_gpu(process)) record.processes.push_back(std::move(process));
  }
  const auto rank = [](const ProcessRecord& process) {
    return process.end ? process.end->rank : std::int64_t{0};
  };
  std::stable_sort(
      record.processes.begin(),
      record.processes.end(),
      [&](const ProcessRecord& a, const ProcessRecord& b) { return rank(a) < rank(b); });
}

}  // namespace

bool is_launcher(const std::vector<std::string>& command) {
  constexpr std::array kPrograms = {
      "torchrun", "deepspeed", "ds", "accelerate", "accelerate-launch"};
  constexpr std::array kModules = {"torch.distributed.run",
                                   "torch.distributed.launch",
                                   "deepspeed.launcher.runner",
                                   "accelerate.commands.launch"};
  const auto among = [](const auto& names, const std::string& word) {
    return std::find(names.begin(), names.end(), word) != names.end();
  };
  if (among(kPrograms, fs::path(command.front()).filename().string())) return true;
  // What stands behind the script's name is the script's own.
  for (std::size_t i = 1; i + 1 < command.size(); ++i) {
    if (command[i] == "-m") return among(kModules, command[i + 1]);
    if (!command[i].starts_with('-')) break;
  }
  return false;
}

std::int64_t ProcessRecord::skipped_steps() const {
  const auto found = facts.find("skipped_steps");
  return found != facts.end() && found->second.is_integer() ? found->second.as_integer() : 0;
}

ProcessRecord read_process_record(const std::string& lines, const std::string& file) {
  ProcessRecord process;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    if (!line.ends_with('}')) continue;  // the process was killed while it wrote
    read_line(parse_json(line, file).root, process);
  }
  return process;
}

ScratchFolder::ScratchFolder() {
  const std::string folder = cache_folder();
  path_ = folder + "/run.XXXXXX";
  if (mkdtemp(path_.data()) != nullptr) return;
  throw InputError({folder,
                    "",
                    "a folder that can be written to",
                    "one that cannot",
                    "set XDG_CACHE_HOME to a folder for what zeroplan keeps"});
}

ScratchFolder::~ScratchFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

RunRecord run(const Request& request, const TorchInstall& torch, const Emulation& emulation) {
  const ScratchFolder scratch;
  if (request.events == Events::real) {
    std::ofstream(scratch.path() + "/collectives") << request.collective_times;
  }
  const Ended ended =
      run_program(request.command, variables_of(request, torch, emulation, scratch.path()));
  RunRecord record;
  record.events = request.events;
  record.rank = request.rank;
  record.exit = ended.exit;
  record.signal = ended.signal;
  read_records(scratch.path(), record);
  return record;
}

Bytes peak_allocated(const ProcessRecord& process) {
  Bytes peak = process.end ? process.end->peak_allocated : Bytes::zero();
  for (const PhaseRow& row : process.rows) peak = std::max(peak, row.peak_allocated);
  return peak;
}

Bytes peak_reserved(const ProcessRecord& process) {
  Bytes peak = process.end ? process.end->peak_reserved : Bytes::zero();
  for (const PhaseRow& row : process.rows) peak = std::max(peak, row.peak_reserved);
  return peak;
}

std::vector<double> step_seconds(const ProcessRecord& process) {
  constexpr std::size_t kWarmUp = 2;
  std::vector<double> ends;
  std::int64_t step = -1;
  for (const PhaseRow& row : process.rows) {
    if (row.phase == "optimizer" && row.step != step) ends.push_back(row.clock);
    if (row.phase == "optimizer") step = row.step;
  }
  std::vector<double> seconds;
  for (std::size_t i = kWarmUp; i < ends.size(); ++i) seconds.push_back(ends[i] - ends[i - 1]);
  return seconds;
}

std::optional<Bytes> static_allocated(const ProcessRecord& process) {
  // The ends of a step's update and what follows it until the next forward pass; the latest of them
  // that is whole.
  std::optional<Bytes> least;
  bool between = false;
  for (const PhaseRow& row : process.rows) {
    if (row.phase == "optimizer") least = row.allocated;
    between = row.phase == "optimizer" || (between && row.phase == "idle");
    if (between && row.phase == "idle") least = std::min(*least, row.allocated);
  }
  return least;
}

}  // namespace zeroplan::rehearsal
