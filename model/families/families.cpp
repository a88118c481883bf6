// The registry: one row for each model_type.
#include <array>

#include "model/families/family.hpp"

namespace zeroplan::families {

namespace {

constexpr bool kOfOthers = true, kTrunks = true;

// Whether a config names a class without a head.
bool is_trunk(const Json& config) {
  const Json* classes = config.find("architectures");
  return classes != nullptr && classes->is_array() && !classes->items().empty() &&
         classes->items().front().is_string() &&
         classes->items().front().as_string().ends_with("Model") &&
         !classes->items().front().as_string().ends_with("LMHeadModel");
}

constexpr std::array kFamilies = {
    Family{"baichuan", "BaichuanConfig", build_llama_like},
    Family{"bert", "BertConfig", build_bert, {}, kOfOthers, kTrunks},
    Family{"bloom", "BloomConfig", build_bloom, {}, kOfOthers},
    Family{"camembert", "CamembertConfig", build_bert, {}, kOfOthers, kTrunks},
    Family{"chatglm", "ChatGLMConfig", build_chatglm},
    Family{"cohere", "CohereConfig", build_llama_like},
    Family{"cohere2", "Cohere2Config", build_llama_like},
    Family{"falcon", "FalconConfig", build_litgpt, {}, kOfOthers},
    Family{"gemma", "GemmaConfig", build_llama_like},
    Family{"gemma2", "Gemma2Config", build_llama_like},
    Family{"gemma3_text", "Gemma3TextConfig", build_llama_like},
    // GLM of 2022, in THUDM's repositories; GlmForCausalLM of transformers is another model.
    Family{"glm", "GLMConfig", build_glm, "num_hidden_layers"},
    Family{"glm4", "Glm4Config", build_llama_like},
    Family{"gpt2", "GPT2Config", build_gpt2, {}, kOfOthers},
    Family{"gpt_neox", "GPTNeoXConfig", build_litgpt, {}, kOfOthers},
    Family{"granite", "GraniteConfig", build_llama_like},
    Family{"internlm", "InternLMConfig", build_llama_like},
    Family{"internlm2", "InternLM2Config", build_llama_like},
    Family{"llama", "LlamaConfig", build_llama_like},
    Family{"mistral", "MistralConfig", build_llama_like},
    Family{"mixtral", "MixtralConfig", build_llama_like},
    Family{"mpt", "MptConfig", build_mpt, {}, kOfOthers},
    Family{"olmo", "OlmoConfig", build_llama_like},
    Family{"olmo2", "Olmo2Config", build_llama_like},
    Family{"phi", "PhiConfig", build_litgpt, {}, kOfOthers},
    Family{"phi3", "Phi3Config", build_llama_like},
    Family{"qwen2", "Qwen2Config", build_llama_like},
    Family{"qwen2_moe", "Qwen2MoeConfig", build_llama_like},
    Family{"qwen3", "Qwen3Config", build_llama_like},
    Family{"qwen3_moe", "Qwen3MoeConfig", build_llama_like},
    Family{"roberta", "RobertaConfig", build_bert, {}, kOfOthers, kTrunks},
    Family{"smollm3", "SmolLM3Config", build_llama_like},
    Family{"starcoder2", "Starcoder2Config", build_llama_like},
    Family{"xlm-roberta", "XLMRobertaConfig", build_bert, {}, kOfOthers, kTrunks},
};

}  // namespace

std::span<const Family> all_families() { return kFamilies; }

const Family* find_family(std::string_view model_type, const Json& config, bool is_hugging_face) {
  for (const Family& family : kFamilies) {
    if (family.model_type != model_type) continue;
    const bool counts = family.writes_trunks && is_trunk(config);
    if (family.of_others && is_hugging_face && !counts) return nullptr;
    const std::string_view another = family.key_of_another;
    return another.empty() || config.find(another) == nullptr ? &family : nullptr;
  }
  return nullptr;
}

}  // namespace zeroplan::families
