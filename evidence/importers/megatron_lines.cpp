#include "evidence/importers/megatron_lines.hpp"

#include <array>
#include <map>
#include <string>

#include <fmt/format.h>

#include "evidence/importers/dotted_settings.hpp"

namespace zeroplan::evidence {
namespace {

constexpr double kMegatronMib = 1024.0 * 1024.0;
constexpr std::string_view kMegatron = "Megatron's iterations";
constexpr SeriesInfo kMegatronStep{Metric::step_seconds, kMegatron, 1, 5e-5};
constexpr SeriesInfo kMegatronSamples{Metric::samples_per_second, kMegatron, 1, 5e-4};
constexpr SeriesInfo kModelRate{Metric::model_tflops_per_gpu, kMegatron, 1, 0.05};
constexpr SeriesInfo kHardwareRate{Metric::hardware_tflops_per_gpu, kMegatron, 1, 0.005};
constexpr SeriesInfo kMegatronTokens{Metric::tokens_per_second_per_gpu, kMegatron, 1, 5e-4};

constexpr std::string_view kMemory = "Megatron's report after the first iterations";
constexpr SeriesInfo kMegatronHeld{Metric::static_allocated_bytes, kMemory, 2, 0.0};
constexpr SeriesInfo kMegatronAllocated{Metric::peak_allocated_bytes, kMemory, 4, 0.0};
constexpr SeriesInfo kMegatronReserved{Metric::peak_reserved_bytes, kMemory, 3, 0.0};

// --- iterations

class IterationLines : public LogLineReader {
 public:
  LineOutcome read(std::string_view line, const LogPlace& place, RunFindings& findings) override;
};

LineOutcome IterationLines::read(std::string_view line,
                                 const LogPlace& place,
                                 RunFindings& findings) {
  if (line.find("iteration") == std::string_view::npos) return LineOutcome::not_mine;
  const bool words = line.find("elapsed time per iteration (ms)") != std::string_view::npos;
  const bool keys = line.find("elapsed_time_per_iteration_ms") != std::string_view::npos;
  if (!words && !keys) return LineOutcome::not_mine;
  const auto milliseconds = number_after(
      line, words ? "elapsed time per iteration (ms)" : "elapsed_time_per_iteration_ms");
  if (!milliseconds || *milliseconds <= 0.0) {
    findings.bad(place, "iteration N/N | ... | elapsed time per iteration (ms): N |", line);
    return LineOutcome::bad;
  }
  findings.sample(kMegatronStep, *milliseconds * 1e-3, place);
  if (const auto done = count_after(line, "iteration ")) {
    findings.advance({*done, count_after(line, fmt::format("{}/", *done))});
  }
  auto batch = count_after(line, "global batch size:");
  if (!batch) batch = count_after(line, "global_batch_size=");
  if (batch && !findings.global_batch) findings.global_batch = batch;
  for (const std::string_view key : {"samples per second:", "samples_per_second="}) {
    if (const auto rate = number_after(line, key)) findings.sample(kMegatronSamples, *rate, place);
  }
  // Megatron-LM counts a model's operations, without recomputation (num_floating_point_operations);
  // Megatron-DeepSpeed counts a fourth pass under checkpointing (throughput_calculator).
  if (const auto rate = number_after(line, "throughput per GPU (TFLOP/s/GPU)")) {
    findings.sample(kModelRate, *rate, place);
  } else if (const auto with = number_after(line, "| TFLOPs:")) {
    findings.sample(kHardwareRate, *with, place);
  }
  if (const auto rate = number_after(line, "tokens per gpu per second (tgs):")) {
    findings.sample(kMegatronTokens, *rate, place);
  }
  findings.state(ScenarioKey::implementation, "megatron", place);
  return LineOutcome::understood;
}

// --- memory

class MegatronMemoryLines : public LogLineReader {
 public:
  LineOutcome read(std::string_view line, const LogPlace& place, RunFindings& findings) override;

 private:
  static bool read_rank(std::string_view report, const LogPlace& place, RunFindings& findings);
};

LineOutcome MegatronMemoryLines::read(std::string_view line,
                                      const LogPlace& place,
                                      RunFindings& findings) {
  constexpr std::string_view kMark = "memory (MB)";
  std::size_t at = line.find(kMark);
  if (at == std::string_view::npos) return LineOutcome::not_mine;
  std::string_view before = line.substr(0, at);  // holds the rank
  bool good = true;
  while (at != std::string_view::npos) {
    const std::size_t next = line.find(kMark, at + kMark.size());
    const std::string_view report =
        line.substr(at, next == std::string_view::npos ? next : next - at);
    good &= read_rank(report, with_stated_rank(before, place), findings);
    before = report;
    at = next;
  }
  if (!good) {
    findings.bad(place, "memory (MB) | allocated: N | max allocated: N | reserved: N | ...", line);
    return LineOutcome::bad;
  }
  findings.note("Megatron reports memory once, after its first iterations");
  return LineOutcome::understood;
}

bool MegatronMemoryLines::read_rank(std::string_view report,
                                    const LogPlace& place,
                                    RunFindings& findings) {
  const auto held = number_after(report, "| allocated:");
  const auto peak = number_after(report, "| max allocated:");
  if (!held || !peak) return false;
  findings.sample(kMegatronHeld, *held * kMegatronMib, place);
  findings.sample(kMegatronAllocated, *peak * kMegatronMib, place);
  if (const auto reserved = number_after(report, "| max reserved:")) {
    findings.sample(kMegatronReserved, *reserved * kMegatronMib, place);
  }
  return true;
}

// --- arguments

class ArgumentLines : public LogLineReader {
 public:
  LineOutcome read(std::string_view line, const LogPlace& place, RunFindings& findings) override;
  void finish(RunFindings& findings) override;

