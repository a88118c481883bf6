// What `run` and `verify` share: the training of a plan of the embedded runtime
// (embedded_plan.hpp).
#pragma once

#include <functional>

#include "cli/arguments.hpp"
#include "cli/embedded_plan.hpp"
#include "runtime/train/trainer.hpp"

namespace zeroplan::cli {

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

}  // namespace zeroplan::cli
