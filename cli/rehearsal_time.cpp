#include "cli/rehearsal_time.hpp"

#include <algorithm>

#include "cli/table.hpp"
#include "simulator/trace.hpp"

namespace zeroplan::cli {
namespace {

using rehearsal::RecordedWork;
using rehearsal::RunRecord;
using rehearsal::TimedStep;
using rehearsal::WorkCounts;

const RecordedWork* work_of(const RunRecord& run) {
  for (const rehearsal::ProcessRecord& process : run.processes) {
    if (!process.work.calls.empty()) return &process.work;
  }
  return nullptr;
}

double idle(const TimedStep& step, simulator::IdleCause cause) {
  return step.account.idle[static_cast<std::size_t>(cause)];
}
double phase(const TimedStep& step, Phase which) {
  return step.account.phase[static_cast<std::size_t>(which)];
}

Phrase counts_text(const WorkCounts& counts) {
  Phrase text = phrase(
      "in a step: {} kernels, {} matrix products, {} calls of attention, {} collectives of {}, "
      "{} copies, {} waits of the host\n",
      counts.kernels,
      counts.products,
      counts.attention,
      counts.collectives,
      gib_text(counts.collective_bytes),
      counts.copies,
      counts.host_waits);
  if (counts.kernels_of_no_operation > 0) {
    text += phrase("{} kernels were launched by no operation of torch: counted as empty\n",
                   counts.kernels_of_no_operation);
  }
  return text;
}

}  // namespace

bool has_host_work(const RunRecord& run) {
  using rehearsal::CallKind;
  using rehearsal::RecordedCall;
  const RecordedWork* const work = work_of(run);
  if (work == nullptr) return false;
  const auto is_host_work = [](const RecordedCall& call) {
    return call.kind == CallKind::cpu_adam || call.kind == CallKind::cpu_pass;
  };
  const auto begin = std::find_if(work->calls.begin(), work->calls.end(), [](const auto& call) {
    return call.kind == CallKind::mark && call.name == "init";
  });
  return std::any_of(begin, work->calls.end(), is_host_work);
}

RehearsedTime time_of(const RunRecord& timed,
                      const RunRecord& watched,
                      const Cluster& cluster,
                      const std::string& torch) {
  RehearsedTime time;
  const RecordedWork* const clocked = work_of(timed);
  const RecordedWork* const known = work_of(watched);
  if (clocked == nullptr || known == nullptr) {
    time.problem = "nothing was put on the GPU's streams";
    time.host_is_timed = false;
    return time;
  }
  RecordedWork work = *known;
  time.host_is_timed = rehearsal::take_host_time(*clocked, work);
  time.run = rehearsal::time_step(work, cluster, parse_version(torch).value_or(Version{}));
  if (!time.run) time.problem = "two steps are needed, of which the second is timed";
  return time;
}

Json to_json(const RehearsedTime& time) {
  if (!time.run) return Json::object({{"problem", time.problem.english()}});
  const TimedStep& step = time.run->step;
  const WorkCounts& counts = step.counts;
  return Json::object({{"step_seconds", step.total().seconds()},
                       {"forward_seconds", phase(step, Phase::forward)},
                       {"backward_seconds", phase(step, Phase::backward)},
                       {"optimizer_seconds", phase(step, Phase::step)},
                       {"exposed_communication_seconds", step.exposed_communication.seconds()},
                       {"exposed_offload_seconds", step.exposed_offload.seconds()},
                       {"gpu_waits_for_host_seconds", idle(step, simulator::IdleCause::dispatch)},
                       {"host_seconds", step.account.dispatch},
                       {"host_is_timed", time.host_is_timed},
                       {"bound", std::string(name(kBoundNames, step.bound()))},
                       {"work",
                        Json::object({{"kernels", counts.kernels},
                                      {"kernels_of_no_operation", counts.kernels_of_no_operation},
                                      {"products", counts.products},
                                      {"attention", counts.attention},
                                      {"collectives", counts.collectives},
                                      {"collective_bytes", counts.collective_bytes.count()},
                                      {"copies", counts.copies},
                                      {"copied_to_device_bytes", counts.copied_to_device.count()},
                                      {"copied_to_host_bytes", counts.copied_to_host.count()},
                                      {"host_waits", counts.host_waits}})}});
}

std::string time_text(const RehearsedTime& time,
                      const Prediction& prediction,
                      const Translation& words) {
  if (!time.run) return "\n" + words.text(phrase("no time of a step: {}\n", time.problem));
  const TimedStep& step = time.run->step;
  const StepTime* const predicted = prediction.result ? &prediction.result->step : nullptr;
  std::vector<std::vector<Phrase>> cells;
  const auto row = [&](const char* what, double seconds, Seconds StepTime::*field) {
    cells.push_back(
        {what,
         seconds_text(Seconds::of(seconds)),
         predicted != nullptr && field != nullptr ? seconds_text(predicted->*field) : "-"});
  };
  row("whole step", step.total().seconds(), &StepTime::total);
  row("forward", phase(step, Phase::forward), &StepTime::forward);
  row("backward", phase(step, Phase::backward), &StepTime::backward);
  row("optimizer", phase(step, Phase::step), &StepTime::optimizer);
  row("waits for communication",
      step.exposed_communication.seconds(),
      &StepTime::exposed_communication);
  row("waits for offload", step.exposed_offload.seconds(), &StepTime::exposed_offload);
  row("waits for the host", idle(step, simulator::IdleCause::dispatch), nullptr);
  std::string text = table(
      {{"time of a step"}, {"rehearsed", Align::right}, {"predicted", Align::right}}, cells, words);
  text += words.text(counts_text(step.counts));
  if (!time.host_is_timed) {
    text += words.text(
        "the host's time is that of a run that was watched: two runs did not do the same work\n");
  }
  return "\n" + text;
}

std::string trace_of(const RehearsedTime& time) {
  const simulator::TracedRank rank{
      "rehearsed step", &time.run->program, &time.run->timeline, false};
  return simulator::chrome_trace(std::span(&rank, 1));
}

}  // namespace zeroplan::cli