 private:
  std::string_view said(std::string_view name) const;
  std::optional<std::int64_t> number(std::string_view name) const;
  bool is_true(std::string_view name) const { return said(name) == "True"; }
  void state_number(std::string_view name, ScenarioKey key, RunFindings& findings) const;
  void state_model(RunFindings& findings) const;

  bool inside_ = false;
  LogPlace place_;
  std::map<std::string, std::string, std::less<>> settings_;
};

LineOutcome ArgumentLines::read(std::string_view line,
                                const LogPlace& place,
                                RunFindings& findings) {
  static_cast<void>(findings);
  if (line.find("- end of arguments -") != std::string_view::npos) {
    inside_ = false;
    return LineOutcome::understood;
  }
  if (line.find("- arguments -") != std::string_view::npos) {
    inside_ = true;
    place_ = place;
    return LineOutcome::understood;
  }
  if (!inside_) return LineOutcome::not_mine;
  const std::optional<DottedSetting> setting = dotted_setting(line);
  if (!setting) return LineOutcome::not_mine;
  settings_.try_emplace(std::string(setting->name), setting->value);
  return LineOutcome::understood;
}

std::string_view ArgumentLines::said(std::string_view name) const {
  const auto found = settings_.find(name);
  return found == settings_.end() ? std::string_view() : std::string_view(found->second);
}

std::optional<std::int64_t> ArgumentLines::number(std::string_view name) const {
  return DottedSetting{name, said(name)}.integer();
}

void ArgumentLines::state_number(std::string_view name,
                                 ScenarioKey key,
                                 RunFindings& findings) const {
  if (const auto value = number(name)) findings.state(key, std::to_string(*value), place_);
}

// GPT as Megatron built it first: learned positions, GELU, tied output weights, biases. It is
// GPT-2's shape. Others are described in words.
void ArgumentLines::state_model(RunFindings& findings) const {
  const auto layers = number("num_layers");
  const auto hidden = number("hidden_size");
  const auto heads = number("num_attention_heads");
  const auto vocabulary = number("padded_vocab_size");
  if (!layers || !hidden || !heads || !vocabulary) return;
  const std::string_view positions = said("position_embedding_type");
  const bool gpt2 = (positions.empty() || positions == "learned_absolute" ||
                     positions == "PositionEmbeddingType.absolute") &&
                    !is_true("swiglu") && !is_true("untie_embeddings_and_output_weights") &&
                    !is_true("use_rotary_position_embeddings") &&
                    number("num_experts").value_or(1) == 1;
  if (!gpt2) {
    findings.note(
        fmt::format("Megatron's arguments: {} layers, hidden size {}, {} heads, vocabulary {}; "
                    "--model says which",
                    *layers,
                    *hidden,
                    *heads,
                    *vocabulary));
    return;
  }
  Json config = Json::object({{"model_type", "gpt2"},
                              {"n_layer", *layers},
                              {"n_embd", *hidden},
                              {"n_head", *heads},
                              {"vocab_size", *vocabulary}});
  const auto longest = number("max_position_embeddings");
  config["n_positions"] = longest ? *longest : number("seq_length").value_or(1024);
  if (const auto inner = number("ffn_hidden_size")) config["n_inner"] = *inner;
  findings.state_value(ScenarioKey::model, std::move(config), place_);
}

void ArgumentLines::finish(RunFindings& findings) {
  if (settings_.empty()) return;
  findings.state(ScenarioKey::implementation, "megatron", place_);
  findings.state(ScenarioKey::engine, is_true("deepspeed") ? "deepspeed" : "megatron", place_);
  state_number("seq_length", ScenarioKey::sequence_length, findings);
  state_number("micro_batch_size", ScenarioKey::micro_batch_size, findings);
  state_number("tensor_model_parallel_size", ScenarioKey::tensor_parallel, findings);
  state_number("pipeline_model_parallel_size", ScenarioKey::pipeline_parallel, findings);
  if (is_true("bf16")) findings.state(ScenarioKey::precision, "bf16", place_);
  if (is_true("fp16")) findings.state(ScenarioKey::precision, "fp16", place_);
  const bool recomputes =
      is_true("checkpoint_activations") || said("recompute_granularity") == "full";
  findings.state(ScenarioKey::activation_checkpointing,
                 recomputes                                     ? "full"
                 : said("recompute_granularity") == "selective" ? "selective"
                                                                : "none",
                 place_);
  if (!findings.gpus) findings.gpus = number("world_size");
  if (!findings.global_batch) findings.global_batch = number("global_batch_size");
  const auto batch = number("micro_batch_size");
  const auto replicas = number("data_parallel_size");
  if (batch && replicas && *batch > 0 && *replicas > 0 && findings.global_batch &&
      *findings.global_batch % (*batch * *replicas) == 0) {
    findings.state(ScenarioKey::gradient_accumulation_steps,
                   std::to_string(*findings.global_batch / (*batch * *replicas)),
                   place_);
  }
  state_model(findings);
}

}  // namespace

std::unique_ptr<LogLineReader> megatron_iteration_lines() {
  return std::make_unique<IterationLines>();
}
std::unique_ptr<LogLineReader> megatron_memory_lines() {
  return std::make_unique<MegatronMemoryLines>();
}
std::unique_ptr<LogLineReader> megatron_argument_lines() {
  return std::make_unique<ArgumentLines>();
}

}  // namespace zeroplan::evidence
