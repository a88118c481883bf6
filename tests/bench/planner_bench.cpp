// How long the parts of a prediction take. Run tests/bench by hand:
// build/release/bin/planner_bench.
#include <benchmark/benchmark.h>

#include "base/process_memory.hpp"
#include "model/implementations/implementations.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "model/predict/step_work.hpp"
#include "model/step/graph_options.hpp"
#include "tuner/fit.hpp"
#include "tuner/tune.hpp"

namespace {

using namespace zeroplan;

Scenario scenario(const char* model, int stage) {
  const std::string text = std::string(R"({"model":")") + model +
                           R"(","cluster":"8xA100-80G-SXM","ds_config":{"bf16":{"enabled":true},
      "zero_optimization":{"stage":)" +
                           std::to_string(stage) + "}}}";
  return parse_scenario(parse_json(text, "bench").root, "bench");
}

void build_graph_of_7b(benchmark::State& state) {
  const Plan plan = resolve(scenario("llama-2-7b", 3));
  const GraphOptions options = graph_options(plan);
  for (auto _ : state) benchmark::DoNotOptimize(build_graph(*plan.model, options));
}
BENCHMARK(build_graph_of_7b)->Unit(benchmark::kMicrosecond);

void step_work_of_7b(benchmark::State& state) {
  const Plan plan = resolve(scenario("llama-2-7b", static_cast<int>(state.range(0))));
  for (auto _ : state) benchmark::DoNotOptimize(step_work(plan));
}
BENCHMARK(step_work_of_7b)->Arg(2)->Arg(3)->Unit(benchmark::kMicrosecond);

void predict_7b(benchmark::State& state) {
  const Plan plan = resolve(scenario("llama-2-7b", static_cast<int>(state.range(0))));
  for (auto _ : state) benchmark::DoNotOptimize(predict(plan));
}
BENCHMARK(predict_7b)->DenseRange(0, 3)->Unit(benchmark::kMicrosecond);

void resolve_7b(benchmark::State& state) {
  const Scenario said = scenario("llama-2-7b", 3);
  const Prepared prepared = prepare(said);
  for (auto _ : state) benchmark::DoNotOptimize(resolve(said, prepared));
}
BENCHMARK(resolve_7b)->Unit(benchmark::kMicrosecond);

void fit_7b(benchmark::State& state) {
  const Scenario said = parse_scenario(
      parse_json(R"({"model":"llama-2-7b","cluster":"8xA100-80G-SXM"})", "b").root, "b");
  for (auto _ : state) benchmark::DoNotOptimize(tuner::fit(said));
}
BENCHMARK(fit_7b)->Unit(benchmark::kMillisecond);

// The question of docs/design.md, Numbers: everything `tune` prints, on two threads.
void tune_7b(benchmark::State& state) {
  const Scenario said = parse_scenario(
      parse_json(R"({"model":"7B","cluster":"8xA100-80G-SXM"})", "bench").root, "bench");
  tuner::TuneOptions options;
  options.search.jobs = 2;
  for (auto _ : state) {
    const tuner::TuneAnswer answer = tuner::tune(said, options);
    state.counters["points"] = static_cast<double>(answer.search.points);
    state.counters["simulated"] = static_cast<double>(answer.search.evaluated);
    state.counters["proven"] = answer.search.optimal ? 1.0 : 0.0;
  }
}
BENCHMARK(tune_7b)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();

}  // namespace

int main(int argc, char** argv) {
  zeroplan::keep_freed_memory();  // as the program does
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
