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
  std::string text;
  std::string advice;
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
  const std::string size = weight.empty()
                               ? fmt::format("{} elements", whole)
                               : fmt::format("{} elements, as many as {} has,", whole, weight);
  told.text =
      tells_ranks
          ? fmt::format("{} of {} over {} ranks did not end in {} s: a rank did not come to it",
                        operation,
                        size,
                        whole / part,
                        seconds)
          : fmt::format("{} of {} did not end in {} s: a rank did not come to it",
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
      "bf16 where the card has it (A100 and newer), else fp32; a lower learning rate"};
}

// deepspeed/ops/op_builder/builder.py assert_no_cuda_mismatch: releases of one major version pass.
Told cuda_version(std::string_view line, const Model*) {
  const std::string installed = word_behind(line, "Installed CUDA version");
  const std::string torch = word_behind(line, "torch was compiled with");
  const bool known = !installed.empty() && !torch.empty();
  return {
      known ? fmt::format("the CUDA toolkit is {} and torch was built with {}: DeepSpeed compiles "
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
  return {
      fmt::format("{} times in a step the card was full and PyTorch gave its cache back: the run "
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
      seconds ? fmt::format("not all processes came to the rendezvous in {} s", *seconds)
              : "not all processes came to the rendezvous",
      "every host needs the same MASTER_ADDR, MASTER_PORT and number of hosts, an open port and "
      "NCCL_SOCKET_IFNAME; zeroplan doctor --hostfile FILE looks"};
}

struct Opening {
  std::string_view code;
  std::string_view words;
  Told (*read)(std::string_view line, const Model* model);
};

constexpr std::array kOpenings = {
    Opening{
        "collective-timeout", "Watchdog caught collective operation timeout", collective_timeout},
    Opening{"loss-scale", "Current loss scale already at minimum", loss_scale},
    Opening{
        "cuda-version", "unable to compile cuda/cpp extensions without a matching", cuda_version},
    Opening{"no-hostfile", "Unable to find hostfile", no_hostfile},
    Opening{"cache-flushes", "pytorch allocator cache flushes since last step", cache_flushes},
    Opening{"trainer-mismatch",
            "Please correct the following DeepSpeed config values that mismatch",
            trainer_mismatch},
    Opening{"rendezvous-timeout", "seconds waiting for clients", rendezvous},
};

}  // namespace

std::vector<LogSymptom> read_log_symptoms(std::string_view text, const Model* model) {
  std::vector<LogSymptom> symptoms;
  for (const LogText& log : split_log(text)) {
    for (const Opening& opening : kOpenings) {
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
  std::stable_sort(symptoms.begin(), symptoms.end(), [](const LogSymptom& a, const LogSymptom& b) {
    return a.line < b.line;
  });
  return symptoms;
}

}  // namespace zeroplan
