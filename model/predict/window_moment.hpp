// Moments of a window of micro-steps, and which of the engine's buffers exist then.
#pragma once

#include "model/engine/buffers.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

// A moment of a window in a steady step.
struct WindowMoment {
  Phase phase = Phase::forward;
  bool first = true;     // of the window's micro-steps
  bool boundary = true;  // the last of them
};

// Does a buffer of that lifetime exist then (buffers.hpp, BufferLifetime)?
bool alive(BufferLifetime lifetime, const WindowMoment& moment);

inline void add(CategoryBytes& sum, const CategoryBytes& part) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
}

inline void keep_larger(CategoryBytes& highest, const CategoryBytes& bytes) {
  if (sum(bytes) > sum(highest)) highest = bytes;
}

}  // namespace zeroplan
