// The training loop over ranks and steps, and what was measured. Ranks are threads of this process
// or, one each, processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/tokens.hpp"
#include "runtime/engine/rank_engine.hpp"
#include "runtime/train/checkpoint.hpp"

namespace zeroplan::runtime {

// What a rank runs on.
struct RankHardware {
  std::unique_ptr<Device> device;
  std::unique_ptr<Kernels> kernels;     // on the device's compute queue
  std::unique_ptr<Communicator> group;  // for memory of devices too; none: the host's group is
  std::unique_ptr<DeviceRecorder> recorder;
  bool works_beside_host = false;  // times of the host say nothing about the device
};

struct TrainingSetup {
  const Model* model = nullptr;
  const ModelGraph* graph = nullptr;
  std::vector<EngineParameter> parameters;
  EngineConfig config;  // of any rank; data_parallel_ranks of them run
  AdamWOptions adamw;
  std::int64_t micro_batch = 1;
  std::int64_t sequence = 1;
  LossScaling loss_scaling;
  SwapSetup swap;
  std::uint64_t seed = 0;
  ValueReader weights;                  // none: those of the seed
  std::optional<ResumedState> resumed;  // with the moments of an earlier run
  Progress begun;                       // where that stood
  Fingerprint curve;                    // kept in checkpoints: who goes on has to have the same
  Bytes predicted_peak;                 // for messages
  std::function<std::unique_ptr<Kernels>(int threads)> kernels;  // one for each CPU rank
  // Instead, for each rank; called by its thread, by all ranks of the group. Recorder: where the
  // rank is traced.
  std::function<RankHardware(Communicator& host_group, int threads, bool traced)> hardware;
};

// What is trained goes on where the checkpoint stands.
void resume(TrainingSetup& setup, Checkpoint checkpoint);

struct TrainingOptions {
  int steps = 10;
  int threads_per_rank = 1;
  // Of each rank's device; a rank that needs more ends the run with OutOfMemory.
  Bytes capacity = Bytes::infinite();
  std::chrono::milliseconds patience = std::chrono::minutes(10);
  std::string save;       // folder of checkpoints; empty: none
  int save_every = 0;     // steps; 0: at the end alone
  std::int64_t keep = 0;  // of this run's checkpoints, the newest; 0: all
  bool trace = false;     // record rank 0's last step
  // Called by rank 0 behind every step.
  std::function<void(int step, double loss)> progress;
  // Asked by every rank behind every step, from threads of their own; where one rank says yes, all
  // end there, with the checkpoint that the last step would have had. None: never.
  std::function<bool()> stop;
};

struct RankReport {
  MemoryAccount memory;
  Bytes between_steps;  // on the device, after the last step
  // By phase, of one step: the mean over all but the first two, of more than 20 the first ten.
  PhaseSeconds steady{};
  std::int64_t steady_steps = 0;
  Seconds median_step;  // of the same steps, forward to update
  DeviceUse use;        // what the driver and the allocator say beside the account
  Seconds device_busy;  // in kernels and copies of the traced step; zero where nobody knows
};

struct TrainingReport {
  std::vector<double> losses;          // of each step, mean over all ranks and micro-batches
  std::vector<double> gradient_norms;  // before clipping
  std::vector<RankReport> ranks;
  std::optional<Timeline> timeline;  // of rank 0's last step, on the process of rank 0
  bool stopped = false;              // before the last step, as TrainingOptions::stop asked
};

// Of a step, forward to update: checkpoints are not counted.
Seconds step_seconds(const PhaseSeconds& seconds);

// A loss that is no number: the message says at which step.
class NonFiniteLoss : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Trains from the start. Throws InputError, OutOfMemory, NonFiniteLoss, or what a rank ended with:
// the first rank's own error, not the others' about it.
TrainingReport train(const TrainingSetup& setup,
                     const TrainingOptions& options,
                     const TokenSource& data);

// As one rank of a group of processes. The report is whole on every rank. Throws this rank's own
// error, having told the group, or CollectiveError with another's.
TrainingReport train_rank(const TrainingSetup& setup,
                          const TrainingOptions& options,
                          const TokenSource& data,
                          Communicator& group);

}  // namespace zeroplan::runtime
