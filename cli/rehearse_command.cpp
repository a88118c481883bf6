// zeroplan rehearse: the user's own training program on GPUs that are not there.
#include <algorithm>
#include <numeric>
#include <ostream>

#include "base/diagnostic.hpp"
#include "cli/commands.hpp"
#include "cli/rehearsal_document.hpp"
#include "cli/rehearsal_out_of_memory.hpp"
#include "cli/rehearsal_time.hpp"
#include "cli/rehearsal_work.hpp"
#include "cli/rehearse_find.hpp"
#include "cli/rehearse_text.hpp"
#include "cli/write_file.hpp"
#include "model/cost/context_memory.hpp"
#include "model/hardware/cluster.hpp"
#include "model/hardware/known_hardware.hpp"

namespace zeroplan::cli {
namespace {

using rehearsal::Events;
using rehearsal::Request;

constexpr std::int64_t kUsualSteps = 4;
constexpr std::int64_t kUsualNode = 8;

// One of several runs was asked to end: none follows.
struct Interrupted {
  int signal = 0;
};

rehearsal::RunRecord if_not_interrupted(rehearsal::RunRecord run) {
  if (run.signal != 0) throw Interrupted{run.signal};
  return run;
}

// "8xA100-80G", "2x8xA100-80G": as many ranks in a node as there are, at most eight.
std::string cluster_text(const std::string& gpu, std::int64_t ranks) {
  std::int64_t node = std::min(ranks, kUsualNode);
  while (ranks % node != 0) --node;
  return std::to_string(ranks / node) + "x" + std::to_string(node) + "x" + gpu;
}

// What runs on which GPU.
struct RehearsedCluster {
  std::string cluster_said;
  Cluster cluster;
};

RehearsedCluster place_of(const Arguments& arguments) {
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
  RehearsedCluster place;
  place.cluster_said = cluster ? *cluster : cluster_text(*gpu, ranks.value_or(1));
  if (gpu && !find_gpu(*gpu, 1)) throw InputError(unknown_gpu(*gpu, kCommandLine, "--gpu"));
  place.cluster = parse_cluster_text(place.cluster_said);
  if (place.cluster.gpu.is_cpu()) {
    throw InputError({kCommandLine, cluster ? "--cluster" : "--gpu", "a GPU", "CPU ranks", ""});
  }
  if (ranks && *ranks != place.cluster.total_gpus()) {
    throw InputError({kCommandLine,
                      "--ranks",
                      phrase("{}, the cluster's GPUs", place.cluster.total_gpus()),
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
  if (arguments.has("real-gpu")) {
    for (const char* other : {"events", "time", "trace", "count-work", "work"}) {
      if (!arguments.has(other)) continue;
      throw InputError(
          {kCommandLine,
           "--" + std::string(other),
           "no such option beside --real-gpu",
           "both",
           "a real GPU ends its work when it ends, and its steps are timed as they are"});
    }
    return {Events::real};
  }
  const std::string said = arguments.text("events").value_or("both");
  if (said == "both") return {Events::done, Events::pending};
  if (said == "done") return {Events::done};
  if (said == "pending") return {Events::pending};
  throw InputError({kCommandLine, "--events", "done, pending or both", in_quotes(said), ""});
}

Request request_of(const Arguments& arguments, const Cluster& cluster) {
  Request request;
  request.command = arguments.positionals;
  request.gpu.gpu = cluster.gpu;
  request.gpu.gpus_a_node = cluster.gpus_per_node();
  request.ranks = cluster.total_gpus();
  request.steps = arguments.integer("steps", 0).value_or(kUsualSteps);
  request.work_file = arguments.text("work").value_or("");
  request.snapshot_file = arguments.text("memory-snapshot").value_or("");
  for (const std::string& file : {request.work_file, request.snapshot_file}) {
    if (!file.empty()) require_writable(file);
  }
  return request;
}

// The ranks to play one after the other. Distinct ones: partitions of ZeRO, the embedding and the
// stages of a pipeline make the first, a middle one and the last differ.
std::vector<std::int64_t> ranks_of(const Arguments& arguments, const Request& request) {
  const std::string said = arguments.text("rank").value_or("0");
  const std::int64_t last = request.ranks - 1;
  std::vector<std::int64_t> ranks;
  if (said == "all") {
    ranks.resize(static_cast<std::size_t>(request.ranks));
    std::iota(ranks.begin(), ranks.end(), 0);
  } else if (said == "distinct") {
    ranks = {0, request.ranks / 2, last};
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  } else {
    const bool digits =
        !said.empty() && said.size() < 10 &&
        std::all_of(said.begin(), said.end(), [](char c) { return c >= '0' && c <= '9'; });
    const std::int64_t rank = digits ? std::stoll(said) : -1;
    if (rank < 0 || rank > last) {
      throw InputError({kCommandLine,
                        "--rank",
                        phrase("a rank below {}, distinct or all", request.ranks),
                        in_quotes(said),
                        "ranks count from 0"});
    }
    ranks = {rank};
  }
  // A launcher starts them all itself.
  if (rehearsal::is_launcher(request.command)) return {0};
  return ranks;
}

// A run that says nothing of a scenario is no measurement of one.
void write_measurement(const std::string& path,
                       const Rehearsed& rehearsed,
                       const Prediction& prediction,
                       std::ostream& log,
                       const Translation& words) {
  const Outcome outcome = rehearsed.outcome();
  const bool measured = outcome == Outcome::ran || outcome == Outcome::out_of_memory;
  Phrase why = measured ? "" : "it did not run";
  if (prediction.scenario.document.is_null()) why = prediction.problem;
  if (why.empty()) write_file(path, measurement_line(rehearsed, prediction));
  log << words.text(why.empty() ? phrase("wrote {}", path)
                                : phrase("nothing written to {}: {}", path, why))
      << "\n";
}

int exit_code(const Rehearsed& rehearsed) {
  if (const int signal = rehearsed.runs.back().signal) return 128 + signal;
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

// Everything that is asked of one command.
class Rehearser {
 public:
  Rehearser(const Arguments& arguments, const Streams& streams, const Translation& words)
      : streams_(streams), words_(words), place_(place_of(arguments)) {
    request_ = request_of(arguments, place_.cluster);
    ranks_ = ranks_of(arguments, request_);
    ends_ = ends_of(arguments);
    if (arguments.has("count-work")) count_work();
  }

  const Request& request() const { return request_; }

  // One run, whose operations are watched: a step's work is the same at both ends of events.
  void count_work() {
    request_.work_file.clear();
    request_.keep_work = Request::KeepWork::with_operations;
    ends_ = {Events::done};
    ranks_.resize(1);
    if (request_.steps == 0 || request_.steps > kUsualSteps) request_.steps = kUsualSteps;
  }

  // Before anything is run.
  void prepare() {
    torch_ = rehearsal::find_torch(rehearsal::python_of_command(request_.command));
    request_.gpu.context = context_of(place_.cluster, torch_.version);
    const bool real = ends_.front() == Events::real;
    emulation_ = rehearsal::emulation_for(
        torch_, real ? rehearsal::Emulated::nccl : rehearsal::Emulated::cuda);
    if (real) {
      request_.collective_times = rehearsal::collective_times(
          place_.cluster, parse_version(torch_.version).value_or(Version{}));
    }
  }

  // Until one does not run.
  Rehearsed rehearse(const std::vector<std::string>& command) {
    Rehearsed rehearsed{request_, torch_, short_name(place_.cluster), {}};
    rehearsed.request.command = command;
    rehearsed.request.rank = ranks_.front();
    Request request = rehearsed.request;
    for (const std::int64_t rank : ranks_) {
      for (const Events end : ends_) {
        request.rank = rank;
        request.events = end;
        announce(rank, end);
        rehearsed.runs.push_back(rehearsal::run(request, torch_, emulation_));
        if (rehearsed.outcome() != Outcome::ran) return rehearsed;
        request.work_file.clear();  // of the first run
        request.snapshot_file.clear();
      }
    }
    return rehearsed;
  }

  // Two more runs of a command that ran: one whose operations are watched, and one with the host's
  // clock. In that one no values are computed, unless the program goes another way then, or the
  // host has large tensors of its own, which only computing values spares it.
  RehearsedTime time(const std::vector<std::string>& command) {
    log("two runs for the time of a step");
    const rehearsal::ScratchFolder scratch;
    Request request = request_;
    request.command = command;
    request.rank = ranks_.front();
    // The last of a few steps is timed; what all of a long program does would fill the disk.
    if (request.steps == 0 || request.steps > kUsualSteps) request.steps = kUsualSteps;
    request.events = Events::done;
    request.work_file.clear();
    request.snapshot_file.clear();
    request.answers_file = scratch.path() + "/answers";
    request.keep_work = Request::KeepWork::with_operations;
    const rehearsal::RunRecord watched =
        if_not_interrupted(rehearsal::run(request, torch_, emulation_));
    request.keep_work = Request::KeepWork::yes;
    request.gives_answers = !has_host_work(watched);
    const auto timed = [&] {
      return time_of(if_not_interrupted(rehearsal::run(request, torch_, emulation_)),
                     watched,
                     place_.cluster,
                     torch_.version);
    };
    RehearsedTime time = timed();
    if (time.host_is_timed || !request.gives_answers) return time;
    log("the program went another way without values: one more run");
    request.gives_answers = false;
    request.answers_file.clear();
    return timed();
  }

  void log(const Phrase& sentence) const { streams_.log << words_.text(sentence) << "\n"; }

 private:
  void announce(std::int64_t rank, Events end) const {
    if (ranks_.size() > 1) {
      log(phrase("rank {} of {}", rank, request_.ranks));
    }
    if (ends_.size() == 1) return;
    log(end == Events::done ? "first run: work on the GPU has ended when it is enqueued"
                            : "second run: work on the GPU ends when something waits for it");
  }

  Streams streams_;
  const Translation& words_;
  RehearsedCluster place_;
  Request request_;
  std::vector<std::int64_t> ranks_;
  std::vector<Events> ends_;
  rehearsal::TorchInstall torch_;
  rehearsal::Emulation emulation_;
};

struct Search {
  Find find;
  Found found;
};

// [batch, sequence] that the model got; empty where nobody saw it.
std::string batch_of(const Rehearsed& rehearsed) {
  const rehearsal::ProcessRecord* process = rehearsed.process();
  if (process == nullptr) return "";
  const auto ids = process->facts.find("ids");
  return ids == process->facts.end() ? "" : ids->second.dump();
}

// The rehearsal of the largest that runs; of the last one tried where none does.
Rehearsed search(Rehearser& rehearser, Search& search) {
  const NumberedCommand command(rehearser.request().command, search.find);
  rehearser.prepare();
  std::optional<Rehearsed> best;
  std::optional<Rehearsed> last;
  std::string batch;  // of the best
  const auto attempt = [&](std::int64_t number) {
    rehearser.log(std::string(name(search.find)) + " " + std::to_string(number));
    last = rehearser.rehearse(command.with(number));
    if (const int signal = last->runs.back().signal) throw Interrupted{signal};
    const Tried tried{number, last->outcome(), last->most_reserved()};
    if (tried.outcome == Outcome::ran) {
      const std::string seen = batch_of(*last);
      if (best && !seen.empty() && seen == batch) {
        throw InputError({kCommandLine,
                          "COMMAND",
                          phrase("an argument that changes the {}", name(search.find)),
                          phrase("the same batch {} with two numbers", seen),
                          "write {} where the number stands"});
      }
      batch = seen;
      best = std::move(last);
    }
    return tried;
  };
  search.found = find_largest(range_of(search.find, command.said()), attempt);
  return best ? std::move(*best) : std::move(*last);
}

int rehearse(const Arguments& arguments, const Streams& streams, const Translation& words) {
  Rehearser rehearser(arguments, streams, words);
  const auto output = arguments.text("output");
  if (output) require_writable(*output);
  std::optional<Search> searched;
  if (const auto said = arguments.text("find")) searched = Search{parse_find(*said), {}};
  const auto answer = [&] {
    if (searched) return search(rehearser, *searched);
    rehearser.prepare();
    return rehearser.rehearse(rehearser.request().command);
  };
  const auto trace = arguments.text("trace");
  if (trace) require_writable(*trace);
  const Rehearsed rehearsed = answer();
  std::optional<RehearsedTime> time;
  if ((trace || arguments.has("time")) && rehearsed.outcome() == Outcome::ran) {
    time = rehearser.time(rehearsed.request.command);
    if (trace && time->run) write_file(*trace, trace_of(*time));
  }
  const Prediction prediction = predict(rehearsed, streams.log, words);
  if (output) write_measurement(*output, rehearsed, prediction, streams.log, words);
  const std::optional<RehearsedOom> oom = out_of_memory_of(rehearsed, prediction);
  std::optional<RehearsedWork> work;
  if (arguments.has("count-work")) work = work_of(rehearsed, prediction);
  const Findings findings{
      prediction, oom ? &*oom : nullptr, time ? &*time : nullptr, work ? &*work : nullptr};
  if (arguments.json) {
    Json document = to_json(rehearsed, findings);
    if (searched) document["find"] = to_json(searched->find, searched->found);
    streams.out << document.dump(2) << "\n";
  } else {
    if (searched) streams.out << found_text(searched->find, searched->found, words);
    streams.out << rehearse_text(rehearsed, findings, words);
  }
  return exit_code(rehearsed);
}

}  // namespace

int run_rehearse(const Arguments& arguments, Streams streams) {
  const Translation words(arguments.language);
  try {
    return rehearse(arguments, streams, words);
  } catch (const Interrupted& end) {
    streams.log << words.text("interrupted\n");
    return 128 + end.signal;
  }
}

}  // namespace zeroplan::cli
