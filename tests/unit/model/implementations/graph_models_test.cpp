// Graphs of the models people name, from their configs: every parameter gets one gradient, nothing
// leaks, and the matrix products agree with the parameter count.

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "model/families/hf_config.hpp"
#include "model/implementations/implementations.hpp"
#include "tests/catch.hpp"
#include "tests/support/graph_walk.hpp"

using namespace std::string_literals;

namespace zeroplan {
namespace {

Model from(const std::string& config) {
  return read_model(parse_json(config, "test").root, "test");
}

GraphOptions options() {
  GraphOptions o;
  o.micro_batch = 1;
  o.sequence_length = 512;
  return o;
}

void check_whole(const Model& model, const GraphOptions& o) {
  CAPTURE(model.model_type);
  REQUIRE(model.planned);
  const ModelGraph graph = build_graph(model, o);
  const testing::GraphWalk walk(graph);
  CHECK(walk.alive() == 0_B);
  CHECK(walk.gradients() == static_cast<int>(model.parameters.size()));
}

TEST_CASE("Graphs of small configs of each llama-like type are whole") {
  const std::string sizes =
      R"(, "hidden_size": 256, "intermediate_size": 512, "ffn_dim": 512, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 1024)";
  const std::vector<std::string> configs = {
      R"({"model_type": "llama", "num_key_value_heads": 2)" + sizes + "}",
      R"({"model_type": "mistral", "num_key_value_heads": 2)" + sizes + "}",
      R"({"model_type": "qwen2", "num_key_value_heads": 2, "tie_word_embeddings": true)" + sizes +
          "}",
      R"({"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 128)" + sizes + "}",
      R"({"model_type": "gemma", "num_key_value_heads": 1, "head_dim": 64)" + sizes + "}",
      R"({"model_type": "phi3", "num_key_value_heads": 4, "pad_token_id": 0)" + sizes + "}",
      R"({"model_type": "internlm")" + sizes + "}",
      R"({"model_type": "internlm2", "num_key_value_heads": 2)" + sizes + "}",
      R"({"model_type": "internlm2", "bias": false, "tie_word_embeddings": true)" + sizes + "}",
      R"({"model_type": "baichuan")" + sizes + "}",
      R"({"model_type": "mixtral", "num_key_value_heads": 2, "num_local_experts": 4)" + sizes + "}",
      R"({"model_type": "qwen2_moe", "num_key_value_heads": 2, "num_experts": 4,
          "moe_intermediate_size": 128, "shared_expert_intermediate_size": 256)" +
          sizes + "}",
      R"({"model_type": "qwen3_moe", "num_key_value_heads": 2, "num_experts": 4, "head_dim": 64,
          "num_experts_per_tok": 2, "moe_intermediate_size": 128)" +
          sizes + "}"};
  for (const std::string& config : configs) {
    const Model model = from(config);
    for (const ActivationCheckpointing checkpointing :
         {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      GraphOptions o = options();
      o.checkpointing = checkpointing;
      check_whole(model, o);
      o.zero3_linear = true;
      check_whole(model, o);
    }
  }
}

TEST_CASE("Graphs of experts in two parameters are whole, as one kernel and as a loop") {
  const std::string sizes =
      R"(, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
          "max_position_embeddings": 1024, "num_experts_per_tok": 2)";
  for (const std::string& type :
       {R"("mixtral", "num_local_experts": 4)"s,
        R"("qwen2_moe", "num_experts": 4, "moe_intermediate_size": 128)"s,
        R"("qwen3_moe", "num_experts": 5, "moe_intermediate_size": 96)"s}) {
    const Model model =
        read_model(parse_json(R"({"model_type": )" + type + sizes + "}", "test").root,
                   "test",
                   "",
                   {.experts = ExpertLayout::fused});
    for (const int capability : {80, 90}) {
      GraphOptions o = options();
      o.transformers = {5, 17};
      o.torch = {2, 11};
      o.compute_capability = capability;
      check_whole(model, o);
      o.checkpointing = ActivationCheckpointing::full;
      o.zero3_linear = true;
      check_whole(model, o);
    }
  }
}

TEST_CASE("An OPT that embeds in fewer dimensions projects in and out, its norms behind the sums") {
  const Model model = from(
      R"({"model_type": "opt", "hidden_size": 256, "word_embed_proj_dim": 128, "ffn_dim": 512,
          "do_layer_norm_before": false, "num_hidden_layers": 2, "num_attention_heads": 4,
          "vocab_size": 1000, "max_position_embeddings": 1024})");
  check_whole(model, options());
}

TEST_CASE("A sequence of one token has a loss of no positions in shifted heads") {
  const std::string sizes =
      R"(, "hidden_size": 256, "intermediate_size": 512, "ffn_dim": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
          "vocab_size": 1000, "max_position_embeddings": 1024)";
  for (const std::string type : {"llama", "opt"}) {
    const Model model = from(R"({"model_type": ")" + type + "\"" + sizes + "}");
    for (const Version version : {Version{4, 40}, Version{4, 47}}) {
      GraphOptions o = options();
      o.sequence_length = 1;
      o.transformers = version;
      check_whole(model, o);
    }
  }
}

TEST_CASE("Grouped heads that no fused kernel takes are repeated before the products") {
  const Model model = from(
      R"({"model_type": "llama", "num_key_value_heads": 2, "hidden_size": 256,
          "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
          "vocab_size": 1000, "max_position_embeddings": 1024})");
  for (const int capability : {60, 70}) {
    GraphOptions o = options();
    o.transformers = {5, 1};
    o.attention = Attention::sdpa;
    o.dtype = capability == 60 ? DType::bf16 : DType::fp16;
    o.compute_capability = capability;
    check_whole(model, o);
    int products = 0;
    for (const Block& block : build_graph(model, o).blocks) {
      for (const Operation& operation : block.operations) products += operation.name == "bmm";
    }
    CHECK(products > 0);
  }
}

TEST_CASE("Graphs of GPT-2 and BERT configs are whole") {
  check_whole(from(R"({"model_type": "gpt2", "vocab_size": 50257, "n_layer": 2, "n_embd": 768,
                       "n_head": 12})"),
              options());
  check_whole(from(R"({"model_type": "bert", "architectures": ["BertForMaskedLM"],
                       "vocab_size": 30522, "num_hidden_layers": 2, "hidden_size": 768,
                       "num_attention_heads": 12, "intermediate_size": 3072})"),
              options());
}

TEST_CASE("A graph of Llama 2 7B does 2 N FLOPs a token forward, embedding and norms aside") {
  const Model model = model_from_name("llama-2-7b");
  const ModelGraph graph = build_graph(model, options());
  double flops = 0;
  for (const BlockInstance& instance : graph.instances) {
    flops += cost(graph.block_of(instance), Pass::forward).matmul.value();
  }
  const double embedding = 32000.0 * 4096, norms = 65 * 4096.0;
  const double all = static_cast<double>(count_parameters(model).total.count());
  CHECK(flops == Approx(512 * 2 * (all - embedding - norms)));
}

TEST_CASE("Equal layers are one block however many there are") {
  const ModelGraph graph = build_graph(model_from_name("llama-2-7b"), options());
  CHECK(graph.blocks.size() == 3);
  CHECK(graph.instances.size() == 34);
}

TEST_CASE("Classification heads and foreign implementations are refused") {
  GraphOptions o = options();
  o.implementation = Implementation::megatron;
  CHECK_THROWS_AS(build_graph(model_from_name("llama-2-7b"), o), InputError);
}

}  // namespace
}  // namespace zeroplan
