// What the loss is multiplied with, so that fp16 gradients neither vanish nor overflow.
//
// Source: DeepSpeed runtime/fp16/loss_scaler.py DynamicLossScaler.
#pragma once

#include <cstdint>

namespace zeroplan::runtime {

// Off: the loss itself.
struct LossScaling {
  double initial = 1.0;
  bool dynamic = false;
  std::int64_t window = 1000;   // steps without overflow after which the scale doubles
  std::int64_t hysteresis = 2;  // overflows before it halves
  double smallest = 1.0;
};

// What a dynamic scaler knows between steps; all of it decides about later scales.
struct LossScalerState {
  double scale = 1.0;
  std::int64_t hysteresis = 1;      // overflows that are left before the scale halves
  std::int64_t iteration = 0;       // steps so far, skipped ones included
  std::int64_t last_overflow = -1;  // its iteration
};

class LossScaler {
 public:
  explicit LossScaler(const LossScaling& scaling);

  // Also where it is fixed.
  double scale() const { return state_.scale; }
  bool dynamic() const { return scaling_.dynamic; }
  const LossScalerState& state() const { return state_; }
  // Goes on where an earlier run stopped.
  void resume(const LossScalerState& state) { state_ = state; }

  // After a step: `skipped`, because its gradients overflowed.
  void update(bool skipped);

 private:
  LossScaling scaling_;
  LossScalerState state_;
};

}  // namespace zeroplan::runtime
