#include "simulator/work_count.hpp"

#include <algorithm>

namespace zeroplan::simulator {
namespace {

class StepCounter {
 public:
  StepCounter(const Program& program, WorkByPhase& work) : program_(program), work_(work) {}

  void count(const Section& section, std::int64_t times) {
    for (const Instruction& instruction : program_.of(section)) count_one(instruction, times);
  }

 private:
  PhaseWork& now() { return work_[static_cast<std::size_t>(phase_)]; }

  void count_one(const Instruction& instruction, std::int64_t times) {
    switch (instruction.opcode) {
      case Opcode::issue:
        count_task(program_.tasks[static_cast<std::size_t>(instruction.index)], times);
        break;
      case Opcode::mark:
        phase_ = static_cast<Phase>(instruction.index);
        break;
      case Opcode::record_event:
      case Opcode::queue_event:
        now().events += times;
        break;
      case Opcode::stream_wait:
        now().stream_waits += times;
        break;
      case Opcode::wait_stream:  // an event of the other stream, and the wait for it
        now().events += times;
        now().stream_waits += times;
        break;
      case Opcode::host_wait:
      case Opcode::host_wait_stream:
      case Opcode::host_wait_device:
        now().host_waits += times;
        break;
      case Opcode::throttle:  // waits where the host is ahead, which is the clock's to say
      case Opcode::allocate:
      case Opcode::release:
      case Opcode::move:
      case Opcode::use_on_stream:
      case Opcode::empty_cache:
        break;
    }
  }

  void count_task(const Task& task, std::int64_t issues) {
    const TaskWork& work = task.work;
    const std::int64_t times = issues * work.times;
    PhaseWork& phase = now();
    switch (task.kind) {
      case TaskKind::collective:
        phase.collectives[words_of_collective(task.name, work.ranks, work.bytes)] += times;
        return;
      case TaskKind::copy_to_device:
      case TaskKind::copy_to_host:
        phase.copies[words_of_copy(
            task.kind == TaskKind::copy_to_device, work.bytes, work.pinned)] += times;
        return;
      case TaskKind::kernel:
        break;
      case TaskKind::cpu_optimizer:
        phase.updated_on_host += work.parameters * times;
        return;
      case TaskKind::host_memory:
      case TaskKind::nvme:
        return;
    }
    phase.kernels += work.kernels * times;
    if (work.attention) phase.attention += times;
    if (work.product) phase.products[words_of(*work.product)] += times;
  }

  const Program& program_;
  WorkByPhase& work_;
  Phase phase_ = Phase::forward;
};

using Counts = std::map<std::string, std::int64_t>;

Json counts_json(const Counts& counts) {
  Json object = Json::object();
  for (const auto& [what, count] : counts) object[what] = count;
  return object;
}

Counts counts_from(const Json* object) {
  Counts counts;
  if (object == nullptr) return counts;
  for (const auto& [what, count] : object->members()) counts[what] = count.as_integer();
  return counts;
}

std::int64_t number_from(const Json& object, std::string_view key) {
  const Json* const found = object.find(key);
  return found == nullptr ? 0 : found->as_integer();
}

// The numbers of a phase by their names.
Counts numbers_of(const PhaseWork& work) {
  return {{"kernels", work.kernels},
          {"attention", work.attention},
          {"events", work.events},
          {"stream_waits", work.stream_waits},
          {"host_waits", work.host_waits},
          {"updated_on_host", work.updated_on_host.count()}};
}

void add_differences(Phase phase,
                     const std::string& kind,
                     const Counts& first,
                     const Counts& second,
                     std::vector<WorkDifference>& found) {
  Counts all = first;
  all.insert(second.begin(), second.end());
  const auto in = [](const Counts& counts, const std::string& what) {
    const auto at = counts.find(what);
    return at == counts.end() ? 0 : at->second;
  };
  for (const auto& [what, unused] : all) {
    const std::int64_t a = in(first, what);
    const std::int64_t b = in(second, what);
    if (a != b) found.push_back({phase, kind + what, a, b});
  }
}

}  // namespace

std::string words_of(const MatrixProduct& product) {
  const std::string batch = product.batch > 1 ? std::to_string(product.batch) + " of " : "";
  return std::string(name(product.dtype)) + " " + batch +
         std::to_string(std::max(product.m, product.n)) + " x " +
         std::to_string(std::min(product.m, product.n)) + " x " + std::to_string(product.k);
}

std::string words_of_collective(std::string_view name, std::int64_t ranks, Bytes bytes) {
  return std::string(name) + " of " + std::to_string(ranks) + " ranks, " +
         std::to_string(bytes.count()) + " bytes";
}

std::string words_of_copy(bool to_device, Bytes bytes, bool pinned) {
  return std::string(to_device ? "to device, " : "to host, ") + std::to_string(bytes.count()) +
         (pinned ? " bytes, pinned" : " bytes, pageable");
}

WorkByPhase count_work(const Program& program, const StepSections& step) {
  WorkByPhase work;
  StepCounter counter(program, work);
  for (const RepeatedSection& part : step.micro_steps) counter.count(part.section, part.times);
  counter.count(step.optimizer, 1);
  return work;
}

Json to_json(const WorkByPhase& work) {
  Json document = Json::object();
  for (std::size_t i = 0; i < work.size(); ++i) {
    const PhaseWork& phase = work[i];
    Json object = Json::object();
    for (const auto& [what, count] : numbers_of(phase)) {
      if (count != 0) object[what] = count;
    }
    if (!phase.products.empty()) object["products"] = counts_json(phase.products);
    if (!phase.collectives.empty()) object["collectives"] = counts_json(phase.collectives);
    if (!phase.copies.empty()) object["copies"] = counts_json(phase.copies);
    if (!object.members().empty()) {
      document[std::string(name(kPhaseNames, static_cast<Phase>(i)))] = object;
    }
  }
  return document;
}

WorkByPhase work_from_json(const Json& document) {
  WorkByPhase work;
  for (std::size_t i = 0; i < work.size(); ++i) {
    const Json* const object = document.find(name(kPhaseNames, static_cast<Phase>(i)));
    if (object == nullptr) continue;
    PhaseWork& phase = work[i];
    phase.kernels = number_from(*object, "kernels");
    phase.attention = number_from(*object, "attention");
    phase.events = number_from(*object, "events");
    phase.stream_waits = number_from(*object, "stream_waits");
    phase.host_waits = number_from(*object, "host_waits");
    phase.updated_on_host = Elements::of(number_from(*object, "updated_on_host"));
    phase.products = counts_from(object->find("products"));
    phase.collectives = counts_from(object->find("collectives"));
    phase.copies = counts_from(object->find("copies"));
  }
  return work;
}

std::vector<WorkDifference> differences(const WorkByPhase& first, const WorkByPhase& second) {
  std::vector<WorkDifference> found;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const Phase phase = static_cast<Phase>(i);
    const PhaseWork& a = first[i];
    const PhaseWork& b = second[i];
    add_differences(phase, "", numbers_of(a), numbers_of(b), found);
    add_differences(phase, "product ", a.products, b.products, found);
    add_differences(phase, "collective ", a.collectives, b.collectives, found);
    add_differences(phase, "copy ", a.copies, b.copies, found);
  }
  return found;
}

}  // namespace zeroplan::simulator
