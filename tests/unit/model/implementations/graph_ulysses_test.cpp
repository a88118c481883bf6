// DeepSpeed-Ulysses: what a Llama layer keeps and exchanges where ranks share a sequence, by the
// shapes of deepspeed/runtime/sequence_parallel/ulysses_sp.py.
#include <string>

#include "model/implementations/implementations.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "model/predict/step_work.hpp"
#include "tests/catch.hpp"
#include "tests/support/graph_walk.hpp"
#include "tests/support/small_models.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kTokens = 4096;

ModelGraph graph_of(const testing::LlamaSizes& sizes, std::int64_t ranks) {
  GraphOptions options;
  options.sequence_length = kTokens;
  options.sequence_parallel = ranks;
  options.attention = Attention::flash;
  return build_graph(testing::llama(sizes), options);
}

Bytes exchanged(const Block& block, Pass pass) {
  return testing::traffic_of(block, pass, OpKind::exchange);
}

Plan plan_of(const std::string& workload, const std::string& cluster = "1x8xH100-80G") {
  return resolve(parse_scenario(parse_json(
      R"({"model":"llama-2-7b","cluster":")" + cluster +
          R"(","workload":{"frontend":"native",)"
          R"("sequence_length":65536,"micro_batch_size":1,"attention":"flash",)" +
          workload + R"(},"ds_config":{"bf16":{"enabled":true},"zero_optimization":{"stage":3}}})",
      "s.json")));
}

}  // namespace

TEST_CASE("Ranks that share a sequence keep their share of a layer and attention's output twice") {
  const testing::LlamaSizes sizes;
  const Bytes alone = summarize(graph_of(sizes, 1).blocks[1]).saved;
  const Bytes shared = summarize(graph_of(sizes, 4).blocks[1]).saved;
  // Queries, keys and values are copies, as many bytes as before; attention keeps its output for
  // all tokens of some heads, o_proj its input for some tokens of all heads.
  const std::int64_t output = 2 * kTokens / 4 * sizes.heads * sizes.head_dim;
  CHECK(shared == alone / 4 + Bytes::of(output));
}

TEST_CASE("Queries, keys, values and outputs are exchanged once each way") {
  const testing::LlamaSizes sizes;
  const Block layer = graph_of(sizes, 4).blocks[1];
  const std::int64_t rank_tensor = 2 * kTokens / 4 * sizes.hidden;
  CHECK(exchanged(layer, Pass::forward) == Bytes::of(4 * rank_tensor));
  CHECK(exchanged(layer, Pass::backward) == Bytes::of(4 * rank_tensor));
  CHECK(exchanged(graph_of(sizes, 1).blocks[1], Pass::forward) == Bytes::zero());
}

TEST_CASE("Fewer key heads than ranks are repeated before the exchange") {
  testing::LlamaSizes sizes;
  sizes.kv_heads = 2;
  const Block layer = graph_of(sizes, 8).blocks[1];
  const std::int64_t queries = 2 * kTokens / 8 * sizes.heads * sizes.head_dim;
  const std::int64_t keys = 2 * kTokens / 8 * 8 * sizes.head_dim;  // 2 heads four times
  CHECK(exchanged(layer, Pass::forward) == Bytes::of(2 * queries + 2 * keys));
}

TEST_CASE("ZeRO shards over data-parallel times sequence-parallel ranks") {
  const Plan plan = plan_of(R"("sequence_parallel":4,"activation_checkpointing":"full")");
  CHECK(plan.degrees.data == 2);
  CHECK(plan.engine.data_parallel_ranks == 8);
  CHECK(plan.engine.sequence_parallel_ranks == 4);
  // engine.py: fp32 unless seq_parallel_communication_data_type says otherwise
  CHECK(plan.engine.communication_dtype == DType::fp32);
  const StepResult result = predict(plan);
  // Two replicas process a sequence each: tokens a GPU are a quarter of a sequence.
  const double tokens = 65536.0 / 4.0;
  CHECK(result.step.tokens_per_second_per_gpu * result.step.total.seconds() == Approx(tokens));
}

