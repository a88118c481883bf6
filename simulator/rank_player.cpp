#include "simulator/rank_player.hpp"

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

}  // namespace

// The host runs ahead of the GPU: the second steady step begins as all later ones do, and is the
// one that is timed, from a device that is idle to one that is idle again.
RankPlayer::RankPlayer(const RankProgram& rank, const SimulationOptions& options, Peers peers)
    : loop_(rank.program, allocator_options(rank, options), peers), options_(options) {
  loop_.record_allocator_events(options.allocator_events);
  parts_.push_back({rank.initialisation, 1, After::nothing});
  for (const StepSections& step : rank.first_steps) add(step, After::nothing);
  add(rank.steady, After::settled);
  if (options.trial) return;
  parts_.push_back({{}, 1, After::warm});
  add(rank.steady, After::nothing);
  parts_.push_back({{}, 1, After::timed});
}

void RankPlayer::add(const StepSections& step, After after) {
  for (const RepeatedSection& part : step.micro_steps) {
    parts_.push_back({part.section, part.times, After::nothing});
  }
  parts_.push_back({step.optimizer, 1, after});
}

RankPlayer::Stop RankPlayer::go_on() {
  for (; progress_.part < parts_.size(); ++progress_.part) {
    const Part& part = parts_[progress_.part];
    if (progress_.begun == 0) {
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
    if (!finish(part)) return Stop::meeting;
    progress_.begun = progress_.ended = 0;
  }
  return Stop::end;
}

// False: waits for peers first.
bool RankPlayer::finish(const Part& part) {
  switch (part.after) {
    case After::nothing:
      return true;
    case After::settled:
      result_.static_allocated = loop_.memory().allocated;
      return true;
    case After::warm:
      if (!loop_.drain()) return false;
      loop_.restart_clock();
      loop_.observe(options_.observer);
      return true;
    case After::timed:
      if (!loop_.drain()) return false;
      result_.step = loop_.time();
      return true;
  }
  return true;
}

RankPlayer::Snapshot RankPlayer::snapshot() const {
  if (!options_.fold) return {loop_.moment(), {}, {}};
  return {loop_.moment(), loop_.relative_state(), loop_.allocator().fingerprint(loop_.clocks())};
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
