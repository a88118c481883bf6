#include "cli/embedded_run.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "cli/arguments.hpp"
#include "cli/embedded_plan.hpp"
#include "cli/interrupt.hpp"
#include "cli/language/translation.hpp"
#include "cli/rank_end.hpp"
#include "cli/run_fingerprint.hpp"
#include "cli/said_gpus.hpp"
#include "cli/table.hpp"
#include "cli/training_setup.hpp"
#include "cli/write_file.hpp"
#include "evidence/measurement.hpp"
#include "model/engine/buffers.hpp"
#include "model/engine/embedded.hpp"
#include "model/hardware/cluster.hpp"
#include "model/hardware/known_hardware.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/step_work.hpp"
#include "runtime/data/disk_file.hpp"
#include "runtime/memory/available_memory.hpp"
#include "runtime/processes/join.hpp"
#include "runtime/train/agreement.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan::cli {
namespace {

// Program, libraries and threads' stacks, of each process.
constexpr Bytes kProcess = Bytes::mib(64);

std::int64_t local_processes(const EmbeddedRun& run) {
  return run.group.ranks > 1 ? run.group.local_ranks : 1;
}

std::int64_t local_ranks(const EmbeddedRun& run) {
  return run.group.ranks > 1 ? run.group.local_ranks : run.plan.engine.data_parallel_ranks;
}

// The pages of a buffer that are ever written to are no more than the model fills twice over.
// Others are not taken, and a bucket of DeepSpeed's size has gigabytes of them for a small model.
Bytes filled(Bytes allocated, const Plan& plan) {
  const Bytes weights = count_parameters(*plan.model).total * DType::fp32;
  return std::min(allocated, weights * 2);
}

// A rank's offloaded state and staging buffers.
Bytes offloaded(const Plan& plan) {
  Bytes total;
  for (const EngineBuffer& buffer : engine_buffers(plan.engine, plan.engine_parameters)) {
    const bool on_host =
        buffer.place == BufferPlace::host_pinned || buffer.place == BufferPlace::host_pageable;
    if (on_host) total += filled(buffer.allocated, plan);
  }
  return total;
}

// Two bytes a token; of text a byte is one.
Bytes tokens_of(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > (std::uintmax_t{1} << 60)) return Bytes::zero();  // said where it is read
  const Bytes bytes = Bytes::of(static_cast<std::int64_t>(size));
  return path.ends_with(".bin") ? bytes : bytes * 2;
}

std::optional<Bytes> said_memory(const Arguments& arguments) {
  for (const auto& [flag, value] : arguments.cluster_changes) {
    if (flag->key == "host_memory_bytes") return Bytes::nearest(value.as_number());
  }
  return std::nullopt;
}

// CPU ranks take of their node's memory all that they hold (at most `capacity` each), others what
// is offloaded; every process has the file of --data as tokens.
Bytes host_memory_needed(const EmbeddedRun& run, const Arguments& arguments, Bytes capacity) {
  Bytes rank = offloaded(run.plan);
  if (!run.on_gpus()) {
    const GpuMemory& predicted = run.predicted.gpu;
    const Bytes buckets = at(predicted.breakdown_at_peak, MemoryCategory::communication_buffers);
    rank += std::min(predicted.peak_allocated - buckets + filled(buckets, run.plan), capacity);
  }
  Bytes process = kProcess;
  if (const auto data = arguments.text("data")) process += tokens_of(*data);
  return rank * local_ranks(run) + process * local_processes(run);
}

// The diagnostic says that more is needed than is available (runtime/memory/available_memory.hpp),
// or than --host-memory says. Every process asks before one of them trains: later the ranks' memory
// counts as taken.
std::optional<Diagnostic> lacking_host_memory(const EmbeddedRun& run,
                                              const Arguments& arguments,
                                              Bytes capacity) {
  const auto said = said_memory(arguments);
  const Bytes available = said ? *said : runtime::available_host_memory();
  const Bytes needed = host_memory_needed(run, arguments, capacity);
  if (needed <= available) return std::nullopt;
  const std::string limit = gib_text(available);
  return Diagnostic{
      kCommandLine,
      said ? "--host-memory" : "",
      phrase("training that takes at most {} of host memory, what is available", limit),
      phrase("{} for {} ranks", gib_text(needed), local_ranks(run)),
      said ? "fewer ranks, a smaller model or a smaller micro-batch take less"
           : "fewer ranks, a smaller model or a smaller micro-batch take less; "
             "--host-memory SIZE where this machine has more than it reports"};
}

