#include "tests/engine/live_parameters.hpp"

#include <algorithm>

namespace zeroplan {
namespace {

void raise(LiveElements& peak, const LiveElements& now) {
  peak.parameters = std::max(peak.parameters, now.parameters);
  peak.buffers = std::max(peak.buffers, now.buffers);
}

void add(GatherTotals& total, const GatherTotals& part) {
  total.gathered += part.gathered;
  total.collective_elements += part.collective_elements;
  total.copied += part.copied;
  total.collectives += part.collectives;
  total.multi_parameter += part.multi_parameter;
}

class Fold {
 public:
  explicit Fold(std::span<const ModuleIndex> blocks) {
    for (const ModuleIndex block : blocks) {
      const auto needed = static_cast<std::size_t>(block) + 1;
      if (block_of_.size() < needed) block_of_.resize(needed, -1);
      block_of_[needed - 1] = static_cast<std::int32_t>(profile_.blocks.size());
      profile_.blocks.push_back({.block = block});
    }
  }

  LiveParameterProfile run(std::span<const FetchEvent> events) {
    for (const FetchEvent& event : events) take(event);
    pass().live.end = now_;
    close_block();
    add(profile_.gathers, profile_.forward.gathers);
    add(profile_.gathers, profile_.backward.gathers);
    profile_.peak = profile_.forward.live.peak;
    raise(profile_.peak, profile_.backward.live.peak);
    return std::move(profile_);
  }

 private:
  PassProfile& pass() { return in_backward_ ? profile_.backward : profile_.forward; }

  void take(const FetchEvent& event) {
    switch (event.kind) {
      case FetchEventKind::micro_step:
        now_ = {event.elements, event.buffer};
        pass().live = {now_, now_, now_};
        break;
      case FetchEventKind::backward:
        pass().live.end = now_;
        in_backward_ = true;
        pass().live = {now_, now_, now_};
        break;
      case FetchEventKind::enter:
        open_block(event.subject);
        break;
      case FetchEventKind::exit:
        if (!in_backward_ || event.pass == FetchPass::backward) close_block_of(event.subject);
        break;
      case FetchEventKind::leftovers:
        close_block();
        break;
      case FetchEventKind::release:
        now_.parameters -= event.elements;
        now_.buffers -= event.buffer;
        break;
      case FetchEventKind::bucket_done:
        now_.buffers -= event.elements;
        break;
      default:
        take_gather(event);
    }
  }

  void take_gather(const FetchEvent& event) {
    GatherTotals& totals = pass().gathers;
    switch (event.kind) {
      case FetchEventKind::fetch:
      case FetchEventKind::prefetch:
        totals.gathered += event.elements;
        now_.parameters += event.elements;
        break;
      case FetchEventKind::collective:
        totals.collective_elements += event.elements;
        ++totals.collectives;
        if (event.count > 1) ++totals.multi_parameter;
        now_.buffers += event.elements;
        break;
      case FetchEventKind::copy:
        totals.copied += event.elements;
        now_.buffers += event.elements;
        break;
      case FetchEventKind::load:
        now_.buffers += event.elements;
        break;
      default:
        return;
    }
    raise(pass().live.peak, now_);
    if (open_ != nullptr) raise(open_->peak, now_);
  }

  std::int32_t block_index(ModuleIndex module) const {
    const auto m = static_cast<std::size_t>(module);
    return m < block_of_.size() ? block_of_[m] : -1;
  }

  void open_block(ModuleIndex module) {
    const std::int32_t index = block_index(module);
    if (index < 0 || index == open_index_) return;
    close_block();
    BlockProfile& block = profile_.blocks[static_cast<std::size_t>(index)];
    open_ = in_backward_ ? &block.backward : &block.forward;
    open_index_ = index;
    *open_ = {now_, now_, now_};
  }

  void close_block_of(ModuleIndex module) {
    if (open_ != nullptr && block_index(module) == open_index_) close_block();
  }

  void close_block() {
    if (open_ != nullptr) open_->end = now_;
    open_ = nullptr;
    open_index_ = -1;
  }

  LiveParameterProfile profile_;
  std::vector<std::int32_t> block_of_;
  LiveElements now_;
  LiveSpan* open_ = nullptr;
  std::int32_t open_index_ = -1;
  bool in_backward_ = false;
};

}  // namespace

LiveParameterProfile profile_live_parameters(std::span<const FetchEvent> events,
                                             std::span<const ModuleIndex> blocks) {
  return Fold(blocks).run(events);
}

}  // namespace zeroplan
