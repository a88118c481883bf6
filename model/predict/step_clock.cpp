#include "model/predict/step_clock.hpp"

#include <algorithm>

namespace zeroplan {

MicroStepSeconds play_micro_step(const std::vector<StepTask>& tasks,
                                 const std::vector<TaskSeconds>& seconds,
                                 const std::vector<bool>& is_forward,
                                 bool overlaps) {
  double host = 0.0, gpu = 0.0, stream = 0.0;
  double ready = 0.0, ahead = 0.0, pending = 0.0;  // when gathered weights are there
  double before_last = 0.0, last = 0.0;            // ends of the latest computations
  MicroStepSeconds result;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const TaskSeconds& t = seconds[i];
    switch (tasks[i].kind) {
      case StepTaskKind::gather: {
        host += t.host;
        gpu += t.blocking_host;
        const double start = std::max({stream, host, overlaps ? before_last : gpu});
        stream = start + t.stream;
        if (!overlaps) gpu = stream;
        (tasks[i].ahead ? pending : ready) = stream;
        break;
      }
      case StepTaskKind::compute:
        if (tasks[i].takes_ahead) ready = std::max(ready, ahead);
        gpu = std::max(std::max({gpu, ready, host}) + t.gpu, host + t.host);
        host += t.host;
        ahead = std::max(ahead, pending);
        before_last = last;
        last = gpu;
        break;
      case StepTaskKind::reduce:
        host += t.host;
        gpu = std::max(gpu, host) + t.gpu + t.blocking_host;
        stream = std::max({stream, gpu, host}) + t.stream;
        if (!overlaps) gpu = stream;
        break;
    }
    if (is_forward[i]) result.forward = gpu;
  }
  result.backward = std::max({gpu, stream, host}) - result.forward;
  return result;
}

}  // namespace zeroplan