TEST_CASE("the file says how many ranks share a sequence, as a flag does") {
  const auto asked = [](const std::string& more, const std::string& ranks) {
    return resolve(parse_scenario(
        parse_json(
            R"({"model":"llama-2-7b","cluster":"1x8xH100-80G","workload":{"sequence_length":8192)" +
                more +
                R"(},"ds_config":{"zero_optimization":{"stage":3},"sequence_parallel_size":)" +
                ranks + "}}",
            "s.json")
            .root,
        "s.json"));
  };
  const Plan plan = asked("", "4");
  CHECK(plan.degrees.sequence == 4);
  CHECK(plan.degrees.data == 2);
  CHECK(plan.engine.sequence_parallel_ranks == 4);
  CHECK(asked(R"(,"sequence_parallel":4)", "4").degrees.sequence == 4);
  CHECK_THROWS_AS(asked(R"(,"sequence_parallel":2)", "4"), InputError);
  CHECK_THROWS_AS(asked("", "3"), InputError);
  CHECK_THROWS_AS(asked(R"(,"frontend":"native","sequence_parallel":2)", "4"), InputError);
  const Plan said = plan_of(R"("sequence_parallel":4)");
  CHECK(said.ds_config.integer(Knob::sequence_parallel_size) == 4);
}

TEST_CASE("gradients of ranks that share a sequence travel as the file says") {
  const Plan plan = resolve(parse_scenario(
      parse_json(R"({"model":"llama-2-7b","cluster":"1x8xH100-80G","workload":{"attention":"flash",
          "frontend":"native","sequence_length":65536,"micro_batch_size":1,"sequence_parallel":8},
          "ds_config":{"bf16":{"enabled":true},"seq_parallel_communication_data_type":"bf16",
          "zero_optimization":{"stage":3}}})",
                 "s.json")
          .root,
      "s.json"));
  CHECK(plan.engine.communication_dtype == DType::bf16);
}

TEST_CASE("A sequence shared by more ranks takes less of each GPU") {
  Bytes last = Bytes::infinite();
  for (const char* ranks : {"1", "2", "4", "8"}) {
    const Plan plan =
        plan_of(R"("activation_checkpointing":"full","sequence_parallel":)" + std::string(ranks));
    const Bytes peak = predict(plan).gpu.peak_allocated;
    CHECK(peak < last);
    last = peak;
  }
}

TEST_CASE("Sequence-parallel ranks that do not divide heads or tokens are refused") {
  const auto error_of = [](const std::string& workload,
                           const std::string& cluster = "1x8xH100-80G") -> std::string {
    try {
      plan_of(workload, cluster);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(error_of(R"("sequence_parallel":4)").empty());
  CHECK(error_of(R"("sequence_parallel":8,"implementation":"megatron")").find("not modelled yet") !=
        std::string::npos);
  CHECK(error_of(R"("sequence_parallel":3)", "1x3xH100-80G").find("32 attention heads") !=
        std::string::npos);
}

TEST_CASE("cpu_checkpointing moves checkpoints to the host in a native loop") {
  const auto plan = [](const char* frontend, const char* section) {
    return resolve(parse_scenario(parse_json(
        std::string(R"({"model":"llama-2-7b","cluster":"1x8xH100-80G","workload":{"frontend":")") +
            frontend +
            R"(","sequence_length":65536,"micro_batch_size":1,"attention":"flash",)"
            R"("activation_checkpointing":"full"},"ds_config":{"train_micro_batch_size_per_gpu":1,)"
            R"("bf16":{"enabled":true},)" +
            section + R"("zero_optimization":{"stage":3}}})",
        "s.json")));
  };
  const char* on = R"("activation_checkpointing":{"cpu_checkpointing":true},)";
  const StepResult kept = predict(plan("native", ""));
  const StepResult moved = predict(plan("native", on));
  // 32 layers of 65536 x 4096 hidden states in 16 bits
  const Bytes checkpoints = Bytes::of(std::int64_t{32} * 65536 * 4096 * 2);
  CHECK(kept.gpu.peak_allocated - moved.gpu.peak_allocated >= checkpoints / 2);
  CHECK(moved.host.peak >= checkpoints * 8);
  CHECK(moved.step.total > kept.step.total);
  // The Trainer checkpoints through PyTorch.
  const StepResult trainer = predict(plan("hf-trainer", on));
  CHECK(trainer.gpu.peak_allocated > moved.gpu.peak_allocated);
}

}  // namespace zeroplan
