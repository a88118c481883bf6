// What a rank's program has for a reference beside the trained model, for TRL's fused head, and for
// the first product of a pass.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/step/module_walk.hpp"
#include "model/step/step_graph.hpp"
#include "simulator/planned_ranks.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kHidden = 512, kVocabulary = 8000, kLayers = 2;
constexpr Bytes kWorkspace = Bytes::of(8'519'680);  // of cuBLAS on an A100
constexpr const char* kOffloaded =
    R"({"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}})";

Plan plan_of(const std::string& zero, const std::string& workload, const std::string& software) {
  const std::string text = R"({"model": {"model_type": "llama", "hidden_size": 512,
      "intermediate_size": 1536, "num_hidden_layers": 2, "num_attention_heads": 8,
      "vocab_size": 8000}, "cluster": "1x2xA100-80G", "ds_config": {"bf16": {"enabled": true},
      "zero_optimization": )" +
                           zero +
                           R"(}, "workload": {"sequence_length": 256, "micro_batch_size": 1,
      "gradient_accumulation_steps": 1, )" +
                           workload + R"(}, "software": )" + software + "}";
  return resolve(parse_scenario(parse_json(text, "test")));
}

constexpr const char* kNow = R"({"torch": "2.11.0", "transformers": "5.17.0", "trl": "1.16.0"})";

simulator::RankProgram program_of(const Plan& plan) {
  return simulator::write_rank_program(plan, step_graph(plan));
}

struct Counts {
  int copies = 0;        // to the GPU
  int used_by_nccl = 0;  // record_stream
};
Counts counts_of(const simulator::RankProgram& rank) {
  Counts counts;
  for (const simulator::Instruction& instruction :
       rank.program.of(rank.steady.micro_steps.front().section)) {
    if (instruction.opcode == simulator::Opcode::use_on_stream) ++counts.used_by_nccl;
    if (instruction.opcode != simulator::Opcode::issue) continue;
    const simulator::Task& task = rank.program.tasks[static_cast<std::size_t>(instruction.index)];
    if (task.kind == simulator::TaskKind::copy_to_device) ++counts.copies;
  }
  return counts;
}

TEST_CASE(
    "An offloaded reference brings its parts one by one, and holds them as the trained model") {
  // Weights above the threshold of persistence: seven of a layer, embedding and head.
  constexpr int kMatrices = 7 * kLayers + 2;
  const auto with = [](const char* trainer, const char* software) {
    return counts_of(
        program_of(plan_of(kOffloaded, std::string(R"("trainer": )") + trainer, software)));
  };
  const char* before = R"({"torch": "2.6.0", "transformers": "5.17.0", "trl": "1.16.0"})";
  constexpr const char* kWithout = R"({"dpo": {"precompute_reference": true}})";
  const Counts now = with(R"("dpo")", kNow), then = with(R"("dpo")", before);
  const Counts alone_now = with(kWithout, kNow), alone_then = with(kWithout, before);
  CHECK(now.copies - alone_now.copies == kMatrices);
  CHECK(then.copies - alone_then.copies == kMatrices);
  // torch up to 2.7 records NCCL's stream on what a gather of one parameter reads.
  CHECK(then.used_by_nccl - alone_then.used_by_nccl > now.used_by_nccl - alone_now.used_by_nccl);
}

TEST_CASE("TRL's fused head has tiles of all columns, however small the vocabulary is") {
  const simulator::RankProgram rank =
      program_of(plan_of(R"({"stage": 2})", R"("trainer": "dpo")", kNow));
  constexpr std::int64_t kScored = 2 * 255, kColumns = 32768;
  int tiles = 0;
  for (const simulator::Instruction& instruction :
       rank.program.of(rank.steady.micro_steps.front().section)) {
    const bool tile = instruction.opcode == simulator::Opcode::allocate &&
                      instruction.bytes == kScored * kColumns * 2;
    if (tile) ++tiles;
  }
  CHECK(tiles == 3);  // forward of both models, backward of one
}

TEST_CASE("At stage 3 the weight of a fused head belongs to the whole model") {
  const auto whole = [](const char* trl) {
    const Plan plan = plan_of(
        R"({"stage": 3})",
        R"("trainer": "dpo")",
        std::string(R"({"torch": "2.11.0", "transformers": "5.17.0", "trl": ")") + trl + "\"}");
    return fetch_model(plan).modules.front().parameters;
  };
  const Plan plan = plan_of(R"({"stage": 3})", R"("trainer": "dpo")", kNow);
  REQUIRE(plan.model->parameters.back().name == "lm_head.weight");
  const auto head = static_cast<ParameterIndex>(plan.model->parameters.size() - 1);
  CHECK(whole("1.16.0") == std::vector<ParameterIndex>{head});
  CHECK(whole("1.14.0").empty());
}

TEST_CASE("cuBLAS's workspace is there when the rotary tables are made, before the first layer") {
  const simulator::RankProgram rank =
      program_of(plan_of(R"({"stage": 2})", R"("optimizer": "adamw")", kNow));
  const std::vector<simulator::Instruction>& code = rank.program.code;
  const auto workspace =
      std::find_if(code.begin(), code.end(), [](const simulator::Instruction& each) {
        return each.opcode == simulator::Opcode::allocate && Bytes::of(each.bytes) == kWorkspace;
      });
  REQUIRE(workspace != code.end());
  const auto kernel = std::find_if(workspace, code.end(), [](const simulator::Instruction& each) {
    return each.opcode == simulator::Opcode::issue;
  });
  REQUIRE(kernel != code.end());
  CHECK(rank.program.tasks[static_cast<std::size_t>(kernel->index)].name == "bmm");
}

TEST_CASE("The weights under adapters are on the GPU before the adapters are flattened") {
  constexpr const char* kAdapters = R"("method": {"lora": {"rank": 8, "targets": ["q_proj"]}})";
  // Without ZeRO only DeepSpeed's own optimizer is flattened, not the Trainer's.
  const std::string native = std::string(R"("frontend": "native", )") + kAdapters;
  const std::pair<const char*, std::string> cases[] = {
      {R"({"stage": 0})", native}, {R"({"stage": 1})", kAdapters}, {R"({"stage": 2})", kAdapters}};
  for (const auto& [zero, workload] : cases) {
    CAPTURE(zero);
    const simulator::RankProgram rank = program_of(plan_of(zero, workload, kNow));
    std::vector<std::int64_t> asked;
    for (const simulator::Instruction& each : rank.program.of(rank.initialisation)) {
      if (each.opcode == simulator::Opcode::allocate) asked.push_back(each.bytes);
      if (asked.size() == 4) break;
    }
    // Embedding, q_proj, its two adapters.
    const std::vector<std::int64_t> expected = {
        kVocabulary * kHidden * 2, kHidden * kHidden * 2, 8 * kHidden * 2, 8 * kHidden * 2};
    CHECK(asked == expected);
  }
}

}  // namespace
}  // namespace zeroplan
