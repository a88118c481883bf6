#include "model/predict/io_step_result.hpp"

#include <cmath>

namespace zeroplan {
namespace {

Json text_list(const std::vector<Phrase>& lines) {
  Json list = Json::array();
  for (const std::string& line : lines) list.push_back(line);
  return list;
}

// JSON has no infinity: a time nobody can say is null.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json breakdown_json(const CategoryBytes& bytes) {
  Json object = Json::object();
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) {
    object[kMemoryCategoryNames[i]] = bytes[i].count();
  }
  return object;
}

Json limits_json(const std::vector<Limit>& limits) {
  Json list = Json::array();
  for (const Limit& limit : limits) {
    list.push_back(Json::object(
        {{"resource", name(kResourceNames, limit.resource)},
         {"needed_bytes", limit.needed.count()},
         {"margin_bytes", limit.margin.count()},
         {"available_bytes", limit.available.count()},
         {"largest_term", limit.largest_term.english()},
         {"cheapest_change",
          limit.cheapest_change.empty() ? Json() : Json(limit.cheapest_change.english())}}));
  }
  return list;
}

Json condition_json(const std::optional<HostCondition>& condition) {
  if (!condition) return {};
  return Json::object({{"enough_bytes", condition->enough.count()},
                       {"margin_bytes", condition->margin.count()},
                       {"usual_probability", condition->usual_probability}});
}

Json gpu_json(const GpuMemory& gpu) {
  Json phases = Json::object();
  for (std::size_t i = 0; i < kPhaseCount; ++i) {
    phases[kPhaseNames.names[i]] = breakdown_json(gpu.by_phase[i]);
  }
  Json object = Json::object({{"capacity_bytes", gpu.capacity.count()},
                              {"peak_allocated_bytes", gpu.peak_allocated.count()},
                              {"peak_reserved_bytes", gpu.peak_reserved.count()},
                              {"replayed_reserved_bytes", gpu.replayed_reserved.count()},
                              {"peak_total_bytes", gpu.peak_total.count()},
                              {"static_allocated_bytes", gpu.static_allocated.count()},
                              {"peak_phase", name(kPhaseNames, gpu.peak_phase)},
                              {"allocator_flushes", gpu.allocator_flushes},
                              {"breakdown_at_peak", breakdown_json(gpu.breakdown_at_peak)},
                              {"breakdown_by_phase", phases}});
  if (gpu.rank) object["rank"] = *gpu.rank;
  return object;
}

Json step_json(const StepTime& step) {
  // Without a time there is no rate either.
  const bool timed = std::isfinite(step.total.seconds());
  const auto rate = [timed](double value) { return timed ? Json(value) : Json(); };
  return Json::object(
      {{"seconds", number(step.total.seconds())},
       {"forward_seconds", number(step.forward.seconds())},
       {"backward_seconds", number(step.backward.seconds())},
       {"optimizer_seconds", number(step.optimizer.seconds())},
       {"exposed_communication_seconds", number(step.exposed_communication.seconds())},
       {"exposed_offload_seconds", number(step.exposed_offload.seconds())},
       {"bounds_seconds",
        Json::array({number(step.lower_bound.seconds()), number(step.upper_bound.seconds())})},
       {"bound", name(kBoundNames, step.bound)},
       {"tokens_per_second_per_gpu", rate(step.tokens_per_second_per_gpu)},
       {"samples_per_second", rate(step.samples_per_second)},
       {"model_tflops_per_gpu", rate(step.model_flops_per_gpu.value() / 1e12)},
       {"mfu", rate(step.mfu)}});
}

Json job_json(const JobTime& job) {
  Json parts = Json::object();
  for (std::size_t i = 0; i < job.parts.size(); ++i) {
    const std::string key = std::string(kJobPartNames.names[i]) + "_seconds";
    parts[key] = number(job.parts[i].seconds());
  }
  return Json::object(
      {{"steps", job.steps},
       {"seconds", number(job.seconds().seconds())},
       {"padded_length", job.padded_length},
       {"padding_share", job.padding_share ? Json(number(*job.padding_share)) : Json()},
       {"longer_share", job.longer_share ? Json(number(*job.longer_share)) : Json()},
       {"parts", parts}});
}

}  // namespace

Json to_json(const StepResult& result) {
  Json document = Json::object({{"schema", "zeroplan.step/1"}});
  document["id"] = result.id.empty() ? Json() : Json(result.id);
  document["fits"] = result.fits;
  document["fit_probability"] = result.fit_probability;
  document["limits"] = limits_json(result.limits);
  document["host_condition"] = condition_json(result.host_condition);
  document["gpu"] = gpu_json(result.gpu);
  document["host"] = Json::object({{"capacity_bytes", result.host.capacity.count()},
                                   {"peak_bytes", result.host.peak.count()},
                                   {"pinned_bytes", result.host.pinned.count()},
                                   {"load_peak_bytes", result.host.load_peak.count()},
                                   {"peak_phase", name(kPhaseNames, result.host.peak_phase)}});
  document["nvme"] = Json::object({{"bytes", result.nvme.count()}});
  document["step"] = step_json(result.step);
  if (!result.at_network.empty()) {
    Json alternatives = Json::array();
    for (const NetworkAlternative& alternative : result.at_network) {
      alternatives.push_back(
          Json::object({{"gigabits_per_second", alternative.gigabits_per_second},
                        {"tokens_per_second_per_gpu", alternative.tokens_per_second_per_gpu}}));
    }
    document["at_network"] = alternatives;
  }
  document["job"] = result.job ? job_json(*result.job) : Json();
  document["intervals"] =
      Json::object({{"peak_allocated_bytes",
                     Json::array({result.peak_allocated_interval.low.count(),
                                  result.peak_allocated_interval.high.count()})},
                    {"peak_reserved_bytes",
                     Json::array({result.peak_reserved_interval.low.count(),
                                  result.peak_reserved_interval.high.count()})},
                    {"peak_total_bytes",
                     Json::array({result.peak_total_interval.low.count(),
                                  result.peak_total_interval.high.count()})},
                    {"step_seconds",
                     Json::array({number(result.step_interval.low.seconds()),
                                  number(result.step_interval.high.seconds())})}});
  document["parameters"] = Json::object({{"total", result.parameters_total.count()},
                                         {"trainable", result.parameters_trainable.count()},
                                         {"active", result.parameters_active.count()}});
  document["assumptions"] = text_list(result.assumptions);
  document["warnings"] = text_list(result.warnings);
  return document;
}

}  // namespace zeroplan
