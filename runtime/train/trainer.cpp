#include "runtime/train/trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <mutex>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "runtime/collectives/in_process.hpp"
#include "runtime/train/checkpoint_folder.hpp"

namespace zeroplan::runtime {
namespace {

// Steps that differ from later ones: states appear in the first, the second is the first with a
// complete trace.
// Not counted: the first steps allocate, choose algorithms and capture graphs.
int unsteady_steps(int steps) {
  if (steps > 20) return 10;
  return steps > 2 ? 2 : 0;
}

Seconds median(std::vector<Seconds> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2.0;
}

// The rows of one rank's step. Row numbers run over micro-steps, then ranks, then rows, so that the
// union over ranks is the same for every split of a global batch.
class RankRows {
 public:
  RankRows(const TrainingSetup& setup, int rank) : setup_(setup), rank_(rank) {
    const auto tokens = static_cast<std::size_t>(setup.micro_batch * setup.sequence *
                                                 setup.config.gradient_accumulation_steps);
    ids_.resize(tokens);
    labels_.resize(tokens);
  }

  std::vector<MicroBatch> read(const TokenSource& data, int step) {
    const std::int64_t steps = setup_.config.gradient_accumulation_steps;
    const std::int64_t ranks = setup_.config.data_parallel_ranks;
    const auto sequence = static_cast<std::size_t>(setup_.sequence);
    const auto rows = static_cast<std::size_t>(setup_.micro_batch);
    std::vector<MicroBatch> batches;
    for (std::int64_t g = 0; g < steps; ++g) {
      const std::size_t first = static_cast<std::size_t>(g) * rows * sequence;
      const std::int64_t row = ((step * steps + g) * ranks + rank_) * setup_.micro_batch;
      for (std::size_t r = 0; r < rows; ++r) {
        data.read(setup_.begun.rows + row + static_cast<std::int64_t>(r),
                  std::span(ids_).subspan(first + r * sequence, sequence),
                  std::span(labels_).subspan(first + r * sequence, sequence));
      }
      batches.push_back({std::span(ids_).subspan(first, rows * sequence),
                         std::span(labels_).subspan(first, rows * sequence)});
    }
    return batches;
  }

