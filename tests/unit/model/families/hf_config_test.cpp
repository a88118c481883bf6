#include "model/families/hf_config.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Json config_of(const std::string& text) { return parse_json(text, "config.json").root; }

std::vector<Diagnostic> errors_of(const std::string& text) {
  try {
    read_model(config_of(text), "config.json", "/model");
  } catch (const InputError& error) {
    return error.diagnostics();
  }
  FAIL("no error for: " << text);
  return {};
}

bool mentions(const std::vector<Phrase>& notes, const std::string& word) {
  for (const Phrase& note : notes) {
    if (note.english().find(word) != std::string::npos) return true;
  }
  return false;
}

const std::string kSmallLlama = R"({"model_type": "llama", "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "vocab_size": 128)";

// A folder of its own for the test, removed at the end.
struct TemporaryFolder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / "zeroplan_hf_config_test";
  TemporaryFolder() { std::filesystem::create_directories(path / "model"); }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name) << text;
  }
};

}  // namespace

TEST_CASE("missing core keys are named together with the family that needs them") {
  const auto errors = errors_of(R"({"model_type": "llama", "hidden_size": 64})");
  REQUIRE(errors.size() == 4);
  CHECK(errors[0].pointer == "/model/num_attention_heads");
  CHECK(errors[0].expected.english().find("LlamaConfig") != std::string::npos);
  CHECK(errors[0].got == "no such key");
  CHECK(errors[0].hint.english().find("32") != std::string::npos);
}

TEST_CASE("GLM of transformers is refused, not taken for the GLM of 2022 that shares its type") {
  constexpr const char* kGlmOfTransformers =
      R"({"model_type": "glm", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100})";
  const auto errors = errors_of(kGlmOfTransformers);
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].pointer == "/model/num_attention_heads");
  CHECK_FALSE(is_planned(parse_json(kGlmOfTransformers, "c.json").root));
}

TEST_CASE("impossible sizes are errors with a pointer") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("num_hidden_layers": 0)", "/model/num_hidden_layers"},
      {R"("num_hidden_layers": -3)", "/model/num_hidden_layers"},
      {R"("num_hidden_layers": 1000000000)", "/model/num_hidden_layers"},
      {R"("num_hidden_layers": "two")", "/model/num_hidden_layers"},
      {R"("hidden_size": 64.5)", "/model/hidden_size"},
      {R"("hidden_size": 1e300)", "/model/hidden_size"},
      {R"("hidden_size": [64])", "/model/hidden_size"},
      {R"("vocab_size": true)", "/model/vocab_size"},
      {R"("num_attention_heads": 7)", "/model/num_attention_heads"},
      {R"("num_key_value_heads": 3)", "/model/num_key_value_heads"},
      {R"("attention_dropout": 2.0)", "/model/attention_dropout"},
      {R"("tie_word_embeddings": "yes")", "/model/tie_word_embeddings"},
      {R"("hidden_act": 3)", "/model/hidden_act"},
  };
  for (const auto& [member, pointer] : cases) {
    INFO(member);
    const auto errors = errors_of(kSmallLlama + ", " + member + "}");
    REQUIRE(errors.size() == 1);
    CHECK(errors[0].pointer == pointer);
  }
  const auto huge = errors_of(kSmallLlama + R"(, "num_hidden_layers": 1000000000})");
  CHECK(huge[0].expected == "an integer between 1 and 2000");
  CHECK(huge[0].hint.english().find("digit") != std::string::npos);
}

