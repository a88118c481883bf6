// What one rank's process does, as a list of instructions in the order in which its dispatch thread
// issues them: launches, allocations, events, waits. The event loop plays it and knows no engine;
// engines write it and know no time.
//
// Times stand in the table of tasks, so that moving a coefficient re-times a program without
// writing it again. Instructions own nothing.
//
// CUDA's rules that the instructions follow: work of one stream runs in order; a recorded event
// stands for what was queued on its stream so far; stream_wait holds back what is queued later.
// Source: CUDA programming guide, asynchronous concurrent execution.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.hpp"
#include "base/units.hpp"
#include "model/cost/device_memory.hpp"
#include "model/graph/graph.hpp"
#include "model/memory_category.hpp"
#include "simulator/stream_clock.hpp"

namespace zeroplan::simulator {

// What a task is, for traces and for naming what a stream waits for.
enum class TaskKind : std::uint8_t {
  kernel,
  collective,
  copy_to_device,
  copy_to_host,
  cpu_optimizer,
  host_memory,  // copies and casts on the host
  nvme,
};
inline constexpr EnumNames<TaskKind, 7> kTaskKindNames{{"kernel",
                                                        "collective",
                                                        "copy to device",
                                                        "copy to host",
                                                        "CPU optimizer",
                                                        "host memory",
                                                        "NVMe"}};
inline constexpr std::size_t kTaskKindCount = 7;

// What tasks share while they run at the same time.
enum class SharedResource : std::uint8_t {
  multiprocessors,
  gpu_memory,
  gpu_link,  // NVLink, or PCIe between GPUs
  pcie_to_device,
  pcie_to_host,
  network,
  host_memory,
  cpu_cores,
  nvme_read,
  nvme_write,
};
inline constexpr std::size_t kSharedResourceCount = 10;

// The share of each resource that a task uses when it runs alone, 0 to 1. Where the shares of the
// running tasks exceed 1, all that use the resource slow down by the excess.
using Demands = std::array<float, kSharedResourceCount>;

// What a task stands for of what a real program puts on the GPU: counted beside that
// (work_count.hpp), it costs no time.
struct TaskWork {
  std::int64_t times = 1;    // in a row: the task is all of them
  std::int32_t kernels = 0;  // without the product and fused attention
  bool attention = false;
  bool pinned = false;  // of a copy
  std::optional<MatrixProduct> product;
  Bytes bytes;             // of a copy; of a collective the full tensor
  Elements parameters;     // that the CPU's optimizer updates
  std::int64_t ranks = 0;  // of a collective
};

struct Task {
  std::string name;  // for traces
  TaskKind kind = TaskKind::kernel;
  Seconds dispatch;  // of the host thread, to issue it
  Seconds duration;  // alone, on the stream; zero: the host alone has work (a view, a hook)
  Demands demands{};
  TaskWork work;
};

using TaskIndex = std::int32_t;
using SlotIndex = std::int32_t;   // of a tensor's block
using EventIndex = std::int32_t;  // of a CUDA event
using QueueIndex = std::int32_t;  // of events the host limits

enum class Opcode : std::uint8_t {
  issue,             // index: task, on `stream`; label
  allocate,          // index: slot; bytes; category; for use on `stream`
  release,           // index: slot; nothing where it holds none
  move,              // index: slot; what it holds goes to slot `bytes`, which holds none
  use_on_stream,     // index: slot; it is used on `stream` too (record_stream)
  empty_cache,       // torch.cuda.empty_cache()
  record_event,      // index: event <- what is queued on `stream`
  stream_wait,       // index: event; `stream` waits for it
  wait_stream,       // index: another stream; `stream` waits for what is queued on it
  host_wait,         // index: event; the host blocks
  host_wait_stream,  // the host blocks until `stream` is idle
  host_wait_device,  // the host blocks until every stream is idle
  queue_event,       // index: queue; an event on `stream` is appended
  throttle,          // index: queue; finished events leave it, and while more than `bytes` remain
                     // the host blocks on the oldest
  mark,              // index: the Phase that begins when `stream` gets here
};

// The purpose of an allocation, said by the writer that asks for it.
enum class Purpose : std::uint8_t {
  of_slot,             // what the range of its slot is for
  building,            // weights while the model is built and moved to the GPU
  partitioning,        // copies while DeepSpeed flattens and partitions
  registered_buffers,  // of modules
  kept_outputs,        // of earlier micro-batches, by a pipeline's last stage
  kernel_workspace,
  cast_weight,        // autocast's copy
  weights_from_host,  // this rank's partition, copied from the host for a gather
  // --- DeepSpeed
  gathered_together,    // weights of several parameters
  flat_gradients,       // for a collective
  step_flat_gradients,  // for the optimizer's step
  step_gradients,       // in fp32, for the optimizer's step
  norm_copy,            // what the norm of the gradients is taken of
  overflow_scan,        // for inf and nan
  gradient_to_host,     // in fp32
  gradient_from_host,   // of this rank's partition, to be added to
  master_from_host,     // to be cast on the GPU
  optimizer_temporary,  // of PyTorch's optimizers that are not fused, too
  // --- FSDP
  whole_unit,       // weights before they are sharded
  shard_cast,       // to the dtype of the arithmetic
  gathered_unit,    // weights of a unit, one message
  copied_out,       // weights of a unit, each in a tensor of its own
  unit_gradients,   // joined, or on their way to be reduced
  reduced_shard,    // what a reduction gives this rank
  shard_gradients,  // kept for the optimizer's step
  // --- DDP
  sent_state,  // flat copies in which the module's state is sent at first
  gradient_bucket,
  // --- models beside the trained one, and the trainer's loop
  weights_beside,
  passes_beside,  // tensors of passes without gradients
  loop_outputs,   // logits and log-probabilities
};

// Sixteen bytes: a step of experts that are modules has millions.
struct Instruction {
  Opcode opcode : 4 = Opcode::issue;
  std::uint8_t stream : 4 = 0;
  MemoryCategory category : 5 = MemoryCategory::activations;
  std::int32_t label : 19 = -1;  // of Program::labels: which module, bucket or sub-group; -1: none
  std::int32_t index = 0;
  std::int64_t bytes : 56 = 0;             // of allocate; the limit of throttle; a slot of move
  Purpose purpose : 8 = Purpose::of_slot;  // of allocate

