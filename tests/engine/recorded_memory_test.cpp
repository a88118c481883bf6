// Peaks that tests/reference/record_engine measured (live_bytes.py) against buffers and transients:
// of initialisation and of the optimizer's step, in configurations that keep everything on the
// device.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "evidence/recorded_engine.hpp"
#include "model/engine/buffers.hpp"
#include "model/engine/gradient_buckets.hpp"
#include "model/engine/transients.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

// Single numbers (norms, flags, step counters) and allocation order inside one operator.
constexpr double kRelative = 0.004;
constexpr double kBytes = 1024;

bool near(double predicted, double recorded) {
  return std::abs(predicted - recorded) <= kRelative * recorded + kBytes;
}

std::vector<Json> recordings_with_memory() {
  const std::string path =
      std::string(ZEROPLAN_SOURCE_DIR) + "/tests/engine/data/recorded/peaks.jsonl";
  std::ifstream file(path);
  std::vector<Json> found;
  for (std::string line; std::getline(file, line);) found.push_back(parse_json(line, path).root);
  return found;
}

double number(const Json& value) { return value.as_number(); }

double gpu_bytes(const evidence::RecordedEngine& engine, EngineMoment moment) {
  const auto buffers = engine_buffers(engine.config, engine.parameters);
  return static_cast<double>(
      bytes_at(buffers, BufferPlace::gpu, moment, engine.config.gradient_accumulation_steps)
          .count());
}

}  // namespace

TEST_CASE("the peak of initialisation is what was measured") {
  int measured = 0;
  for (const Json& recording : recordings_with_memory()) {
    const evidence::RecordedEngine engine = evidence::read_recorded_engine(recording);
    const Json& memory = *recording.find("memory");
    const HostAndGpu peak = initialization_peak(engine.config, engine.parameters);
    INFO(engine.id << ": predicted " << peak.gpu.count() << ", measured "
                   << number(*memory.find("init_peak")));
    CHECK(near(static_cast<double>(peak.gpu.count()), number(*memory.find("init_peak"))));
    const double after = gpu_bytes(engine, EngineMoment::initialised);
    INFO(engine.id << ": predicted after it " << after << ", measured "
                   << number(*memory.find("init_after")));
    CHECK(near(after, number(*memory.find("init_after"))));
    ++measured;
  }
  CHECK(measured >= 10);
}

// Only stage 3: below, the owned gradients are made inside the same call.
TEST_CASE("the copies of a bucket's reduction in stage 3 are what was measured") {
  int measured = 0;
  for (const Json& recording : recordings_with_memory()) {
    const evidence::RecordedEngine engine = evidence::read_recorded_engine(recording);
    if (engine.config.stage != 3) continue;
    GradientReducer reducer(engine.config, engine.parameters);
    EngineActions actions;
    for (const Json* event : engine.steps[0]) {
      const auto& fields = event->items();
      const std::string& kind = fields[0].as_string();
      if (kind == "phase" && fields[1].as_string() == "bwd") reducer.begin_backward(0);
      if (kind == "phase" && fields[1].as_string() == "step") reducer.end_backward(actions);
      if (kind == "g") {
        reducer.gradient_ready(static_cast<int>(fields[1].as_integer()), actions);
      }
    }
    const auto peak = static_cast<double>(reduction_peak(engine.config, actions).count());
    const double recorded = number(*recording.find("memory")->find("flush_peak"));
    INFO(engine.id << ": predicted " << peak << ", measured " << recorded);
    CHECK(near(peak, recorded));
    ++measured;
  }
  CHECK(measured >= 4);
}

TEST_CASE("the peak of a step is what was measured") {
  for (const Json& recording : recordings_with_memory()) {
    const evidence::RecordedEngine engine = evidence::read_recorded_engine(recording);
    const auto& steps = recording.find("memory")->find("steps")->items();
    const double temporaries =
        static_cast<double>(step_temporaries(engine.config, engine.parameters).gpu.count());
    for (std::size_t step = 1; step < steps.size(); ++step) {
      const double before = gpu_bytes(engine, EngineMoment::before_step);
      INFO(engine.id << " step " << step << ": predicted before it " << before << ", peak "
                     << before + temporaries << "; measured " << number(steps[step].items()[0])
                     << ", peak " << number(steps[step].items()[1]));
      CHECK(near(before, number(steps[step].items()[0])));
      CHECK(near(before + temporaries, number(steps[step].items()[1])));
    }
  }
}

}  // namespace zeroplan
