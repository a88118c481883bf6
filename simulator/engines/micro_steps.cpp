#include "simulator/engines/micro_steps.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/fingerprint.hpp"

namespace zeroplan::simulator {
namespace {

// What sections do, whatever the numbers of the slots that they take and let go of themselves.
class CodeReader {
 public:
  explicit CodeReader(const Program& program) : program_(program) {}

  Fingerprint code_of(const Section& section) {
    own_.assign(static_cast<std::size_t>(program_.slots), 0);
    allocations_ = 0;
    Fingerprint print;
    for (const Instruction& instruction : program_.of(section)) {
      print.add(static_cast<std::uint64_t>(instruction.opcode) |
                static_cast<std::uint64_t>(instruction.stream) << 8 |
                static_cast<std::uint64_t>(instruction.category) << 16 |
                static_cast<std::uint64_t>(static_cast<std::uint32_t>(instruction.label)) << 32);
      add_operands(instruction, print);
    }
    return print;
  }

 private:
  // Which allocation of the section a slot holds; 0: what it held when the section began, or none.
  std::uint64_t& own(SlotIndex slot) { return own_[static_cast<std::size_t>(slot)]; }

  std::uint64_t name_of(SlotIndex slot) {
    const std::uint64_t allocation = own(slot);
    return allocation > 0 ? 2 * allocation + 1 : 2 * static_cast<std::uint64_t>(slot);
  }

  void add_operands(const Instruction& instruction, Fingerprint& print) {
    const SlotIndex slot = instruction.index;
    switch (instruction.opcode) {
      case Opcode::allocate:
        own(slot) = ++allocations_;
        print.add(static_cast<std::uint64_t>(instruction.bytes));
        return;
      case Opcode::release:
        print.add(name_of(slot));
        own(slot) = 0;
        return;
      case Opcode::use_on_stream:
        print.add(name_of(slot));
        return;
      case Opcode::move: {
        const std::uint64_t moved = own(slot) > 0 ? own(slot) : ++allocations_;
        print.add(name_of(slot));
        own(static_cast<SlotIndex>(instruction.bytes)) = moved;
        own(slot) = 0;
        return;
      }
      default:
        print.add(static_cast<std::uint64_t>(slot));
        print.add(static_cast<std::uint64_t>(instruction.bytes));
    }
  }

  const Program& program_;
  std::vector<std::uint64_t> own_;  // by slot
  std::uint64_t allocations_ = 0;
};

// The micro-steps that were written so far, and what repeats of them.
class WrittenSteps {
 public:
  explicit WrittenSteps(const ProgramWriter& writer) : writer_(writer), reader_(writer.program()) {}

  void add(const Section& section) { steps_.push_back({section, writer_.held(), std::nullopt}); }

  // The least p with which the last p micro-steps did what the p before them did, and left the
  // slots as they found them; 0: none. Of graphs that differ only the slots are looked at.
  int period(bool are_alike) {
    constexpr int kMost = 8;
    const int count = static_cast<int>(steps_.size());
    for (int p = 1; p <= kMost && p < count; ++p) {
      if (back(0).held != back(p).held) continue;
      if (!are_alike) return p;
      if (2 * p > count) return 0;
      bool same = true;
      for (int i = 0; i < p && same; ++i) same = do_the_same(back(i), back(i + p));
      if (same) return p;
    }
    return 0;
  }

  // Of the last `count` micro-steps.
  Section last(int count) { return {back(count - 1).section.begin, back(0).section.end}; }

 private:
  struct Step {
    Section section;
    std::uint64_t held = 0;  // at its end
    std::optional<Fingerprint> code;
  };
  Step& back(int i) { return steps_[steps_.size() - 1 - static_cast<std::size_t>(i)]; }
  // Most take the same slots.
  bool do_the_same(Step& a, Step& b) {
    return writer_.program().equal(a.section, b.section) || code_of(a) == code_of(b);
  }
  const Fingerprint& code_of(Step& step) {
    if (!step.code) step.code = reader_.code_of(step.section);
    return *step.code;
  }

  const ProgramWriter& writer_;
  CodeReader reader_;
  std::vector<Step> steps_;
};

}  // namespace

std::vector<RepeatedSection> write_micro_steps(int accumulation,
                                               std::size_t distinct,
                                               const ProgramWriter& writer,
                                               const std::function<Section(int)>& write) {
  // The first ones may find another state of the fetches than they leave.
  constexpr int kLeast = 3;
  const int least = std::max(kLeast, static_cast<int>(distinct) - 1);
  const int last = accumulation - 1;
  std::vector<RepeatedSection> steps;
  WrittenSteps written(writer);
  bool repeats = false;
  for (int step = 0; step < accumulation; ++step) {
    steps.push_back({write(step), 1});
    if (repeats || step + 1 >= last) continue;
    written.add(steps.back().section);
    const int period = step + 1 >= least ? written.period(distinct <= 1) : 0;
    const int times = period > 0 ? (last - 1 - step) / period : 0;
    if (times == 0) continue;
    repeats = true;
    if (period == 1) {
      steps.back().times += times;
    } else {
      steps.push_back({written.last(period), times});
    }
    step += times * period;
  }
  return steps;
}

}  // namespace zeroplan::simulator
