#include "runtime/engine/loss_scaler.hpp"

#include <algorithm>

namespace zeroplan::runtime {

LossScaler::LossScaler(const LossScaling& scaling) : scaling_(scaling) {
  state_.scale = scaling.initial;
  state_.hysteresis = scaling.hysteresis;
}

// DynamicLossScaler.update_scale, without consecutive_hysteresis.
void LossScaler::update(bool skipped) {
  const std::int64_t iteration = state_.iteration++;
  if (!scaling_.dynamic) return;
  if (skipped) {
    if (state_.hysteresis <= 1) {
      state_.scale = std::max(state_.scale / 2.0, scaling_.smallest);
    } else {
      --state_.hysteresis;
    }
    state_.last_overflow = iteration;
  } else if ((iteration - state_.last_overflow) % scaling_.window == 0) {
    state_.hysteresis = scaling_.hysteresis;
    state_.scale *= 2.0;
  }
}

}  // namespace zeroplan::runtime
