// Recorded classes in a plan: which release of transformers stands for the plan's, what of a config
// is a number of operations alone, and which kernels a learned bias leaves.
#include <algorithm>
#include <string>

#include "model/families/hf_config.hpp"
#include "model/implementations/implementations.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Plan plan_of(const std::string& model, const std::string& more) {
  const std::string text = R"({"model": )" + model + R"(, "cluster": "2xA100-80G")" + more + "}";
  return resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
}

std::string warning_of(const std::string& model, const std::string& release) {
  const Plan plan = plan_of(model, R"(, "software": {"transformers": ")" + release + R"("})");
  for (const Phrase& warning : plan.warnings) {
    const std::string& text = warning.english();
    if (text.find("which was recorded") != std::string::npos) return text;
  }
  return "";
}

// A small GPT-J that says no n_inner.
std::string gptj(const std::string& more) {
  return R"({"model_type": "gptj", "architectures": ["GPTJForCausalLM"], "n_embd": 256, "n_layer": 2, "n_head": 2,
            "n_positions": 4096, "vocab_size": 1000)" +
         more + "}";
}

// How many operations of that name the layers and ends of a T5 have with PyTorch's attention.
std::ptrdiff_t operations(const Model& model, const std::string& name) {
  GraphOptions options;
  options.attention = Attention::sdpa;
  options.sequence_length = 128;
  std::ptrdiff_t found = 0;
  for (const Block& block : build_graph(model, options).blocks) {
    found += std::count_if(block.operations.begin(),
                           block.operations.end(),
                           [&](const Operation& operation) { return operation.name == name; });
  }
  return found;
}

}  // namespace

TEST_CASE("A plan of a release that was not recorded says which one stands for it") {
  CHECK(warning_of("\"seed-oss-36b\"", "5.17.0").empty());
  CHECK(warning_of("\"seed-oss-36b\"", "5.24.0").empty());
  CHECK(warning_of("\"seed-oss-36b\"", "4.57.1") ==
        "SeedOssForCausalLM is planned as transformers 5.17.0 has it, which was recorded: what "
        "4.57.1 "
        "does otherwise is not in these numbers");
  // GPT-J was recorded in transformers 4.46, 4.50 and 4.57, too.
  for (const char* release : {"4.46.0", "4.49.0", "4.50.3", "4.57.0"}) {
    CHECK(warning_of(gptj(""), release).empty());
  }
  CHECK_FALSE(warning_of(gptj(""), "4.40.0").empty());
}

TEST_CASE("A release without PyTorch's attention runs its own code where that is asked for") {
  const auto allocated = [](const std::string& attention, const std::string& release) {
    const std::string more = R"(, "workload": {"micro_batch_size": 2, "sequence_length": 512,
      "attention": ")" + attention +
                             R"("}, "software": {"transformers": ")" + release + R"("})";
    return predict(plan_of("\"pythia-410m\"", more)).gpu.peak_allocated;
  };
  CHECK(allocated("sdpa", "4.40.2") == allocated("eager", "4.40.2"));
  CHECK(allocated("flash", "4.40.2") < allocated("eager", "4.40.2"));
  CHECK(allocated("sdpa", "4.45.2") < allocated("eager", "4.45.2"));
}

TEST_CASE("What is dropped is a number of a recorded class's operations, not another class") {
  const auto allocated = [](const std::string& more) {
    return predict(plan_of(gptj(more), "")).gpu.peak_allocated;
  };
  const Bytes none = allocated("");
  CHECK(none == allocated(R"(, "attn_pdrop": 0, "resid_pdrop": 0.0, "n_inner": 1024)"));
  CHECK(allocated(R"(, "attn_pdrop": 0.1)") > none);
  CHECK(allocated(R"(, "attn_pdrop": 0.1)") == allocated(R"(, "attn_pdrop": 0.2)"));
}

TEST_CASE("A mask with a bias that is learned leaves PyTorch's attention its composed kernel") {
  const Model t5 =
      read_model(parse_json(R"({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"],
    "d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 2, "num_heads": 4, "vocab_size": 1000})",
                            "t5")
                     .root,
                 "t5");
  // The decoder's first layer and the others have a cross attention, whose bias is zeros.
  CHECK(operations(t5, "_scaled_dot_product_efficient_attention") == 2);
  CHECK(operations(t5, "_safe_softmax") > 0);
}

TEST_CASE("A builder for the code of others leaves Hugging Face's class to its recording") {
  const auto family = [](const std::string& model, const std::string& code) {
    return plan_of(model, R"(, "workload": {"implementation": ")" + code + R"("})")
        .model->implementation_family;
  };
  CHECK(family("\"mpt-7b\"", "composer") == "mpt");
  CHECK(family("\"mpt-7b\"", "hf") != "mpt");
  CHECK(family("\"phi-2\"", "litgpt") == "litgpt");
  CHECK(plan_of("\"phi-2\"", "").model->releases.recorded.major == 5);
}

TEST_CASE(
    "A config whose heads are no power of two is of another class where ALiBi makes them so") {
  const auto mpt = [](int heads) {
    return parse_json(R"({"model_type": "mpt", "d_model": 3072, "n_layers": 2, "n_heads": )" +
                          std::to_string(heads) + R"(, "vocab_size": 1000})",
                      "config.json")
        .root;
  };
  CHECK(is_planned(mpt(32)));
  CHECK_FALSE(is_planned(mpt(24)));
}

TEST_CASE("PPO's models score tokens by a class of its own recording, too") {
  const std::string ppo =
      R"(, "workload": {"trainer": "ppo", "micro_batch_size": 1, "sequence_length": 128})";
  const Plan plan = plan_of("\"opt-350m\"", ppo);
  REQUIRE(plan.model->value_model != nullptr);
  CHECK(plan.model->value_model->architecture == "OPTForSequenceClassification");
  CHECK(predict(plan).gpu.peak_allocated > 0_B);
}

TEST_CASE("A share of heads that was not recorded is refused, whatever its config calls it") {
  const auto neox = [](const std::string& share) {
    return parse_json(R"({"model_type": "gpt_neox", "hidden_size": 1024, "num_hidden_layers": 2,
      "num_attention_heads": 8, "intermediate_size": 4096, "vocab_size": 1000, "rotary_pct": )" +
                          share + "}",
                      "config.json")
        .root;
  };
  CHECK(is_planned(neox("0.25")));
  CHECK(is_planned(neox("1.0")));
  CHECK_FALSE(is_planned(neox("0.5")));
}

TEST_CASE("The text model's own class takes its part of a config of several") {
  const Json text = parse_json(R"({"model_type": "qwen3_5_text", "hidden_size": 1024,
      "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
      "intermediate_size": 3584, "vocab_size": 248320})",
                               "config.json")
                        .root;
  Json whole = Json::object();
  whole["model_type"] = "qwen3_5";
  whole["architectures"] = Json::array();
  whole["architectures"].push_back("Qwen3_5ForCausalLM");
  whole["text_config"] = text;
  whole["torch_dtype"] = "bfloat16";
  const Model of_several = read_model(whole, "config.json"),
              alone = read_model(text, "config.json");
  CHECK(of_several.architecture == "Qwen3_5ForCausalLM");
  CHECK(count_parameters(of_several).total == count_parameters(alone).total);
  CHECK(of_several.torch_dtype == "bfloat16");
}
