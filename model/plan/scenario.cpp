#include "model/plan/scenario.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>

#include "model/check.hpp"
#include "model/diagnostic.hpp"
#include "model/plan/said_in_ds_config.hpp"
#include "model/plan/scenario_values.hpp"
#include "model/plan/spellings.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kMostTokens = 1LL << 24;
constexpr std::int64_t kMostBatch = 1LL << 20;
constexpr std::int64_t kMostGlobalBatch = 1LL << 40;
constexpr std::int64_t kMostDegree = 100000;

}  // namespace

const std::array<ScenarioKeyInfo, kScenarioKeyCount> kScenarioKeys = {{
    {ScenarioKey::id, "/id", "--id", "", ScenarioType::text, "", 0, 0, "echoed in results"},
    {ScenarioKey::model,
     "/model",
     "--model",
     "",
     ScenarioType::text_or_object,
     "",
     0,
     0,
     "a known model, a size (10B), or a path to config.json"},
    {ScenarioKey::cluster,
     "/cluster",
     "--cluster",
     "",
     ScenarioType::text_or_object,
     "",
     0,
     0,
     "NODESxGPUSxGPU (2x4xA800-80G), a path to cluster.json, or hostfile:PATH@GPU"},
    {ScenarioKey::profile,
     "/profile",
     "--profile",
     "",
     ScenarioType::text_or_object,
     "",
     0,
     0,
     "a measured profile to use instead of the built-in one"},
    {ScenarioKey::ds_config,
     "/ds_config",
     "--ds-config",
     "",
     ScenarioType::text_or_object,
     "",
     0,
     0,
     "path to a ds_config.json"},
    {ScenarioKey::sequence_length,
     "/workload/sequence_length",
     "--sequence-length",
     "--seq",
     ScenarioType::tokens,
     "",
     1,
     kMostTokens,
     "tokens in a sequence: 4096 or 4k"},
    {ScenarioKey::micro_batch_size,
     "/workload/micro_batch_size",
     "--micro-batch-size",
     "--mbs",
     ScenarioType::integer,
     "",
     1,
     kMostBatch,
     "sequences per GPU in one forward pass"},
    {ScenarioKey::gradient_accumulation_steps,
     "/workload/gradient_accumulation_steps",
     "--gradient-accumulation-steps",
     "--gas",
     ScenarioType::integer,
     "",
     1,
     kMostBatch,
     "micro-batches in one optimizer step"},
    {ScenarioKey::global_batch_size,
     "/workload/global_batch_size",
     "--global-batch-size",
     "--global-batch",
     ScenarioType::integer,
     "",
     1,
     kMostGlobalBatch,
     "sequences in one optimizer step, of all GPUs together"},
    {ScenarioKey::method,
     "/workload/method",
     "--method",
     "",
     ScenarioType::text_or_object,
     "",
     0,
     0,
     "full, lora, qlora, or {\"lora\":{\"rank\":8,\"targets\":[\"q_proj\"]}}"},
    {ScenarioKey::precision,
     "/workload/precision",
     "--precision",
     "",
     ScenarioType::choice,
     "bf16|fp16|fp32",
     0,
     0,
     "number format of weights and activations"},
    {ScenarioKey::optimizer,
     "/workload/optimizer",
     "--optimizer",
     "",
     ScenarioType::choice,
     "adamw|adam|lion|adafactor|sgd|adamw8bit",
     0,
     0,
     "optimizer"},
    {ScenarioKey::attention,
     "/workload/attention",
     "--attention",
     "",
     ScenarioType::choice,
     "eager|sdpa|flash",
     0,
     0,
     "attention implementation of the model class"},
    {ScenarioKey::activation_checkpointing,
     "/workload/activation_checkpointing",
     "--activation-checkpointing",
     "--ckpt",
     ScenarioType::choice,
     "none|full|selective",
     0,
     0,
     "activation (gradient) checkpointing"},
    {ScenarioKey::checkpoint_reentrant,
     "/workload/checkpoint_reentrant",
     "--checkpoint-reentrant",
     "",
     ScenarioType::boolean,
     "",
     0,
     0,
     "torch's use_reentrant of checkpointing"},
    {ScenarioKey::activation_offload,
     "/workload/activation_offload",
     "--activation-offload",
     "",
     ScenarioType::choice,
     "none|cpu",
     0,
     0,
     "where checkpointed activations are kept"},
    {ScenarioKey::engine,
     "/workload/engine",
     "--engine",
     "",
     ScenarioType::choice,
     "deepspeed|fsdp|ddp|embedded|megatron|llmq|internevo|other",
     0,
     0,
     "training engine"},
    {ScenarioKey::frontend,
     "/workload/frontend",
     "--frontend",
     "",
     ScenarioType::choice,
     "hf-trainer|native",
     0,
     0,
     "who builds the training loop"},
    {ScenarioKey::implementation,
     "/workload/implementation",
     "--implementation",
     "",
     ScenarioType::choice,
     "hf|megatron|composer|litgpt|fms",
     0,
     0,
     "who wrote the model's code"},
    {ScenarioKey::fused_loss,
     "/workload/fused_loss",
     "--fused-loss",
     "",
     ScenarioType::boolean,
     "",
     0,
     0,
     "a loss kernel that never holds all logits"},
    {ScenarioKey::tiled_mlp,
     "/workload/tiled_mlp",
     "--tiled-mlp",
     "",
     ScenarioType::boolean,
     "",
     0,
     0,
     "DeepSpeed's TiledMLP: the feed-forward by tiles of the sequence"},
    {ScenarioKey::compile,
     "/workload/compile",
     "--compile",
     "",
     ScenarioType::boolean,
     "",
     0,
     0,
     "torch.compile"},
    {ScenarioKey::use_cache,
     "/workload/use_cache",
     "--use-cache",
     "",
     ScenarioType::boolean,
     "",
     0,
     0,
     "the model's config.use_cache: keys and values are kept until the outputs go"},
    {ScenarioKey::outputs_held,
     "/workload/outputs_held",
     "--outputs-held",
     "",
     ScenarioType::boolean,
     "",
     0,
     0,
     "the training loop keeps the model's outputs, logits among them, during backward"},
    {ScenarioKey::optimizer_implementation,
     "/workload/optimizer_implementation",
     "--optimizer-implementation",
     "",
     ScenarioType::choice,
     "foreach|fused|for-loop",
     0,
     0,
     "how torch.optim's classes go over the tensors"},
    {ScenarioKey::fsdp_version,
     "/workload/fsdp_version",
     "--fsdp-version",
     "",
     ScenarioType::integer,
     "",
     1,
     2,
     "1: FullyShardedDataParallel; 2: fully_shard"},
    {ScenarioKey::omp_num_threads,
     "/workload/omp_num_threads",
     "--omp-num-threads",
     "",
     ScenarioType::integer,
     "",
     1,
     4096,
     "OMP_NUM_THREADS of each rank: CPU threads of an offloaded optimizer"},
    {ScenarioKey::pipeline_parallel,
     "/workload/pipeline_parallel",
     "--pipeline-parallel",
     "",
     ScenarioType::integer,
     "",
     1,
     kMostDegree,
     "pipeline stages"},
    {ScenarioKey::tensor_parallel,
     "/workload/tensor_parallel",
     "--tensor-parallel",
     "",
     ScenarioType::integer,
     "",
     1,
     kMostDegree,
     "tensor-parallel ranks"},
    {ScenarioKey::sequence_parallel,
     "/workload/sequence_parallel",
     "--sequence-parallel",
     "",
     ScenarioType::integer,
     "",
     1,
     kMostDegree,
     "sequence-parallel (Ulysses) ranks"},
    {ScenarioKey::dataset,
     "/workload/dataset",
     "--dataset",
     "",
     ScenarioType::text_or_object,
     "",
     0,
     0,
     "{\"samples\":20000,\"epochs\":3,\"mean_tokens\":512,\"padding\":\"longest\"}"},
    {ScenarioKey::lengths,
     "/workload/lengths",
     "--lengths",
     "",
     ScenarioType::text,
     "",
     0,
     0,
     "file with the tokens of each sample, one number a line: for the dataset"},
    {ScenarioKey::trainer,
     "/workload/trainer",
     "--trainer",
     "",
     ScenarioType::text_or_object,
     "",
     0,
     0,
     "TRL's trainer: sft, dpo, kto, grpo, ppo, or {\"dpo\":{\"precompute_reference\":true}}"},
    {ScenarioKey::models,
     "/workload/models",
     "--beside",
     "",
     ScenarioType::objects,
     "",
     0,
     0,
     "a model beside the trained one: reference, reward=MODEL, reference,sharded"},
    {ScenarioKey::evaluation,
     "/workload/evaluation",
     "--evaluation",
     "",
     ScenarioType::text_or_object,
     "",
     0,
     0,
     "the Trainer's evaluation: loss, logits, or {\"logits\":{\"batch_size\":8}}"},
    {ScenarioKey::deepspeed_version,
     "/software/deepspeed",
     "--deepspeed",
     "",
     ScenarioType::text,
     "",
     0,
     0,
     "DeepSpeed version, e.g. 0.16.4"},
    {ScenarioKey::torch_version,
     "/software/torch",
     "--torch",
     "",
     ScenarioType::text,
     "",
     0,
     0,
     "PyTorch version"},
    {ScenarioKey::transformers_version,
     "/software/transformers",
     "--transformers",
     "",
     ScenarioType::text,
     "",
     0,
     0,
     "transformers version"},
    {ScenarioKey::trl_version,
     "/software/trl",
     "--trl",
     "",
     ScenarioType::text,
     "",
     0,
     0,
     "TRL version"},
}};

