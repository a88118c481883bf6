#include "model/plan/spellings.hpp"

#include <array>
#include <charconv>

#include "base/written_names.hpp"

namespace zeroplan {
namespace {

// Names of one value, folded, with '|' between them.
struct Spelling {
  ScenarioKey key;
  std::string_view names;
  std::string_view value;  // empty: it exists and is not modelled
  std::string_view reason = "";
};

constexpr std::array kSpellings = {
    Spelling{ScenarioKey::precision, "bfloat16|torchbfloat16|brainfloat16", "bf16"},
    Spelling{ScenarioKey::precision, "float16|half|torchfloat16", "fp16"},
    Spelling{ScenarioKey::precision, "float32|float|single|torchfloat32|full", "fp32"},
    Spelling{ScenarioKey::precision,
             "fp8|float8|mxfp8|fp4|mxfp4|nvfp4",
             "",
             "products of 8 bits and fewer are not modelled; bf16 is the nearest"},
    Spelling{ScenarioKey::precision,
             "int8|int4|4bit|8bit|nf4",
             "",
             "weights of 4 bits are --method qlora; those of 8 bits are not modelled"},
    Spelling{ScenarioKey::precision,
             "tf32",
             "",
             "TF32 products of fp32 weights are not modelled; fp32 is the nearest"},
    Spelling{ScenarioKey::attention,
             "flashattention2|flashattn2|fa2|flash2|flashattn|flashattention|fa",
             "flash"},
    Spelling{ScenarioKey::attention, "math|vanilla|standard", "eager"},
    Spelling{ScenarioKey::attention, "scaleddotproductattention|torchsdpa", "sdpa"},
    Spelling{ScenarioKey::attention,
             "flashattention3|flashattn3|fa3|flash3|xformers|memoryefficient|flexattention|flex|"
             "pagedattention|sageattention|ring",
             "",
             "its kernels are not modelled; flash is FlashAttention-2"},
    Spelling{ScenarioKey::activation_checkpointing, "true|yes|on|1|all", "full"},
    Spelling{ScenarioKey::activation_checkpointing, "false|no|off|0", "none"},
    Spelling{ScenarioKey::activation_offload, "true|yes|on|1|host", "cpu"},
    Spelling{ScenarioKey::activation_offload, "false|no|off|0", "none"},
    Spelling{ScenarioKey::optimizer,
             "adamwtorch|adamwtorchfused|adamwhf|adamwapexfused|fusedadamw|fusedadam|cpuadam|"
             "pagedadamw|pagedadamw32bit",
             "adamw"},
    Spelling{ScenarioKey::optimizer,
             "adamwbnb8bit|adamwbnb|adam8bit|bnbadamw8bit|8bitadamw|8bitadam|pagedadamw8bit",
             "adamw8bit"},
    Spelling{ScenarioKey::optimizer, "lion32bit", "lion"},
    Spelling{ScenarioKey::optimizer,
             "lamb|lars|galore|galoreadamw|apollo|lomo|adalomo|sophia|shampoo|soap|onebitadam|"
             "1bitadam|zerooneadam|adagrad|rmsprop|lion8bit|pagedlion|pagedlion8bit|pagedlion32bit|"
             "schedulefree|prodigy|came|ademamix",
             "",
             "its states and its step are not modelled"},
    Spelling{ScenarioKey::method,
             "fft|fullfinetuning|fullfinetune|finetuning|finetune|sft|pretraining|pretrain|pt|"
             "fullparameter",
             "full"},
    Spelling{ScenarioKey::method, "peft|lowrank", "lora"},
    Spelling{ScenarioKey::method, "lora4bit|qlora4bit", "qlora"},
    Spelling{ScenarioKey::method,
             "dora|adalora|ia3|oft|loha|lokr|vera|prefixtuning|prefix|ptuning|ptuningv2|"
             "prompttuning|bitfit|freeze|lisa|loftq|pissa|loraplus|rslora",
             "",
             "of the methods that train few parameters lora and qlora are modelled"},
    Spelling{ScenarioKey::method,
             "dpo|kto|grpo|ppo|gkd",
             "",
             "it is --trainer, beside --method full, lora or qlora"},
    Spelling{ScenarioKey::method,
             "distillation|distill",
             "",
             "it is --trainer gkd --teacher MODEL, beside --method full, lora or qlora"},
    Spelling{ScenarioKey::method,
             "rlhf|orpo|rm|reward|rloo",
             "",
             "the training of one model is modelled, not what generates or holds a second one "
             "beside it"},
    Spelling{ScenarioKey::engine, "zero|ds|microsoftdeepspeed", "deepspeed"},
    Spelling{ScenarioKey::engine, "pytorchfsdp|torchfsdp|fsdp1|fullysharded", "fsdp"},
    Spelling{ScenarioKey::engine, "pytorchddp|torchddp|dataparallel|none", "ddp"},
    Spelling{ScenarioKey::engine, "zeroplan", "embedded"},
    Spelling{ScenarioKey::engine,
             "megatronlm|megatrondeepspeed|nemo|colossalai|unsloth|fsdp2|torchtitan|horovod|"
             "fairscale|alpa|mindspeed|veomni|mlx|jax",
             "",
             "this engine is not modelled; deepspeed, fsdp, ddp and embedded are"},
    Spelling{ScenarioKey::frontend,
             "trainer|hf|transformers|huggingface|trl|sfttrainer|llamafactory|axolotl|swift|"
             "msswift|xtuner|fastchat",
             "hf-trainer"},
    Spelling{ScenarioKey::frontend, "deepspeed|script|pytorch|torch|accelerate", "native"},
    Spelling{ScenarioKey::implementation, "transformers|huggingface", "hf"},
    Spelling{ScenarioKey::implementation, "megatronlm|megatrondeepspeed", "megatron"},
    Spelling{ScenarioKey::implementation, "llmfoundry|mosaicml", "composer"},
};

constexpr std::string_view kSeparators = " -_.+";

// The one of the names between the bars that folds to `word`; empty where none does.
std::string_view same_name(std::string_view names, std::string_view word) {
  if (word.empty()) return "";
  return first_name(names, [&](std::string_view one) { return folded(one, kSeparators) == word; });
}

const Spelling* find_spelling(ScenarioKey key, std::string_view text) {
  const std::string word = folded(text, kSeparators);
  for (const Spelling& row : kSpellings) {
    if (row.key == key && !same_name(row.names, word).empty()) return &row;
  }
  return nullptr;
}

}  // namespace

std::optional<std::string_view> meaning_of(ScenarioKey key,
                                           std::string_view choices,
                                           std::string_view text) {
  const std::string_view own = same_name(choices, folded(text, kSeparators));
  if (!own.empty()) return own;
  const Spelling* row = find_spelling(key, text);
  if (row == nullptr || row->value.empty()) return std::nullopt;
  return row->value;
}

std::string_view why_not_modelled(ScenarioKey key, std::string_view text) {
  const Spelling* row = find_spelling(key, text);
  return row == nullptr ? "" : row->reason;
}

std::optional<std::int64_t> parse_tokens(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number < 0) return std::nullopt;
  const std::string unit =
      folded(std::string_view(stop, static_cast<std::size_t>(end - stop)), kSeparators);
  constexpr std::int64_t kKilo = 1024;
  constexpr std::int64_t kMost = 1LL << 40;  // far above any sequence, and its product is a number
  const std::int64_t factor = unit.empty()                  ? 1
                              : unit == "k" || unit == "ki" ? kKilo
                              : unit == "m" || unit == "mi" ? kKilo * kKilo
                                                            : 0;
  if (factor == 0 || number > kMost) return std::nullopt;
  return number * factor;
}

std::optional<bool> parse_switch(std::string_view text) {
  const std::string word = folded(text, kSeparators);
  if (!same_name("true|yes|on|1", word).empty()) return true;
  if (!same_name("false|no|off|0", word).empty()) return false;
  return std::nullopt;
}

}  // namespace zeroplan
