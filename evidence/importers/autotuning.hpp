// Folders of DeepSpeed's autotuner: autotuning_results/NAME/ holds exp.json (name, ds_config,
// num_gpus, num_nodes), metrics.json where the experiment ended (forward, backward, step:
// microseconds of a micro-step; latency: of a step; throughput: samples a second of the job) and
// stderr.log where it did not. Source: deepspeed/autotuning/scheduler.py:run_experiment,
// autotuner.py:run_ds_config, runtime/engine.py:_autotuning_exit.
//
// The timers leave out what the loop does between the calls. Releases before pull request 2711
// (0.8) wrote a throughput 1000 times too low; the latency was right.
#pragma once

#include <string>
#include <vector>

#include "evidence/importers/run_findings.hpp"

namespace zeroplan::evidence {

// The folders below (and including) `path` that hold an exp.json, in the order of their names.
std::vector<std::string> autotuning_experiments(const std::string& path);

struct AutotuningExperiment {
  std::string name;
  RunFindings findings;
};

// The experiment of that folder. `given`: what is known of the scenario before.
AutotuningExperiment read_autotuning_experiment(const std::string& folder, RunFindings given);

}  // namespace zeroplan::evidence