TEST_CASE(
    "rotary positions turn pairs: an odd part of a head is an error at the key that says it") {
  const std::string sizes = R"("hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 128,
      "intermediate_size": 96, )";
  const auto pointer = [&](const std::string& rest) {
    const auto errors = errors_of("{" + sizes + rest + "}");
    REQUIRE(errors.size() == 1);
    return errors.front().pointer;
  };
  for (const std::string type : {"llama", "gemma", "qwen3", "qwen3_moe", "mistral"}) {
    for (const std::string width : {"1", "3", "129", "255"}) {
      const std::string rest =
          R"("num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": )";
      CHECK(pointer(rest + width + R"(, "model_type": ")" + type + "\"") == "/model/head_dim");
    }
  }
  CHECK(
      pointer(R"("model_type": "llama", "num_attention_heads": 4, "partial_rotary_factor": 0.2)") ==
      "/model/partial_rotary_factor");
  const Model glm =
      read_model(config_of("{" + sizes + R"("model_type": "chatglm", "num_attention_heads": 4,
      "kv_channels": 6, "num_layers": 2, "ffn_hidden_size": 96, "padded_vocab_size": 128})"),
                 "config.json");
  CHECK(glm.shape.rotary_dim == 4);
}

TEST_CASE("sizes that are each possible but not together are an error, not an overflow") {
  const auto errors = errors_of(R"({"model_type": "llama", "hidden_size": 4194304,
      "num_hidden_layers": 2000, "num_attention_heads": 4, "intermediate_size": 4194304,
      "vocab_size": 16777216})");
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].got.english().find("10^15") != std::string::npos);
}

TEST_CASE("more tensors than memory holds are an error before they are listed") {
  const auto errors = errors_of(R"({"model_type": "mixtral", "hidden_size": 64,
      "num_hidden_layers": 2000, "num_attention_heads": 4, "num_key_value_heads": 4,
      "intermediate_size": 96, "vocab_size": 128, "num_local_experts": 4096,
      "num_experts_per_tok": 2})");
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].pointer == "/model/num_local_experts");
  CHECK(errors[0].got == "2000 layers of 4096");
}

TEST_CASE("all problems of a config are reported at once") {
  const auto errors = errors_of(R"({"model_type": "llama", "hidden_size": 0,
      "num_hidden_layers": -1, "num_attention_heads": 4, "intermediate_size": "x",
      "vocab_size": 128})");
  CHECK(errors.size() >= 3);
}

TEST_CASE("an unknown or missing model_type is an error that helps") {
  const auto unknown = errors_of(R"({"model_type": "lama"})");
  CHECK(unknown[0].pointer == "/model/model_type");
  CHECK(unknown[0].hint.english().find("llama") != std::string::npos);
  CHECK(errors_of("{}")[0].got == "no such key");
  CHECK(errors_of("[1]")[0].expected.english().find("object") != std::string::npos);
  CHECK(errors_of(R"({"model_type": 3})")[0].got == "3");
}

TEST_CASE("a head that the family lacks is an error with the ones it has") {
  const auto errors = errors_of(kSmallLlama + R"(, "architectures": ["LlamaForMaskedLM"]})");
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].pointer == "/model/architectures");
  CHECK(errors[0].expected.english().find("ForSequenceClassification") != std::string::npos);
}

TEST_CASE("defaults of the configuration class are used with a note where they count") {
  const Model model =
      read_model(config_of(R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4,
                    "vocab_size": 128})"),
                 "config.json",
                 "",
                 {.embedded = true});
  CHECK(model.shape.max_positions == 1024);
  CHECK(mentions(model.notes, "n_positions"));
  CHECK(model.shape.intermediate == 256);
  const Model mistral =
      read_model(config_of(R"({"model_type": "mistral", "hidden_size": 64, "num_hidden_layers": 2,
                    "num_attention_heads": 32, "intermediate_size": 96, "vocab_size": 128})"),
                 "config.json");
  CHECK(mistral.shape.kv_heads == 8);
  CHECK(mentions(mistral.notes, "num_key_value_heads"));
  CHECK(mistral.shape.sliding_window == 4096);
}

