#include "model/known_names.hpp"

#include <array>
#include <cctype>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/written_names.hpp"

namespace zeroplan {
namespace {

// Folded names, with '|' between them, that have one reason.
struct KnownNames {
  std::string_view names;
  std::string_view reason;
};

// A model's name begins with one of these.
constexpr std::array kModels = {
    KnownNames{"gpt3|gpt4|gpt5|chatgpt|claude|gemini|palm", "its weights are not published"},
    KnownNames{"deepseekr1distill",
               "it has the tensors of the Qwen or LLaMA it is made from, which are built in: name "
               "that one, as qwen2.5-7b or llama-3.1-8b"},
    KnownNames{
        "llama4",
        "its text models are built in as llama-4-scout and llama-4-maverick; with its vision "
        "encoder give the path of its own config.json"},
    KnownNames{"clip|stablediffusion|sdxl|flux|wav2vec", "only language models are modelled"},
    KnownNames{
        "kimilinear|deepseekmoe|minicpm|gemma3n|gemma4|qwenvl|internvl|llava|glm4v|glm41v|glm45v|"
        "glm46v|phi3vision|pixtral|molmo|mamba|falconmamba|rwkv|nemotron|jamba|zamba|"
        "recurrentgemma|"
        "grok|arctic|minimax|bailing|ling|internlm3|commandrplus|commanda|stablelm|codegen|exaone|"
        "solar|orion",
        "no config.json of it is built in: give the path of its own; a class that is not known "
        "here "
        "is asked where python3 has transformers"},
};

// A GPU's name, without maker and size, begins with one of these: other makers' accelerators.
constexpr std::string_view kOtherMakers =
    "mi50|mi60|mi100|mi210|mi250|mi300|mi325|mi350|mi355|instinct|radeon|rx6|rx7|rx9|gaudi|hpu|tpu|"
    "trainium|trn|inferentia|inf|ascend|910|npu|mlu|kunlun|dcu|br100|mtt|cerebras|ipu|groq|arc|"
    "max1550|pvc";

// Other makers' GPUs that people train on. Sizes are those of AMD's data sheets; Huawei publishes
// none, its are those of press and benchmarks.
constexpr std::array kOtherGpusSaid = {
    KnownNames{
        "mi300x|instinctmi300x",
        "AMD's MI300X has 192 GB, 5.3 TB/s and 1307 TFLOP/s in bf16; what PyTorch for ROCm "
        "allocates and how fast its kernels and RCCL are is not modelled, rehearsals emulate "
        "CUDA alone, and the wheels of bitsandbytes and flash-attn for CUDA do not run there"},
    KnownNames{
        "mi325x|instinctmi325x",
        "AMD's MI325X has 256 GB, 6 TB/s and 1307 TFLOP/s in bf16; what PyTorch for ROCm "
        "allocates and how fast its kernels and RCCL are is not modelled, rehearsals emulate "
        "CUDA alone, and the wheels of bitsandbytes and flash-attn for CUDA do not run there"},
    KnownNames{
        "mi355x|instinctmi355x",
        "AMD's MI355X has 288 GB, 8 TB/s and 2.5 PFLOP/s in bf16; what PyTorch for ROCm "
        "allocates and how fast its kernels and RCCL are is not modelled, rehearsals emulate "
        "CUDA alone, and the wheels of bitsandbytes and flash-attn for CUDA do not run there"},
    KnownNames{
        "ascend910c|910c",
        "Huawei's Ascend 910C is two chips of 64 GB each; it runs torch_npu and HCCL, which "
        "are not modelled, rehearsals emulate CUDA alone, and flash-attn, bitsandbytes' CUDA "
        "kernels and NCCL do not exist for it"},
    KnownNames{
        "ascend910b|910b",
        "Huawei's Ascend 910B has 64 GB, one variant 32; it runs torch_npu and HCCL, which "
        "are not modelled, rehearsals emulate CUDA alone, and flash-attn, bitsandbytes' CUDA "
        "kernels and NCCL do not exist for it"},
};

// Machines with one memory for host and GPU that are no NVIDIA's; a name begins with one of these.
constexpr std::array kOnePool = {
    KnownNames{
        "strixhalo|ryzenaimax|aimax|8060s|gfx1151",
        "Strix Halo (Ryzen AI Max) has one pool for host and GPU, of whose 128 GB PyTorch for ROCm "
        "reported 62 to 96 GiB (what BIOS and ttm.pages_limit give the GPU); its allocator, "
        "kernels "
        "and speed are not modelled. LoRA of a small model trains there with PyTorch for ROCm "
        "alone; offloading to the CPU gains nothing"},
    KnownNames{
        "appl|m1|m2|m3|m4|m5|mac",
        "a Mac has no CUDA and one memory for host and GPU, of which PyTorch's MPS allows itself a "
        "part. DeepSpeed 0.19.6 trains there on one device, in plain PyTorch; its memory and speed "
        "there are not modelled, and flash-attn does not run. What works: LoRA with mlx-lm, or the "
        "Trainer on MPS without DeepSpeed; offloading to the CPU gains nothing"},
};

// Or it is one of these whole: NVIDIA's GPUs whose numbers nobody collected here.
constexpr std::string_view kOtherGpus =
    "k40|k80|m40|m60|p4|p6|p40|a100x|100x|1060|1070|1070ti|1080|1080ti|1650|1660|1660ti|2060|2070|"
    "2080|2080super|3050|4050|5050|5090dv2|4000|5000|titanv|titanx|titanxp|l2|l40g|h100x|b100|thor|"
    "orin|jetson|jetsonorin";

std::string key_of(std::string_view name) { return folded(without_organization(name), " -_.()"); }

// Whether `matches` holds for one of the names between the bars.
template <typename Predicate>
bool any_name(std::string_view names, const Predicate& matches) {
  return !first_name(names, matches).empty();
}

// "nvidiageforcertx4080" -> "4080".
std::string without_maker(std::string name) {
  bool again = true;
  while (again) {
    again = false;
    for (const std::string_view word : {"nvidia",
                                        "tesla",
                                        "geforce",
                                        "quadro",
                                        "rtx",
                                        "gtx",
                                        "amd",
                                        "intel",
                                        "huawei",
                                        "google"}) {
      if (!name.starts_with(word) || name.size() == word.size()) continue;
      name.erase(0, word.size());
      again = true;
    }
  }
  return name;
}

// "4080 16GB" -> "4080".
std::string without_size(std::string name) {
  for (const std::string_view unit : {"gib", "gb", "g"}) {
    if (!name.ends_with(unit)) continue;
    std::size_t end = name.size() - unit.size();
    const std::size_t digits = end;
    while (end > 0 && digits - end < 2 && std::isdigit(static_cast<unsigned char>(name[end - 1]))) {
      --end;
    }
    if (end < digits && end > 0) name.resize(end);
    return name;
  }
  return name;
}

std::string digits_of(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) digits.push_back(c);
  }
  return digits;
}

}  // namespace

