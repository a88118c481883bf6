// litgpt's model, adapters and blocks; four-bit weights on one GPU.
#include "model/families/litgpt.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include "model/families/hf_config.hpp"
#include "model/implementations/implementations.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "model/step/graph_options.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

constexpr const char* kLlama7b = R"({"model_type":"llama","hidden_size":4096,
  "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,
  "intermediate_size":11008,"vocab_size":32000,"tie_word_embeddings":false})";
constexpr const char* kStableLm3b = R"({"model_type":"gpt_neox","hidden_size":4096,
  "num_hidden_layers":16,"num_attention_heads":32,"intermediate_size":16384,"vocab_size":50688,
  "use_parallel_residual":true,"tie_word_embeddings":false})";
constexpr const char* kFalcon40b = R"({"model_type":"falcon","hidden_size":8192,
  "num_hidden_layers":60,"num_attention_heads":128,"num_kv_heads":8,"multi_query":true,
  "new_decoder_architecture":true,"parallel_attn":true,"bias":false,"alibi":false,
  "vocab_size":65024,"tie_word_embeddings":false})";
constexpr const char* kPhi = R"({"model_type":"phi","hidden_size":2048,"num_hidden_layers":24,
  "num_attention_heads":32,"intermediate_size":8192,"vocab_size":51200})";

Scenario scenario_of(const std::string& model,
                     const std::string& method,
                     const std::string& more = "",
                     const std::string& cluster = "1xA100-40G") {
  std::string workload = R"("precision":"bf16","micro_batch_size":2,"method":)" + method + more;
  const auto otherwise = [&](const std::string& key, const std::string& value) {
    if (more.find(key) == std::string::npos) workload += ",\"" + key + "\":" + value;
  };
  otherwise("frontend", "\"native\"");
  otherwise("sequence_length", "64");
  otherwise("engine", "\"ddp\"");
  const std::string text = R"({"model":)" + model + R"(,"cluster":")" + cluster +
                           R"(","workload":{)" + workload +
                           R"(},"ds_config":{"bf16":{"enabled":true}}})";
  return parse_scenario(parse_json(text, "s.json").root, "s.json");
}

const std::string kLitgpt = R"(,"implementation":"litgpt","attention":"sdpa")";
const std::string kLora = R"({"lora":{"rank":8}})";

Plan planned(const std::string& model,
             const std::string& method,
             const std::string& more = kLitgpt) {
  return resolve(scenario_of(model, method, more));
}

