// zeroplan as a library: what `zeroplan scenario`, `simulate`, `fit`, `tune` and `lint` answer, as
// types.
//
//   zeroplan::Scenario scenario{.model = "llama-2-7b", .cluster = "8xA100-80G"};
//   scenario.sequence_length = 4096;
//   const zeroplan::Fit fit = zeroplan::fit(scenario);
//   if (fit.recommended) std::puts(fit.strategies[*fit.recommended].ds_config.c_str());
//
// Every answer has json(): the document that the command prints with --json (docs/contract.md
// section 5), byte for byte. Numbers have their unit in the name; bytes are of the worst rank's GPU
// or of one node's host, seconds are wall clock. The functions keep nothing between calls and may
// be called from several threads at a time. They read the files that a scenario names and write
// none.
//
// They throw InputError for what cannot be used, std::bad_alloc where memory ends, and another
// std::exception only for a defect of zeroplan.
//
// A major version may change what stands here, a minor one adds to it (CHANGELOG.md).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeroplan::v1 {

// Of the library: "1.0.0".
std::string_view version() noexcept;

// --- errors

// What is wrong with one value.
struct Problem {
  std::string file;      // a path or a document's name, "scenario" for fields, "options"
  std::string pointer;   // "/workload/sequence_length"; or "line 3, column 7" of a file
  std::string expected;  // "an integer between 0 and 3"
  std::string got;       // "\"two\""
  std::string hint;      // may be empty
};

// Bad input: one or more problems, which what() has as the command line prints them.
class InputError : public std::exception {
 public:
  explicit InputError(std::vector<Problem> problems);  // at least one

  const std::vector<Problem>& problems() const noexcept { return problems_; }
  const std::string& file() const noexcept { return problems_.front().file; }
  const std::string& pointer() const noexcept { return problems_.front().pointer; }
  const std::string& expected() const noexcept { return problems_.front().expected; }
  const std::string& got() const noexcept { return problems_.front().got; }
  const std::string& hint() const noexcept { return problems_.front().hint; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::vector<Problem> problems_;
  std::string text_;
};

// --- questions

// What is trained, on what, and how: the scenario document of docs/contract.md section 1.
//
// Of the fields only model and cluster must be said; resolve() fills in the rest. A field that
// takes a document (model, cluster, profile, ds_config, method, dataset) is a name or a path, or
// the JSON text itself, which begins with '{'. Values are checked where the scenario is used.
struct Scenario {
  std::optional<std::string> model{};    // "llama-2-7b", "10B", "path/to/config.json", "{...}"
  std::optional<std::string> cluster{};  // "2x8xH100", "path/to/cluster.json", "{...}"
  std::optional<std::string> ds_config{};
  std::optional<std::string> profile{};
  std::optional<std::int64_t> sequence_length{};   // tokens
  std::optional<std::int64_t> micro_batch_size{};  // sequences per GPU in one forward pass
  std::optional<std::int64_t> gradient_accumulation_steps{};
  std::optional<std::int64_t> global_batch_size{};  // sequences in one optimizer step, of all GPUs
  std::optional<std::string> method{};              // full, lora, qlora, or {"lora": {"rank": 8}}
  std::optional<std::string> precision{};           // bf16, fp16, fp32
  std::optional<std::string> weights_dtype{};       // bf16, fp16, fp32, pure-bf16
  std::optional<std::string> load_device{};         // gpu, cpu
  std::optional<std::string> loading{};             // usual, every-rank, converted
  std::optional<std::string> optimizer{};
  std::optional<std::string> attention{};                 // eager, sdpa, flash
  std::optional<std::string> linear_attention{};          // torch, fla, mamba_ssm
  std::optional<std::string> activation_checkpointing{};  // none, full, selective
  std::optional<bool> checkpoint_reentrant{};
  std::optional<std::string> activation_offload{};
  std::optional<std::string> engine{};    // deepspeed, fsdp, ddp, embedded
  std::optional<std::string> frontend{};  // hf-trainer, native
  std::optional<std::string> implementation{};
  std::optional<bool> fused_loss{};
  std::optional<bool> tiled_mlp{};
  std::optional<bool> compile{};
  std::optional<bool> use_cache{};
  std::optional<bool> outputs_held{};
  std::optional<bool> outputs_kept{};
  std::optional<bool> gradients_held{};
  std::optional<bool> sync_each_batch{};
  std::optional<bool> expandable_segments{};
  std::optional<std::string> optimizer_implementation{};
  std::optional<std::int64_t> fsdp_version{};
  std::optional<std::int64_t> omp_num_threads{};
  std::optional<std::int64_t> pipeline_parallel{};
  std::optional<std::int64_t> tensor_parallel{};
  std::optional<std::int64_t> sequence_parallel{};
  std::optional<std::string> dataset{};
  std::optional<std::string> lengths{};     // a file with the tokens of each sample
  std::optional<std::int64_t> images{};     // in each sequence
  std::optional<std::string> image_size{};  // "1024x768", pixels
  std::optional<std::string> freeze{};      // "vision,projector", or names of modules
  std::optional<std::string> trainer{};     // sft, dpo, kto, grpo, ppo, gkd, or {"dpo": {}}
  std::optional<std::string> teacher{};     // of gkd's trained model: as `model`
  std::optional<std::string> models{};      // beside the trained one: "reference", "[{...}]"
  std::optional<std::string> evaluation{};  // loss, logits, or {"logits": {}}
  // How often in a whole run: "500" steps, "0.1" of all, "epoch", "no".
  std::optional<std::string> save_steps{};
  std::optional<std::string> eval_steps{};
  std::optional<std::string> logging_steps{};
  std::optional<std::int64_t> dataloader_num_workers{};
  std::optional<std::int64_t> mtbf{};              // hours between failures of one node
  std::optional<std::string> deepspeed_version{};  // "0.19.6"
  std::optional<std::string> torch_version{};
  std::optional<std::string> transformers_version{};
  std::optional<std::string> trl_version{};
  std::optional<std::string> accelerate_version{};
  std::optional<std::string> id{};

