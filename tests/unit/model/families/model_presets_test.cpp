#include <cmath>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>

#include "base/diagnostic.hpp"
#include "model/families/hf_config.hpp"
#include "model/implementations/lora.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Diagnostic error_of(const std::string& name) {
  try {
    model_from_name(name);
  } catch (const InputError& error) {
    return error.diagnostics().front();
  }
  FAIL("no error for: " << name);
  return {};
}

std::int64_t total_of(const std::string& name) {
  return count_parameters(model_from_name(name)).total.count();
}

}  // namespace

TEST_CASE("every preset has the number of parameters it states") {
  const auto presets = model_presets();
  REQUIRE(presets.size() >= 100);
  for (const ModelPreset& preset : presets) {
    INFO(preset.name);
    const Model model = read_model(preset.config, preset.name);
    CHECK(count_parameters(model).total.count() == preset.parameters);
    CHECK((model.planned || model.not_planned_reason.ends_with("computes no loss")));
    CHECK_FALSE(preset.source.empty());
  }
}

TEST_CASE("no two presets answer to the same name") {
  std::set<std::string> seen;
  const auto plain = [](const std::string& name) {
    std::string key;
    for (const char c : name) {
      if (c != '-' && c != '_' && c != ' ') {
        key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      }
    }
    return key;
  };
  for (const ModelPreset& preset : model_presets()) {
    INFO(preset.name);
    CHECK(seen.insert(plain(preset.name)).second);
    for (const std::string& alias : preset.aliases) {
      INFO(alias);
      CHECK(seen.insert(plain(alias)).second);
    }
  }
}

TEST_CASE("names match without case, separators, organization and usual endings") {
  for (const char* name : {"llama-2-7b",
                           "Llama-2-7B",
                           "LLAMA 2 7b",
                           "meta-llama/Llama-2-7b-hf",
                           "meta-llama/Llama-2-7b-chat-hf",
                           "llama2_7b",
                           "vicuna-7b"}) {
    INFO(name);
    const Model model = model_from_name(name);
    CHECK(model.name == "llama-2-7b");
    CHECK(count_parameters(model).total.count() == 6738415616);
  }
  CHECK(model_from_name("Qwen/Qwen2.5-7B-Instruct").name == "qwen2.5-7b");
  CHECK(model_from_name("opt-13b").name == "opt-13b");
  CHECK(model_from_name("opt-1.3b").name == "opt-1.3b");
  CHECK(model_from_name("qwen25 7b").name == "qwen2.5-7b");
  CHECK(model_from_name("bert-base").name == "bert-base-uncased");
}