std::string refusal(const std::string& model,
                    const std::string& method,
                    const std::string& more = kLitgpt) {
  try {
    planned(model, method, more);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

Elements total(const std::string& config) {
  return count_parameters(load_model(parse_json(config, "c.json").root, "c.json", "")).total;
}

ModelGraph graph(const Plan& plan) { return build_graph(*plan.model, graph_options(plan)); }

}  // namespace

TEST_CASE("litgpt builds as many parameters as Hugging Face, in blocks of its own") {
  for (const char* config : {kLlama7b, kStableLm3b, kFalcon40b, kPhi}) {
    const Plan plan = planned(config, R"("full")");
    CHECK(count_parameters(*plan.model).total == total(config));
    CHECK(count_parameters(*plan.model).trainable == total(config));
    const std::vector<int> blocks = wrapped_blocks(*plan.model);
    CHECK(*std::max_element(blocks.begin(), blocks.end()) + 1 == plan.model->shape.layers);
  }
}

TEST_CASE("litgpt's adapters on queries and values are as many as its tables say") {
  // tutorials/resource-tables.md, "Trainable parameters"
  const auto trained = [](const char* config, const std::string& method) {
    return count_parameters(*planned(config, method).model).trainable.count();
  };
  CHECK(trained(kLlama7b, R"({"lora":{"rank":8,"targets":["q_proj","v_proj"]}})") == 4194304);
  const std::string parts =
      R"({"lora":{"rank":8,"targets":["query_key_value"],"sub_targets":["q","v"]}})";
  CHECK(trained(kStableLm3b, parts) == 2097152);
  CHECK(trained(kFalcon40b, parts) == 12042240);
  CHECK(trained(kPhi, kLora) == 1572864);  // the recipe's default: q and v
}

TEST_CASE("what litgpt saves of a block is what autograd's hooks saw of its own code") {
  // lit_gpt/lora.py Block of October 2023 with pull request 606, torch 2.6, dropout 0, two rows of
  // 64 tokens, 512 wide, in hidden states U; the recipe's dropout adds a mask of U / 2.
  constexpr std::int64_t kU = 2LL * 64 * 512 * 2;
  const auto saved = [](const std::string& config) {
    const Plan plan = planned(config, kLora);
    const ModelGraph g = graph(plan);
    const BlockMemory memory = summarize(g.blocks[2]);  // gradients flow into its input
    return memory.saved.count() + (memory.saves_input ? memory.input.count() : 0);
  };
  const double llama = static_cast<double>(saved(
      R"({"model_type":"llama","hidden_size":512,"num_hidden_layers":3,"num_attention_heads":4,
          "intermediate_size":1376,"vocab_size":32000})"));
  CHECK(llama / kU == Approx(21.1797 + 0.5).epsilon(0.001));
  const double neox = static_cast<double>(saved(
      R"({"model_type":"gpt_neox","hidden_size":512,"num_hidden_layers":3,
          "num_attention_heads":4,"intermediate_size":2048,"vocab_size":50688})"));
  CHECK(neox / kU == Approx(14.1172 + 0.5).epsilon(0.001));
  const double phi = static_cast<double>(saved(
      R"({"model_type":"phi","hidden_size":512,"num_hidden_layers":3,"num_attention_heads":8,
          "intermediate_size":2048,"vocab_size":51200})"));
  CHECK(phi / kU == Approx(14.1289 + 0.5).epsilon(0.001));
  const double falcon = static_cast<double>(saved(
      R"({"model_type":"falcon","hidden_size":512,"num_hidden_layers":3,"num_attention_heads":8,
          "num_kv_heads":2,"new_decoder_architecture":true,"alibi":false,"vocab_size":65024})"));
  CHECK(falcon / kU == Approx(11.3594 + 0.5).epsilon(0.001));
}

TEST_CASE("litgpt's head keeps fp32 logits and log-probabilities, a chunk of 128 at a time") {
  const std::string config = R"({"model_type":"llama","hidden_size":512,"num_hidden_layers":1,
      "num_attention_heads":4,"intermediate_size":1376,"vocab_size":32000})";
  const Plan plan = resolve(scenario_of(config, kLora, kLitgpt + R"(,"sequence_length":300)"));
  const ModelGraph g = graph(plan);
  const BlockMemory head = summarize(g.blocks.back());
  const std::int64_t rows = 2 * 300, last = 2 * 299;
  // What the loop holds, and what the cross entropies save of it.
  CHECK(head.held.count() == rows * 32000 * 4);
  CHECK(head.saved.count() >= last * 32000 * 4);
  CHECK(head.saved.count() < last * 32000 * 4 + (4 << 20));
}

TEST_CASE("four-bit weights take half a byte an element and a scale a block of 64") {
  const Elements n = Elements::of(4096 * 4096);
  CHECK(four_bit_weight(n).count() == 4096 * 4096 / 2);
  CHECK(four_bit_state(n, false).count() == 4096 * 4096 / 64 * 4);
  CHECK(four_bit_state(n, true).count() == 4096 * 64 + 4096 * 64 / 256 * 4 + 4 * 257);
}

TEST_CASE("litgpt stores every linear layer in four bits, transformers all but the head") {
  const auto quantized = [](const Plan& plan) {
    std::int64_t sum = 0;
    for (const Parameter& parameter : plan.model->parameters) {
      if (parameter.quantized) sum += parameter.numel.count();
      if (parameter.quantized) CHECK_FALSE(parameter.trainable);
    }
    return sum;
  };
  const std::int64_t layers = 32LL * (4LL * 4096 * 4096 + 3LL * 4096 * 11008);
  CHECK(quantized(planned(kLlama7b, R"({"qlora":{}})")) == layers + 32000 * 4096);
  CHECK(quantized(planned(kLlama7b, R"({"qlora":{}})", "")) == layers);
}