TEST_CASE("an old config without model_type is read by its class or its keys") {
  const std::string sizes = R"("hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 128)";
  const Model by_class =
      read_model(config_of(R"({"architectures": ["BertForMaskedLM"], )" + sizes + "}"), "c.json");
  CHECK(by_class.model_type == "bert");
  CHECK(mentions(by_class.notes, "architectures"));
  const Model by_keys = read_model(
      config_of(R"({"type_vocab_size": 2, "attention_probs_dropout_prob": 0.1, )" + sizes + "}"),
      "c.json");
  CHECK(by_keys.model_type == "bert");
  CHECK(mentions(by_keys.notes, "type_vocab_size"));
}

TEST_CASE("aliases of keys mean the same sizes") {
  const Model model =
      read_model(config_of(R"({"model_type": "gpt2", "hidden_size": 64, "num_hidden_layers": 2,
                    "num_attention_heads": 4, "n_positions": 32, "vocab_size": 128})"),
                 "config.json");
  CHECK(model.shape.hidden == 64);
  CHECK(model.shape.layers == 2);
}

TEST_CASE("a quantized config is counted as the tensors that training holds") {
  const Model model = read_model(config_of(kSmallLlama + R"(, "torch_dtype": "bfloat16",
                                  "quantization_config": {"quant_method": "fp8"}})"),
                                 "config.json");
  CHECK(quantized_format(model) == "FP8");
  CHECK(mentions(model.notes, "quantization_config"));
  CHECK(quantized_format(model_from_name("gpt-oss-20b")) == kMxfp4Checkpoint);
  CHECK(quantized_format(model_from_name("unsloth/gpt-oss-20b-BF16")).empty());
  CHECK(quantized_format(model_from_name("Qwen2.5-7B-Instruct-AWQ")) == "AWQ");
  const Model plain =
      read_model(config_of(kSmallLlama + R"(, "torch_dtype": "bfloat16"})"), "config.json");
  CHECK(plain.torch_dtype == "bfloat16");
  CHECK(quantized_format(plain).empty());
}

// Recorded from named_parameters() of transformers 5.17 on the meta device.
TEST_CASE(
    "experts of transformers 5 are two parameters, beside the router where the class has it") {
  const auto names_of = [](const std::string& config) {
    std::vector<std::string> names;
    for (const Parameter& parameter :
         read_model(config_of(config), "config.json", "", {.experts = ExpertLayout::fused})
             .parameters) {
      const std::string layer = "model.layers.0.mlp.";
      if (!parameter.name.starts_with(layer)) continue;
      std::string text = parameter.name.substr(layer.size());
      for (const std::int64_t size : parameter.shape) text += " " + std::to_string(size);
      names.push_back(text);
    }
    return names;
  };
  const std::string sizes =
      R"("hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128,
         "num_experts_per_tok": 2, )";
  const std::vector<std::string> mixtral = {
      "gate.weight 8 64", "experts.gate_up_proj 8 192 64", "experts.down_proj 8 64 96"};
  CHECK(names_of("{" + sizes + R"("model_type": "mixtral", "num_local_experts": 8})") == mixtral);
  const std::vector<std::string> qwen3 = {
      "experts.gate_up_proj 16 64 64", "experts.down_proj 16 64 32", "gate.weight 16 64"};
  CHECK(names_of("{" + sizes +
                 R"("model_type": "qwen3_moe", "num_experts": 16, "moe_intermediate_size": 32})") ==
        qwen3);
  const std::vector<std::string> qwen2 = {"gate.weight 16 64",
                                          "experts.gate_up_proj 16 64 64",
                                          "experts.down_proj 16 64 32",
                                          "shared_expert.gate_proj.weight 48 64",
                                          "shared_expert.up_proj.weight 48 64",
                                          "shared_expert.down_proj.weight 64 48",
                                          "shared_expert_gate.weight 1 64"};
  CHECK(names_of("{" + sizes + R"("model_type": "qwen2_moe", "num_experts": 16,
                 "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48})") == qwen2);
}