  // Parts of the cluster that its name does not say, or says otherwise.
  std::optional<std::int64_t> node_host_memory_bytes{};
  std::optional<std::int64_t> node_cpu_cores{};
  std::optional<double> node_network_bytes_per_second{};  // of one node, in each direction

  // A whole scenario document as JSON text, and what messages call it; the fields count over it.
  // Relative paths in it are taken from the folder of `document_name`, where the file exists there.
  std::optional<std::string> document{};
  std::string document_name = "document";

  // A training that is set up elsewhere, as the command line's --from takes it: LLaMA-Factory's or
  // axolotl's YAML, accelerate's, arguments of transformers' Trainer and of TRL, a shell line, a
  // job script. It counts over the document, and the fields over it. Resolved::read says what was
  // read.
  std::optional<std::string> from{};  // a path

  // Throw InputError for a document that cannot be read.
  static Scenario from_json(std::string text, std::string name = "document");
  static Scenario from_file(const std::string& path);
};

struct FitOptions {
  double confidence = 0.95;  // probability that a fit must have: 0.01 to 0.9999
};

struct SimulateOptions {
  double confidence = 0.95;
  std::optional<int> rank{};  // whose GPU memory is told; that of the rank that needs most
};

enum class Objective {
  throughput,  // most tokens a second and GPU
  memory,      // least GPU memory
  gpus,        // fewest GPUs of the cluster
  cost,        // fewest GPU-hours a token over the numbers of nodes up to the cluster's
};

// How far a search is.
struct Progress {
  std::int64_t points = 0;     // of the space
  std::int64_t evaluated = 0;  // simulated
  std::int64_t pruned = 0;     // left out, because a bound shows that they are no better
};

struct TuneOptions {
  Objective objective = Objective::throughput;
  std::vector<std::string> fix{};     // no choice about these keys: "stage=3"
  std::vector<std::string> search{};  // the values to try: "micro_batch_size=1..8", "stage=2,3"
  std::optional<std::int64_t> max_gpu_memory_bytes{};   // of each GPU
  std::optional<std::int64_t> max_host_memory_bytes{};  // of each node
  std::int64_t reserve_bytes = 0;                       // GPU memory to keep free for others
  double min_tokens_per_second_per_gpu = 0.0;
  std::optional<double> price_per_gpu_hour{};  // in any currency
  // How much faster a point that is left out may be: 0.05, and the search ends after 200
  // simulations without a better point. Said, it is proven; 0: the exact optimum.
  std::optional<double> gap{};
  double confidence = 0.95;
  int jobs = 0;  // threads; 0: as many as the machine runs at a time
  double time_limit_seconds = std::numeric_limits<double>::infinity();
  // Called between rounds of simulations, on the caller's thread.
  std::function<void(const Progress&)> on_progress{};
  const std::atomic<bool>* stop = nullptr;  // once true, the search ends with the best so far
};

struct LintOptions {
  std::optional<std::int64_t> gpus{};     // of the job, where the scenario has no cluster
  std::optional<std::string> launcher{};  // torchrun, deepspeed, accelerate, mpirun, srun
  std::optional<std::string> task{};      // train, evaluate, generate
};

// --- answers

// The command's document.
class Answer {
 public:
  const std::string& json() const noexcept { return json_; }