TEST_CASE("names as people type them find the model of the same tensors") {
  for (const auto& [typed, preset] : std::initializer_list<std::pair<const char*, const char*>>{
           {"meta-llama/Llama-3.3-70B-Instruct", "llama-3.1-70b"},
           {"Llama 3.3 70B Instruct", "llama-3.1-70b"},
           {"nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", "llama-3.1-70b"},
           {"meta-llama/Llama-Guard-3-8B", "llama-3.1-8b"},
           {"codellama/CodeLlama-7b-Instruct-hf", "codellama-7b"},
           {"TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T", "tinyllama-1.1b"},
           {"gemma 3 27b it", "gemma-3-27b"},
           {"google/codegemma-7b-it", "gemma-7b"},
           {"google/gemma-1.1-2b-it", "gemma-2b"},
           {"Qwen/Qwen2.5-Math-7B-Instruct", "qwen2.5-7b"},
           {"Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-32b"},
           {"Qwen/QwQ-32B", "qwen2.5-32b"},
           {"Qwen/Qwen2.5-14B-Instruct-1M", "qwen2.5-14b"},
           {"Qwen/Qwen1.5-14B-Chat", "qwen1.5-14b"},
           {"Qwen/Qwen3-4B-Thinking-2507", "qwen3-4b"},
           {"Qwen/Qwen3-30B-A3B-Thinking-2507-FP8", "qwen3-30b-a3b"},
           {"Qwen/Qwen3-235B-A22B-Thinking-2507", "qwen3-235b-a22b"},
           {"Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder-480b-a35b"},
           {"Qwen/Qwen3-Coder-Next", "qwen3-next-80b-a3b"},
           {"Qwen/Qwen3-Embedding-0.6B", "qwen3-embedding-0.6b"},
           {"Qwen/Qwen3.5-397B-A17B", "qwen3.5-397b-a17b"},
           {"Qwen/Qwen3.6-27B", "qwen3.5-27b"},
           {"qwen3 vl 8b instruct", "qwen3-vl-8b"},
           {"Qwen/Qwen3-VL-30B-A3B-Instruct", "qwen3-vl-30b-a3b"},
           {"Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-vl-7b"},
           {"Qwen/Qwen2.5-VL-3B-Instruct-AWQ", "qwen2.5-vl-3b"},
           {"Qwen/Qwen2-VL-2B-Instruct", "qwen2-vl-2b"},
           {"deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"},
           {"deepseek-ai/DeepSeek-V3.1-Base", "deepseek-v3"},
           {"deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3.2"},
           {"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "deepseek-r1-distill-qwen-1.5b"},
           {"deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b"},
           {"deepseek-ai/deepseek-coder-6.7b-instruct", "deepseek-coder-6.7b"},
           {"moonshotai/Kimi-K2-Thinking", "kimi-k2"},
           {"mistralai/Mathstral-7B-v0.1", "mistral-7b-v0.3"},
           {"mistralai/Mistral-Large-Instruct-2411", "mistral-large-2407"},
           {"mistralai/Mistral-Small-24B-Instruct-2501", "mistral-small-24b"},
           {"mistralai/Devstral-Small-2507", "mistral-small-24b"},
           {"mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral-small-3.2-24b"},
           {"mistralai/Codestral-22B-v0.1", "codestral-22b"},
           {"mistralai/Mixtral-8x22B-Instruct-v0.1", "mixtral-8x22b"},
           {"microsoft/Phi-4-reasoning-plus", "phi-4"},
           {"microsoft/Phi-3-medium-128k-instruct", "phi-3-medium"},
           {"01-ai/Yi-1.5-9B-Chat", "yi-9b"},
           {"HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m"},
           {"allenai/Olmo-3-7B-Think", "olmo-3-7b"},
           {"allenai/OLMoE-1B-7B-0924-Instruct", "olmoe-1b-7b"},
           {"ByteDance-Seed/Seed-OSS-36B-Instruct", "seed-oss-36b"},
           {"zai-org/GLM-4.6", "glm-4.5"},
           {"zai-org/GLM-4.5-Air", "glm-4.5-air"},
           {"zai-org/GLM-5.1", "glm-5"},
           {"MiniMaxAI/MiniMax-M2.5", "minimax-m2"},
           {"LiquidAI/LFM2-1.2B", "lfm2-1.2b"},
           {"ibm-granite/granite-4.0-h-tiny", "granite-4.0-h-tiny"},
           {"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b"},
           {"nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nemotron-nano-9b-v2"},
           {"tiiuae/Falcon3-1B-Instruct", "falcon3-1b"},
           {"llava-hf/llava-1.5-7b-hf", "llava-1.5-7b"},
           {"BAAI/bge-m3", "bge-m3"},
           {"intfloat/multilingual-e5-large", "multilingual-e5-large"},
           {"FacebookAI/xlm-roberta-base", "xlm-roberta-base"},
           {"sentence-transformers/all-MiniLM-L6-v2", "all-minilm-l6-v2"},
           {"answerdotai/ModernBERT-large", "modernbert-large"},
           {"facebook/bart-large-cnn", "bart-large-cnn"},
           {"facebook/nllb-200-distilled-600M", "nllb-200-distilled-600m"},
           {"openai/whisper-large-v3-turbo", "whisper-large-v3-turbo"},
           {"openai/gpt-oss-safeguard-20b", "gpt-oss-20b"},
           {"swiss-ai/Apertus-8B-Instruct-2509", "apertus-8b"},
           {"tiiuae/Falcon3-10B-Instruct", "falcon3-10b"},
           {"tiiuae/Falcon-H1-7B-Instruct", "falcon-h1-7b"},
           {"tencent/Hunyuan-7B-Instruct", "hunyuan-7b"},
           {"LiquidAI/LFM2-8B-A1B", "lfm2-8b-a1b"},
           {"baidu/ERNIE-4.5-21B-A3B-PT", "ernie-4.5-21b-a3b"},
           {"moonshotai/Moonlight-16B-A3B-Instruct", "moonlight-16b-a3b"},
           {"microsoft/Phi-3.5-MoE-instruct", "phi-3.5-moe"},
           {"google/gemma-4-31B-it", "gemma-4-31b"},
           {"meta-llama/Llama-3.2-11B-Vision-Instruct", "llama-3.2-11b-vision"},
           {"mistralai/Voxtral-Mini-3B-2507", "voxtral-mini-3b"},
           {"mistralai/Ministral-3-8B-Instruct-2512", "ministral-3-8b"},
           {"HuggingFaceTB/SmolVLM2-500M-Video-Instruct", "smolvlm2-500m"},
           {"OpenGVLab/InternVL3-8B-hf", "internvl3-8b"},
           {"bigcode/starcoderbase-1b", "starcoderbase-1b"},
           {"facebook/esm2_t33_650M_UR50D", "esm2-650m"},
           {"Helsinki-NLP/opus-mt-fr-en", "opus-mt-en-fr"},
           {"intfloat/e5-mistral-7b-instruct", "mistral-7b-v0.1"}}) {
    INFO(typed);
    CHECK(model_from_name(typed).name == preset);
  }
  // The distilled 1.5B has an output of its own, unlike the model that it is made from.
  CHECK(total_of("deepseek-r1-distill-qwen-1.5b") - total_of("qwen2.5-1.5b") == 151936 * 1536);
}

TEST_CASE("a name that is not known is an error with the nearest ones") {
  const Diagnostic diagnostic = error_of("lama-2-7b");
  CHECK(diagnostic.got == "\"lama-2-7b\"");
  CHECK(diagnostic.hint.english().find("llama-2-7b") != std::string::npos);
  CHECK(error_of("mixtrl-8x7b").hint.english().find("mixtral-8x7b") != std::string::npos);
  CHECK(error_of("completely-unknown-thing").hint.english().find("config.json") !=
        std::string::npos);
}

TEST_CASE("a bare size becomes a LLaMA-like model within two per cent, and says so") {
  for (const char* name :
       {"0.1B", "350M", "1.3b", "7B", "10B", "13B", "70B", "175B", "1000B", "1T"}) {
    INFO(name);
    const Model model = model_from_name(name);
    const auto wanted = static_cast<double>(*parse_model_size(name));
    const auto counted = static_cast<double>(count_parameters(model).total.count());
    CHECK(std::abs(counted / wanted - 1.0) <= 0.02);
    CHECK(model.planned);
    CHECK(model.shape.head_dim == 128);
    CHECK(model.shape.hidden == model.shape.heads * 128);
    REQUIRE_FALSE(model.notes.empty());
    CHECK(model.notes.back().english().find("LLaMA-like") != std::string::npos);
  }
}

TEST_CASE("sizes from 0.1B to 1000B stay within two per cent and never shrink") {
  std::int64_t before = 0;
  for (double wanted = 1e8; wanted <= 1e12; wanted *= 1.017) {
    const auto size = std::llround(wanted);
    INFO(size);
    const std::int64_t counted =
        count_parameters(read_model(config_of_size(size), "size")).total.count();
    CHECK(std::abs(static_cast<double>(counted) / wanted - 1.0) <= 0.02);
    CHECK(counted >= before);
    before = counted;
  }
}

TEST_CASE("the shape for a size looks like models of that size") {
  const Model ten = model_from_name("10B");
  CHECK(ten.shape.hidden >= 3840);
  CHECK(ten.shape.hidden <= 5120);
  CHECK(ten.shape.layers >= 28);
  CHECK(ten.shape.layers <= 48);
  const Model hundred = model_from_name("100B");
  CHECK(hundred.shape.layers >= 64);
  CHECK(hundred.shape.layers <= 120);
}

TEST_CASE("only a number with a unit is a size") {
  CHECK(parse_model_size("10B") == 10'000'000'000);
  CHECK(parse_model_size("1.3b") == 1'300'000'000);
  CHECK(parse_model_size("350M") == 350'000'000);
  for (const char* text : {"", "B", "10", "10BB", "-1B", "0B", "nanB", "1e3B", "10 B", "x10B"}) {
    INFO(text);
    CHECK_FALSE(parse_model_size(text).has_value());
  }
  CHECK(error_of("5M").expected.english().find("100M") != std::string::npos);
  CHECK(error_of("2T").expected.english().find("1T") != std::string::npos);
}

TEST_CASE("counts follow published numbers") {
  CHECK(total_of("llama-3.1-8b") == 8030261248);
  CHECK(total_of("mixtral-8x7b") == 46702792704);
  CHECK(total_of("gpt2-xl") == 1557611200);
  const auto moe = count_parameters(model_from_name("qwen3-30b-a3b"));
  CHECK(moe.active.count() == 3353032704);  // "3.3B activated" (Qwen3 report, arXiv:2505.09388)
  CHECK(moe.trainable == moe.total);
}

TEST_CASE("every preset takes adapters beside all its linear layers, but not beside a tied one") {
  for (const ModelPreset& preset : model_presets()) {
    INFO(preset.name);
    const Model model = read_model(preset.config, preset.name);
    const LoraOptions lora{.rank = 8, .targets = all_linear_targets(model)};
    CHECK(count_parameters(with_lora(model, lora)).trainable > Elements::zero());
  }
  for (const auto& [name, target] : {std::pair("gpt2", "lm_head"),
                                     std::pair("roberta-base", "decoder"),
                                     std::pair("distilbert-base-uncased", "vocab_projector"),
                                     std::pair("t5-small", "lm_head")}) {
    INFO(name);
    CHECK_THROWS_AS(with_lora(model_from_name(name), {.rank = 8, .targets = {target}}), InputError);
  }
}
