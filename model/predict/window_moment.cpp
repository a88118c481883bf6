#include "model/predict/window_moment.hpp"

namespace zeroplan {

bool alive(BufferLifetime lifetime, const WindowMoment& moment) {
  const bool backward = moment.phase == Phase::backward;
  const bool step = moment.phase == Phase::step;
  const bool later_forward = moment.phase == Phase::forward && !moment.first;
  switch (lifetime) {
    case BufferLifetime::resident:
    case BufferLifetime::first_backward_on:
    case BufferLifetime::first_boundary_on:
    case BufferLifetime::first_step_on:
    case BufferLifetime::window_to_next_backward:
      return true;
    case BufferLifetime::boundary_to_next_backward:
      return step || (backward ? moment.boundary : moment.first);
    case BufferLifetime::between_steps:
      return !step;
    case BufferLifetime::backward:
      return backward;
    case BufferLifetime::boundary_backward:
      return backward && moment.boundary;
    case BufferLifetime::later_backward:
      return backward && !moment.first;
    case BufferLifetime::window:
      return backward || later_forward;
    case BufferLifetime::window_to_step:
      return backward || step || later_forward;
    case BufferLifetime::boundary_to_step:
      return step || (backward && moment.boundary);
    case BufferLifetime::after_boundary:
    case BufferLifetime::updates_to_step:
    case BufferLifetime::step:
      return step;
  }
  return false;
}

}  // namespace zeroplan
