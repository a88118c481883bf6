// Documents that `zeroplan trace` wrote (tests/reference/traced: transformers' own classes, traced
// with torch 2.11) against the families that describe the same classes by hand.
#include <string>

#include "base/diagnostic.hpp"
#include "model/families/hf_config.hpp"
#include "model/families/pipeline_stage.hpp"
#include "model/families/traced_document.hpp"
#include "model/graph/traced_graph.hpp"
#include "model/implementations/implementations.hpp"
#include "model/implementations/lora.hpp"
#include "tests/catch.hpp"
#include "tests/support/graph_walk.hpp"

using namespace zeroplan;
using zeroplan::testing::GraphWalk;

namespace {

const std::string kFolder = std::string(ZEROPLAN_SOURCE_DIR) + "/tests/reference/traced/";

Json document_of(const std::string& name) {
  return read_json_file(kFolder + name + ".graph.json").root;
}

Model traced(const std::string& name) {
  return read_model(document_of(name), name + ".graph.json");
}

// As in the release that it was traced with.
Model described(const std::string& name, ExpertLayout experts = ExpertLayout::modules) {
  return read_model(read_json_file(kFolder + name + ".config.json").root,
                    name + ".config.json",
                    "",
                    {.experts = experts, .transformers = Version{5, 17, 0}});
}

GraphOptions options_of(std::int64_t batch, std::int64_t sequence) {
  GraphOptions options;
  options.micro_batch = batch;
  options.sequence_length = sequence;
  options.transformers = {5, 17};
  options.torch = {2, 11};
  options.use_cache = false;
  return options;
}

struct Walked {
  ModelGraph graph;
  GraphWalk walk;
  Bytes peak;
  explicit Walked(ModelGraph made) : graph(std::move(made)), walk(graph) {
    for (const GraphWalk::Step& step : walk.steps()) peak = std::max(peak, step.peak);
  }
};

double flops_of(const ModelGraph& graph) {
  double sum = 0.0;
  for (const BlockInstance& instance : graph.instances) {
    for (const Operation& operation : graph.block_of(instance).operations) {
      sum += operation.flops.value() * static_cast<double>(operation.times);
    }
  }
  return sum;
}

// What differs: each step of the two graphs, as many blocks on both sides.
std::string difference(const Walked& a, const Walked& b) {
  if (a.walk.steps().size() != b.walk.steps().size()) {
    return std::to_string(a.walk.steps().size()) + " steps, " +
           std::to_string(b.walk.steps().size());
  }
  std::string text;
  for (std::size_t i = 0; i < a.walk.steps().size(); ++i) {
    const auto &x = a.walk.steps()[i], &y = b.walk.steps()[i];
    if (x.peak == y.peak && x.after == y.after) continue;
    text += "\n  instance " + std::to_string(x.step.instance) + " pass " +
            std::to_string(static_cast<int>(x.step.pass)) + ": peak " +
            std::to_string(x.peak.count()) + " " + std::to_string(y.peak.count()) + ", after " +
            std::to_string(x.after.count()) + " " + std::to_string(y.after.count());
  }
  return text;
}

}  // namespace

TEST_CASE("a traced model has the parameters and modules of the family, in its order") {
  for (const char* name : {"llama", "qwen3", "gpt2"}) {
    INFO(name);
    const Model a = traced(name), b = described(name);
    REQUIRE(a.parameters.size() == b.parameters.size());
    for (std::size_t i = 0; i < a.parameters.size(); ++i) {
      CHECK(a.parameters[i].name == b.parameters[i].name);
      CHECK(a.parameters[i].shape == b.parameters[i].shape);
    }
    CHECK(a.architecture == b.architecture);
    CHECK(a.planned);
    CHECK(a.shape.hidden == b.shape.hidden);
  }
}

TEST_CASE("of a traced model's fused experts a token uses those that its rows go to") {
  const Model a = traced("mixtral"), b = described("mixtral", ExpertLayout::fused);
  CHECK(count_parameters(a).total == count_parameters(b).total);
  CHECK(count_parameters(a).active == count_parameters(b).active);
  CHECK(count_parameters(a).active < count_parameters(a).total);
}