 private:
  const TrainingSetup& setup_;
  std::int64_t rank_ = 0;
  std::vector<std::int64_t> ids_;
  std::vector<std::int64_t> labels_;
};

std::int64_t rows_of_step(const TrainingSetup& setup) {
  return setup.micro_batch * setup.config.gradient_accumulation_steps *
         setup.config.data_parallel_ranks;
}

RankHardware hardware_of(const TrainingSetup& setup,
                         const TrainingOptions& options,
                         Communicator& group,
                         bool traced) {
  const int threads = options.threads_per_rank;
  if (setup.hardware) return setup.hardware(group, threads, traced);
  RankHardware hardware;
  hardware.device = host_device(threads);
  hardware.kernels = setup.kernels(threads);
  return hardware;
}

// Where the run saves: taken before it trains, so that a folder that cannot be had costs no time.
std::unique_ptr<CheckpointFolder> checkpoint_folder(const TrainingSetup& setup,
                                                    const TrainingOptions& options) {
  if (options.save.empty()) return nullptr;
  return std::make_unique<CheckpointFolder>(options.save, options.keep, setup.begun.run);
}

// Trains as one rank; `checkpoints`: of the one that writes them; losses and norms go to `curve`,
// which may be null.
RankReport run_rank(const TrainingSetup& setup,
                    const TrainingOptions& options,
                    const TokenSource& data,
                    Communicator& plain_group,
                    CheckpointFolder* checkpoints,
                    TrainingReport* curve) {
  const bool traced = options.trace && plain_group.rank() == 0;
  RankHardware hardware = hardware_of(setup, options, plain_group, traced);
  Device& device = *hardware.device;
  Communicator& own_group = hardware.group ? *hardware.group : plain_group;
  std::optional<Timeline> timeline;
  std::unique_ptr<Communicator> recording;
  if (traced) {
    std::function<void()> settle;
    if (hardware.works_beside_host) settle = [&device] { device.synchronize(); };
    timeline.emplace(std::move(settle), std::move(hardware.recorder));
    recording = recorded(own_group, *timeline);
  }
  Communicator& group = recording ? *recording : own_group;
  MemoryLimits limits;
  limits.capacity[static_cast<std::size_t>(Place::device)] = options.capacity;
  limits.predicted_peak = setup.predicted_peak;
  limits.rank = group.rank();
  Memory memory(limits, &device);
  if (timeline) {
    memory.observe([&](const CategoryBytes& held) { timeline->memory(held); });
  }
  EngineSetup of_rank{.model = setup.model,
                      .graph = setup.graph,
                      .parameters = setup.parameters,
                      .config = setup.config,
                      .adamw = setup.adamw,
                      .loss_scaling = setup.loss_scaling,
                      .weights = setup.weights,
                      .seed = setup.seed,
                      .resumed = setup.resumed,
                      .timeline = timeline ? &*timeline : nullptr,
                      .swap = setup.swap,
                      .threads = options.threads_per_rank};
  of_rank.config.rank = group.rank();
  RankEngine engine(of_rank, group, device, *hardware.kernels, memory);
  RankRows rows(setup, group.rank());
  const int unsteady = unsteady_steps(options.steps);
  std::vector<Seconds> steps;
  int done = 0;
  for (int step = 0; step < options.steps; ++step) {
    if (step == unsteady) engine.forget_seconds();
    const Seconds before = step_seconds(engine.seconds());
    const std::vector<MicroBatch> batches = rows.read(data, step);
    const bool last = step + 1 == options.steps;
    if (timeline && last) timeline->begin();
    const StepOutcome outcome = engine.step(batches);
    if (timeline && last) timeline->end();
    if (step >= unsteady) steps.push_back(step_seconds(engine.seconds()) - before);
    // Summed with the loss, who wants to stop is known to all at the same step: nobody waits for a
    // rank that went.
    std::array<double, 2> summed = {outcome.loss / group.ranks(),
                                    options.stop && options.stop() ? 1.0 : 0.0};
    group.all_reduce(summed.data(), Elements::of(summed.size()));
    const double loss = summed[0];
    done = step + 1;
    const bool ends = last || summed[1] > 0.0;
    if (!std::isfinite(loss)) {
      throw NonFiniteLoss(
          fmt::format("the loss of step {} is {}: a smaller learning rate or fp32 may help",
                      setup.begun.steps + step + 1,
                      loss));
    }
    if (curve != nullptr) {
      curve->losses.push_back(loss);
      curve->gradient_norms.push_back(outcome.gradient_norm);
    }
    if (group.rank() == 0 && options.progress) options.progress(step + 1, loss);
    const bool saves = options.save_every > 0 && (step + 1) % options.save_every == 0;
    if (!options.save.empty() && (ends || saves)) {
      engine.begin_phase(Phase::save);
      const Progress progress{.steps = setup.begun.steps + step + 1,
                              .rows = setup.begun.rows + (step + 1) * rows_of_step(setup),
                              .run = checkpoints != nullptr ? checkpoints->run() : "",
                              .curve = setup.curve};
      save_checkpoint(checkpoints, engine, *setup.model, progress, group, memory);
    }
    if (ends) break;
  }
  engine.begin_phase(Phase::save);
  RankReport report;
  report.memory = memory.account();
  report.between_steps = memory.account().of(Place::device).total;
  // A run that was stopped early has the unsteady ones alone.
  report.steady_steps = std::max(1, done > unsteady ? done - unsteady : done);
  report.median_step = median(std::move(steps));
  for (std::size_t i = 0; i < kPhaseCount; ++i) {
    report.steady[i] = engine.seconds()[i] / static_cast<double>(report.steady_steps);
  }
  // The driver counts a GPU's memory for all: nobody gives back what another still measures.
  report.use = device.measured_use();
  plain_group.barrier();
  if (curve != nullptr) curve->stopped = done < options.steps;
  if (timeline) report.device_busy = timeline->device_busy();
  if (timeline && curve != nullptr) {
    timeline->forget_device();
    curve->timeline = std::move(timeline);
  }
  return report;
}

// Of another process: what an array is indexed with, and what is read as true or false.
void require_report(const RankReport& report, std::size_t rank) {
  const auto on = *reinterpret_cast<const unsigned char*>(&report.use.graphs.on);
  bool good = on <= 1 && report.steady_steps > 0;
  for (const PlaceAccount& place : report.memory.places) {
    good = good && static_cast<std::size_t>(place.peak_phase) < kPhaseCount;
  }
  if (!good) throw CollectiveError(fmt::format("rank {} sends no report of a run", rank));
}

}  // namespace

TrainingReport train_rank(const TrainingSetup& setup,
                          const TrainingOptions& options,
                          const TokenSource& data,
                          Communicator& group) {
  static_assert(std::is_trivially_copyable_v<RankReport>, "reports travel as bytes");
  try {
    TrainingReport report;
    std::unique_ptr<CheckpointFolder> checkpoints;
    if (group.rank() == 0) checkpoints = checkpoint_folder(setup, options);
    const RankReport own = run_rank(setup, options, data, group, checkpoints.get(), &report);
    report.ranks.resize(static_cast<std::size_t>(group.ranks()));
    group.run({.kind = CollectiveKind::all_gather,
               .dtype = DType::uint8,
               .elements = Elements::of(static_cast<std::int64_t>(sizeof own)),
               .input = reinterpret_cast<const std::byte*>(&own),
               .output = reinterpret_cast<std::byte*>(report.ranks.data())});
    for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
      require_report(report.ranks[rank], rank);
    }
    return report;
  } catch (const std::exception& error) {
    group.fail(error.what());
    throw;
  }
}

void resume(TrainingSetup& setup, Checkpoint checkpoint) {
  setup.weights = std::move(checkpoint.weights);
  setup.resumed = std::move(checkpoint.state);
  setup.begun = checkpoint.progress;
}

Seconds step_seconds(const PhaseSeconds& seconds) {
  Seconds sum;
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::step}) {
    sum += seconds[static_cast<std::size_t>(phase)];
  }
  return sum;
}

TrainingReport train(const TrainingSetup& setup,
                     const TrainingOptions& options,
                     const TokenSource& data) {
  const int ranks = setup.config.data_parallel_ranks;
  const std::unique_ptr<CheckpointFolder> checkpoints = checkpoint_folder(setup, options);
  const auto group = in_process_ranks(ranks, options.patience);
  TrainingReport report;
  report.ranks.resize(static_cast<std::size_t>(ranks));
  run_in_process(group, [&](int rank) {
    Communicator& own = *group[static_cast<std::size_t>(rank)];
    report.ranks[static_cast<std::size_t>(rank)] =
        rank == 0 ? run_rank(setup, options, data, own, checkpoints.get(), &report)
                  : run_rank(setup, options, data, own, nullptr, nullptr);
  });
  return report;
}

}  // namespace zeroplan::runtime
