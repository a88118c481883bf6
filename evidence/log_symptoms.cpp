#include "evidence/log_symptoms.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "evidence/log_text.hpp"
#include "evidence/text_scanner.hpp"

namespace zeroplan {
namespace {

// Text and advice of a symptom from the line that tells it.
struct Told {
  Phrase text;
  Phrase advice;
};

std::optional<std::int64_t> number_behind(std::string_view line, std::string_view words) {
  const std::size_t at = find_words(line, words);
  if (at == std::string_view::npos) return std::nullopt;
  TextScanner scanner(line, at);
  scanner.take(words);
  const std::optional<std::int64_t> number = scanner.integer();
  if (!number || *number <= 0) return std::nullopt;
  return number;
}

std::string word_behind(std::string_view line, std::string_view words) {
  const std::size_t at = find_words(line, words);
  if (at == std::string_view::npos) return "";
  std::size_t begin = at + words.size();
  while (begin < line.size() && line[begin] == ' ') ++begin;
  std::size_t end = begin;
  const auto belongs = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
  };
  while (end < line.size() && belongs(line[end])) ++end;
  while (end > begin && line[end - 1] == '.') --end;
  return std::string(line.substr(begin, end - begin));
}

// Every weight of that many elements is as good a guess; one name stands for equal layers.
std::string weight_of(const Model* model, std::int64_t elements) {
  if (model == nullptr) return "";
  for (const Parameter& parameter : model->parameters) {
    if (parameter.numel.count() == elements) return parameter.name;
  }
  return "";
}

// "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9314, OpType=_REDUCE_SCATTER_BASE,
// NumelIn=131072000, NumelOut=32768000, Timeout(ms)=600000) ran for ..." (torch
// c10d/ProcessGroupNCCL.cpp). The larger of in and out is the whole tensor, their ratio the ranks.
Told collective_timeout(std::string_view line, const Model* model) {
  Told told{"",
            "look for the rank that stopped first or went another way: an error in its log, fewer "
            "batches in an evaluation, experts without tokens under stage 3; zeroplan doctor "
            "looks at the network"};
  const std::string operation = word_behind(line, "OpType=");
  const auto in = number_behind(line, "NumelIn="), out = number_behind(line, "NumelOut=");
  const auto milliseconds = number_behind(line, "Timeout(ms)=");
  if (operation.empty() || !in || !out || !milliseconds) {
    told.text = "a collective did not end: a rank did not come to it";
    return told;
  }
  const std::int64_t whole = std::max(*in, *out), part = std::min(*in, *out);
  const std::int64_t seconds = *milliseconds / 1000;
  const std::string weight = weight_of(model, whole);
  const bool tells_ranks = whole > part && whole % part == 0;
  const Phrase size = weight.empty() ? phrase("{} elements", whole)
                                     : phrase("{} elements, as many as {} has,", whole, weight);
  told.text = tells_ranks
                  ? phrase("{} of {} over {} ranks did not end in {} s: a rank did not come to it",
                           operation,
                           size,
                           whole / part,
                           seconds)
                  : phrase("{} of {} did not end in {} s: a rank did not come to it",
                           operation,
                           size,
                           seconds);
  return told;
}

// deepspeed/runtime/fp16/loss_scaler.py update_scale
Told loss_scale(std::string_view, const Model*) {
  return {
      "fp16 gradients overflow at every loss scale: the weights come from a bf16 run, or the "
      "training diverges",
      "bf16 where the GPU has it (A100 and newer), else fp32; a lower learning rate"};
}

// deepspeed/ops/op_builder/builder.py assert_no_cuda_mismatch: releases of one major version pass.
Told cuda_version(std::string_view line, const Model*) {
  const std::string installed = word_behind(line, "Installed CUDA version");
  const std::string torch = word_behind(line, "torch was compiled with");
  const bool known = !installed.empty() && !torch.empty();
  return {known ? phrase("the CUDA toolkit is {} and torch was built with {}: DeepSpeed compiles "
                         "its operators with one major version only",
                         installed,
                         torch)
                : "the CUDA toolkit and torch have different major versions",
          "install the toolkit of torch's version and point CUDA_HOME there, or another torch; "
          "DS_SKIP_CUDA_CHECK=1 tries all the same"};
}

// deepspeed/launcher/runner.py fetch_hostfile
Told no_hostfile(std::string_view, const Model*) {
  return {"the launcher found no hostfile: only this machine's GPUs train",
          "give --hostfile FILE with a line \"host slots=N\" for each machine"};
}

// deepspeed/runtime/zero/stage3.py step
Told cache_flushes(std::string_view line, const Model*) {
  constexpr std::string_view kWords = "pytorch allocator cache flushes since last step";
  const std::string_view before = line.substr(0, std::min(line.size(), find_words(line, kWords)));
  std::size_t end = before.size();
  while (end > 0 && before[end - 1] == ' ') --end;
  std::size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(before[begin - 1])) != 0) --begin;
  const std::string count(before.substr(begin, end - begin));
  return {phrase("{} times in a step the GPU was full and PyTorch gave its cache back: the run "
                 "is slow and close to running out of memory",
                 count.empty() ? "several" : count),
          "a smaller micro-batch or buckets, activation checkpointing, or "
          "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; simulate tells how much is short"};
}