runtime::JoinOptions join_options(const Arguments& arguments) {
  runtime::JoinOptions options =
      join_options_of(arguments.text("collectives"), arguments.text("secret-file"));
  if (const auto seconds = arguments.real("join-timeout", 1.0, 86400.0)) {
    options.rendezvous = std::chrono::milliseconds(static_cast<std::int64_t>(1000.0 * *seconds));
  }
  // The computation may be far from its next collective: nothing else ends it.
  options.abandoned = [](const std::string& reason) {
    std::cerr << "error: training: " << reason << std::endl;
    std::_Exit(kInternalError);
  };
  return options;
}

// Training may take hours: what could not be written after it is said before it. Every rank swaps,
// the first one alone writes; where it saves is taken by runtime::train().
void require_places(const EmbeddedRun& run, const Arguments& arguments) {
  runtime::require_swap_folders(run.plan.engine, swap_of(run.plan));
  if (run.group.rank != 0) return;
  if (const auto path = arguments.text("trace")) require_writable(*path);
  if (const auto path = arguments.text("measurement")) require_writable(*path);
}

// What every process of a group reads for itself fails for all where it fails for one.
runtime::TrainingReport train_as_rank(const EmbeddedRun& run,
                                      const Arguments& arguments,
                                      const ModelGraph& graph,
                                      std::ostream& log,
                                      const std::optional<Diagnostic>& lack,
                                      runtime::Communicator& group) {
  std::optional<runtime::TrainingSetup> setup;
  std::unique_ptr<runtime::TokenSource> data;
  runtime::TrainingOptions options;
  try {
    if (lack) throw InputError(*lack);
    require_places(run, arguments);
    options = options_of(run, arguments, log);
    data = data_of(run.plan, arguments);
    setup = setup_of(run, arguments, graph);
    runtime::require_agreement(group, fingerprint_of(run, arguments, *setup, options));
  } catch (const std::exception& error) {
    group.fail(error.what());
    throw;
  }
  const InterruptGuard guard;  // from here on a rank that ends takes the others along
  return runtime::train_rank(*setup, options, *data, group);
}

int training_failed(const std::string& message, const Arguments& arguments, Streams streams) {
  const Translation words(arguments.language);
  streams.log << words.text(phrase("error: training: {}", message)) << "\n";
  if (arguments.json) {
    const Json body = Json::object({{"file", nullptr},
                                    {"pointer", nullptr},
                                    {"expected", nullptr},
                                    {"got", message},
                                    {"hint", nullptr}});
    streams.out << Json::object({{"error", body}}).dump(2) << "\n";
  }
  return kInternalError;
}

}  // namespace

runtime::TrainingReport train_embedded(const EmbeddedRun& run,
                                       const Arguments& arguments,
                                       std::ostream& log) {
  const StepWork work = step_work(run.plan);
  const runtime::JoinOptions joining = join_options(arguments);  // checked for one process, too
  const std::optional<Diagnostic> lack =
      lacking_host_memory(run, arguments, device_memory(arguments));
  if (run.group.ranks > 1) {
    const auto group = runtime::join(run.group, joining);
    try {
      return train_as_rank(run, arguments, work.graph, log, lack, *group);
    } catch (const InputError& error) {
      throw KnownToRanks(error);
    }
  }
  if (lack) throw InputError(*lack);
  require_places(run, arguments);
  const auto data = data_of(run.plan, arguments);
  const runtime::TrainingSetup setup = setup_of(run, arguments, work.graph);
  const InterruptGuard guard;
  return runtime::train(setup, options_of(run, arguments, log), *data);
}

