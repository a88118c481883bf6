// One measurement as a fit takes it: a time or a peak of memory, and a function that predicts it
// from coefficients. Which lines become one, with what spread: observe.hpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "base/units.hpp"
#include "model/cost/coefficients.hpp"

namespace zeroplan::evidence {

// Times and memory depend on different coefficients and are fitted apart.
enum class ObservationKind { time, memory };

struct Observation {
  ObservationKind kind = ObservationKind::time;
  std::string id;
  std::string file;
  std::string source;     // as the line says
  std::string origin;     // what is left out together: the repository or site of `source`
  std::string what;       // "step_seconds", "all_gather", "peak_total_bytes"
  std::string gpu;        // key of the GPU
  Coefficients table;     // of the GPU, without a profile
  double measured = 0.0;  // seconds or bytes
  double sd = 0.0;        // of log(measured), as far as it is known beforehand
  double open_sd = 0.0;   // of it, what keys that is unspecified may change
  // What the model expects of its own error, relative, and the coefficient that says most of it.
  double model_sd = 0.0;
  double allocated = 0.0;  // of reserved and total memory of PyTorch: bytes allocated at the peak
  Coefficient deviation = Coefficient::step_time_model_sd;
  // Seconds or bytes under these coefficients. `exact` is what `simulate` says (the step is
  // simulated); `quick` the analytic estimate, whose slopes are nearly the same and take a tenth of
  // the time.
  std::function<double(const Coefficients&)> exact;
  std::function<double(const Coefficients&)> quick;
  // For the range of the data; 0 where it has no meaning.
  double parameters = 0.0;
  double sequence_length = 0.0;
  double tokens_per_micro_batch = 0.0;
  double gpus = 0.0;
};

struct UnusedMeasurement {
  std::string file;
  std::string id;
  Phrase reason;
};

struct Observations {
  std::vector<Observation> rows;
  std::vector<UnusedMeasurement> unused;
};

}  // namespace zeroplan::evidence