 protected:
  Answer() = default;
  explicit Answer(std::string json) : json_(std::move(json)) {}

 private:
  std::string json_;
};

// The scenario with every default filled in; resolving it again gives it again.
struct Resolved : Answer {
  Resolved() = default;
  explicit Resolved(std::string text) : Answer(std::move(text)) {}

  std::vector<std::string> assumptions;  // what nobody said and was taken to be so
  std::vector<std::string> warnings;
  // Of Scenario::from, a line each: what a setting was taken for, the tool's defaults, what is not
  // known and what was not used. Empty where there is none.
  std::vector<std::string> read;
};

template <typename T>
struct Interval {
  T low{};
  T high{};
};

// A resource that does not suffice.
struct Limit {
  std::string resource;           // gpu_memory, host_memory, nvme, time
  std::int64_t needed_bytes = 0;  // as predicted: needed + margin > available
  std::int64_t available_bytes = 0;
  std::string largest_term;
  std::string cheapest_change;    // empty where none was tried: fit() tries (Fit::remedies)
  std::int64_t margin_bytes = 0;  // beside needed_bytes, for the probability that was asked for
};

// Of the rank that needs the most.
struct GpuMemory {
  std::optional<int> rank;  // whose it is, where ranks differ
  std::int64_t capacity_bytes = 0;
  std::int64_t peak_allocated_bytes = 0;     // torch.cuda.max_memory_allocated()
  std::int64_t peak_reserved_bytes = 0;      // torch.cuda.max_memory_reserved()
  std::int64_t replayed_reserved_bytes = 0;  // of the known allocations, replayed alone
  std::int64_t peak_total_bytes = 0;         // what nvidia-smi says
  std::int64_t static_allocated_bytes = 0;   // held between steps
  std::string peak_phase;                    // load, init, forward, backward, step, save
  std::int64_t allocator_flushes = 0;
  std::map<std::string, std::int64_t> breakdown_at_peak_bytes;  // sums to peak_total_bytes
};

// Of one node.
struct HostMemory {
  std::int64_t capacity_bytes = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t pinned_bytes = 0;
  std::int64_t load_peak_bytes = 0;
  std::string peak_phase;
};

// Of one optimizer step, all its micro-batches together. Infinity: nobody can say.
struct StepTime {
  double seconds = 0.0;
  double forward_seconds = 0.0;
  double backward_seconds = 0.0;  // recomputation counts here
  double optimizer_seconds = 0.0;
  double exposed_communication_seconds = 0.0;  // part of the above
  double exposed_offload_seconds = 0.0;        // part of the above
  Interval<double> bounds_seconds;             // all resources at once; one after the other
  std::string bound;  // compute, communication, host, pcie, cpu_optimizer, nvme, dispatch
  double tokens_per_second_per_gpu = 0.0;
  double samples_per_second = 0.0;  // of the whole job
  double model_flops_per_second_per_gpu = 0.0;
  double mfu = 0.0;  // of the GPU's dense peak
};

// One configuration: memory, time, and the probability that it fits.
struct Simulation : Answer {
  Simulation() = default;
  explicit Simulation(std::string text) : Answer(std::move(text)) {}

  std::string id;
  bool fits = false;
  double fit_probability = 0.0;  // that GPU, host memory and NVMe suffice, from load to step
  // 0, or the condition of `fits` and `fit_probability`: nobody said what host memory a node has,
  // and the plan asks for so much, which is more than such nodes usually have.
  std::int64_t host_condition_bytes = 0;
  std::vector<Limit> limits;
  GpuMemory gpu;
  HostMemory host;
  std::int64_t nvme_bytes = 0;  // per node
  StepTime step;
  std::int64_t job_steps = 0;  // 0: no dataset was given
  double job_seconds = 0.0;
  // 90 % prediction intervals.
  Interval<std::int64_t> peak_allocated_bytes_interval;
  Interval<std::int64_t> peak_reserved_bytes_interval;
  Interval<std::int64_t> peak_total_bytes_interval;
  Interval<double> step_seconds_interval;
  std::int64_t parameters_total = 0;
  std::int64_t parameters_trainable = 0;
  std::int64_t parameters_active = 0;  // that one token goes through
  std::vector<std::string> assumptions;
  std::vector<std::string> warnings;
};

// A ZeRO stage (under FSDP and DDP what corresponds to it) with its offload, in its best batch.
struct Strategy {
  int stage = 0;
  std::string offload_optimizer;         // none, cpu, nvme
  std::string offload_param;             // none, cpu, nvme
  std::string activation_checkpointing;  // none, full, selective
  std::int64_t micro_batch_size = 1;
  std::int64_t gradient_accumulation_steps = 1;
  bool fits = false;
  bool simulated = false;  // else the analytic estimate alone saw it, and it is not recommended
  bool at_limit = false;   // it fits, and fills the GPU to within 5 %
  std::string ds_config;   // JSON, ready to be written to a file
  Simulation result;
};

// A change of the scenario after which something fits.
struct Remedy {
  std::string change;  // "use 4 nodes instead of 2"
  std::string ds_config;
  Simulation result;
};

// Does the model train on the cluster, and how?
struct Fit : Answer {
  Fit() = default;
  explicit Fit(std::string text) : Answer(std::move(text)) {}

