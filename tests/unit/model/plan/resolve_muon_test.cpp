// Which parameters DeepSpeed's Muon updates, and where it is refused.
#include <algorithm>
#include <string>

#include "base/diagnostic.hpp"
#include "model/engine/partition.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

std::string text_of(const std::string& zero, const std::string& more = "") {
  return R"({"model":{"model_type":"llama","hidden_size":64,"intermediate_size":176,)"
         R"("num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,)"
         R"("vocab_size":512,"max_position_embeddings":128},"cluster":"1x4xA100-80G-SXM",)"
         R"("workload":{"precision":"bf16","frontend":"native")" +
         more + R"(},"ds_config":{"bf16":{"enabled":true},"optimizer":{"type":"Muon"},)" +
         R"("zero_optimization":{)" + zero + "}}}";
}

Plan planned(const std::string& text) {
  return resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
}

std::string error_of(const std::string& text) {
  try {
    planned(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

const EngineParameter& named(const Plan& plan, const std::string& part) {
  for (std::size_t i = 0; i < plan.engine_parameters.size(); ++i) {
    if (plan.model->parameters[i].name.find(part) != std::string::npos) {
      return plan.engine_parameters[i];
    }
  }
  FAIL(part);
  return plan.engine_parameters.front();
}

bool any_by_muon(const Plan& plan) {
  return std::any_of(plan.engine_parameters.begin(),
                     plan.engine_parameters.end(),
                     [](const EngineParameter& one) { return one.muon.any(); });
}

}  // namespace

TEST_CASE("Muon takes the matrices but for embeddings and head, the largest first") {
  const Plan plan = planned(text_of(R"("stage":2)"));
  CHECK(plan.engine.optimizer == OptimizerKind::muon);
  for (const char* adams : {"embed_tokens", "lm_head", "norm"}) {
    CHECK_FALSE(named(plan, adams).muon.any());
    CHECK(named(plan, adams).group == 1);
  }
  const EngineParameter& down = named(plan, "layers.0.mlp.down_proj");
  CHECK(down.muon == MuonMatrices{1, 64, 176});
  CHECK(down.group == 0);
  // By rows, then columns: gate and up of both layers, down, q and o, then k and v.
  CHECK(named(plan, "layers.0.mlp.gate_proj").place == 0);
  CHECK(named(plan, "layers.1.mlp.up_proj").place == 3);
  CHECK(down.place == 4);
  CHECK(named(plan, "layers.0.self_attn.q_proj").place == 6);
  CHECK(named(plan, "layers.0.self_attn.k_proj").place == 10);
}

TEST_CASE("Muon's two groups stand in the order in which DeepSpeed makes them") {
  const Plan plan = planned(text_of(R"("stage":1)"));
  const FlatPartition partition = flat_partition(plan.engine, plan.engine_parameters);
  REQUIRE(partition.groups.size() == 2);
  CHECK(is_muon_group(partition.groups[0], plan.engine_parameters));
  CHECK_FALSE(is_muon_group(partition.groups[1], plan.engine_parameters));
  CHECK(partition.groups[0].numel == Elements::of(2 * (3 * 64 * 176 + 2 * 64 * 64 + 2 * 32 * 64)));
}

TEST_CASE("zero.Init leaves nothing to Muon at stage 3, which is said") {
  const Plan plan = planned(text_of(R"("stage":3,"reduce_scatter":false)"));
  CHECK_FALSE(any_by_muon(plan));
  CHECK(std::any_of(plan.warnings.begin(), plan.warnings.end(), [](const Phrase& line) {
    return line.english().find("leaves vectors to Adam") != std::string::npos;
  }));
}

TEST_CASE("Muon of weights that are whole when stage 3 is made is refused, adapters among them") {
  const char* const stage = R"("stage":3,"reduce_scatter":false)";
  for (const char* more :
       {R"(,"loading":"every-rank")", R"(,"method":{"lora":{"rank":4,"targets":["q_proj"]}})"}) {
    CAPTURE(more);
    CHECK(error_of(text_of(stage, more)).find("whole when the engine is made") !=
          std::string::npos);
  }
}

TEST_CASE("Muon is refused where DeepSpeed leaves its update out") {
  CHECK(error_of(text_of(R"("stage":0)")).find("got stage 0") != std::string::npos);
  CHECK(
      error_of(text_of(R"("stage":2,"reduce_scatter":false,"offload_optimizer":{"device":"cpu"})"))
          .find("got an offloaded optimizer") != std::string::npos);
  CHECK(
      error_of(text_of(R"("stage":2,"contiguous_gradients":false)")).find("contiguous_gradients") !=
      std::string::npos);
  CHECK(error_of(R"({"model":"qwen3-0.6b","cluster":"8xA100-80G-SXM",)"
                 R"("workload":{"engine":"fsdp","optimizer":"muon"}})")
            .find("got fsdp") != std::string::npos);
  CHECK(error_of(
            R"({"model":"qwen3-0.6b","cluster":"8xA100-80G-SXM","workload":{"optimizer":"muon"},)"
            R"("software":{"deepspeed":"0.18.9"},"ds_config":{"zero_optimization":{"stage":2}}})")
            .find("got 0.18.9") != std::string::npos);
}

TEST_CASE("ns_method chooses the iteration") {
  CHECK(planned(text_of(R"("stage":2)")).engine.newton_schulz == NewtonSchulz::gram);
  std::string text = text_of(R"("stage":2)");
  const std::string type = R"("type":"Muon")";
  text.insert(text.find(type) + type.size(), R"(,"params":{"ns_method":"standard"})");
  CHECK(planned(text).engine.newton_schulz == NewtonSchulz::standard);
}