TEST_CASE("a traced model takes what the family takes, pass by pass") {
  for (const char* name : {"llama", "qwen3", "gpt2"}) {
    for (const std::int64_t batch : {1, 2, 4}) {
      for (const auto checkpointing :
           {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
        for (const bool reentrant : {true, false}) {
          GraphOptions options = options_of(batch, 1024);
          options.checkpointing = checkpointing;
          options.checkpoint_reentrant = reentrant;
          INFO(name << " batch " << batch
                    << (checkpointing == ActivationCheckpointing::full ? " full" : " none")
                    << (reentrant ? " reentrant" : ""));
          const Walked a(build_graph(traced(name), options)),
              b(build_graph(described(name), options));
          INFO(difference(a, b));
          CHECK(a.peak == b.peak);
          CHECK(a.walk.gradients() == b.walk.gradients());
        }
      }
    }
  }
}

TEST_CASE("rows that end in padding give a traced model the mask that they give the family") {
  for (const char* name : {"llama", "qwen3", "gpt2"}) {
    for (const auto checkpointing :
         {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      GraphOptions options = options_of(2, 1024);
      options.checkpointing = checkpointing;
      options.mask = MaskKind::padded;
      INFO(name);
      const Walked a(build_graph(traced(name), options)), b(build_graph(described(name), options));
      CHECK(a.peak == b.peak);
      CHECK(a.walk.alive() == 0_B);
      CHECK(flops_of(a.graph) == Approx(flops_of(b.graph)).epsilon(1e-6));
    }
  }
}

TEST_CASE("ranks share a traced model's sequence as they share the family's") {
  for (const char* name : {"llama", "qwen3"}) {
    CHECK(has_ulysses(traced(name), Attention::sdpa));
    for (const std::int64_t ranks : {2, 4}) {
      for (const auto checkpointing :
           {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
        GraphOptions options = options_of(1, 4096);
        options.sequence_parallel = ranks;
        options.checkpointing = checkpointing;
        INFO(name << " on " << ranks << " ranks");
        const Walked a(build_graph(traced(name), options)),
            b(build_graph(described(name), options));
        INFO(difference(a, b));
        CHECK(a.peak == b.peak);
        CHECK(a.walk.gradients() == b.walk.gradients());
        CHECK(flops_of(a.graph) == Approx(flops_of(b.graph)).epsilon(0.001));
      }
    }
  }
}

TEST_CASE("a traced model's feed-forward runs by tiles as the family's does") {
  for (const char* name : {"llama", "qwen3"}) {
    REQUIRE(has_tiled_mlp(traced(name)));
    for (const auto checkpointing :
         {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      GraphOptions options = options_of(1, 4096);
      options.tiled_mlp = true;
      options.checkpointing = checkpointing;
      INFO(name);
      const Walked a(build_graph(traced(name), options)), b(build_graph(described(name), options));
      INFO(difference(a, b));
      CHECK(a.peak == b.peak);
      CHECK(flops_of(a.graph) == Approx(flops_of(b.graph)).epsilon(0.001));
    }
  }
  CHECK_FALSE(has_tiled_mlp(traced("gpt2")));
  CHECK_FALSE(has_tiled_mlp(traced("mixtral")));
}

TEST_CASE("ranks share no sequence of a model that reads other tokens beside its attention") {
  CHECK_FALSE(has_ulysses(traced("qwen3_5"), Attention::sdpa));  // linear attention
  Json document = document_of("llama");
  for (Json& block : document["blocks"].items()) {
    for (Json& event : block["events"].items()) {
      const Json* operation = event.find("op");
      if (operation == nullptr || *operation != Json("scaled_dot_product_attention")) continue;
      event["in"].items()[3] = event["in"].items()[0];  // a mask
    }
  }
  CHECK_FALSE(has_ulysses(read_model(document, "g.json"), Attention::sdpa));
}

TEST_CASE("a traced mixture takes and computes what the family does") {
  for (const int capability : {80, 90}) {
    for (const auto checkpointing :
         {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      GraphOptions options = options_of(2, 1024);
      options.compute_capability = capability;
      options.checkpointing = checkpointing;
      const Walked a(build_graph(traced("mixtral"), options));
      const Walked b(build_graph(described("mixtral", ExpertLayout::fused), options));
      INFO(capability << difference(a, b));
      CHECK(static_cast<double>(a.peak.count()) ==
            Approx(static_cast<double>(b.peak.count())).epsilon(2e-4));
      CHECK(flops_of(a.graph) == Approx(flops_of(b.graph)));
    }
  }
}

TEST_CASE("a trainer's own code takes a traced model's hidden states, as it takes the family's") {
  for (const char* name : {"llama", "qwen3", "gpt2"}) {
    for (const auto code : {TokenScores::whole,
                            TokenScores::rows,
                            TokenScores::kernel,
                            TokenScores::chunks,
                            TokenScores::wide}) {
      GraphOptions options = options_of(2, 1024);
      options.scores.code = code;
      INFO(name << " " << static_cast<int>(code));
      const Walked a(build_graph(traced(name), options)), b(build_graph(described(name), options));
      INFO(difference(a, b));
      CHECK(a.peak == b.peak);
      CHECK(a.walk.gradients() == b.walk.gradients());
    }
  }
}

TEST_CASE("a traced model has Liger's loss, where the family has nothing else of it") {
  GraphOptions options = options_of(2, 1024);
  options.fused_loss = true;
  const Walked a(build_graph(traced("gpt2"), options)), b(build_graph(described("gpt2"), options));
  INFO(difference(a, b));
  CHECK(a.peak == b.peak);
}

TEST_CASE("a traced model whose logits are no product with a matrix has its own loss alone") {
  Json document = document_of("gpt2");
  for (Json& event : document["blocks"].items().back()["events"].items()) {
    const Json* op = event.find("op");
    if (op != nullptr && op->as_string() == "linear") event["op"] = "unheard_of";
  }
  GraphOptions options = options_of(2, 1024);
  options.scores.code = TokenScores::whole;
  CHECK_THROWS_AS(build_graph(read_model(document, "gpt2"), options), InputError);
}

TEST_CASE("linear attention of a traced model is one operation, by either code") {
  const Model a = traced("qwen3_5"), b = described("qwen3_5");
  CHECK(kernels_of(a) == LinearAttention::fla);
  for (const auto by : {LinearAttention::torch, LinearAttention::fla}) {
    for (const auto checkpointing :
         {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      GraphOptions options = options_of(2, 1000);
      options.linear_attention = by;
      options.checkpointing = checkpointing;
      INFO(name(kLinearAttentionNames, by));
      const Walked x(build_graph(a, options)), y(build_graph(b, options));
      INFO(difference(x, y));
      CHECK(x.peak == y.peak);
      CHECK(x.walk.gradients() == y.walk.gradients());
      CHECK(x.graph.assumptions.front() == y.graph.assumptions.front());
    }
  }
}

TEST_CASE("adapters on a traced model take what they take on the family") {
  for (const char* name : {"llama", "qwen3", "gpt2"}) {
    for (const auto checkpointing :
         {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      GraphOptions options = options_of(2, 1024);
      options.checkpointing = checkpointing;
      LoraOptions lora;
      lora.dtype = DType::bf16;
      if (std::string(name) != "gpt2") lora.targets = {"q_proj", "v_proj", "down_proj"};
      options.lora = lora;
      INFO(name << (checkpointing == ActivationCheckpointing::full ? " full" : " none"));
      const Walked a(build_graph(with_lora(traced(name), lora), options));
      const Walked b(build_graph(with_lora(described(name), lora), options));
      INFO(difference(a, b));
      CHECK(a.peak == b.peak);
      CHECK(a.walk.gradients() == b.walk.gradients());
    }
  }
}

TEST_CASE("precision, autocast and stage 3's linear layers are the plan's, not the trace's") {
  for (const char* name : {"llama", "gpt2"}) {
    INFO(name);
    GraphOptions options = options_of(2, 512);
    options.dtype = DType::fp32;
    CHECK(Walked(build_graph(traced(name), options)).peak ==
          Walked(build_graph(described(name), options)).peak);
    options.dtype = DType::fp16;
    options.zero3_linear = true;
    CHECK(Walked(build_graph(traced(name), options)).peak ==
          Walked(build_graph(described(name), options)).peak);
  }
}

TEST_CASE("a traced model runs under every activation of its graph without a leak") {
  for (const char* name : {"llama", "qwen3", "gpt2", "mixtral"}) {
    for (const std::int64_t batch : {1, 3}) {
      GraphOptions options = options_of(batch, 512);
      options.outputs_held_in_backward = batch == 3;
      const Walked walked(build_graph(traced(name), options));
      INFO(name);
      CHECK(walked.walk.alive() == Bytes::zero());
      CHECK(walked.walk.gradients() == static_cast<int>(traced(name).parameters.size()));
    }
  }
}

TEST_CASE("what a traced model has no description for is refused by its name") {
  const Model model = traced("llama");
  const auto pointer_of = [&](const GraphOptions& options) -> std::string {
    try {
      build_graph(model, options);
    } catch (const InputError& error) {
      return error.diagnostics().front().pointer;
    }
    return "no error";
  };
  GraphOptions options = options_of(1, 512);
  options.attention = Attention::eager;
  CHECK(pointer_of(options) == "/workload/attention");
  options = options_of(1, 512);
  options.tensor_parallel = 2;
  CHECK(pointer_of(options) == "/workload/tensor_parallel");
  options = options_of(1, 512);
  options.embedded = true;
  CHECK(pointer_of(options) == "/workload/engine");
}

namespace {

// The pointer of the first problem of the document as `change` leaves it.
template <typename Change>
std::string problem_after(Change change) {
  Json document = document_of("gpt2");
  change(document);
  try {
    read_model(document, "g.json");
  } catch (const InputError& error) {
    CHECK(error.diagnostics().front().file == "g.json");
    return error.diagnostics().front().pointer;
  }
  return "no error";
}

Json& event_of(Json& document, std::size_t block, std::size_t event) {
  return document["blocks"].items()[block]["events"].items()[event];
}

}  // namespace

TEST_CASE("a document that is damaged is refused at its place") {
  CHECK(problem_after([](Json&) {}) == "no error");
  CHECK(problem_after([](Json& d) { d["schema"] = "zeroplan.graph/2"; }) == "/schema");
  CHECK(problem_after([](Json& d) { d.erase("blocks"); }) == "/blocks");
  CHECK(problem_after([](Json& d) { d["calls"] = Json::array(); }) == "/calls");
  CHECK(problem_after([](Json& d) { d["modules"].items()[1]["name"] = ""; }) == "/modules/1/name");
  CHECK(problem_after([](Json& d) { d["calls"].items()[1]["block"] = 9; }) == "/calls/1/block");
  CHECK(problem_after([](Json& d) { d["calls"].items()[1]["prefix"] = "transformer.h.9."; }) ==
        "/calls/1");
  CHECK(problem_after([](Json& d) { d["blocks"].items()[1]["output"] = 500; }) ==
        "/blocks/1/output");
  CHECK(problem_after([](Json& d) { d["blocks"].items()[1]["tensors"].items()[0]["shape"] = 3; }) ==
        "/blocks/1/tensors/0/shape");
  CHECK(problem_after([](Json& d) {
          d["blocks"].items()[1]["tensors"].items()[0]["dtype"] = "fp7";
        }) == "/blocks/1/tensors/0/dtype");
  CHECK(problem_after([](Json& d) {
          event_of(d, 1, 0) = Json::object({{"leave", "x"}});
        }) == "/blocks/1/events/0/leave");
  CHECK(problem_after([](Json& d) {
          event_of(d, 1, 1) = Json::object({{"drop", Json::array({Json(40)})}});
        }) == "/blocks/1/events/1/drop");
  CHECK(problem_after([](Json& d) { event_of(d, 1, 1) = Json("x"); }) == "/blocks/1/events/1");
  CHECK(problem_after([](Json& d) {
          event_of(d, 1, 1) = Json::object(
              {{"op", "silu"}, {"in", Json::array({Json(40)})}, {"out", Json::array({Json(41)})}});
        }) == "/blocks/1/events/1/in");
}

TEST_CASE("sizes are rounded up where a share of the tokens is no whole number") {
  const SizeFormula share{0.0, 0.0, 0.0, 0.25};
  CHECK(share.at(1, 10) == 3);
  CHECK(share.at(2, 8) == 4);
  CHECK(SizeFormula{1.0, 0.0, 1.0, 0.0}.at(7, 10) == 11);
}

TEST_CASE("a document whose operation cannot be is bad input, with the operation's name") {
  const Model model = read_model(read_json_file(std::string(ZEROPLAN_SOURCE_DIR) +
                                                "/tests/fuzz/seeds/trace/product-inner-sizes.json")
                                     .root,
                                 "graph.json");
  std::string said;
  try {
    build_graph(model, options_of(2, 96));
  } catch (const InputError& error) {
    said = error.diagnostics().front().got;
  }
  CHECK(said.find("mm in all: ") == 0);
  CHECK(said.find("inner sizes do not match") != std::string::npos);
  CHECK(said.find(".cpp") == std::string::npos);
}

TEST_CASE("Stages of a recorded class have their layers, and make the mask again that these read") {
  const char* config = R"({"model_type": "gpt_bigcode", "architectures": ["GPTBigCodeForCausalLM"],
      "n_embd": 256, "n_layer": 6, "n_head": 4, "n_positions": 512, "vocab_size": 1000})";
  const Model model = read_model(parse_json(config, "test").root, "test");
  REQUIRE(has_stages(model));
  constexpr std::int64_t kStages = 3, kLayers = 2;
  for (std::int64_t stage = 0; stage < kStages; ++stage) {
    CAPTURE(stage);
    GraphOptions options = options_of(2, 256);
    options.mask = MaskKind::padded;
    options.stage = {stage, kStages, kLayers * stage, kLayers};
    const Model part =
        stage_of(model, {kLayers * stage, kLayers, stage == 0, stage + 1 == kStages});
    const Walked walked(build_graph(part, options));
    CHECK(walked.walk.alive() == 0_B);
    CHECK(walked.walk.gradients() == static_cast<int>(part.parameters.size()));
    // Before the layers, the layers, and what stands behind them.
    CHECK(walked.graph.instances.size() == kLayers + 2);
    const SharedTensor& mask = walked.graph.shared[static_cast<std::size_t>(
        walked.graph.block_of(walked.graph.instances[1]).shared.front().slot)];
    CHECK(mask.producer == 0);
    CHECK(mask.last_user == kLayers);
  }
}

TEST_CASE(
    "A recorded layer that multiplies by itself is bitsandbytes' where its weight has four bits") {
  const char* config = R"({"model_type": "falcon", "architectures": ["FalconForCausalLM"],
      "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000})";
  Model model = read_model(parse_json(config, "test").root, "test");
  const GraphOptions options = options_of(1, 128);
  const auto unpacked = [&] {
    std::ptrdiff_t found = 0;
    const Block layer = build_graph(model, options).blocks[1];
    for (const Operation& operation : layer.operations) {
      found += operation.name == "dequantize_4bit" ? 1 : 0;
    }
    return found;
  };
  CHECK(unpacked() == 0);
  for (Parameter& parameter : model.parameters) {
    const bool is_matrix =
        parameter.name.find(".h.") != std::string::npos && parameter.shape.size() == 2;
    parameter.quantized = is_matrix;
    parameter.trainable = !is_matrix;
  }
  CHECK(unpacked() == 4 * 2);  // query_key_value, dense and two of the feed-forward, both passes
}