const ScenarioKeyInfo& info(ScenarioKey key) {
  const ScenarioKeyInfo& row = kScenarioKeys[static_cast<std::size_t>(key)];
  ZP_CHECK(row.key == key, "kScenarioKeys is out of order");
  return row;
}

const Said* Scenario::find(ScenarioKey key) const {
  const auto& said = said_[static_cast<std::size_t>(key)];
  return said ? &*said : nullptr;
}

void Scenario::set(ScenarioKey key, Json value, Origin origin) {
  said_[static_cast<std::size_t>(key)] = Said{std::move(value), std::move(origin)};
}

void Scenario::unset(ScenarioKey key) { said_[static_cast<std::size_t>(key)].reset(); }

Scenario overlay(const Scenario& base, const Scenario& flags) {
  Scenario result = base;
  for (const ScenarioKeyInfo& row : kScenarioKeys) {
    if (const Said* said = flags.find(row.key)) result.set(row.key, said->value, said->origin);
  }
  if (flags.find(ScenarioKey::ds_config) == nullptr) say_in_ds_config(flags, result);
  return result;
}

// --- documents and flags
// ---------------------------------------------------------------------------------------------

namespace {

const Json* at_pointer(const Json& document, std::string_view pointer) {
  const Json* value = &document;
  while (!pointer.empty() && value != nullptr) {
    const std::size_t end = pointer.find('/', 1);
    value = value->find(pointer.substr(1, end == std::string_view::npos ? end : end - 1));
    pointer = end == std::string_view::npos ? "" : pointer.substr(end);
  }
  return value;
}

// Paths in a scenario file are meant from its folder.
void rebase_path(ScenarioKey key, Json& value, const std::string& file) {
  const bool may_be_path = key == ScenarioKey::model || key == ScenarioKey::cluster ||
                           key == ScenarioKey::profile || key == ScenarioKey::ds_config;
  if (!may_be_path || !value.is_string()) return;
  const std::filesystem::path path = value.as_string();
  if (path.is_absolute()) return;
  std::error_code error;
  const std::filesystem::path beside = std::filesystem::path(file).parent_path() / path;
  if (std::filesystem::exists(beside, error) && !std::filesystem::exists(path, error)) {
    value = Json(beside.string());
  }
}

void report_unknown(const Json& section,
                    const std::string& prefix,
                    const std::string& file,
                    std::vector<Diagnostic>& problems) {
  std::vector<std::string_view> known;
  for (const ScenarioKeyInfo& row : kScenarioKeys) {
    if (row.pointer.substr(0, prefix.size()) != prefix) continue;
    const std::string_view rest = row.pointer.substr(prefix.size() + 1);
    known.push_back(rest.substr(0, rest.find('/')));
  }
  for (const auto& [key, value] : section.members()) {
    if (std::find(known.begin(), known.end(), key) != known.end() || value.is_null()) continue;
    if (problems.size() >= kMostProblems) return;
    problems.push_back({file,
                        prefix + "/" + pointer_token(key),
                        "a key of the scenario document",
                        in_quotes(key),
                        did_you_mean(key, known)});
  }
}

void require_object(const Json& document,
                    std::string_view pointer,
                    const std::string& file,
                    std::vector<Diagnostic>& problems) {
  const Json* section = at_pointer(document, pointer);
  if (section != nullptr && !section->is_object() && !section->is_null()) {
    problems.push_back({file, std::string(pointer), "an object", section->describe(), ""});
  }
}

}  // namespace

