#include "model/engine/pipeline_schedule.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace zeroplan {

std::vector<LayerRange> partition_layers(std::int64_t layers,
                                         std::int64_t stages,
                                         StageWeights weights) {
  ZP_CHECK(stages >= 1 && layers >= stages, "a stage without layers");
  // A stage needs a layer of its own beside an end.
  const bool room = stages > 1 && layers + 2 >= 2 * stages;
  const std::int64_t ends = weights == StageWeights::layers_and_ends && room ? 1 : 0;
  const std::int64_t units = layers + 2 * ends;
  const std::int64_t least = units / stages;
  const std::int64_t larger = units % stages;  // stages with one unit more
  std::vector<LayerRange> ranges;
  std::int64_t next = 0;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    std::int64_t count = least + (stage < larger ? 1 : 0);
    if (stage == 0 || stage == stages - 1) count -= ends;
    ranges.push_back({next, count});
    next += count;
  }
  return ranges;
}

std::int64_t live_micro_batches(std::int64_t micro_batches,
                                std::int64_t stages,
                                std::int64_t stage) {
  return std::min(micro_batches, stages - stage);
}

std::vector<PipelineSlot> pipeline_slots(std::int64_t micro_batches,
                                         std::int64_t stages,
                                         std::int64_t stage) {
  std::vector<PipelineSlot> slots;
  const std::int64_t ahead = live_micro_batches(micro_batches, stages, stage);
  std::int64_t forward = 0, backward = 0;
  while (backward < micro_batches) {
    while (forward < micro_batches && forward - backward < ahead) {
      slots.push_back({true, forward++});
    }
    slots.push_back({false, backward++});
  }
  return slots;
}

PipelineSpan pipeline_span(std::span<const StageSeconds> stages, std::int64_t micro_batches) {
  const auto p = static_cast<std::int64_t>(stages.size());
  const auto count = static_cast<std::size_t>(micro_batches);
  struct Stage {
    std::vector<PipelineSlot> slots;
    std::vector<double> forward, backward;  // ends, by micro-batch
    std::size_t next = 0;
    double clock = 0.0;
  };
  std::vector<Stage> state(stages.size());
  for (std::int64_t s = 0; s < p; ++s) {
    Stage& stage = state[static_cast<std::size_t>(s)];
    stage.slots = pipeline_slots(micro_batches, p, s);
    stage.forward.assign(count, -1.0);
    stage.backward.assign(count, -1.0);
  }
  // When the slot's input is there; below zero: not yet.
  const auto ready = [&](std::size_t s, const PipelineSlot& slot) {
    const auto i = static_cast<std::size_t>(slot.micro_batch);
    if (slot.forward) return s == 0 ? 0.0 : state[s - 1].forward[i];
    return s + 1 == state.size() ? state[s].forward[i] : state[s + 1].backward[i];
  };
  const auto run = [&](std::size_t s) {
    Stage& stage = state[s];
    bool any = false;
    while (stage.next < stage.slots.size()) {
      const PipelineSlot& slot = stage.slots[stage.next];
      const double from = ready(s, slot);
      if (from < 0.0) break;
      const double length = slot.forward ? stages[s].forward : stages[s].backward;
      stage.clock = std::max(stage.clock, from) + length;
      (slot.forward ? stage.forward : stage.backward)[static_cast<std::size_t>(slot.micro_batch)] =
          stage.clock;
      ++stage.next;
      any = true;
    }
    return any;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < state.size(); ++s) moved = run(s) || moved;
    for (std::size_t s = state.size(); s-- > 0;) moved = run(s) || moved;
  }
  PipelineSpan span;
  double forward = 0.0, all = 0.0;
  for (std::size_t s = 0; s < state.size(); ++s) {
    ZP_CHECK(state[s].next == state[s].slots.size(), "a pipeline that does not end");
    span.seconds = std::max(span.seconds, state[s].clock);
    forward += stages[s].forward;
    all += stages[s].forward + stages[s].backward;
  }
  span.forward_share = all > 0.0 ? forward / all : 0.0;
  return span;
}

}  // namespace zeroplan