  bool fits = false;
  std::vector<Strategy> strategies;
  std::optional<std::size_t> recommended;  // index of strategies; nothing where none fits
  std::optional<Strategy> one_node;        // the best on one node of several, where one is enough
  std::optional<Strategy> without_deepspeed;  // the Trainer alone on one GPU, where it is faster
  std::int64_t largest_micro_batch = 0;       // with all else as recommended
  std::int64_t longest_sequence = 0;          // tokens
  std::string needs_packages;                 // that everything takes for granted: "liger-kernel"
  std::vector<Remedy> remedies;               // the cheapest first, where nothing fits
};

// A configuration that a search found.
struct Configuration {
  std::string scenario;   // JSON: the resolved document; empty on the front
  std::string ds_config;  // JSON
  std::string workload;   // JSON: batch, precision, checkpointing and the like
  double tokens_per_second_per_gpu = 0.0;
  double step_seconds = 0.0;
  std::int64_t gpu_bytes = 0;
  std::int64_t host_bytes = 0;
};

// Why points of the space lost.
struct Loss {
  std::string reason;
  std::int64_t count = 0;
};

// The best configuration of a search, and what the search did.
struct Tuning : Answer {
  Tuning() = default;
  explicit Tuning(std::string text) : Answer(std::move(text)) {}

  std::optional<Configuration> best;  // nothing where nothing fits, or nothing was found in time
  Simulation result;                  // of the best
  std::vector<Configuration> pareto;  // no other is both faster and smaller; the fastest first
  std::int64_t points = 0;
  std::int64_t evaluated = 0;
  std::int64_t pruned = 0;
  std::int64_t unseen = 0;      // neither simulated nor left out by a bound
  double unseen_at_most = 0.0;  // by what share the unseen can be better than the best
  bool optimal = false;         // nothing is better than the best by more than the gap
  bool cut_by_time_limit = false;
  bool stopped = false;         // by TuneOptions::stop
  double search_seconds = 0.0;  // what the search took
  std::vector<Loss> losses;
  std::optional<std::int64_t> fewest_gpus;  // with which something of the space fits
  std::string nearest_change;  // where nothing fits: what to give up so that something does
  std::vector<Remedy> remedies;
};

enum class Severity { error, warning, info };

// Something about a ds_config.json that is worth a line.
struct Finding {
  Severity severity = Severity::info;
  std::string pointer;  // of the key; empty for the whole file
  int line = 0;         // from 1; 0 where the file has no such key
  int column = 0;
  std::string code;
  std::string message;
  std::string cost;
  std::string fix;
};

// A rule that could not be judged.
struct SkippedRule {
  std::string code;
  std::string missing;  // what must be said for it
};

// What DeepSpeed would refuse, ignore or make slow.
struct Lint : Answer {
  Lint() = default;
  explicit Lint(std::string text) : Answer(std::move(text)) {}

  std::vector<Finding> findings;  // errors first
  std::vector<SkippedRule> skipped;
};

// --- the functions; each throws InputError

// What will be run: precedence, defaults and `auto` applied. As `zeroplan scenario`.
Resolved resolve(const Scenario& scenario);
// Memory and time of one configuration. As `zeroplan simulate`.
Simulation simulate(const Scenario& scenario, const SimulateOptions& options = {});
// Every strategy, and the one to use. As `zeroplan fit`.
Fit fit(const Scenario& scenario, const FitOptions& options = {});
// The best configuration of a space. As `zeroplan tune`.
Tuning tune(const Scenario& scenario, const TuneOptions& options = {});
// The findings about the scenario's ds_config; model, cluster and the rest may be missing. As
// `zeroplan lint`.
Lint lint(const Scenario& scenario, const LintOptions& options = {});

}  // namespace zeroplan::v1

// Users write zeroplan::Scenario. The library's own sources have other types of that name, and call
// these v1::Scenario.
#ifndef ZEROPLAN_INSIDE
namespace zeroplan {
using namespace v1;
}
#endif