// transformers/integrations/deepspeed.py HfTrainerDeepSpeedConfig.trainer_config_finalize
Told trainer_mismatch(std::string_view, const Model*) {
  return {
      "the Trainer's arguments and ds_config.json disagree; the lines below the message name "
      "the keys",
      "write \"auto\" for them in ds_config.json; zeroplan lint with --mbs, --gas, --gpus finds "
      "them before"};
}

// torch c10d/TCPStore.cpp: "Timed out after 1801 seconds waiting for clients. 1/2 clients joined."
Told rendezvous(std::string_view line, const Model*) {
  const auto seconds = number_behind(line, "Timed out after");
  return {
      seconds ? phrase("not all processes came to the rendezvous in {} s", *seconds)
              : "not all processes came to the rendezvous",
      "every host needs the same MASTER_ADDR, MASTER_PORT and number of hosts, an open port and "
      "NCCL_SOCKET_IFNAME; zeroplan doctor --hostfile FILE looks"};
}

// torch/utils/cpp_extension.py verify_ninja_availability
Told no_ninja(std::string_view, const Model*) {
  return {
      "ninja is missing, with which torch builds DeepSpeed's operators when they are first used",
      "pip install ninja in the environment that trains, on every host; it must be on PATH"};
}

// torch/utils/file_baton.py wait: a build that was killed leaves its lock behind.
Told extension_lock(std::string_view line, const Model*) {
  constexpr std::string_view kWords = "Waited on lock file \"";
  const std::size_t at = find_words(line, kWords);
  std::string lock;
  if (at != std::string_view::npos) {
    const std::string_view rest = line.substr(at + kWords.size());
    lock = rest.substr(0, rest.find('"'));
  }
  return {
      "the build of an operator waits for a lock that nobody gives back: a build before it was "
      "killed",
      lock.empty() ? "end all of the job's processes, rm -rf ~/.cache/torch_extensions "
                     "(TORCH_EXTENSIONS_DIR), start again; on every host, or on the home that "
                     "they share"
                   : phrase("end all of the job's processes, rm {}, start again", lock)};
}

// deepspeed/launcher/runner.py: launcher 'pdsh' not installed.
Told no_pdsh(std::string_view, const Model*) {
  return {"the deepspeed launcher starts several hosts with pdsh, which is not installed",
          "apt-get install pdsh on the host that launches, or deepspeed --launcher OpenMPI, or "
          "torchrun on each host"};
}

// nccl src/proxy.cc ncclProxyCallBlocking, proxyProgressAsync
Told nccl_connect(std::string_view line, const Model*) {
  auto rank = number_behind(line, "Proxy Call to rank");
  if (!rank && find_words(line, "Proxy Call to rank 0") != std::string_view::npos) rank = 0;
  return {rank ? phrase("NCCL's helper thread of rank {} could not connect to another host: "
                        "the address that it was told is not reached from there",
                        *rank)
               : "NCCL's helper thread could not connect to another host: the address that it was "
                 "told is not reached from there",
          "NCCL_SOCKET_IFNAME=the interface of the hosts' common network (not docker0, lo or a "
          "virtual one) on every host, and an open firewall between them; NCCL_DEBUG=INFO names "
          "the address"};
}

