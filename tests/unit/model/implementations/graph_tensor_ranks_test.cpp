// DeepSpeed's AutoTP: what a rank holds and what a layer adds up, by the calls of
// deepspeed/module_inject/layers.py and the plans in transformers' configuration files.
#include <string>

#include "base/diagnostic.hpp"
#include "model/implementations/implementations.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"
#include "tests/support/graph_walk.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kTokens = 512;

Plan plan_of(const std::string& workload,
             const std::string& ds_config,
             const std::string& model = R"("llama-2-7b")",
             const std::string& software = R"({"deepspeed":"0.19.6"})") {
  return resolve(parse_scenario(parse_json(R"({"model":)" + model +
                                               R"(,"cluster":"1x8xA100-80G","software":)" +
                                               software + R"(,"workload":{"sequence_length":2048)" +
                                               workload + R"(},"ds_config":{)" + ds_config + "}}",
                                           "s.json")));
}

std::string error_of(const std::string& workload,
                     const std::string& ds_config,
                     const std::string& model = R"("llama-2-7b")",
                     const std::string& software = R"({"deepspeed":"0.19.6"})") {
  try {
    plan_of(workload, ds_config, model, software);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

Block layer_of(const Model& model, std::int64_t ranks) {
  GraphOptions options;
  options.sequence_length = kTokens;
  options.tensor_parallel = ranks;
  options.attention = Attention::flash;
  return build_graph(model, options).blocks[1];
}

Bytes added_up(const Block& block, Pass pass) {
  return testing::traffic_of(block, pass, OpKind::tensor_reduce);
}

constexpr const char* kTwo = R"("tensor_parallel":{"autotp_size":2})";

}  // namespace

TEST_CASE("AutoTP gives a rank its part of projections, and all of norms and of the embedding") {
  const Plan plan = plan_of("", kTwo);
  CHECK(plan.degrees.tensor == 2);
  CHECK(plan.degrees.data == 4);
  const std::int64_t h = 4096, f = 11008, v = 32000;
  const std::int64_t layer = (4 * h * h + 3 * h * f) / 2 + 2 * h;
  CHECK(count_parameters(*plan.model).total.count() == 32 * layer + v * h + v * h / 2 + h);
  CHECK(plan.whole_model->shape.heads == 32);
  CHECK(plan.model->shape.heads == 16);
}

TEST_CASE("AutoTP leaves the biases behind a reduction and a tied head whole") {
  const std::string model = R"({"model_type":"starcoder2","hidden_size":1024,
      "intermediate_size":4096,"num_hidden_layers":1,"num_attention_heads":8,
      "num_key_value_heads":2,"vocab_size":32000,"use_bias":true,"tie_word_embeddings":true})";
  const std::int64_t h = 1024, kv = 256, f = 4096;
  const std::int64_t matrices = h * h * 2 + 2 * h * kv + 2 * h * f, cut_biases = h + 2 * kv + f;
  const std::int64_t whole = 2 * h /* o_proj, c_proj */ + 3 * 2 * h /* norms */ + 32000 * h;
  CHECK(count_parameters(*plan_of("", kTwo, model).model).total.count() ==
        (matrices + cut_biases) / 2 + whole);
}

TEST_CASE("before DeepSpeed 0.19.4, and by a preset, AutoTP leaves the head whole") {
  const auto head = [](const std::string& release, const std::string& preset = "") {
    const Plan plan = plan_of("",
                              R"("tensor_parallel":{"autotp_size":2)" + preset + "}",
                              R"("llama-2-7b")",
                              R"({"deepspeed":")" + release + R"("})");
    return plan.model->parameters.back().shape.front();
  };
  CHECK(head("0.19.6") == 16000);
  CHECK(head("0.19.0") == 32000);
  CHECK(head("0.19.6", R"(,"preset_model":"llama")") == 32000);
}

// Each column-parallel layer adds up the gradient of its own input: DeepSpeed's q_proj, k_proj and
// v_proj do so three times for one tensor.
TEST_CASE("AutoTP adds up two outputs of a layer forward, and five gradients backward") {
  const Plan plan = plan_of("", kTwo);
  const Block layer = layer_of(*plan.model, plan.degrees.tensor);
  const Bytes hidden = Bytes::of(2 * kTokens * plan.model->shape.hidden);
  CHECK(added_up(layer, Pass::forward) == hidden * 2);
  CHECK(added_up(layer, Pass::backward) == hidden * 5);
}

TEST_CASE("train_batch_size counts the ranks of AutoTP, which read the same samples") {
  const std::string micro = R"(,"micro_batch_size":2,"gradient_accumulation_steps":3)";
  CHECK(plan_of(micro, kTwo).ds_config.integer(Knob::train_batch_size) == 2 * 3 * 8);
  const Plan plan = plan_of(R"(,"micro_batch_size":2)",
                            R"("train_batch_size":48,"tensor_parallel":{"autotp_size":2})");
  CHECK(plan.workload.gradient_accumulation_steps == 3);
  CHECK_THAT(error_of("", R"("train_batch_size":7,"tensor_parallel":{"autotp_size":2})"),
             Catch::Contains("a multiple of the 2 ranks of AutoTP"));
}

TEST_CASE("what AutoTP does not cut is refused by name") {
  const auto says = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  says(error_of("", R"("zero_optimization":{"stage":3},"tensor_parallel":{"autotp_size":2})"),
       "zero.Init leaves it no layer to cut");
  says(error_of("", R"("tensor_parallel":{"autotp_size":2})", R"("mixtral-8x7b")"), "Mixtral");
  says(error_of("", R"("tensor_parallel":{"autotp_size":2,"preset_model":"bloom"})"), "bloom");
  says(error_of("", R"("tensor_parallel":{"autotp_size":2,"partition_config":{}})"),
       "of one's own");
  says(error_of("", R"("tensor_parallel":{"autotp_size":2})", R"("phi-3-mini-4k")"), "Phi3");
  says(error_of("", R"("tensor_parallel":{"autotp_size":8})", R"("qwen2.5-7b")"),
       "4 key-value heads");
  says(error_of(R"(,"method":{"lora":{}})", kTwo), "adapters");
  says(error_of(R"(,"sequence_parallel":2)", kTwo), "sequence-parallel");
  says(error_of(R"(,"fused_loss":true)", kTwo), "fused loss");
  says(error_of("", kTwo, R"("llama-2-7b")", R"({"deepspeed":"0.16.4"})"), "0.18.9");
  says(error_of("", kTwo, R"("qwen3-8b")", R"({"deepspeed":"0.19.4"})"), "0.19.6");
  says(error_of(R"(,"tensor_parallel":4)", kTwo), "the same value");
}

}  // namespace zeroplan
