// What `run` and `verify` share: the plan of the embedded runtime from flags, how this process was
// started, and the training.
#pragma once

#include <functional>

#include "cli/arguments.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"
#include "runtime/cuda/hardware.hpp"
#include "runtime/processes/process_group.hpp"
#include "runtime/train/trainer.hpp"

namespace zeroplan {

// What training is about, for run_embedded().
struct EmbeddedRun {
  Scenario said;  // with the ranks and the engine that run
  Plan plan;
  runtime::ProcessGroup group;  // one process: ranks are threads
  StepResult predicted;         // by the simulator
  runtime::cuda::Gpus gpus;     // where it runs on them; none: CPU ranks
  Json cluster;                 // what the ranks are

  bool on_gpus() const { return !gpus.found.empty(); }
  // Ranks as threads of which several have one GPU: what a step takes says nothing about the card.
  bool shares_gpu() const;
  // "4 CPU ranks", "2 ranks that share NVIDIA A100-SXM4-80GB"
  std::string device_text() const;
};

// The plan that runs: `engine: embedded`, on GPUs where there are any, else on CPU ranks; --device
// decides. As many ranks as a launcher started; without one --ranks says how many, else the cluster
// has them, one where none is given. Throws InputError, for --device cuda too where the program was
// built without CUDA or no GPU is found.
EmbeddedRun embedded_run(const Arguments& arguments);

// What `simulate` would warn of for the same plan: on `log` before the training, by rank 0 alone,
// and as `warnings` of the documents.
void print_warnings(const EmbeddedRun& run, const Arguments& arguments, std::ostream& log);
Json warnings_json(const EmbeddedRun& run);

// Trains it as --steps, --seed and --data say; the losses go to `log` as they come. Throws what
// runtime::train() throws, and before any step an InputError where --trace, --measurement or --save
// could not be written. The report is whole on every process.
runtime::TrainingReport train_embedded(const EmbeddedRun& run,
                                       const Arguments& arguments,
                                       std::ostream& log);

// What --trace and --measurement ask for, written by rank 0: its last step as the simulator writes
// one, and a line of docs/contract.md section 6, added to the file.
void write_recordings(const EmbeddedRun& run,
                      const Arguments& arguments,
                      const runtime::TrainingReport& report,
                      std::ostream& log);

// Says of a report that is `stopped` what there is of the run; the exit code, by the signal that
// this rank or, without one, another one got.
int stopped_early(const Arguments& arguments, const runtime::TrainingReport& report, Streams heard);

// Carries out a command of this kind: `body` prints, which is heard of rank 0 alone, and gives the
// exit code. An error of training is printed by every process that has one; exit code 1.
int run_command_body(const Arguments& arguments,
                     Streams streams,
                     const std::function<int(Streams)>& body);

// The rank with the highest peak.
const runtime::RankReport& worst_rank(const runtime::TrainingReport& report);
Seconds step_seconds(const runtime::RankReport& rank);
// `cuda_graphs` of the documents: whether kernels went by graphs, and how many.
Json graphs_json(const runtime::RankReport& rank);

}  // namespace zeroplan