  friend bool operator==(const Instruction&, const Instruction&) = default;
};
static_assert(sizeof(Instruction) == 16);
inline constexpr std::size_t kMostStreams = 16;
inline constexpr std::size_t kMostLabels = std::size_t{1} << 18;

// Instructions [begin, end).
struct Section {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// What slots are for; slots in no range hold tensors that live for a moment.
enum class SlotKind : std::uint8_t {
  engine_buffer,       // index: the first of engine_buffers()
  waiting_gradient,    // index: the first parameter
  storage,             // of a block's graph; index: the instance, the first slot is its storage 0
  gathered_parameter,  // index: the first parameter
  secondary_parameter,
  saved_parameter,  // kept by autograd after its release
  batch,            // token ids, labels, mask
};

// Slots [first, first + count).
struct SlotRange {
  SlotKind kind = SlotKind::storage;
  SlotIndex first = 0;
  std::int32_t count = 0;
  std::int32_t index = 0;
};

struct Program {
  std::vector<Task> tasks;
  std::vector<Instruction> code;
  std::vector<std::string> streams;  // names by StreamId; 0 is the compute stream
  std::vector<std::string> labels;
  std::vector<SlotRange> slot_ranges;  // ascending, disjoint
  DeviceMemoryCost device_memory;      // of what its allocator takes and gives back; none: free
  std::int32_t slots = 0;
  std::int32_t events = 0;
  std::int32_t queues = 0;
  StreamId shared_stream = -1;  // of the communicator of all ranks whose programs may differ

  std::span<const Instruction> of(const Section& section) const {
    return std::span(code).subspan(section.begin, section.end - section.begin);
  }
  // Have they the same instructions?
  bool equal(const Section& a, const Section& b) const {
    const std::span<const Instruction> x = of(a), y = of(b);
    return std::equal(x.begin(), x.end(), y.begin(), y.end());
  }
};

// The stream every program has.
inline constexpr StreamId kComputeStream = 0;

}  // namespace zeroplan::simulator