namespace {

evidence::Measurement measurement_of(const EmbeddedRun& run,
                                     const runtime::TrainingReport& report) {
  const Plan& plan = run.plan;
  const runtime::RankReport& worst = worst_rank(report);
  const double seconds = worst.median_step.seconds();
  const auto rows = static_cast<double>(plan.workload.micro_batch_size *
                                        plan.workload.gradient_accumulation_steps);
  const auto tokens = rows * static_cast<double>(plan.workload.sequence_length);
  evidence::Measurement measurement;
  measurement.id = "embedded-" + short_name(plan.cluster) + "-stage" +
                   std::to_string(plan.engine.stage) + "-" + std::to_string(worst.steady_steps) +
                   "steps";
  if (worst.use.graphs.on) measurement.id += "-graphs";
  measurement.source = "zeroplan run";
  measurement.notes = "median of " + std::to_string(worst.steady_steps) + " steps on " +
                      run.device_text() + "; memory of the rank with the highest peak";
  if (worst.use.graphs.on) measurement.notes += "; kernels by CUDA graphs";
  // Everything that was run, defaults included: nothing is left to guess for who reads it.
  measurement.scenario = parse_scenario(scenario_document(plan, run.said), kCommandLine);
  measurement.scenario.set(ScenarioKey::cluster, run.cluster, {kCommandLine, "--ranks"});
  const auto count = [](Bytes bytes) { return static_cast<double>(bytes.count()); };
  const runtime::PlaceAccount& device = worst.memory.of(runtime::Place::device);
  measurement.measured.set(evidence::Metric::peak_allocated_bytes, count(device.peak));
  measurement.measured.set(evidence::Metric::static_allocated_bytes, count(worst.between_steps));
  if (run.on_gpus())
    measurement.measured.set(evidence::Metric::peak_reserved_bytes, count(worst.use.reserved));
  if (run.shares_gpu()) return measurement;
  measurement.measured.set(evidence::Metric::step_seconds, seconds);
  measurement.measured.set(evidence::Metric::samples_per_second,
                           rows * plan.engine.data_parallel_ranks / seconds);
  measurement.measured.set(evidence::Metric::tokens_per_second_per_gpu, tokens / seconds);
  return measurement;
}

void record(const EmbeddedRun& run,
            const Arguments& arguments,
            const runtime::TrainingReport& report,
            std::ostream& log) {
  if (const auto path = arguments.text("trace")) {
    const std::string title = "ZeRO-" + std::to_string(run.plan.engine.stage) + " on " +
                              short_name(run.plan.cluster) + ", measured, rank 0";
    write_file(*path, report.timeline->chrome_trace(title));
    log << "wrote " << *path << "\n";
  }
  if (const auto path = arguments.text("measurement")) {
    add_line(*path, to_json(measurement_of(run, report)).dump());
    log << "wrote " << *path << "\n";
  }
}

}  // namespace

void write_recordings(const EmbeddedRun& run,
                      const Arguments& arguments,
                      const runtime::TrainingReport& report,
                      std::ostream& log) {
  if (run.group.rank != 0) return;
  try {
    record(run, arguments, report, log);
  } catch (const InputError& error) {
    throw KnownToRanks(error);  // they have ended well
  }
}

int stopped_early(const Arguments& arguments,
                  const runtime::TrainingReport& report,
                  Streams heard) {
  heard.log << "stopped after step " << report.losses.size();
  if (const auto folder = arguments.text("save")) heard.log << "; checkpoint in " << *folder;
  for (const char* asked : {"trace", "measurement"}) {
    if (arguments.has(asked)) heard.log << "; no --" << asked;
  }
  heard.log << "\n";
  return interrupted().value_or(128 + SIGINT);
}

int run_command_body(const Arguments& arguments,
                     Streams streams,
                     const std::function<int(Streams)>& body) {
  const bool first = runtime::process_group(runtime::process_environment()).rank == 0;
  std::ostream nowhere(nullptr);
  const Streams heard{first ? streams.out : nowhere, streams.log};
  const auto failed = [&](const std::exception& error) {
    return training_failed(error.what(), arguments, heard);
  };
  try {
    return body(heard);
  } catch (const InputError& error) {
    if (first) throw;
    streams.log << error.what() << std::endl;
    tell_other_ranks(error, arguments);
    return kBadInput;
  } catch (const runtime::OutOfMemory& error) {
    return failed(error);
  } catch (const runtime::NonFiniteLoss& error) {
    return failed(error);
  } catch (const runtime::CollectiveError& error) {
    // Another rank was told as well, and ended at once: it had not begun to train.
    if (const auto code = interrupted()) return *code;
    return failed(error);
  } catch (const WriteError& error) {
    return failed(error);
  } catch (const runtime::SwapError& error) {
    return failed(error);
  } catch (const runtime::DeviceError& error) {
    return failed(error);
  } catch (const std::bad_alloc&) {
    return training_failed("out of host memory", arguments, heard);
  }
}

const runtime::RankReport& worst_rank(const runtime::TrainingReport& report) {
  return *std::max_element(
      report.ranks.begin(), report.ranks.end(), [](const auto& a, const auto& b) {
        return a.memory.of(runtime::Place::device).peak < b.memory.of(runtime::Place::device).peak;
      });
}

Json graphs_json(const runtime::RankReport& rank) {
  const runtime::GraphUse& use = rank.use.graphs;
  return Json::object({{"on", use.on},
                       {"kernel_calls", use.calls},
                       {"replayed_calls", use.replayed_calls},
                       {"replays", use.replays},
                       {"captured", use.captured},
                       {"refused", use.refused}});
}

Seconds step_seconds(const runtime::RankReport& rank) { return runtime::step_seconds(rank.steady); }

}  // namespace zeroplan::cli