TEST_CASE("both layouts of experts count the same") {
  for (const std::string name : {"qwen3-30b-a3b", "mixtral-8x7b", "qwen1.5-moe-a2.7b"}) {
    CAPTURE(name);
    const auto modules = count_parameters(model_from_name(name));
    const auto fused = count_parameters(
        model_from_name(name, "command line", "MODEL", {.experts = ExpertLayout::fused}));
    CHECK(fused.total == modules.total);
    CHECK(fused.active == modules.active);
  }
}

TEST_CASE("routed experts count as active with their share") {
  const Model model =
      read_model(config_of(R"({"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2,
                    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
                    "vocab_size": 128, "num_local_experts": 8, "num_experts_per_tok": 2})"),
                 "config.json");
  const auto counts = count_parameters(model);
  const std::int64_t expert = 3 * 64 * 96;
  CHECK((counts.total - counts.active).count() == 2 * 6 * expert);
  CHECK(model.shape.experts.experts == 8);
  CHECK(errors_of(R"({"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
      "vocab_size": 128, "num_local_experts": 2, "num_experts_per_tok": 3})")[0]
            .pointer == "/model/num_experts_per_tok");
}

TEST_CASE("a model is loaded from a preset, a size, a file, a folder or an inline object") {
  const TemporaryFolder folder;
  const std::string config = kSmallLlama + "}";
  folder.write("model/config.json", config);
  folder.write("scenario.json", "{}");
  const std::string scenario = (folder.path / "scenario.json").string();

  CHECK(load_model("gpt2", "command line", "--model").model_type == "gpt2");
  CHECK(load_model("10B", "command line", "--model").model_type == "llama");
  const std::string file = (folder.path / "model" / "config.json").string();
  const std::int64_t wanted = count_parameters(read_model(config_of(config), "c")).total.count();
  for (const std::string& path : {file,
                                  (folder.path / "model").string(),
                                  std::string("model/config.json"),
                                  std::string("./model"),
                                  std::string("model")}) {
    INFO(path);
    const Model model = load_model(path, scenario, "/model");
    CHECK(count_parameters(model).total.count() == wanted);
    CHECK(model.name == path);
  }
  CHECK(load_model(config_of(config), scenario, "/model").name == "inline llama");
}

TEST_CASE("a model value that names nothing is an error at its place") {
  for (const Json& value : {Json(3), Json(nullptr), Json(""), Json("no-such-model-anywhere")}) {
    try {
      load_model(value, "scenario.json", "/model");
      FAIL("no error for " << value.dump());
    } catch (const InputError& error) {
      CHECK(error.diagnostics().front().file == "scenario.json");
      CHECK(error.diagnostics().front().pointer == "/model");
    }
  }
  CHECK_THROWS_AS(load_model("/no/such/config.json", "command line", "--model"), InputError);
}

TEST_CASE("Python's Infinity in a config file is read, and stays no size") {
  const TemporaryFolder folder;
  folder.write("config.json",
               kSmallLlama + R"(, "a": [0.0, Infinity], "b": -Infinity, "c": "Infinity"})");
  const Model model = load_model((folder.path / "config.json").string(), "x", "/model");
  CHECK(model.shape.hidden == 64);
}

TEST_CASE("configs of code that no class has here are refused at the key that says so") {
  CHECK(errors_of(R"({"model_type": "olmo", "d_model": 64, "n_layers": 2, "n_heads": 4,
                      "vocab_size": 128})")
            .front()
            .pointer == "/model/d_model");
  CHECK(errors_of(R"({"model_type": "chatglm", "hidden_size": 64, "num_layers": 2,
                      "num_attention_heads": 4, "inner_hidden_size": 96, "vocab_size": 128})")
            .front()
            .pointer == "/model/inner_hidden_size");
}

TEST_CASE("a multimodal config whose text model is known says how to plan that one") {
  const auto errors = errors_of(
      R"({"model_type": "of_tomorrow_vl", "text_config": {"model_type": "qwen3"}, "vision_config": {}})");
  REQUIRE(errors.size() == 1);
  CHECK(errors.front().hint.english().find("whose model_type is qwen3;") != std::string::npos);
}

