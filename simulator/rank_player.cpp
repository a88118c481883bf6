#include "simulator/rank_player.hpp"

#include <algorithm>
#include <utility>

namespace zeroplan::simulator {
namespace {

AllocatorOptions allocator_options(const RankProgram& rank, const SimulationOptions& options) {
  AllocatorOptions result;
  result.expandable_segments = rank.expandable_segments;
  result.arena_segment = rank.arena_segment;
  result.oldest_segment_first = rank.oldest_segment_first;
  result.device_total = options.available;
  result.available = options.available;
  return result;
}

bool same_code(const Program& program, const StepSections& a, const StepSections& b) {
  return std::equal(a.micro_steps.begin(),
                    a.micro_steps.end(),
                    b.micro_steps.begin(),
                    b.micro_steps.end(),
                    [&](const RepeatedSection& x, const RepeatedSection& y) {
                      return x.times == y.times && program.equal(x.section, y.section);
                    }) &&
         program.equal(a.optimizer, b.optimizer);
}

// The first step from which on all have the instructions of the steady one.
std::size_t alike_from(const RankProgram& rank) {
  std::size_t first = rank.first_steps.size();
  while (first > 0 && same_code(rank.program, rank.first_steps[first - 1], rank.steady)) --first;
  return first;
}

}  // namespace

bool RankPlayer::same(const Snapshot& a, const Snapshot& b) {
  return a.memory == b.memory && std::equal(a.loop.begin(), a.loop.end(), b.loop.begin(), close);
}

// The host runs ahead of the GPU: the second steady step begins as all later ones do, and is the
// one that is timed, from a device that is idle to one that is idle again.
RankPlayer::RankPlayer(const RankProgram& rank, const SimulationOptions& options, Peers peers)
    : loop_(rank.program, allocator_options(rank, options), peers), options_(options) {
  loop_.record_allocator_events(options.allocator_events);
  parts_.push_back({rank.initialisation});
  for (const StepSections& step : rank.first_steps) add(step, Begins::step, Ends::section);
  add(rank.steady, Begins::step, Ends::settled_step);
  if (!options.trial) add(rank.steady, Begins::timed_step, Ends::timed_step);
  if (options.fold) steps_.alike_from = alike_from(rank);
}

void RankPlayer::add(const StepSections& step, Begins begins, Ends ends) {
  const std::size_t first = parts_.size();
  for (const RepeatedSection& part : step.micro_steps) {
    parts_.push_back({part.section, part.times});
  }
  parts_.push_back({step.optimizer});
  parts_[first].begins = begins;
  parts_.back().ends = ends;
  ++steps_.count;
}

RankPlayer::Stop RankPlayer::go_on() {
  for (; progress_.part < parts_.size(); ++progress_.part) {
    const Part& part = parts_[progress_.part];
    if (progress_.begun == 0) {
      if (part.begins != Begins::section && begin_step()) return Stop::equal_step;
      if (part.begins == Begins::timed_step && !start_clock()) return Stop::meeting;
      steps_.at_begin = false;
      progress_.times = part.times;
      snapshots_.clear();
      if (part.times > 1) snapshots_.push_back(snapshot());
    }
    while (in_section_ || progress_.begun < progress_.times) {
      if (!in_section_) ++progress_.begun;
      const bool simulated = in_section_ ? loop_.go_on() : loop_.play(part.section);
      in_section_ = !simulated;
      if (!simulated) return loop_.ran_out_of_memory() ? Stop::out_of_memory : Stop::meeting;
      ++progress_.ended;
      if (progress_.ended >= progress_.times) continue;
      snapshots_.push_back(snapshot());
      return Stop::repetition;
    }
    if (!finish(part.ends)) return Stop::meeting;
    progress_.begun = progress_.ended = 0;
  }
  return Stop::end;
}

// Is it as the one before? False, too, where the GPU was not idle before both.
bool RankPlayer::begin_step() {
  if (!options_.fold || std::exchange(steps_.at_begin, true)) return false;
  ++steps_.begun;
  steps_.before = std::move(steps_.now);
  steps_.now.reset();
  const bool is_alike = steps_.begun > steps_.alike_from;
  if (!is_alike || !loop_.is_idle()) return false;
  loop_.drain();  // streams come to where the host is
  steps_.now = snapshot();
  return steps_.before && same(*steps_.before, *steps_.now);
}

// False: waits for peers first.
bool RankPlayer::start_clock() {
  if (!loop_.drain()) return false;
  loop_.restart_clock();
  loop_.observe(options_.observer);
  return true;
}

// False: waits for peers first.
bool RankPlayer::finish(Ends ends) {
  if (ends == Ends::settled_step) result_.static_allocated = loop_.memory().allocated;
  if (ends != Ends::timed_step) return true;
  if (!loop_.drain()) return false;
  result_.step = loop_.time();
  return true;
}

RankPlayer::Snapshot RankPlayer::snapshot() const {
  if (!options_.fold) return {loop_.moment(), {}, {}};
  return {loop_.moment(), loop_.relative_state(), loop_.memory_state()};
}

// The last of them is the timed one, or a trial's settled one.
void RankPlayer::skip_steps(double period) {
  const EventLoop::Moment& from = steps_.before->moment;
  const EventLoop::Moment& to = steps_.now->moment;
  const auto left = static_cast<std::int64_t>(steps_.count - steps_.begun + 1);
  loop_.repeat(from, to, left - 1, static_cast<double>(left - 1) * period);
  result_.static_allocated = loop_.memory().allocated;
  loop_.restart_clock();
  loop_.repeat(from, to, 1, period);
  loop_.drain();
  if (!options_.trial) result_.step = loop_.time();
  progress_.part = parts_.size();
}

void RankPlayer::skip(std::int64_t times, std::size_t cycle, std::size_t last, double period) {
  const EventLoop::Moment& from = snapshots_[last - cycle].moment;
  const EventLoop::Moment& to = snapshots_[last].moment;
  loop_.repeat(from, to, times, static_cast<double>(times) * period);
  progress_.times -= times * static_cast<std::int64_t>(cycle);
}

RankSimulation RankPlayer::result() const {
  RankSimulation result = result_;
  result.memory = loop_.memory();
  result.stats = loop_.allocator().stats();
  if (options_.allocator_events != nullptr) result.segments = loop_.allocator().snapshot();
  return result;
}

}  // namespace zeroplan::simulator
