// DeepSpeed's pipeline as plain data: who has which layers, in which order a stage runs the passes
// of its micro-batches, how many of them live at once, and when all of it ends.
//
// Source: deepspeed/runtime/pipe/schedule.py TrainSchedule, pipe/module.py
// PipelineModule._partition_layers, runtime/utils.py partition_balanced.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace zeroplan {

// Layers that a stage has.
struct LayerRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool operator==(const LayerRange&) const = default;
};

// What counts as a layer when layers are dealt out: partition method "type:transformer" or
// "type:transformer|embedding", where the embedding and the head weigh as much as a layer each (as
// long as that leaves every stage a layer).
enum class StageWeights { layers, layers_and_ends };

// Each stage gets a contiguous range so that the loads differ as little as they can; of what does
// not divide the first stages get more, as partition_balanced of DeepSpeed 0.14, 0.16 and 0.19 does
// (tests/kit/check_pipeline.py). Precondition: 1 <= stages <= layers.
std::vector<LayerRange> partition_layers(std::int64_t layers,
                                         std::int64_t stages,
                                         StageWeights weights);

// Micro-batches whose forward pass a stage has run and whose backward pass it has not, at most:
// min(m, p - stage).
std::int64_t live_micro_batches(std::int64_t micro_batches,
                                std::int64_t stages,
                                std::int64_t stage);

struct PipelineSlot {
  bool forward = true;
  std::int64_t micro_batch = 0;
  bool operator==(const PipelineSlot&) const = default;
};

// The passes of one stage in order (1F1B).
std::vector<PipelineSlot> pipeline_slots(std::int64_t micro_batches,
                                         std::int64_t stages,
                                         std::int64_t stage);

// How long a stage computes on one micro-batch, in seconds.
struct StageSeconds {
  double forward = 0.0;
  double backward = 0.0;
};

// [P1] When the last pass of a step ends, with every stage running its slots in order:
//   forward(s, i) after forward(s - 1, i),   backward(s, i) after backward(s + 1, i)
// For equal stages (m + p - 1) (f + b). Checked by tests/engine/pipeline_schedule_test.cpp.
struct PipelineSpan {
  double seconds = 0.0;
  double forward_share = 0.0;  // of the passes' own time
};
PipelineSpan pipeline_span(std::span<const StageSeconds> stages, std::int64_t micro_batches);

}  // namespace zeroplan