std::string why_no_model(std::string_view name) {
  const std::string key = key_of(name);
  // "gemma2b" and "internlm20b" end in a size, not in a version.
  const auto is_named = [&](std::string_view known) {
    if (!key.starts_with(known)) return false;
    const std::string_view rest = std::string_view(key).substr(known.size());
    return !rest.starts_with("b") && !rest.starts_with("0b");
  };
  for (const KnownNames& row : kModels) {
    if (any_name(row.names, is_named)) return std::string(row.reason);
  }
  return "";
}

std::string why_no_gpu(std::string_view name) {
  const std::string key = without_maker(key_of(name));
  for (const KnownNames& row : kOtherGpusSaid) {
    const auto begins = [&](std::string_view known) { return key.starts_with(known); };
    if (any_name(row.names, begins)) return std::string(row.reason);
  }
  for (const KnownNames& row : kOnePool) {
    const auto begins = [&](std::string_view known) {
      const bool chip = known.size() == 2;  // "m4max" is Apple's, "m4000" is not
      return key.starts_with(known) && !(chip && key.size() > 2 && std::isdigit(key[2]) != 0);
    };
    if (any_name(row.names, begins)) return std::string(row.reason);
  }
  if (any_name(kOtherMakers, [&](std::string_view known) { return key.starts_with(known); })) {
    return "only NVIDIA's GPUs are modelled";
  }
  if (key.find("laptop") != std::string::npos || key.find("mobile") != std::string::npos) {
    return "a laptop's GPU has another chip, memory and power limit than the one of its name: say "
           "its numbers: --cluster "
           "'{\"gpus_per_node\":1,\"gpu\":{\"name\":\"...\",\"memory_bytes\":16.7e9,"
           "\"memory_bandwidth\":5.7e11,\"peak_flops\":8e13}}'";
  }
  const std::string gpu = without_size(key);
  if (any_name(kOtherGpus, [&](std::string_view known) { return key == known || gpu == known; })) {
    return "its numbers are not built in; say them: --cluster "
           "'{\"gpus_per_node\":4,\"gpu\":{\"name\":\"...\",\"memory_bytes\":17e9,"
           "\"memory_bandwidth\":7e11,\"peak_flops\":1e14}}'";
  }
  return "";
}

Phrase did_you_mean_same_number(std::string_view word,
                                std::span<const std::string_view> candidates) {
  const std::string digits = digits_of(word);
  std::vector<std::string_view> same;
  for (const std::string_view candidate : candidates) {
    if (digits_of(candidate) == digits) same.push_back(candidate);
  }
  return did_you_mean(word, same);
}

}  // namespace zeroplan