TEST_CASE("every model_type that can be read is listed once") {
  const auto types = model_types();
  REQUIRE(types.size() > 40);
  for (std::size_t row = 1; row < types.size(); ++row) CHECK(types[row - 1] < types[row]);
}

TEST_CASE("classes of model repositories have their parameters' names") {
  const auto names_of = [](const std::string& preset) {
    std::vector<std::string> names;
    for (const Parameter& parameter : model_from_name(preset).parameters) {
      names.push_back(parameter.name);
    }
    return names;
  };
  const auto glm = names_of("glm-10b");
  CHECK(glm[0] == "glm.word_embeddings.weight");
  CHECK(glm[1] == "glm.transformer.position_embeddings.weight");
  CHECK(glm[5] == "glm.transformer.layers.0.attention.query_key_value.weight");
  CHECK(glm.size() == 3 + 48 * 12 + 2);
  const auto chatglm = names_of("chatglm3-6b");
  CHECK(chatglm[0] == "transformer.embedding.word_embeddings.weight");
  CHECK(chatglm[2] == "transformer.encoder.layers.0.self_attention.query_key_value.weight");
  CHECK(chatglm[3] == "transformer.encoder.layers.0.self_attention.query_key_value.bias");
  CHECK(chatglm.back() == "transformer.output_layer.weight");
  const auto baichuan = names_of("baichuan2-7b");
  CHECK(baichuan[1] == "model.layers.0.self_attn.W_pack.weight");
  CHECK(baichuan[4] == "model.layers.0.mlp.down_proj.weight");
  CHECK(names_of("internlm-7b")[2] == "model.layers.0.self_attn.q_proj.bias");
}

// https://huggingface.co/internlm/internlm2-7b and -20b: 7.74B and 19.86B parameters.
TEST_CASE("InternLM2 has the parameters and modules of its own code") {
  const Model model = model_from_name("internlm2-7b");
  CHECK(count_parameters(model).total == Elements::of(7'737'708'544));
  CHECK(count_parameters(model_from_name("internlm/internlm2_5-20b-chat")).total ==
        Elements::of(19'861'149'696));
  std::vector<std::string> names;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.name.find(".1.") == std::string::npos) names.push_back(parameter.name);
    if (names.size() == 8) break;
  }
  const std::vector<std::string> expected = {"model.tok_embeddings.weight",
                                             "model.layers.0.attention.wqkv.weight",
                                             "model.layers.0.attention.wo.weight",
                                             "model.layers.0.feed_forward.w1.weight",
                                             "model.layers.0.feed_forward.w3.weight",
                                             "model.layers.0.feed_forward.w2.weight",
                                             "model.layers.0.attention_norm.weight",
                                             "model.layers.0.ffn_norm.weight"};
  CHECK(names == expected);
  CHECK(model.parameters.back().name == "output.weight");
  CHECK(model.parameters[1].shape == std::vector<std::int64_t>{6144, 4096});
  CHECK(model.parameters[3].shape == std::vector<std::int64_t>{14336, 4096});
}

TEST_CASE("the shapes of planned families say what their operations need") {
  const ModelUse litgpt{.implementation = Implementation::litgpt};
  const Model neox = model_from_name("pythia-1b", "", "", litgpt);
  CHECK(neox.shape.parallel_residual);
  CHECK(neox.shape.rotary_dim == 64);
  CHECK(neox.shape.head_dim == 256);
  const Model t5 = model_from_name("t5-v1.1-base");
  CHECK(t5.shape.kind == ModelKind::encoder_decoder);
  CHECK(t5.shape.encoder_layers == 12);
  const Model falcon = model_from_name("falcon-40b", "", "", litgpt);
  CHECK(falcon.shape.kv_heads == 8);
  const Model baichuan = model_from_name("baichuan2-13b");
  CHECK(baichuan.shape.position == PositionKind::alibi);
  const Model phi = model_from_name("phi-2", "", "", litgpt);
  CHECK(phi.shape.rotary_dim == 32);
}