// torch c10d/ProcessGroupNCCL.cpp getNcclDataType; NCCL has bf16 from 2.10.3 on.
Told nccl_without_bf16(std::string_view, const Model*) {
  return {"this torch was built with an NCCL before 2.10, which cannot reduce bf16",
          "a torch from 1.11 on (its NCCL has bf16), or \"communication_data_type\": \"fp32\" in "
          "ds_config.json, or fp16"};
}

// "... world_size 256 != 4 * 8 * 1" (deepspeed/runtime/config.py _batch_assertion).
Told batch_assertion(std::string_view line, const Model*) {
  constexpr std::string_view kWords = "gradient_acc_step * world_size";
  const std::size_t at = find_words(line, kWords);
  TextScanner scanner(line, std::min(at, line.size()));
  scanner.take(kWords);
  const auto total = scanner.integer();
  scanner.skip_any("!= ");
  const auto micro = scanner.integer();
  scanner.skip_any("* ");
  const auto steps = scanner.integer();
  scanner.skip_any("* ");
  const auto ranks = scanner.integer();
  constexpr std::int64_t kMost = 1LL << 20;
  const auto good = [](const auto& number) { return number && *number > 0 && *number <= kMost; };
  const bool known =
      at != std::string_view::npos && good(total) && good(micro) && good(steps) && good(ranks);
  if (!known) {
    return {"train_batch_size of ds_config.json is not micro-batch x accumulation x ranks",
            "leave train_batch_size out, or write \"auto\" for all three under the Trainer"};
  }
  const std::string sum =
      fmt::format("{} x {} x {} = {}", *micro, *steps, *ranks, *micro * *steps * *ranks);
  if (*ranks == 1 && *total % (*micro * *steps) == 0) {
    return {phrase("DeepSpeed counts one rank ({}), and train_batch_size {} is meant for {}",
                   sum,
                   *total,
                   *total / (*micro * *steps)),
            "start it with the launcher for all GPUs; where it was, the file was read before the "
            "processes knew each other: leave train_batch_size out, or newer accelerate and "
            "deepspeed"};
  }
  return {phrase("train_batch_size is {}, and micro-batch x accumulation x ranks {}: the file "
                 "has the one, the data loader or the script's arguments the other",
                 *total,
                 sum),
          "leave train_batch_size out of the file, or write \"auto\" for all three under the "
          "Trainer; zeroplan lint --mbs --gas --gpus finds it before"};
}

// accelerate/accelerator.py _prepare_deepspeed
Told batch_unknown(std::string_view, const Model*) {
  return {
      "accelerate takes the micro-batch from the data loader, and none with a batch_size was "
      "prepared together with the model",
      "prepare model, optimizer and data loader in one call, or write a number for "
      "train_micro_batch_size_per_gpu, the loader's, in ds_config.json"};
}

// The kernel's module is of one driver release, libnvidia-ml of another: nvmlInit fails.
Told driver_mismatch(std::string_view, const Model*) {
  return {
      "the NVIDIA driver was updated and the kernel still runs the old one: no process finds a "
      "GPU",
      "reboot, or unload and load the nvidia modules; in a container the host's driver counts"};
}

// torch.tensor of lists of different lengths (transformers' tokenizers and collators).
Told ragged_batch(std::string_view line, const Model*) {
  const auto length = number_behind(line, "expected sequence of length");
  const auto got = number_behind(line, "(got");
  const Phrase lengths = length && got ? phrase(" ({} and {} tokens)", *length, *got) : "";
  return {
      phrase("a batch holds sequences of different lengths{} that nobody padded", lengths),
      "padding in the collator (DataCollatorForSeq2Seq pads labels too), or "
      "padding=\"max_length\", truncation=True in the tokenizer; a tokenizer without a pad token "
      "needs tokenizer.pad_token = tokenizer.eos_token"};
}

// transformers/integrations/deepspeed.py deepspeed_init
Told inference_stage(std::string_view, const Model*) {
  return {
      "the Trainer evaluates or predicts before it trains (do_predict, do_eval), and under "
      "DeepSpeed it does that with stage 3 alone",
      "predict in a run of its own without --deepspeed, or with a stage-3 file; train with "
      "this one"};
}

struct SymptomOpening {
  std::string_view code;
  std::string_view words;
  Told (*read)(std::string_view line, const Model* model);
};

