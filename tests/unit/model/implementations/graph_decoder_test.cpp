// Graphs of Gemma 2 and 3, SmolLM3, OLMo 2, Granite, Starcoder 2, GLM-4 and Command R
// (hf_decoder.cpp): whole in every release and attention, with a mask where one is made. Their
// bytes are validated against rehearsals (tests/identical/rehearsed_accuracy_test.cpp).
#include <algorithm>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "model/families/hf_config.hpp"
#include "model/implementations/implementations.hpp"
#include "tests/catch.hpp"
#include "tests/support/graph_walk.hpp"

namespace zeroplan {
namespace {

const std::string kSizes =
    R"(, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
        "max_position_embeddings": 1024)";

Model from(const std::string& type, const std::string& more = "") {
  const std::string config = R"({"model_type": ")" + type + "\"" + kSizes + more + "}";
  return read_model(parse_json(config, "test").root, "test");
}

GraphOptions options(Version transformers, Attention attention) {
  GraphOptions o;
  o.micro_batch = 2;
  o.sequence_length = 128;
  o.transformers = transformers;
  o.attention = attention;
  return o;
}

void check_whole(const Model& model, const GraphOptions& o) {
  CAPTURE(model.model_type, o.sequence_length);
  REQUIRE(model.planned);
  const ModelGraph graph = build_graph(model, o);
  const testing::GraphWalk walk(graph);
  CHECK(walk.alive() == 0_B);
  CHECK(walk.gradients() == static_cast<int>(model.parameters.size()));
}

TEST_CASE("Graphs of the dense decoders are whole in every release, attention and length") {
  const std::vector<Model> models = {from("gemma2", R"(, "sliding_window": 64)"),
                                     from("gemma3_text", R"(, "sliding_window": 64)"),
                                     from("smollm3"),
                                     from("olmo2"),
                                     from("granite", R"(, "mlp_bias": true)"),
                                     from("starcoder2", R"(, "sliding_window": 64)"),
                                     from("starcoder2", R"(, "residual_dropout": 0.1)"),
                                     from("glm4"),
                                     from("cohere", R"(, "use_qk_norm": true)"),
                                     from("cohere2", R"(, "sliding_window": 64)")};
  for (const Model& model : models) {
    for (const Version transformers :
         {Version{4, 40}, Version{4, 47}, Version{4, 50}, Version{4, 57}, Version{5, 17}}) {
      for (const Attention attention : {Attention::eager, Attention::sdpa, Attention::flash}) {
        GraphOptions o = options(transformers, attention);
        check_whole(model, o);
        o.sequence_length = 32;
        o.checkpointing = ActivationCheckpointing::full;
        o.zero3_linear = true;
        check_whole(model, o);
      }
    }
  }
}

std::int64_t launches(const Model& model, const GraphOptions& o, std::string_view name) {
  std::int64_t count = 0;
  const ModelGraph graph = build_graph(model, o);
  for (const BlockInstance& instance : graph.instances) {
    const auto& operations = graph.block_of(instance).operations;
    count += std::count_if(operations.begin(), operations.end(), [&](const Operation& operation) {
      return operation.name == name;
    });
  }
  return count;
}

TEST_CASE("A window makes masks from as many tokens on as it has, in sliding layers alone") {
  const Model model = from("gemma3_text", R"(, "sliding_window": 128)");
  GraphOptions o = options({5, 17}, Attention::sdpa);
  CHECK(launches(model, o, "where") == 5);  // the sixth layer sees all
  o.sequence_length = 127;
  CHECK(launches(model, o, "where") == 0);
}

TEST_CASE(
    "Softcaps are where the class applies them: Gemma 2's scores in eager, its logits always") {
  const Model model = from("gemma2");
  CHECK(launches(model, options({5, 17}, Attention::eager), "tanh") == 7);
  CHECK(launches(model, options({5, 17}, Attention::sdpa), "tanh") == 1);
  const Model none =
      from("gemma2", R"(, "attn_logit_softcapping": null, "final_logit_softcapping": null)");
  CHECK(launches(none, options({5, 17}, Attention::eager), "tanh") == 0);
}

TEST_CASE("Layers take turns as the config says, else as the class does") {
  const auto sliding = [](const Model& model) {
    std::string text;
    for (const LayerAttention& layer : model.shape.layer_attention) {
      text += layer.sliding ? 's' : (layer.rotary ? 'f' : 'n');
    }
    return text;
  };
  CHECK(sliding(from("gemma2")) == "sfsfsf");
  CHECK(sliding(from("gemma3_text")) == "sssssf");
  CHECK(sliding(from("gemma3_text", R"(, "sliding_window_pattern": 3)")) == "ssfssf");
  CHECK(sliding(from("gemma3_text", R"(, "layer_types": ["full_attention", "sliding_attention",
      "full_attention", "full_attention", "full_attention", "full_attention"])")) == "fsffff");
  CHECK(sliding(from("cohere2")) == "sssnss");
  CHECK(sliding(from("smollm3")) == "fffnff");
  CHECK(sliding(from("smollm3", R"(, "no_rope_layers": [0, 1, 1, 1, 1, 0])")) == "nffffn");
  CHECK(sliding(from("starcoder2", R"(, "sliding_window": 64)")) == "ssssss");
  CHECK(from("olmo2").shape.layer_attention.empty());
}

TEST_CASE("Starcoder 2 of transformers 4.48 to 4.52 has no checkpoints") {
  const Model model = from("starcoder2");
  const auto checkpointed = [&](Version transformers) {
    GraphOptions o = options(transformers, Attention::sdpa);
    o.checkpointing = ActivationCheckpointing::full;
    const ModelGraph graph = build_graph(model, o);
    return std::any_of(graph.instances.begin(),
                       graph.instances.end(),
                       [](const BlockInstance& instance) { return instance.checkpointed; });
  };
  CHECK(checkpointed({4, 47}));
  CHECK_FALSE(checkpointed({4, 50}));
  CHECK(checkpointed({4, 57}));
}

TEST_CASE("A multimodal config whose text says neither its class nor its sizes is refused") {
  try {
    read_model(
        parse_json(R"({"model_type": "gemma3", "text_config": {"vocab_size": 262208}})", "gemma3")
            .root,
        "gemma3");
    FAIL("was read");
  } catch (const InputError& error) {
    CHECK(std::string(error.what()).find("text_config") != std::string::npos);
  }
}

}  // namespace
}  // namespace zeroplan
