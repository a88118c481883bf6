// zeroplan rehearse: the user's own training program on GPUs that are not there.
#include <algorithm>
#include <ostream>

#include "cli/commands.hpp"
#include "cli/rehearsal_document.hpp"
#include "cli/rehearse_text.hpp"
#include "cli/write_file.hpp"
#include "model/cost/context_memory.hpp"
#include "model/diagnostic.hpp"
#include "model/hardware/cluster.hpp"

namespace zeroplan {
namespace {

using rehearsal::Events;
using rehearsal::Request;
using rehearsal::RunRecord;

constexpr std::int64_t kUsualSteps = 4;
constexpr std::int64_t kUsualNode = 8;
constexpr int kInterrupted = 130;

// "8xA100-80G", "2x8xA100-80G": as many ranks in a node as there are, at most eight.
std::string cluster_text(const std::string& gpu, std::int64_t ranks) {
  std::int64_t node = std::min(ranks, kUsualNode);
  while (ranks % node != 0) --node;
  return std::to_string(ranks / node) + "x" + std::to_string(node) + "x" + gpu;
}

// What runs on which card.
struct Place {
  std::string cluster_said;
  Cluster cluster;
};

Place place_of(const Arguments& arguments) {
  const auto gpu = arguments.text("gpu");
  const auto cluster = arguments.text("cluster");
  const auto ranks = arguments.integer("ranks", 1);
  if (gpu && cluster) {
    throw InputError({kCommandLine, "--gpu", "either --gpu or --cluster", "both", ""});
  }
  if (!gpu && !cluster) {
    throw InputError({kCommandLine,
                      "--gpu",
                      "the name of a GPU, or --cluster",
                      "nothing",
                      "zeroplan gpus lists the names"});
  }
  Place place;
  place.cluster_said = cluster ? *cluster : cluster_text(*gpu, ranks.value_or(1));
  if (gpu && !find_gpu(*gpu, 1)) throw InputError(unknown_gpu(*gpu, kCommandLine, "--gpu"));
  place.cluster = parse_cluster_text(place.cluster_said);
  if (place.cluster.gpu.is_cpu()) {
    throw InputError({kCommandLine, cluster ? "--cluster" : "--gpu", "a GPU", "CPU ranks", ""});
  }
  if (ranks && *ranks != place.cluster.total_gpus()) {
    throw InputError({kCommandLine,
                      "--ranks",
                      std::to_string(place.cluster.total_gpus()) + ", the cluster's GPUs",
                      std::to_string(*ranks),
                      "leave --ranks out"});
  }
  return place;
}

// CUDA's context and the buffers of one communicator over all ranks, as predictions count them.
Bytes context_of(const Cluster& cluster, const std::string& torch) {
  const Coefficients coefficients(cluster.gpu.key);
  CommunicatorUse use;
  use.ranks = cluster.total_gpus();
  use.nodes = cluster.nodes;
  const Version version = parse_version(torch).value_or(Version{});
  return cuda_context(cluster.gpu, version, coefficients).value +
         nccl_overhead(cluster.gpu, cluster.node.topology, use, coefficients).value;
}

std::vector<Events> ends_of(const Arguments& arguments) {
  const std::string said = arguments.text("events").value_or("both");
  if (said == "both") return {Events::done, Events::pending};
  if (said == "done") return {Events::done};
  if (said == "pending") return {Events::pending};
  throw InputError({kCommandLine, "--events", "done, pending or both", in_quotes(said), ""});
}

Request request_of(const Arguments& arguments, const Cluster& cluster) {
  Request request;
  request.command = arguments.positionals;
  request.card.gpu = cluster.gpu;
  request.card.cards_a_node = cluster.gpus_per_node();
  request.ranks = cluster.total_gpus();
  request.rank = arguments.integer("rank", 0).value_or(0);
  if (request.rank >= request.ranks) {
    throw InputError({kCommandLine,
                      "--rank",
                      "a rank below " + std::to_string(request.ranks),
                      std::to_string(request.rank),
                      "ranks count from 0"});
  }
  request.steps = arguments.integer("steps", 0).value_or(kUsualSteps);
  request.work_file = arguments.text("work").value_or("");
  if (!request.work_file.empty()) require_writable(request.work_file);
  return request;
}

// A run that says nothing of a scenario is no measurement of one.
void write_measurement(const std::string& path,
                       const Rehearsed& rehearsed,
                       const Prediction& prediction,
                       std::ostream& log,
                       const Translation& words) {
  const Outcome outcome = rehearsed.outcome();
  const bool measured = outcome == Outcome::ran || outcome == Outcome::out_of_memory;
  std::string why = measured ? "" : "it did not run";
  if (prediction.scenario.document.is_null()) why = prediction.problem;
  if (why.empty()) write_file(path, measurement_line(rehearsed, prediction));
  log << words.text(why.empty() ? "wrote " + path : "nothing written to " + path + ": " + why)
      << "\n";
}

int exit_code(const Rehearsed& rehearsed) {
  if (rehearsed.runs.back().interrupted) return kInterrupted;
  switch (rehearsed.outcome()) {
    case Outcome::ran:
      return kDone;
    case Outcome::out_of_memory:
      return kAnswerIsNo;
    case Outcome::failed:
    case Outcome::used_no_gpu:
      return kInternalError;
  }
  return kInternalError;
}

}  // namespace

int run_rehearse(const Arguments& arguments, Streams streams) {
  const Translation words(arguments.language);
  const Place place = place_of(arguments);
  Request request = request_of(arguments, place.cluster);
  const std::vector<Events> ends = ends_of(arguments);
  const auto output = arguments.text("output");
  if (output) require_writable(*output);
  const rehearsal::TorchInstall torch =
      rehearsal::find_torch(rehearsal::python_of_command(request.command));
  request.card.context = context_of(place.cluster, torch.version);
  const rehearsal::Emulation emulation = rehearsal::emulation_for(
      torch, [&](const std::string& sentence) { streams.log << words.text(sentence) << "\n"; });
  Rehearsed rehearsed{request, torch, short_name(place.cluster), {}};
  for (const Events end : ends) {
    request.events = end;
    if (ends.size() > 1) {
      streams.log << words.text(
                         end == Events::done
                             ? "first run: work on the GPU has ended when it is enqueued"
                             : "second run: work on the GPU ends when something waits for it")
                  << "\n";
    }
    rehearsed.runs.push_back(rehearsal::run(request, torch, emulation));
    if (rehearsed.outcome() != Outcome::ran) break;
    request.work_file.clear();
  }
  const Prediction prediction = predict(rehearsed);
  if (output) write_measurement(*output, rehearsed, prediction, streams.log, words);
  if (arguments.json) {
    streams.out << to_json(rehearsed, prediction).dump(2) << "\n";
  } else {
    streams.out << rehearse_text(rehearsed, prediction, words);
  }
  return exit_code(rehearsed);
}

}  // namespace zeroplan