Scenario parse_scenario(const Json& document, const std::string& file) {
  if (!document.is_object()) {
    throw InputError({file, "", "a scenario object", document.describe(), ""});
  }
  std::vector<Diagnostic> problems;
  require_object(document, "/workload", file, problems);
  require_object(document, "/software", file, problems);
  report_unknown(document, "", file, problems);
  for (const std::string section : {"/workload", "/software"}) {
    if (const Json* found = at_pointer(document, section)) {
      report_unknown(*found, section, file, problems);
    }
  }
  Scenario scenario;
  for (const ScenarioKeyInfo& row : kScenarioKeys) {
    const Json* value = at_pointer(document, row.pointer);
    if (value == nullptr || value->is_null()) continue;
    Diagnostic problem{file, std::string(row.pointer), "", "", ""};
    std::optional<Json> good = checked(row, *value, problem);
    if (!good) {
      problems.push_back(problem);
      continue;
    }
    rebase_path(row.key, *good, file);
    scenario.set(row.key, std::move(*good), {file, std::string(row.pointer)});
  }
  if (!problems.empty()) throw InputError(problems);
  return scenario;
}

Scenario parse_scenario(const JsonDocument& document) {
  std::vector<Diagnostic> problems = duplicate_key_problems(document);
  if (!problems.empty()) throw InputError(std::move(problems));
  return parse_scenario(document.root, document.file);
}

Json parse_flag(const ScenarioKeyInfo& key, std::string_view text, const std::string& said_as) {
  const std::string pointer = said_as.empty() ? std::string(key.flag) : said_as;
  Json value{std::string(text)};
  if (key.type == ScenarioType::integer) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) value = Json(number);
  } else if (key.type == ScenarioType::boolean) {
    if (const auto on = parse_switch(text)) value = Json(*on);
  } else if (key.type == ScenarioType::objects) {
    value = objects_of_flag(text, "command line " + pointer);
  } else if (key.type == ScenarioType::text_or_object && text.substr(0, 1) == "{") {
    JsonDocument document = parse_json(text, "command line " + pointer);
    std::vector<Diagnostic> problems = duplicate_key_problems(document);
    if (!problems.empty()) throw InputError(std::move(problems));
    value = std::move(document.root);
  }
  Diagnostic problem{"command line", pointer, "", "", ""};
  std::optional<Json> good = checked(key, value, problem);
  if (!good) throw InputError(problem);
  return *good;
}

}  // namespace zeroplan
