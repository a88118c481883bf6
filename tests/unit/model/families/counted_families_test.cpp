// Families that are only counted: what they refuse, and which tensors a token uses.
#include <algorithm>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "model/families/hf_config.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Model counted(const std::string& text) {
  return read_model(parse_json(text, "config.json").root, "config.json");
}

std::vector<std::string> pointers_of(const std::string& text) {
  std::vector<std::string> pointers;
  try {
    counted(text);
  } catch (const InputError& error) {
    for (const Diagnostic& diagnostic : error.diagnostics()) {
      pointers.push_back(diagnostic.pointer);
    }
  }
  return pointers;
}

const std::string kStep = R"("hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 128, "intermediate_size": 96,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "share_expert_dim": 32, "layer_types": ["full_attention", "sliding_attention",
    "sliding_attention", "full_attention"])";

}  // namespace

TEST_CASE("a part of Step-3.7 that is not a number or too small is named") {
  const auto with = [](const std::string& more) {
    return R"({"model_type": "step3p7", "text_config": {)" + kStep + "}, " + more + "}";
  };
  CHECK(pointers_of(with(R"("vision_config": {"mlp_ratio": "wide"})")) ==
        std::vector<std::string>{"/vision_config/mlp_ratio"});
  CHECK(pointers_of(with(R"("vision_config": {"image_size": 7})")) ==
        std::vector<std::string>{"/vision_config/image_size"});
  CHECK(pointers_of(R"({"model_type": "step3p7", "moe_layers_enum": "1,x", )" + kStep + "}") ==
        std::vector<std::string>{"/moe_layers_enum"});
}

TEST_CASE("Step-3.7's sliding layers have their own heads and its experts a share of tokens") {
  const std::string start = R"({"model_type": "step3p7", )" + kStep;
  const auto plain = count_parameters(counted(start + "}"));
  const auto wide = count_parameters(
      counted(start + R"(, "attention_other_setting": {"num_attention_heads": 6}})"));
  // Two sliding layers with two heads of 16 more: q_proj, o_proj and a row of g_proj for each.
  CHECK((wide.total - plain.total).count() == 2 * 2 * (2 * 16 * 64 + 64));
  // First three layers dense: one layer of experts, two of four unused, three matrices each.
  CHECK((plain.total - plain.active).count() == 2 * 3 * 64 * 32);
  const auto listed = count_parameters(counted(start + R"(, "moe_layers_enum": "1,3,4"})"));
  CHECK((listed.total - listed.active).count() == 2 * 2 * 3 * 64 * 32);
}

TEST_CASE("Kimi-K3 must name its sizes, count its layers from one and merge by two sides") {
  const auto pointers = pointers_of(
      R"({"model_type": "kimi_k3", "text_config": {"num_hidden_layers": 4, "linear_attn_config":
          {"kda_layers": [0]}}, "vision_config": {"merge_kernel_size": [2, 2, 2]}})");
  const auto has = [&](const std::string& pointer) {
    return std::find(pointers.begin(), pointers.end(), pointer) != pointers.end();
  };
  CHECK(has("/text_config/hidden_size"));
  CHECK(has("/text_config/linear_attn_config/kda_layers"));
  CHECK(has("/vision_config/merge_kernel_size"));
  CHECK_FALSE(has("/text_config/num_hidden_layers"));
}

TEST_CASE("MiniCPM-V's version decides the class of its language model") {
  const auto of_version = [](const std::string& version) {
    return R"({"model_type": "minicpmv", "hidden_size": 64, "num_hidden_layers": 2,
               "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 96,
               "vocab_size": 128, "query_num": 4, "vision_config": {}, "version": )" +
           version + "}";
  };
  const auto llama = count_parameters(counted(of_version("4.0"))).total;
  const auto qwen2 = count_parameters(counted(of_version("2.6"))).total;
  CHECK((qwen2 - llama).count() == 2 * 3 * 64);  // biases on q, k, v of two layers
  CHECK(pointers_of(of_version("2.0")) == std::vector<std::string>{"/version"});
  CHECK(pointers_of(of_version("null")) == std::vector<std::string>{"/version"});
}

TEST_CASE("Qwen2.5-Omni without speech has no talker and takes its class's defaults") {
  const std::string thinker =
      R"({"model_type": "qwen2_5_omni", "enable_audio_output": ENABLED, "thinker_config":
          {"audio_config": {}, "text_config": {"tie_word_embeddings": false},
           "vision_config": {"hidden_size": 1280}},
          "talker_config": {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 12},
          "token2wav_config": {"dit_config": {}, "bigvgan_config": {}}})";
  const auto with = [&](const std::string& enabled) {
    std::string text = thinker;
    text.replace(text.find("ENABLED"), 7, enabled);
    return count_parameters(counted(text)).total.count();
  };
  CHECK(with("true") == 10'732'225'408);  // the released model, whose other sizes are the defaults
  CHECK(with("false") < 9'000'000'000);
}

TEST_CASE("an odd fused width of Molmo and a patch too large for Falcon-Perception are refused") {
  CHECK(pointers_of(R"({"model_type": "molmo", "hidden_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 4, "intermediate_size": 97, "vocab_size": 128})") ==
        std::vector<std::string>{"/intermediate_size"});
  CHECK(pointers_of(R"({"model_type": "falcon_perception", "dim": 64, "n_layers": 2, "n_heads": 4,
          "ffn_dim": 128, "vocab_size": 100, "spatial_patch_size": 99999})") ==
        std::vector<std::string>{"/spatial_patch_size"});
}
