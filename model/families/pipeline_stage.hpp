// The part of a model that one pipeline stage holds: some of its layers, the embedding on the first
// stage, norm and head on the last. A weight tied between both is on both.
//
// Source: deepspeed/runtime/pipe/module.py PipelineModule (LayerSpec, TiedLayerSpec).
#pragma once

#include <cstdint>

#include "model/transformer.hpp"

namespace zeroplan {

struct StageOfModel {
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  bool first = true;  // has what stands before the layers
  bool last = true;   // and what stands behind them
};

// Whether the model is one stack of layers in a list, with the rest before and behind it.
bool has_stages(const Model& model);

// Names stay those of the whole model. Precondition: has_stages(model).
Model stage_of(const Model& model, const StageOfModel& stage);

}  // namespace zeroplan
