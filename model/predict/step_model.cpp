#include "model/predict/step_model.hpp"

#include <algorithm>
#include <utility>

#include "model/cost/contention.hpp"
#include "model/cost/host_time.hpp"
#include "model/cost/optimizer_time.hpp"
#include "model/engine/optimizer_step.hpp"
#include "model/predict/step_rates.hpp"

namespace zeroplan {
namespace {

HostSoftware host_software(const Plan& plan) {
  return {plan.workload.engine,
          plan.workload.frontend,
          plan.workload.implementation,
          runs_deepspeed(plan.workload) ? plan.engine.stage : 0,
          !runs_on_cpu_ranks(plan)};
}

// The trainer's loop, once a step, and the overflow scans whose answers the host waits for: it
// issues the kernels of one when those of the one before have run.
double step_host_seconds(const Plan& plan,
                         const StepTraffic& traffic,
                         const HostCosts& host,
                         const Coefficients& c) {
  if (traffic.waited_scans == 0) return host.step.seconds();
  const auto kernels = static_cast<double>(overflow_scan_kernels(plan.engine));
  const Seconds one = host.forward_operation + host.launch * (kernels - 1.0) +
                      Seconds::of(c[Coefficient::kernel_floor_seconds] * kernels);
  const Seconds reading =
      gradient_scan_time(traffic.gpu_optimizer, plan.engine.model_dtype, plan.cluster.gpu, c);
  return (host.step + one * static_cast<double>(traffic.waited_scans) + reading).seconds();
}

Bound bound_of(std::initializer_list<std::pair<Bound, double>> shares) {
  return std::max_element(shares.begin(),
                          shares.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

}  // namespace

StepModel::PassSeconds StepModel::seconds_of(const ClassSeconds& classes,
                                             const ClassFactors& factors) {
  PassSeconds seconds;
  for (std::size_t i = 0; i < kCostClassCount; ++i) {
    const auto cost = static_cast<CostClass>(i);
    const double part = classes[i] * factors[i];
    if (is_host(cost)) {
      seconds.host += part;
      continue;
    }
    seconds.gpu += part;
    if (cost == CostClass::ranks) {
      seconds.ranks += part;
    } else if (cost != CostClass::matmul && cost != CostClass::attention) {
      seconds.memory += part;
    }
  }
  return seconds;
}
StepModel::StepModel(const Plan& plan, const ModelGraph& graph, const StepTraffic& traffic)
    : plan_(plan), traffic_(traffic), costs_(pass_costs(plan, graph)) {
  const std::vector<PassStep> passes = micro_batch(graph);
  for (const MicroStep& window : traffic.windows) {
    std::vector<bool> forward;
    bool in_forward = true;
    for (const StepTask& task : window.tasks) {
      if (task.kind == StepTaskKind::compute) {
        in_forward = in_forward_phase(passes[static_cast<std::size_t>(task.pass)].pass);
      }
      forward.push_back(in_forward && task.kind != StepTaskKind::reduce);
    }
    is_forward_.push_back(std::move(forward));
  }
  messages_ = message_costs(plan.coefficients);
}

StepTime StepModel::evaluate(const Coefficients& c,
                             const ClassFactors& factors,
                             bool links_moved) const {
  const std::vector<CollectiveCost> moved =
      links_moved ? message_costs(c) : std::vector<CollectiveCost>();
  const std::vector<CollectiveCost>& messages = links_moved ? moved : messages_;
  return assemble(c, play(c, factors, messages), after(messages));
}

// The same of one stage of a pipeline, whose passes are put together by pipeline_time.cpp.
StageTime StepModel::stage(const Coefficients& c,
                           const ClassFactors& factors,
                           bool links_moved) const {
  const std::vector<CollectiveCost> moved =
      links_moved ? message_costs(c) : std::vector<CollectiveCost>();
  const std::vector<CollectiveCost>& messages = links_moved ? moved : messages_;
  const WindowSeconds window = play(c, factors, messages);
  const HostCosts host = host_costs(host_software(plan_), c);
  const double m = static_cast<double>(plan_.workload.gradient_accumulation_steps);
  const double in_backward = window.wait - window.wait_forward;
  StageTime time;
  time.passes.forward = (window.forward - window.wait_forward) / m + host.micro_step.seconds();
  time.passes.backward = (window.backward - in_backward) / m;
  time.ranks = window.ranks;
  const StepTail tail =
      step_tail(plan_, traffic_, c, Seconds::of(window.forward + window.backward));
  time.reductions = window.wait + after(messages);
  time.offload = (tail.offload()).seconds();
  time.behind = time.reductions + tail.optimizer().seconds() + tail.in_backward.seconds() +
                tail.muon.seconds() + step_host_seconds(plan_, traffic_, host, c);
  return time;
}

std::vector<CollectiveCost> StepModel::message_costs(const Coefficients& c) const {
  std::vector<CollectiveCost> costs;
  costs.reserve(traffic_.messages.size());
  for (const Message& message : traffic_.messages) {
    costs.push_back(collective_cost(message.kind, message.bytes, message.group, plan_.cluster, c));
  }
  return costs;
}

double StepModel::after(const std::vector<CollectiveCost>& messages) const {
  double seconds = 0.0;
  for (const MessageCount& count : traffic_.after) {
    seconds += messages[static_cast<std::size_t>(count.message)].total().seconds() *
               static_cast<double>(count.count);
  }
  return seconds;
}

// Durations of one micro-step's tasks.
std::vector<TaskSeconds> StepModel::durations(const MicroStep& window,
                                              const Coefficients& c,
                                              const std::vector<PassSeconds>& passes,
                                              const std::vector<CollectiveCost>& messages) const {
  const HostCosts host = host_costs(host_software(plan_), c);
  const bool stage3 = runs_zero3(plan_);
  const double event = (stage3 ? host.zero3_event : host.collective_call).seconds();
  const double blocking = stage3 ? event * c[Coefficient::zero3_blocking_host_share] : 0.0;
  const double slowed = traffic_.overlaps ? collective_slowdown(c) : 1.0;
  const double per_byte = 1.0 / (plan_.cluster.gpu.memory_bandwidth.value.value() *
                                 c[Coefficient::copy_bandwidth_efficiency]);
  std::vector<TaskSeconds> result(window.tasks.size());
  for (std::size_t i = 0; i < window.tasks.size(); ++i) {
    const StepTask& task = window.tasks[i];
    TaskSeconds& seconds = result[i];
    if (task.kind == StepTaskKind::compute) {
      const auto index = costs_.of_pass[static_cast<std::size_t>(task.pass)];
      const PassSeconds& pass = passes[static_cast<std::size_t>(index)];
      seconds.gpu = pass.gpu + static_cast<double>(task.copied_beside.count()) * per_byte;
      seconds.host = pass.host + host.module_hook.seconds() * task.module_hooks +
                     host.gradient_hook.seconds() * task.gradient_hooks;
      continue;
    }
    const CollectiveCost& cost = messages[static_cast<std::size_t>(task.message)];
    seconds.gpu = static_cast<double>(task.copied_beside.count()) * per_byte;
    seconds.stream = cost.total().seconds() * slowed +
                     static_cast<double>(task.copied_before.count()) * per_byte;
    if (task.from_host > Bytes::zero()) {
      seconds.stream += weight_copy_time(plan_, task.from_host, c).seconds();
    }
    seconds.host = event;
    seconds.blocking_host = blocking;
  }
  return result;
}

StepModel::WindowSeconds StepModel::play(const Coefficients& c,
                                         const ClassFactors& factors,
                                         const std::vector<CollectiveCost>& messages) const {
  std::vector<PassSeconds> passes;
  passes.reserve(costs_.distinct.size());
  for (const ClassSeconds& classes : costs_.distinct) {
    passes.push_back(seconds_of(classes, factors));
  }
  WindowSeconds sum;
  for (std::size_t w = 0; w < traffic_.windows.size(); ++w) {
    const MicroStep& window = traffic_.windows[w];
    std::vector<TaskSeconds> tasks = durations(window, c, passes, messages);
    const double n = static_cast<double>(window.count);
    const auto run = [&] {
      return play_micro_step(window.tasks, tasks, is_forward_[w], traffic_.overlaps);
    };
    const MicroStepSeconds one = run();
    sum.forward += n * one.forward;
    sum.backward += n * one.backward;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      sum.gpu += n * (tasks[i].gpu + tasks[i].blocking_host);
      sum.host += n * tasks[i].host;
      sum.stream += n * tasks[i].stream;
      if (window.tasks[i].kind != StepTaskKind::compute) continue;
      const auto index = costs_.of_pass[static_cast<std::size_t>(window.tasks[i].pass)];
      sum.memory += n * passes[static_cast<std::size_t>(index)].memory;
      sum.ranks += n * passes[static_cast<std::size_t>(index)].ranks;
    }
    for (TaskSeconds& task : tasks) task.stream = 0.0;
    const MicroStepSeconds without = run();
    sum.wait += n * (one.total() - without.total());
    sum.wait_forward += n * (one.forward - without.forward);
  }
  return sum;
}

// [T16] over what is not exposed. A collective that waits for the network leaves the GPU alone
// most of the time: c holds at the rate of the links inside the node and less below.
double StepModel::contention(const Coefficients& c, const WindowSeconds& window) const {
  if (!traffic_.overlaps || window.gpu <= 0.0 || window.stream <= 0.0) return 0.0;
  const double together = std::min(std::max(0.0, window.stream - window.wait), window.gpu);
  const double memory = window.memory / window.gpu;
  const Gpu& gpu = plan_.cluster.gpu;
  const double inside = plan_.cluster.node.intra_node.bandwidth.value.value();
  double weighted = 0.0, wire = 0.0;
  for (const CollectiveCost& cost : messages_) {
    const double bytes = static_cast<double>(cost.wire.count());
    const double share = std::min(1.0, cost.rate.value() / inside);
    const double compute = kernel_slowdown(KernelBound::compute, cost.rate, gpu, c) - 1.0;
    const double streaming = kernel_slowdown(KernelBound::memory, cost.rate, gpu, c) - 1.0;
    weighted += bytes * ((1.0 - memory) * compute * share + memory * streaming);
    wire += bytes;
  }
  return wire > 0.0 ? std::min(1.0, weighted / wire) * together : 0.0;
}

StepTime StepModel::assemble(const Coefficients& c,
                             const WindowSeconds& window,
                             double after) const {
  const HostCosts host = host_costs(host_software(plan_), c);
  const double G = static_cast<double>(plan_.workload.gradient_accumulation_steps);
  const double crowded = contention(c, window);
  const double passes = std::max(window.forward + window.backward, 1e-12);
  const double both = window.forward + window.backward;
  const StepTail tail = step_tail(plan_, traffic_, c, Seconds::of(both));
  const double scale = scaling_factor(plan_.cluster.nodes, c);
  const auto at_scale = [&](double seconds) { return Seconds::of(seconds * scale); };
  const double forward_share = window.forward / passes;

  StepTime step;
  step.forward = at_scale(window.forward + crowded * forward_share + host.micro_step.seconds() * G);
  step.backward = at_scale(window.backward + crowded * (1.0 - forward_share)) +
                  (tail.in_backward + tail.nvme_gradients + tail.muon) * scale;
  step.optimizer =
      tail.optimizer() * scale + at_scale(after + step_host_seconds(plan_, traffic_, host, c));
  step.total = step.forward + step.backward + step.optimizer;
  // One rank waits for nobody; what its engine copies for reductions is not communication.
  const bool alone = plan_.degrees.data <= 1;
  const double exposed = window.ranks + (alone ? 0.0 : window.wait + crowded + after);
  step.exposed_communication = at_scale(exposed);
  step.exposed_offload = tail.offload() * scale;
  fill_bounds(c, window, tail, after, scale, step);
  const double busy = window.gpu - window.ranks + tail.on_gpu().seconds();
  const bool dispatches = window.host > window.gpu;
  step.bound = bound_of({{Bound::compute, dispatches ? 0.0 : busy},
                         {Bound::dispatch, dispatches ? window.host : 0.0},
                         {Bound::communication, exposed},
                         {Bound::pcie, (tail.in_backward + tail.copies).seconds()},
                         {Bound::cpu_optimizer, tail.cpu.seconds()},
                         {Bound::nvme, tail.all_nvme().seconds()}});
  fill_rates(plan_, step);
  return step;
}

// All resources at once, and one after the other.
void StepModel::fill_bounds(const Coefficients& c,
                            const WindowSeconds& window,
                            const StepTail& tail,
                            double after,
                            double scale,
                            StepTime& step) const {
  const HostCosts host = host_costs(host_software(plan_), c);
  const double G = static_cast<double>(plan_.workload.gradient_accumulation_steps);
  const double fixed = step_host_seconds(plan_, traffic_, host, c) + host.micro_step.seconds() * G;
  const double gpu = window.gpu + tail.on_gpu().seconds();
  const double stream = window.stream + after;
  const double copies = (tail.copies + tail.all_copies_back).seconds();
  step.lower_bound = Seconds::of(
      scale *
      std::max(
          {gpu, stream, window.host, copies, tail.cpu.seconds(), tail.nvme_longest.seconds()}));
  step.upper_bound = Seconds::of(scale * (gpu + stream + window.host + copies + fixed +
                                          tail.cpu.seconds() + tail.nvme_in_a_row.seconds()));
}

}  // namespace zeroplan
