#include "rehearsal/timed_step.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <string_view>
#include <utility>

#include "model/cost/attention.hpp"
#include "model/cost/kernel_time.hpp"
#include "simulator/program_writer.hpp"
#include "simulator/task_costs.hpp"

namespace zeroplan::rehearsal {
namespace {

// "aten::_foreach_add_.Scalar" without what says which of its forms it is.
std::string_view base_of(std::string_view name) { return name.substr(0, name.find('.')); }

bool has(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

// Which of the memory's rates an operation reaches, by its name in torch.
OpKind kind_of(std::string_view name) {
  struct Rule {
    std::string_view part;
    OpKind kind;
  };
  // The first that fits.
  constexpr std::array kRules = {
      Rule{"softmax", OpKind::softmax},   Rule{"layer_norm", OpKind::norm},
      Rule{"rms_norm", OpKind::norm},     Rule{"group_norm", OpKind::norm},
      Rule{"batch_norm", OpKind::norm},   Rule{"embedding_dense_backward", OpKind::scatter},
      Rule{"index_add", OpKind::scatter}, Rule{"index_put", OpKind::scatter},
      Rule{"scatter", OpKind::scatter},   Rule{"embedding", OpKind::gather},
      Rule{"index", OpKind::gather},      Rule{"gather", OpKind::gather},
      Rule{"copy", OpKind::copy},         Rule{"clone", OpKind::copy},
      Rule{"cat", OpKind::copy},          Rule{"stack", OpKind::copy},
      Rule{"norm", OpKind::reduction},    Rule{"nll_loss", OpKind::reduction},
      Rule{"zero", OpKind::fill},         Rule{"fill", OpKind::fill}};
  for (const Rule& rule : kRules) {
    if (has(name, rule.part)) return rule.kind;
  }
  constexpr std::array<std::string_view, 6> kReductions = {
      "sum", "mean", "amax", "amin", "prod", "var"};
  const bool reduces = std::find(kReductions.begin(), kReductions.end(), name) != kReductions.end();
  return reduces ? OpKind::reduction : OpKind::pointwise;
}

// Of the two that the name leaves open, as in [T7].
AttentionKernel attention_kernel_of(std::string_view name, const Version& torch) {
  constexpr Version kFlash2{2, 2, 0};
  if (has(name, "cudnn")) return AttentionKernel::cudnn;
  if (has(name, "efficient")) return AttentionKernel::cutlass;
  return torch < kFlash2 ? AttentionKernel::flash1 : AttentionKernel::flash2;
}

std::optional<Collective> collective_of(std::string_view name) {
  if (name == "all_gather") return Collective::all_gather;
  if (name == "reduce_scatter") return Collective::reduce_scatter;
  if (name == "all_reduce") return Collective::all_reduce;
  return std::nullopt;  // broadcast, reduce; send and recv are told apart before
}

// Ranks of a group that is not all are taken to be neighbours, and other groups like it to fill the
// nodes.
CollectiveGroup group_of(std::int64_t ranks, const Cluster& cluster) {
  const std::int64_t local = cluster.gpus_per_node();
  if (ranks >= cluster.total_gpus()) return whole_cluster(cluster);
  CollectiveGroup group;
  group.ranks_per_node = std::min(ranks, local);
  group.nodes = ceil_div(ranks, local);
  group.concurrent = std::max<std::int64_t>(1, local / group.ranks_per_node);
  return group;
}

// What each piece of recorded work takes.
class WorkTimes {
 public:
  WorkTimes(const Cluster& cluster, const Version& torch)
      : cluster_(cluster),
        torch_(torch),
        coefficients_(cluster.gpu.key),
        kernels_(cluster.gpu, coefficients_, AttentionSoftware{}) {}

  Seconds launch() const { return Seconds::of(coefficients_[Coefficient::host_launch_seconds]); }

  // `operation` is null where none of torch's launched it. `first`: of the operation's kernels.
  simulator::Task kernel(const RecordedCall& call,
                         const RecordedOperation* operation,
                         bool first) const {
    const Seconds floor = kernels_.streaming(OpKind::pointwise, Bytes::zero());
    if (operation == nullptr || operation->products > 0) {
      return named(simulator::kernel_task(floor, KernelBound::memory), call.name);
    }
    const std::string_view base = base_of(operation->name);
    if (operation->attention) {
      return named(
          first ? attention(*operation) : simulator::kernel_task(floor, KernelBound::memory), base);
    }
    const Bytes traffic = operation->read + operation->written;
    const Seconds all = kernels_.streaming(kind_of(base), traffic, operation->kernels);
    return named(simulator::kernel_task(all * (1.0 / operation->kernels), KernelBound::memory),
                 base);
  }

  simulator::Task product(const MatrixProduct& product) const {
    return named(simulator::kernel_task(kernels_.matmul().sustained(product), KernelBound::compute),
                 "product");
  }

  simulator::Task collective(const RecordedCollective& call) const {
    const simulator::CostsOf costs{cluster_, coefficients_};
    const CollectiveGroup group = group_of(call.ranks, cluster_);
    const auto kind = collective_of(call.name);
    const bool counts_a_part = kind == Collective::all_gather || kind == Collective::reduce_scatter;
    const Bytes message = counts_a_part ? call.bytes * call.ranks : call.bytes;
    return named(
        simulator::collective_task(costs, kind.value_or(Collective::broadcast), message, group),
        call.name);
  }

  // Between two ranks; of several that are launched together, an exchange among all.
  simulator::Task exchange(const RecordedCollective& call, std::int64_t sends) const {
    const simulator::CostsOf costs{cluster_, coefficients_};
    const bool is_pair = sends <= 1;
    const CollectiveGroup group =
        group_of(is_pair ? std::min<std::int64_t>(2, call.ranks) : call.ranks, cluster_);
    const Collective kind = is_pair ? Collective::broadcast : Collective::all_to_all;
    return named(simulator::collective_task(costs, kind, call.bytes, group),
                 is_pair ? call.name : "all_to_all");
  }

  simulator::Task copy(const RecordedCall& call) const {
    const Bytes bytes = Bytes::of(call.number);
    if (call.way == CopyWay::on_device) {
      return named(
          simulator::kernel_task(kernels_.streaming(OpKind::copy, bytes * 2), KernelBound::memory),
          "copy");
    }
    const simulator::TaskKind way = call.way == CopyWay::to_device
                                        ? simulator::TaskKind::copy_to_device
                                        : simulator::TaskKind::copy_to_host;
    simulator::Task task = simulator::copy_task(
        {cluster_, coefficients_}, way, bytes, call.pinned, cluster_.gpus_per_node());
    return named(std::move(task),
                 call.way == CopyWay::to_device ? "copy to device" : "copy to host");
  }

  simulator::Task memset(Bytes bytes) const {
    return named(
        simulator::kernel_task(kernels_.streaming(OpKind::fill, bytes), KernelBound::memory),
        "memset");
  }
  simulator::Task cpu_adam(Elements parameters) const {
    return named(
        simulator::cpu_optimizer_task({cluster_, coefficients_}, {.parameters = parameters}),
        "CPU Adam");
  }
  simulator::Task file(const RecordedCall& call) const {
    NvmeLoad load;
    (call.file.reads ? load.read : load.write) = Bytes::of(call.number);
    load.ranks = cluster_.node.gpus_per_node;
    load.requests = call.file.requests;
    return named(simulator::nvme_task({cluster_, coefficients_}, load),
                 call.file.reads ? "NVMe read" : "NVMe write");
  }
  simulator::Task cpu_pass(Bytes traffic) const {
    return named(simulator::host_memory_task({cluster_, coefficients_},
                                             {.traffic = traffic, .new_pages = {}}),
                 "host memory");
  }

 private:
  simulator::Task named(simulator::Task task, std::string_view name) const {
    task.name = std::string(name);
    return task;
  }
  simulator::Task attention(const RecordedOperation& operation) const {
    const AttentionKernel kernel = attention_kernel_of(operation.name, torch_);
    const Seconds time = attention_time(*operation.attention, kernel, cluster_.gpu, coefficients_);
    return simulator::kernel_task(time, KernelBound::compute);
  }

  const Cluster& cluster_;
  Version torch_;
  Coefficients coefficients_;
  KernelTimes kernels_;
};

constexpr std::int32_t kHostStream = -1;  // what the host computes itself
// Threads of DeepSpeed's asynchronous I/O, those of handle 0; further handles go down from it.
constexpr std::int32_t kFileStream = -2;

std::optional<Phase> phase_named(std::string_view mark) {
  if (mark == "forward") return Phase::forward;
  if (mark == "backward") return Phase::backward;
  if (mark == "optimizer") return Phase::step;
  if (mark == "save") return Phase::save;
  return std::nullopt;
}

Seconds host_time(const RecordedCall& call) {
  return Seconds::of(static_cast<double>(call.nanoseconds) * 1e-9);
}

// A program of what was recorded. A section ends with each update.
class WorkWriter {
 public:
  WorkWriter(const RecordedWork& work, const WorkTimes& times, simulator::Program& program)
      : work_(work), times_(times), writer_(program), kernels_seen_(work.operations.size(), 0) {}

  std::vector<simulator::Section> write() {
    streams_[0] = writer_.add_stream("compute");
    find_phases();
    std::size_t begin = writer_.position();
    for (std::size_t i = 0; i < work_.calls.size(); ++i) {
      const RecordedCall& call = work_.calls[i];
      if (call.kind == CallKind::mark) {
        host(call);
        if (call.name == "optimizer") {
          sections_.push_back(writer_.since(begin));
          begin = writer_.position();
          last_section_counts_ = std::exchange(counts_, {});
        }
        if (phase_after_[i]) writer_.mark(*phase_after_[i]);
      } else {
        write(i);
      }
    }
    return std::move(sections_);
  }

  const WorkCounts& counts_of_last_section() const { return last_section_counts_; }

 private:
  // A mark stands at a phase's end: the one that follows it is named by the next.
  void find_phases() {
    phase_after_.resize(work_.calls.size());
    std::optional<Phase> next;
    for (std::size_t i = work_.calls.size(); i-- > 0;) {
      if (work_.calls[i].kind != CallKind::mark) continue;
      phase_after_[i] = next;
      if (const auto phase = phase_named(work_.calls[i].name)) next = phase;
    }
  }

  simulator::StreamId stream_of(std::int32_t number) {
    const auto [at, is_new] = streams_.try_emplace(number, simulator::StreamId{});
    if (is_new) {
      at->second = writer_.add_stream(number == kHostStream ? "host"
                                      : number <= kFileStream
                                          ? "NVMe " + std::to_string(kFileStream - number)
                                          : "stream " + std::to_string(number));
    }
    return at->second;
  }

  void host(const RecordedCall& call) {
    if (call.nanoseconds == 0) return;
    simulator::Task task;
    task.name = "host";
    task.dispatch = host_time(call);
    writer_.issue(writer_.add_task(std::move(task)), simulator::kComputeStream);
  }

  void enqueue(const RecordedCall& call, simulator::Task task) {
    task.dispatch = host_time(call) + times_.launch();
    writer_.issue(writer_.add_task(std::move(task)), stream_of(call.stream));
  }

  // Work of the host that it does itself: the rehearsal left it out, and it waits for its end.
  void on_host(const RecordedCall& call, simulator::Task task) {
    const simulator::StreamId stream = stream_of(kHostStream);
    task.dispatch = host_time(call);
    writer_.issue(writer_.add_task(std::move(task)), stream);
    writer_.host_wait_stream(stream);
  }

  simulator::StreamId files_of(const RecordedCall& call) {
    return stream_of(kFileStream - static_cast<std::int32_t>(call.file.handle));
  }

  void file(const RecordedCall& call) {
    simulator::Task task = times_.file(call);
    task.dispatch = host_time(call);
    writer_.issue(writer_.add_task(std::move(task)), files_of(call));
  }

  void kernel(const RecordedCall& call) {
    const RecordedOperation* operation = nullptr;
    bool first = false;
    if (call.operation >= 0) {
      const auto index = static_cast<std::size_t>(call.operation);
      operation = &work_.operations[index];
      first = kernels_seen_[index]++ == 0;
    }
    ++counts_.kernels;
    if (operation == nullptr) ++counts_.kernels_of_no_operation;
    if (operation != nullptr && operation->attention && first) ++counts_.attention;
    enqueue(call, times_.kernel(call, operation, first));
  }

  // With what was launched together behind it; those calls are written with the first.
  void collective(std::size_t index) {
    const RecordedCall& call = work_.calls[index];
    if (call.collective.joins) return host(call);
    RecordedCollective all = call.collective;
    std::int64_t sends = all.name == "send" ? 1 : 0;
    for (std::size_t i = index + 1; i < work_.calls.size(); ++i) {
      const RecordedCall& next = work_.calls[i];
      if (next.kind != CallKind::collective) continue;
      if (!next.collective.joins) break;
      if (next.collective.name == "send") ++sends;
      if (next.collective.name == all.name) all.bytes += next.collective.bytes;
    }
    ++counts_.collectives;
    counts_.collective_bytes += all.bytes;
    const bool exchanges = all.name == "send" || all.name == "recv";
    enqueue(call, exchanges ? times_.exchange(all, sends) : times_.collective(all));
  }

  void copy(const RecordedCall& call) {
    ++counts_.copies;
    const Bytes bytes = Bytes::of(call.number);
    if (call.way == CopyWay::to_device) counts_.copied_to_device += bytes;
    if (call.way == CopyWay::to_host) counts_.copied_to_host += bytes;
    enqueue(call, times_.copy(call));
    // Copies from and to pageable memory block the host (CUDA API synchronization behavior).
    if (call.way != CopyWay::on_device && !call.pinned) {
      writer_.host_wait_stream(stream_of(call.stream));
    }
  }

  // Absent for one that was never recorded, for which nobody waits.
  std::optional<simulator::EventIndex> event(std::int64_t number) const {
    const auto found = events_.find(number);
    return found == events_.end() ? std::nullopt : std::optional(found->second);
  }

  void host_wait(const RecordedCall& call) {
    ++counts_.host_waits;
    host(call);
    switch (call.waits_for) {
      case HostWaitsFor::event:
        if (const auto known = event(call.number)) writer_.host_wait(*known);
        break;
      case HostWaitsFor::stream:
        writer_.host_wait_stream(stream_of(call.stream));
        break;
      case HostWaitsFor::device:
        writer_.host_wait_device();
        break;
    }
  }

  void write(std::size_t index) {
    const RecordedCall& call = work_.calls[index];
    switch (call.kind) {
      case CallKind::kernel:
        return kernel(call);
      case CallKind::product:
        ++counts_.products;
        return enqueue(call, times_.product(call.product));
      case CallKind::collective:
        return collective(index);
      case CallKind::copy:
        return copy(call);
      case CallKind::memset:
        return enqueue(call, times_.memset(Bytes::of(call.number)));
      case CallKind::event: {
        host(call);
        const simulator::EventIndex made = writer_.new_event();
        events_[call.number] = made;
        return writer_.record_event(made, stream_of(call.stream));
      }
      case CallKind::stream_wait:
        host(call);
        if (const auto known = event(call.number)) {
          writer_.stream_wait(stream_of(call.stream), *known);
        }
        return;
      case CallKind::host_wait:
        return host_wait(call);
      case CallKind::cpu_pass:
        return on_host(call, times_.cpu_pass(Bytes::of(call.number)));
      case CallKind::cpu_adam:
        return on_host(call, times_.cpu_adam(Elements::of(call.number)));
      case CallKind::file:
        return file(call);
      case CallKind::file_wait:
        host(call);
        return writer_.host_wait_stream(files_of(call));
      case CallKind::host_function:
      case CallKind::mark:
        return host(call);
    }
  }

  const RecordedWork& work_;
  const WorkTimes& times_;
  simulator::ProgramWriter writer_;
  std::vector<std::int32_t> kernels_seen_;  // by operation
  std::map<std::int32_t, simulator::StreamId> streams_;
  std::map<std::int64_t, simulator::EventIndex> events_;
  std::vector<std::optional<Phase>> phase_after_;  // by call: the phase that a mark begins
  std::vector<simulator::Section> sections_;
  WorkCounts counts_, last_section_counts_;
};

// What the compute stream waits for, and what it runs itself of that kind.
Seconds exposed(const TimedRun& run,
                std::initializer_list<simulator::IdleCause> causes,
                std::initializer_list<simulator::TaskKind> kinds) {
  double seconds = 0.0;
  for (const simulator::IdleCause cause : causes) {
    seconds += run.step.account.idle[static_cast<std::size_t>(cause)];
  }
  for (const simulator::Timeline::Span& span : run.timeline.spans) {
    if (span.stream != simulator::kComputeStream) continue;
    const simulator::TaskKind kind = run.program.tasks[static_cast<std::size_t>(span.task)].kind;
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end())
      seconds += span.end - span.begin;
  }
  return Seconds::of(seconds);
}

}  // namespace

Bound TimedStep::bound() const { return simulator::bound_of(account); }

std::optional<TimedRun> time_step(const RecordedWork& work,
                                  const Cluster& cluster,
                                  const Version& torch) {
  TimedRun run;
  const WorkTimes times(cluster, torch);
  WorkWriter writer(work, times, run.program);
  const std::vector<simulator::Section> steps = writer.write();
  if (steps.size() < 2) return std::nullopt;
  simulator::EventLoop loop(run.program, simulator::AllocatorOptions{});
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) loop.play(steps[i]);
  loop.drain();
  loop.restart_clock();
  simulator::TraceRecorder recorder;
  loop.observe(&recorder);
  loop.play(steps.back());
  loop.drain();
  run.timeline = recorder.timeline();
  run.step.account = loop.time();
  run.step.counts = writer.counts_of_last_section();
  run.step.exposed_communication =
      exposed(run, {simulator::IdleCause::communication}, {simulator::TaskKind::collective});
  run.step.exposed_offload =
      exposed(run,
              {simulator::IdleCause::copies,
               simulator::IdleCause::cpu_optimizer,
               simulator::IdleCause::host_memory,
               simulator::IdleCause::nvme},
              {simulator::TaskKind::copy_to_device, simulator::TaskKind::copy_to_host});
  return run;
}

std::string collective_times(const Cluster& cluster, const Version& torch) {
  constexpr int kSmallest = 3, kLargest = 36;  // powers of two, in bytes
  const WorkTimes times(cluster, torch);
  std::string lines;
  for (const char* name : {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce"}) {
    for (std::int64_t ranks = 2; ranks <= cluster.total_gpus(); ++ranks) {
      if (cluster.total_gpus() % ranks != 0) continue;
      for (int power = kSmallest; power <= kLargest; ++power) {
        const Bytes bytes = Bytes::of(std::int64_t{1} << power);
        const Seconds takes = times.collective({name, bytes, ranks, false}).duration;
        lines += fmt::format("{} {} {} {:.0f}\n", name, ranks, bytes.count(), takes.value() * 1e9);
      }
    }
  }
  return lines;
}

}  // namespace zeroplan::rehearsal
