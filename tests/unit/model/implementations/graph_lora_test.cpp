// Low-rank adapters: what peft adds to a layer (recorded with peft 0.14), and what frozen weights
// spare.
#include "base/diagnostic.hpp"
#include "model/families/hf_config.hpp"
#include "model/implementations/implementations.hpp"
#include "model/implementations/lora.hpp"
#include "tests/catch.hpp"
#include "tests/support/graph_walk.hpp"
#include "tests/support/small_models.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t U = 2 * 2 * 1024 * 1024, F = 4 * U, N = 4 * 2048, kLse = 8 * N;
constexpr std::int64_t kRank = 8, kLow = 2 * 2048 * kRank;  // one (tokens, rank) tensor

LoraOptions adapters(std::vector<std::string> targets) {
  LoraOptions lora;
  lora.rank = kRank;
  lora.targets = std::move(targets);
  return lora;
}

GraphOptions options(const LoraOptions& lora) {
  GraphOptions o;
  o.micro_batch = 2;
  o.sequence_length = 1024;
  o.transformers = {4, 47};
  o.lora = lora;
  return o;
}

TEST_CASE("Adapters stand beside the layers they wrap, and nothing else trains") {
  const Model model = with_lora(testing::llama({}), adapters({"q_proj", "v_proj"}));
  const ParameterCounts counts = count_parameters(model);
  CHECK(counts.trainable == Elements::of(2 * 2 * 2 * kRank * 1024));
  CHECK(model.parameters[1].name == "model.layers.0.self_attn.q_proj.base_layer.weight");
  CHECK(model.parameters[2].name == "model.layers.0.self_attn.q_proj.lora_A.default.weight");
  CHECK(model.parameters[3].shape == std::vector<std::int64_t>{1024, kRank});
  CHECK_THROWS_AS(with_lora(model, adapters({"nothing"})), InputError);
}

TEST_CASE("Adapters on q and v keep the first norm's output and two low-rank tensors more") {
  const LoraOptions lora = adapters({"q_proj", "v_proj"});
  const Model model = with_lora(testing::llama({}), lora);
  const ModelGraph graph = build_graph(model, options(lora));
  REQUIRE(graph.blocks.size() == 4);  // no gradient flows into the first layer's input
  const BlockMemory later = summarize(graph.blocks[2]);
  // frozen: 4U + Q + 2K + out + 3F; the adapters read the norm's output
  CHECK(later.saved == Bytes::of(4 * U + 4 * U + 3 * F + 2 * N + kLse + U + 2 * kLow));
  CHECK(summarize(graph.blocks[1]).saved < later.saved);
  CHECK(graph.blocks[1].input_gradient == -1);
}

TEST_CASE("Adapters go beside linear layers only") {
  Model model = testing::llama({});
  model.modules.push_back({"model.embed_tokens", "Embedding", {}});
  CHECK_THROWS_AS(with_lora(model, adapters({"embed_tokens"})), InputError);
}

TEST_CASE("Every preset family has the targets of peft") {
  Model model;
  for (const std::string name : {"q_lin", "Wqkv", "q"}) {
    CAPTURE(name);
    model.parameters = {Parameter{}};
    model.parameters[0].name = "layer.0." + name + ".weight";
    CHECK(default_lora_targets(model).front() == name);
  }
}

TEST_CASE("A model with adapters is whole with and without checkpointing") {
  for (const Model& base :
       {testing::llama({}), model_from_name("bert-base-uncased"), testing::phi3()}) {
    const LoraOptions lora = adapters({});
    const Model model = with_lora(base, lora);
    for (const ActivationCheckpointing checkpointing :
         {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      for (const bool reentrant : {true, false}) {
        GraphOptions o = options(lora);
        o.checkpointing = checkpointing;
        o.checkpoint_reentrant = reentrant;
        CAPTURE(model.model_type, reentrant);
        const testing::GraphWalk walk(build_graph(model, o));
        CHECK(walk.alive() == 0_B);
        int trainable = 0;
        for (const Parameter& parameter : model.parameters) trainable += parameter.trainable;
        CHECK(walk.gradients() == trainable);
      }
    }
  }
}

TEST_CASE("Adapters on every linear layer are on routers, too, whose mixture stays one") {
  constexpr const char* kSizes =
      R"("hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,
         "num_key_value_heads":2,"vocab_size":512,"max_position_embeddings":1024)";
  for (const char* kind :
       {R"("model_type":"qwen2_moe","num_experts":4,"num_experts_per_tok":2,
                               "moe_intermediate_size":32,"shared_expert_intermediate_size":64)",
        R"("model_type":"qwen3_moe","num_experts":4,"num_experts_per_tok":2,
                               "moe_intermediate_size":32,"head_dim":16)",
        R"("model_type":"mixtral","num_local_experts":4,"num_experts_per_tok":2)"}) {
    const std::string config = std::string("{") + kind + "," + kSizes + "}";
    const Model base = read_model(parse_json(config, "config.json").root, "config.json", "");
    const LoraOptions lora = adapters(all_linear_targets(base));
    const Model model = with_lora(base, lora);
    CAPTURE(kind);
    const testing::GraphWalk walk(build_graph(model, options(lora)));
    CHECK(walk.alive() == 0_B);
    int trainable = 0;
    for (const Parameter& parameter : model.parameters) trainable += parameter.trainable;
    CHECK(walk.gradients() == trainable);
  }
}

}  // namespace
}  // namespace zeroplan
