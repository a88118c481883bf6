// How long a simulated rank takes: writing its program, playing one steady step, the whole answer.
#include <string>

#include <benchmark/benchmark.h>

#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/step_work.hpp"
#include "model/step/step_graph.hpp"
#include "simulator/lockstep.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/simulate.hpp"

namespace {

using namespace zeroplan;

// A LLaMA-like model of 4096 wide layers under ZeRO-3 with full checkpointing.
Plan layers_plan(std::int64_t layers, std::int64_t nodes = 1) {
  const std::string text =
      R"({"model":{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":4096,
      "intermediate_size":11008,"num_hidden_layers":)" +
      std::to_string(layers) + R"(,"num_attention_heads":32,"vocab_size":32000},"cluster":")" +
      std::to_string(nodes) +
      R"(x8xA100-80G-SXM","workload":{"activation_checkpointing":"full"},"ds_config":{"bf16":
      {"enabled":true},"zero_optimization":{"stage":3}}})";
  return resolve(parse_scenario(parse_json(text, "bench").root, "bench"));
}

void write_program(benchmark::State& state) {
  const Plan plan = layers_plan(state.range(0));
  const StepWork work = step_work(plan);
  for (auto _ : state) benchmark::DoNotOptimize(simulator::write_rank_program(plan, work.graph));
}
BENCHMARK(write_program)->Arg(16)->Arg(32)->Arg(64)->Unit(benchmark::kMillisecond);

// One steady step, unfolded, after the run has come to it.
void play_steady_step(benchmark::State& state) {
  const Plan plan = layers_plan(state.range(0));
  const simulator::RankProgram rank = simulator::write_rank_program(plan, step_graph(plan));
  simulator::EventLoop loop(rank.program, {});
  const auto play = [&](const simulator::StepSections& step) {
    for (const simulator::RepeatedSection& part : step.micro_steps) loop.play(part.section);
    loop.play(step.optimizer);
  };
  loop.play(rank.initialisation);
  for (const simulator::StepSections& step : rank.first_steps) play(step);
  play(rank.steady);
  for (auto _ : state) {
    play(rank.steady);
    loop.drain();
  }
}
BENCHMARK(play_steady_step)->Arg(16)->Arg(32)->Arg(64)->Arg(128)->Unit(benchmark::kMillisecond);

void simulate_rank_from_start(benchmark::State& state) {
  const Plan plan = layers_plan(32, state.range(0));
  const simulator::RankProgram rank = simulator::write_rank_program(plan, step_graph(plan));
  for (auto _ : state) benchmark::DoNotOptimize(simulator::simulate_rank(rank));
}
BENCHMARK(simulate_rank_from_start)->Arg(1)->Arg(8)->Arg(128)->Unit(benchmark::kMillisecond);

void simulate_plan(benchmark::State& state) {
  const Plan plan = layers_plan(32);
  for (auto _ : state) benchmark::DoNotOptimize(simulator::simulate(plan));
}
BENCHMARK(simulate_plan)->Unit(benchmark::kMillisecond);

// Stage 2 with the optimizer on the host: ranks that differ, in lockstep, or one in place of all.
void simulate_ranks_that_differ(benchmark::State& state) {
  const Plan plan = resolve(parse_scenario(
      parse_json(R"({"model":"7B","cluster":"8xA100-80G-SXM","ds_config":{"bf16":{"enabled":true},
      "zero_optimization":{"stage":2,"overlap_comm":true,"offload_optimizer":{"device":"cpu"}}}})",
                 "bench")
          .root,
      "bench"));
  const bool lockstep = state.range(0) != 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        simulator::simulate(plan, {.other_networks = false, .lockstep = lockstep}));
  }
}
BENCHMARK(simulate_ranks_that_differ)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

// On a GPU on which the allocator gives cached memory back all the time: 16 micro-steps that leave
// different states behind.
void simulate_near_the_limit(benchmark::State& state) {
  const Plan plan = resolve(parse_scenario(
      parse_json(R"({"model":"7B","cluster":"8xA100-80G-SXM","workload":{"micro_batch_size":4,
      "gradient_accumulation_steps":16},"ds_config":{"bf16":{"enabled":true},
      "zero_optimization":{"stage":3,"overlap_comm":true,"reduce_bucket_size":10000000}}})",
                 "bench")
          .root,
      "bench"));
  const bool verdict_alone = state.range(0) != 0;
  for (auto _ : state) {
    const StepResult result = simulator::simulate(plan, {.verdict_alone = verdict_alone});
    state.counters["flushes"] = static_cast<double>(result.gpu.allocator_flushes);
  }
}
BENCHMARK(simulate_near_the_limit)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

}  // namespace