constexpr std::array kSymptomOpenings = {
    SymptomOpening{
        "collective-timeout", "Watchdog caught collective operation timeout", collective_timeout},
    SymptomOpening{"loss-scale", "Current loss scale already at minimum", loss_scale},
    SymptomOpening{
        "cuda-version", "unable to compile cuda/cpp extensions without a matching", cuda_version},
    SymptomOpening{"no-hostfile", "Unable to find hostfile", no_hostfile},
    SymptomOpening{
        "cache-flushes", "pytorch allocator cache flushes since last step", cache_flushes},
    SymptomOpening{"trainer-mismatch",
                   "Please correct the following DeepSpeed config values that mismatch",
                   trainer_mismatch},
    SymptomOpening{"rendezvous-timeout", "seconds waiting for clients", rendezvous},
    SymptomOpening{"no-ninja", "Ninja is required to load C++ extensions", no_ninja},
    SymptomOpening{"extension-lock", "Waited on lock file", extension_lock},
    SymptomOpening{"extension-lock", "torch/utils/file_baton.py", extension_lock},
    SymptomOpening{"no-pdsh", "launcher 'pdsh' not installed", no_pdsh},
    SymptomOpening{"nccl-connect", "failed (Connect)", nccl_connect},
    SymptomOpening{"nccl-connect", "Failed to execute operation Connect from rank", nccl_connect},
    SymptomOpening{"nccl-bf16",
                   "Input tensor data type is not supported for NCCL process group: BFloat16",
                   nccl_without_bf16},
    SymptomOpening{"nccl-bf16", "Unconvertible NCCL type BFloat16", nccl_without_bf16},
    SymptomOpening{"batch-assertion", "Check batch related parameters", batch_assertion},
    SymptomOpening{"batch-unknown",
                   "requires you to pass at least one of training or evaluation dataloaders",
                   batch_unknown},
    SymptomOpening{"driver-mismatch", "Driver/library version mismatch", driver_mismatch},
    SymptomOpening{"ragged-batch", "expected sequence of length", ragged_batch},
    SymptomOpening{
        "inference-stage", "ZeRO inference only makes sense with ZeRO Stage 3", inference_stage},
};

// A log that ends where torch would build or load an operator: "Using DIR as PyTorch extensions
// root..." and nothing of an extension behind it. Older torch waits for the lock without a word.
std::optional<LogSymptom> silent_lock(const LogText& log) {
  constexpr std::string_view kRoot = "as PyTorch extensions root";
  std::size_t last = std::string_view::npos;
  for (std::size_t at = find_words(log.text, kRoot); at != std::string_view::npos;
       at = find_words(log.text, kRoot, at + kRoot.size())) {
    last = at;
  }
  if (last == std::string_view::npos) return std::nullopt;
  if (find_words(log.text, "extension module", last) != std::string_view::npos) return std::nullopt;
  Told told = extension_lock("", nullptr);
  return LogSymptom{
      "extension-lock", log.line_at(last), 1, std::move(told.text), std::move(told.advice)};
}

}  // namespace

std::vector<LogSymptom> read_log_symptoms(std::string_view text, const Model* model) {
  std::vector<LogSymptom> symptoms;
  for (const LogText& log : split_log(text)) {
    for (const SymptomOpening& opening : kSymptomOpenings) {
      for (std::size_t at = find_words(log.text, opening.words); at != std::string_view::npos;
           at = find_words(log.text, opening.words, at + opening.words.size())) {
        const auto known = std::find_if(symptoms.begin(), symptoms.end(), [&](const LogSymptom& s) {
          return s.code == opening.code;
        });
        if (known != symptoms.end()) {
          ++known->times;
          continue;
        }
        Told told = opening.read(log.line_around(at), model);
        symptoms.push_back(
            {opening.code, log.line_at(at), 1, std::move(told.text), std::move(told.advice)});
      }
    }
  }
  const bool known_lock = std::any_of(symptoms.begin(), symptoms.end(), [](const LogSymptom& s) {
    return s.code == "extension-lock";
  });
  const std::vector<LogText> logs = split_log(text);
  if (!known_lock && symptoms.empty() && !logs.empty()) {
    if (auto lock = silent_lock(logs.back())) symptoms.push_back(std::move(*lock));
  }
  std::stable_sort(symptoms.begin(), symptoms.end(), [](const LogSymptom& a, const LogSymptom& b) {
    return a.line < b.line;
  });
  return symptoms;
}

}  // namespace zeroplan
