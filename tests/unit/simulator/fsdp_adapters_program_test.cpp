// FSDP's program for a model with adapters: which gathers are sent, and when the host comes to
// them.
#include <algorithm>
#include <string>

#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/step/step_graph.hpp"
#include "simulator/lockstep.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/rank_simulation.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

constexpr int kLayers = 6;
constexpr int kTargets = 2;

Plan plan_of(const char* checkpointing, bool apart) {
  const Json model = Json::object({{"model_type", "llama"},
                                   {"hidden_size", 2048},
                                   {"num_hidden_layers", kLayers},
                                   {"num_attention_heads", 16},
                                   {"num_key_value_heads", 16},
                                   {"intermediate_size", 5504},
                                   {"vocab_size", 32000}});
  const Json lora = Json::object(
      {{"lora", Json::object({{"rank", 8}, {"targets", Json::array({"q_proj", "down_proj"})}})}});
  Plan plan = resolve(parse_scenario(
      Json::object(
          {{"model", model},
           {"cluster", "2xRTX3090"},
           {"workload",
            Json::object({{"sequence_length", 512},
                          {"engine", "fsdp"},
                          {"method", lora},
                          {"activation_checkpointing", checkpointing}})},
           {"ds_config",
            parse_json(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}})", "", {})
                .root}}),
      "test"));
  plan.fsdp.separate_adapters = apart;
  return plan;
}

// Gathers of one steady micro-step, those of adapters and those of blocks and the root.
struct Gathers {
  int small = 0;
  double large_seconds = 0.0;  // on the wire
};
Gathers gathers_of(const simulator::RankProgram& rank) {
  Gathers found;
  Bytes asked;
  for (const simulator::Instruction& instruction :
       rank.program.of(rank.steady.micro_steps.front().section)) {
    if (instruction.opcode == simulator::Opcode::allocate) asked = Bytes::of(instruction.bytes);
    if (instruction.opcode != simulator::Opcode::issue) continue;
    const simulator::Task& task = rank.program.tasks[static_cast<std::size_t>(instruction.index)];
    if (task.kind != simulator::TaskKind::collective || task.name != "all_gather") continue;
    if (asked < Bytes::mib(1)) {
      ++found.small;
    } else {
      found.large_seconds += task.duration.seconds();
    }
  }
  return found;
}

simulator::RankProgram program_of(const Plan& plan) {
  return simulator::write_rank_program(plan, step_graph(plan));
}

}  // namespace

TEST_CASE("FSDP gathers each adapter's matrix in each pass over its block") {
  constexpr int kMatrices = kLayers * kTargets * 2;
  CHECK(gathers_of(program_of(plan_of("none", true))).small == 2 * kMatrices);
  CHECK(gathers_of(program_of(plan_of("full", true))).small == 3 * kMatrices);
  CHECK(gathers_of(program_of(plan_of("full", false))).small == 0);
}

TEST_CASE("FSDP: adapters that are units keep the host from sending for the next block early") {
  const simulator::RankProgram rank = program_of(plan_of("full", true));
  const simulator::RankSimulation run = simulator::simulate_rank(rank);
  const double waited =
      run.step.idle[static_cast<std::size_t>(simulator::IdleCause::communication)];
  CHECK(waited > 0.8 * gathers_of(rank).large_seconds);
}