TEST_CASE("four-bit weights are held packed, with scales in fp32 or quantised again") {
  const auto held = [](const std::string& quant) {
    return predict(planned(kLlama7b, R"({"qlora":{"quant":")" + quant + R"("}})"))
        .gpu.static_allocated.count();
  };
  const std::int64_t n = 32LL * (4LL * 4096 * 4096 + 3LL * 4096 * 11008) + 32000LL * 4096;
  const std::int64_t rest = 32000LL * 4096 * 2;  // the embedding
  CHECK(held("nf4") > n / 2 + n / 16 + rest);
  CHECK(held("nf4") < n / 2 + n / 16 + rest + (100 << 20));
  CHECK(held("fp4") == held("nf4"));
  const std::int64_t spared = held("nf4") - held("nf4-dq");
  CHECK(static_cast<double>(spared) == Approx(n * (3.0 / 64 - 4.0 / 64 / 256)).epsilon(0.01));
}

TEST_CASE("a four-bit product reads the weight once each way and keeps its input where told") {
  const Plan plan = planned(kLlama7b, R"({"qlora":{"rank":8}})");
  const Plan plain = planned(kLlama7b, kLora);
  const BlockMemory four = summarize(graph(plan).blocks[2]);
  const BlockMemory sixteen = summarize(graph(plain).blocks[2]);
  const std::int64_t u = 2LL * 64 * 4096 * 2, f = 2LL * 64 * 11008 * 2;
  // MatMul4Bit keeps both norms' outputs, the heads merged into a copy, and the gated product.
  CHECK(four.saved.count() - sixteen.saved.count() == 3 * u + f);
  int reads = 0;
  const ModelGraph four_bit = graph(plan);
  for (const Operation& operation : four_bit.blocks[2].operations) {
    if (operation.name == "dequantize_4bit") ++reads;
  }
  CHECK(reads == 2 * 5);
  // bitsandbytes since 0.45 keeps nothing
  const BlockMemory hf = summarize(graph(planned(kLlama7b, R"({"qlora":{}})", "")).blocks[2]);
  const BlockMemory hf16 = summarize(graph(planned(kLlama7b, kLora, "")).blocks[2]);
  CHECK(hf.saved == hf16.saved);
}

TEST_CASE("qlora's settings come back in the resolved document") {
  const Scenario scenario = scenario_of(
      kStableLm3b,
      R"({"qlora":{"rank":4,"targets":["query_key_value"],"sub_targets":["q"],"quant":"fp4-dq"}})",
      kLitgpt);
  const Json document = scenario_document(resolve(scenario), scenario);
  const Json* settings = document.find("workload")->find("method")->find("qlora");
  REQUIRE(settings != nullptr);
  CHECK(settings->find("rank")->as_integer() == 4);
  CHECK(settings->find("quant")->as_string() == "fp4");
  CHECK(settings->find("double_quant")->as_boolean());
  CHECK(settings->find("sub_targets")->items().size() == 1);
}

TEST_CASE("bitsandbytes' defaults are the frontend's: a loop's own or the Trainer's") {
  const auto twice = [](const std::string& more) {
    return planned(kLlama7b, R"({"qlora":{}})", more).workload.lora.weights.double_quant;
  };
  CHECK(twice(""));  // native
  CHECK_FALSE(twice(R"(,"frontend":"hf-trainer")"));
  CHECK_FALSE(twice(kLitgpt));  // nf4 and nf4-dq are two words there
}

TEST_CASE("what litgpt and four bits cannot do is refused with a reason") {
  CHECK(
      refusal(R"({"model_type":"gpt2","n_embd":64,"n_layer":2,"n_head":2,"vocab_size":100})", kLora)
          .find("under litgpt") != std::string::npos);
  CHECK(refusal(kLlama7b, kLora, R"(,"implementation":"litgpt","attention":"eager")")
            .find("flash or sdpa") != std::string::npos);
  CHECK(refusal(kLlama7b, R"({"lora":{"targets":["nothing"]}})").find("linear layers") !=
        std::string::npos);
  CHECK(refusal(kLlama7b, R"({"lora":{"sub_targets":["x"]}})").find("\"q\", \"k\", \"v\"") !=
        std::string::npos);
  CHECK(refusal(kStableLm3b, R"({"lora":{"sub_targets":["q"]}})", "").find("litgpt") !=
        std::string::npos);
  CHECK(refusal(kLlama7b, R"({"qlora":{"quant":"nf8"}})").find("nf4, fp4") != std::string::npos);
  CHECK(refusal(kLlama7b, R"({"lora":{"quant":"nf4"}})").find("a key of the adapters") !=
        std::string::npos);
}
