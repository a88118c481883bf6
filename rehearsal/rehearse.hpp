// A training program run on a GPU that is not there, and what it did to that GPU's memory.
//
// The program is the user's own, with its own Python and PyTorch; the emulated libraries stand
// before CUDA's (emulation.hpp), and rehearsal/python says which phase is running. Units: bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/enum_names.hpp"
#include "base/json.hpp"
#include "base/units.hpp"
#include "model/hardware/hardware.hpp"
#include "rehearsal/emulation.hpp"
#include "rehearsal/recorded_work.hpp"

namespace zeroplan::rehearsal {

// When enqueued work ends, which nobody knows without a clock: the two ends of what can be. Or as
// it really ends, on a GPU that is there, where the other ranks alone are emulated.
enum class Events { done, pending, real };
inline constexpr EnumNames<Events, 3> kEventsNames{{"done", "pending", "real"}};

struct EmulatedGpu {
  Gpu gpu;
  Bytes context;  // gone before the first allocation
  std::int64_t gpus_a_node = 1;
};

struct Request {
  std::vector<std::string> command;
  EmulatedGpu gpu;
  std::int64_t ranks = 1;
  std::int64_t rank = 0;
  std::int64_t steps = 4;  // 0: until the program ends
  Events events = Events::done;
  // How long each collective takes, for Events::real (collective_times of timed_step.hpp).
  std::string collective_times;
  std::string work_file;  // what is put on the streams; empty: not written
  std::string
      snapshot_file;  // torch's memory snapshot, for pytorch.org/memory_viz; empty: not written
  // What is put on the streams is kept in each process's record; with torch's operations around it,
  // which changes the host's time.
  enum class KeepWork { no, yes, with_operations };
  KeepWork keep_work = KeepWork::no;
  // What the program asks its tensors is kept in this file, or given again from it; then no values
  // are computed, which takes the host's time, too. Empty: neither.
  std::string answers_file;
  bool gives_answers = false;
};

// Does the command start a process for each rank: torchrun, deepspeed, accelerate launch, and as
// modules of python? Else its one process is one of the ranks.
bool is_launcher(const std::vector<std::string>& command);

// One end of a phase. Peaks are since the end of the phase before.
struct PhaseRow {
  std::string phase;
  std::int64_t step = 0;
  std::int64_t micro_batch = 0;
  Bytes allocated, peak_allocated, reserved, peak_reserved;
  Bytes host, peak_host, pinned, peak_pinned;  // touched by the process; locked for copies
  std::int64_t cuda_mallocs = 0;
  double clock = 0;          // seconds since an unknown moment, when the phase ended for the host
  std::int64_t retries = 0;  // the allocator gave back all it had cached, and tried again
};

struct Frame {
  std::string file;
  std::int64_t line = 0;
  std::string function;
};

struct OutOfMemory {
  Bytes requested, allocated, reserved, free;
  std::string phase;
  std::int64_t step = 0;
  std::vector<Frame> frames;  // the innermost last
};

// What lived on the GPU when memory ran out, summed by what it is and where it was asked for.
struct LivingRow {
  std::string kind;    // parameters, gradients, optimizer states, buffers, backward, other
  std::string module;  // the class around the line; empty: none
  Frame frame;         // of "other" alone
  Bytes bytes;
  std::int64_t tensors = 0;
};

// A line of the program that branches on a value that nobody computed.
struct UnknownValue {
  std::string what;  // truth, comparison, nonzero, mask, ...
  Frame frame;
  std::string source;  // the line's text
};

struct ProgramError {
  std::string type;
  std::string message;
  bool out_of_memory = false;
  std::vector<Frame> frames;
};

struct ProcessEnd {
  bool stopped = false;  // after the steps that were asked for
  std::int64_t steps = 0;
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  Bytes peak_allocated, peak_reserved;
  std::map<std::string, std::int64_t>
      counts;  // kernels, products, collectives, copies, cuda_mallocs
  std::vector<std::string> unknown_functions;
};

// One process that used the GPU.
struct ProcessRecord {
  std::vector<PhaseRow> rows;
  std::map<std::string, Json> facts;
  std::optional<OutOfMemory> out_of_memory;  // the last
  std::vector<LivingRow> living;             // at that moment, the largest first
  std::vector<UnknownValue> unknown_values;
  std::optional<ProgramError> error;
  std::optional<ProcessEnd> end;
  RecordedWork work;  // empty where it was not kept

  std::int64_t skipped_steps() const;  // by a loss scaler
};

struct RunRecord {
  Events events = Events::done;
  std::int64_t rank = 0;
  int exit = 127;
  int signal = 0;                        // that asked this program to end; 0: none
  std::vector<ProcessRecord> processes;  // by rank; those that never used the GPU are left out
  std::optional<ProgramError> error;     // of any process, the first
};

// A folder beside the kept libraries that is gone with it. Throws InputError where none can be
// made.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Throws InputError where what is recorded cannot be kept.
RunRecord run(const Request& request, const TorchInstall& torch, const Emulation& emulation);

// The lines that one process wrote; lines that are cut off are left out.
ProcessRecord read_process_record(const std::string& text, const std::string& file);

// --- what is said of a process
Bytes peak_allocated(const ProcessRecord& process);
Bytes peak_reserved(const ProcessRecord& process);
// Seconds of each step on a real GPU, between ends of updates for the host, which runs ahead of the
// GPU by as much in each; the first two, which still warm up, are left out. Empty where so many
// were not run.
std::vector<double> step_seconds(const ProcessRecord& process);
// Held between steps: the least at any end of the last whole step. Absent before the first is done.
std::optional<Bytes> static_allocated(const ProcessRecord& process);

}  // namespace zeroplan::rehearsal
