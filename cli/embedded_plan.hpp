// The plan that the embedded runtime trains, from flags, and how this process was started.
#pragma once

#include <iosfwd>
#include <string>

#include "cli/arguments.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"
#include "runtime/cuda/hardware.hpp"
#include "runtime/processes/process_group.hpp"

namespace zeroplan::cli {

// CPU threads of this machine, at least 1.
int hardware_threads();

// What training is about.
struct EmbeddedRun {
  Scenario said;  // with the ranks and the engine that run
  Plan plan;
  runtime::ProcessGroup group;  // one process: ranks are threads
  StepResult predicted;         // by the simulator
  runtime::cuda::Gpus gpus;     // where it runs on them; none: CPU ranks
  Json cluster;                 // what the ranks are

  bool on_gpus() const { return !gpus.found.empty(); }
  // Ranks as threads of which several have one GPU: what a step takes says nothing about the GPU.
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

}  // namespace zeroplan::cli
