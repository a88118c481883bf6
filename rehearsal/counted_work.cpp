#include "rehearsal/counted_work.hpp"

#include <vector>

namespace zeroplan::rehearsal {
namespace {

// The phase that ends with the mark; what comes behind an update and is no step of its own belongs
// to it.
std::optional<Phase> phase_of(std::string_view mark) {
  if (mark == "forward") return Phase::forward;
  if (mark == "backward") return Phase::backward;
  if (mark == "optimizer" || mark == "idle") return Phase::step;
  if (mark == "save") return Phase::save;
  return std::nullopt;
}

class Counter {
 public:
  Counter(const RecordedWork& work, simulator::WorkByPhase& counted)
      : work_(work), counted_(counted), launched_(work.operations.size(), false) {}

  void count(const RecordedCall& call, Phase phase) {
    simulator::PhaseWork& now = counted_[static_cast<std::size_t>(phase)];
    switch (call.kind) {
      case CallKind::kernel:
        count_kernel(call, now);
        break;
      case CallKind::memset:
        ++now.kernels;
        break;
      case CallKind::product:
        ++now.products[simulator::words_of(call.product)];
        break;
      case CallKind::collective:
        count_collective(call.collective, now);
        break;
      case CallKind::copy:
        count_copy(call, now);
        break;
      case CallKind::event:
        ++now.events;
        break;
      case CallKind::stream_wait:
        ++now.stream_waits;
        break;
      case CallKind::host_wait:
        ++now.host_waits;
        break;
      case CallKind::cpu_adam:
        now.updated_on_host += Elements::of(call.number);
        break;
      case CallKind::cpu_pass:
      case CallKind::file:
      case CallKind::file_wait:
      case CallKind::host_function:
      case CallKind::mark:
        break;
    }
  }

 private:
  // Of an attention's kernels the first is the call, and the others belong to it.
  void count_kernel(const RecordedCall& call, simulator::PhaseWork& now) {
    if (call.operation < 0 ||
        !work_.operations[static_cast<std::size_t>(call.operation)].attention) {
      ++now.kernels;
      return;
    }
    if (launched_[static_cast<std::size_t>(call.operation)]) return;
    launched_[static_cast<std::size_t>(call.operation)] = true;
    ++now.attention;
  }

  static void count_collective(const RecordedCollective& call, simulator::PhaseWork& now) {
    const bool counts_a_part = call.name == "all_gather" || call.name == "reduce_scatter";
    const Bytes tensor = counts_a_part ? call.bytes * call.ranks : call.bytes;
    ++now.collectives[simulator::words_of_collective(call.name, call.ranks, tensor)];
  }

  static void count_copy(const RecordedCall& call, simulator::PhaseWork& now) {
    if (call.way == CopyWay::on_device) {
      ++now.kernels;
      return;
    }
    ++now.copies[simulator::words_of_copy(
        call.way == CopyWay::to_device, Bytes::of(call.number), call.pinned)];
  }

  const RecordedWork& work_;
  simulator::WorkByPhase& counted_;
  std::vector<bool> launched_;  // by operation
};

}  // namespace

std::optional<simulator::WorkByPhase> count_last_step(const RecordedWork& work) {
  std::vector<std::size_t> updates;
  for (std::size_t i = 0; i < work.calls.size(); ++i) {
    const RecordedCall& call = work.calls[i];
    if (call.kind == CallKind::mark && call.name == "optimizer") updates.push_back(i);
  }
  if (updates.size() < 2) return std::nullopt;
  const std::size_t begin = updates[updates.size() - 2] + 1;
  const std::size_t end = updates.back();
  std::vector<Phase> phases(end - begin + 1, Phase::step);  // of each call: the next mark's
  Phase next = Phase::step;
  for (std::size_t i = end + 1; i-- > begin;) {
    const RecordedCall& call = work.calls[i];
    if (call.kind == CallKind::mark) next = phase_of(call.name).value_or(next);
    phases[i - begin] = next;
  }
  simulator::WorkByPhase counted;
  Counter counter(work, counted);
  for (std::size_t i = begin; i <= end; ++i) counter.count(work.calls[i], phases[i - begin]);
  return counted;
}

}  // namespace zeroplan::rehearsal
