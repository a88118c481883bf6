#include "simulator/simulation_memo.hpp"

#include <array>
#include <bit>
#include <utility>
#include <vector>

namespace zeroplan::simulator {
namespace {

void add(const Section& section, Fingerprint& print) {
  print.add(section.begin);
  print.add(section.end);
}

void add(const StepSections& step, Fingerprint& print) {
  print.add(step.micro_steps.size());
  for (const RepeatedSection& part : step.micro_steps) {
    add(part.section, print);
    print.add(static_cast<std::uint64_t>(part.times));
  }
  add(step.optimizer, print);
}

void add(const Task& task, Fingerprint& print) {
  print.add(static_cast<std::uint64_t>(task.kind));
  print.add(std::bit_cast<std::uint64_t>(task.dispatch.seconds()));
  print.add(std::bit_cast<std::uint64_t>(task.duration.seconds()));
  for (std::size_t r = 0; r < task.demands.size(); r += 2) {
    const auto low = std::bit_cast<std::uint32_t>(task.demands[r]);
    const auto high =
        r + 1 < task.demands.size() ? std::bit_cast<std::uint32_t>(task.demands[r + 1]) : 0U;
    print.add(std::uint64_t{high} << 32 | low);
  }
}

void add_instruction(const Instruction& instruction, Fingerprint& print) {
  print.add(static_cast<std::uint64_t>(instruction.opcode) |
            static_cast<std::uint64_t>(instruction.stream) << 8 |
            static_cast<std::uint64_t>(instruction.category) << 16 |
            static_cast<std::uint64_t>(static_cast<std::uint32_t>(instruction.index)) << 32);
  print.add(static_cast<std::uint64_t>(instruction.bytes));
}

// Every fourth instruction to the same fingerprint: a word waits for the one before it, and there
// are hundreds of thousands.
void add(const std::vector<Instruction>& code, Fingerprint& print) {
  std::array<Fingerprint, 4> lanes;
  std::size_t i = 0;
  for (; i + lanes.size() <= code.size(); i += lanes.size()) {
    for (std::size_t l = 0; l < lanes.size(); ++l) add_instruction(code[i + l], lanes[l]);
  }
  for (; i < code.size(); ++i) add_instruction(code[i], lanes[0]);
  print.add(code.size());
  for (const Fingerprint& lane : lanes) {
    print.add(lane.high);
    print.add(lane.low);
  }
}

}  // namespace

Fingerprint fingerprint(const RankProgram& rank) {
  const Program& program = rank.program;
  Fingerprint print;
  print.add(program.tasks.size());
  for (const Task& task : program.tasks) add(task, print);
  add(program.code, print);
  print.add(program.streams.size());
  print.add(std::bit_cast<std::uint64_t>(program.device_memory.call.seconds()));
  print.add(std::bit_cast<std::uint64_t>(program.device_memory.rate.value()));
  print.add(static_cast<std::uint64_t>(program.slots));
  print.add(static_cast<std::uint64_t>(program.events));
  print.add(static_cast<std::uint64_t>(program.queues));
  print.add(static_cast<std::uint64_t>(program.shared_stream));
  print.add(rank.expandable_segments ? 1 : 0);
  print.add(static_cast<std::uint64_t>(rank.arena_segment.count()));
  print.add(rank.oldest_segment_first ? 1 : 0);
  add(rank.initialisation, print);
  print.add(rank.first_steps.size());
  for (const StepSections& step : rank.first_steps) add(step, print);
  add(rank.steady, print);
  return print;
}

std::shared_ptr<const SimulationMemo::Runs> SimulationMemo::find(const Fingerprint& key) const {
  const std::scoped_lock lock(mutex_);
  const auto found = known_.find(key);
  return found == known_.end() ? nullptr : found->second;
}

std::size_t SimulationMemo::size() const {
  const std::scoped_lock lock(mutex_);
  return known_.size();
}

std::shared_ptr<const SimulationMemo::Runs> SimulationMemo::keep(const Fingerprint& key,
                                                                 Runs runs) {
  auto value = std::make_shared<const Runs>(std::move(runs));
  const std::scoped_lock lock(mutex_);
  return known_.emplace(key, std::move(value)).first->second;
}

}  // namespace zeroplan::simulator
