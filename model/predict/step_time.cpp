#include "model/predict/step_time.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/cost/contention.hpp"
#include "model/cost/host_time.hpp"
#include "model/predict/pass_costs.hpp"
#include "model/predict/step_clock.hpp"
#include "model/predict/step_tail.hpp"

namespace zeroplan {
namespace {

FlopsPerSecond dense_rate(const Plan& plan) {
  return dense_peak(plan.cluster.gpu, plan.engine.model_dtype).value;
}

HostSoftware host_software(const Plan& plan) {
  return {plan.workload.engine,
          plan.workload.frontend,
          plan.workload.implementation,
          runs_deepspeed(plan.workload) ? plan.engine.stage : 0};
}

// Durations of passes by class, relative to those of the plan's own coefficients.
using ClassFactors = std::array<double, kCostClassCount>;

constexpr ClassFactors unmoved() {
  ClassFactors factors{};
  factors.fill(1.0);
  return factors;
}

struct PassSeconds {
  double gpu = 0.0;
  double memory = 0.0;  // of it in memory-bound kernels
  double ranks = 0.0;   // of it between ranks of tensor parallelism and stages
  double host = 0.0;
};

PassSeconds seconds_of(const ClassSeconds& classes, const ClassFactors& factors) {
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

// Sums over all micro-steps of a step, in seconds.
struct WindowSeconds {
  double forward = 0.0, backward = 0.0;  // as they are played
  double gpu = 0.0, memory = 0.0, host = 0.0, stream = 0.0;
  double ranks = 0.0;  // of gpu: what passes move between ranks
  double wait = 0.0;   // for collectives
  double wait_forward = 0.0;
};

void fill_rates(const Plan& plan, StepTime& step) {
  const Workload& workload = plan.workload;
  const double sequences = static_cast<double>(workload.micro_batch_size) *
                           static_cast<double>(workload.gradient_accumulation_steps);
  const double tokens = sequences * static_cast<double>(workload.sequence_length);
  const double seconds = step.total.seconds();
  const double ranks = static_cast<double>(plan.degrees.data);
  step.samples_per_second = sequences * ranks / seconds;
  step.tokens_per_second_per_gpu =
      tokens * ranks / static_cast<double>(plan.degrees.world) / seconds;
  const Flops token = model_flops_per_token(*plan.whole_model, workload.sequence_length);
  step.model_flops_per_gpu = FlopsPerSecond::of(step.tokens_per_second_per_gpu * token.value());
  step.mfu = step.model_flops_per_gpu / dense_rate(plan);
}

// What one stage of a pipeline contributes, in seconds.
struct StageTime {
  StageSeconds passes;      // of one micro-batch
  double ranks = 0.0;       // of all its passes: between ranks
  double reductions = 0.0;  // behind the last micro-batch
  double offload = 0.0;
  double behind = 0.0;  // all that comes behind it: reductions, optimizer, fixed costs
};

// A plan's step, ready to be evaluated under moved coefficients.
class StepModel {
 public:
  StepModel(const Plan& plan, const ModelGraph& graph, const StepTraffic& traffic)
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

  StepTime evaluate(const Coefficients& c, const ClassFactors& factors, bool links_moved) const {
    const std::vector<CollectiveCost> moved =
        links_moved ? message_costs(c) : std::vector<CollectiveCost>();
    const std::vector<CollectiveCost>& messages = links_moved ? moved : messages_;
    return assemble(c, play(c, factors, messages), after(messages));
  }

  // The same of one stage of a pipeline, whose passes are put together by pipeline_time.cpp.
  StageTime stage(const Coefficients& c, const ClassFactors& factors, bool links_moved) const {
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
                  host.step.seconds();
    return time;
  }

  const PassCosts& costs() const { return costs_; }

 private:
  std::vector<CollectiveCost> message_costs(const Coefficients& c) const {
    std::vector<CollectiveCost> costs;
    costs.reserve(traffic_.messages.size());
    for (const Message& message : traffic_.messages) {
      costs.push_back(
          collective_cost(message.kind, message.bytes, message.group, plan_.cluster, c));
    }
    return costs;
  }

  double after(const std::vector<CollectiveCost>& messages) const {
    double seconds = 0.0;
    for (const MessageCount& count : traffic_.after) {
      seconds += messages[static_cast<std::size_t>(count.message)].total().seconds() *
                 static_cast<double>(count.count);
    }
    return seconds;
  }

  // Durations of one micro-step's tasks.
  std::vector<TaskSeconds> durations(const MicroStep& window,
                                     const Coefficients& c,
                                     const std::vector<PassSeconds>& passes,
                                     const std::vector<CollectiveCost>& messages) const {
    const HostCosts host = host_costs(host_software(plan_), c);
    const bool stage3 = runs_deepspeed(plan_.workload) && plan_.engine.stage == 3;
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

  WindowSeconds play(const Coefficients& c,
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
      const MicroStepSeconds played = run();
      sum.forward += n * played.forward;
      sum.backward += n * played.backward;
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
      sum.wait += n * (played.total() - without.total());
      sum.wait_forward += n * (played.forward - without.forward);
    }
    return sum;
  }

  // [T16] over what is not exposed. A collective that waits for the network leaves the GPU alone
  // most of the time: c holds at the rate of the links inside the node and less below.
  double contention(const Coefficients& c, const WindowSeconds& window) const {
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

  StepTime assemble(const Coefficients& c, const WindowSeconds& window, double after) const {
    const HostCosts host = host_costs(host_software(plan_), c);
    const double G = static_cast<double>(plan_.workload.gradient_accumulation_steps);
    const double crowded = contention(c, window);
    const double played = std::max(window.forward + window.backward, 1e-12);
    const double both = window.forward + window.backward;
    const StepTail tail = step_tail(plan_, traffic_, c, Seconds::of(both));
    const double scale = scaling_factor(plan_.cluster.nodes, c);
    const auto at_scale = [&](double seconds) { return Seconds::of(seconds * scale); };
    const double forward_share = window.forward / played;

    StepTime step;
    step.forward =
        at_scale(window.forward + crowded * forward_share + host.micro_step.seconds() * G);
    step.backward =
        at_scale(window.backward + crowded * (1.0 - forward_share)) + tail.in_backward * scale;
    step.optimizer = tail.optimizer() * scale + at_scale(after + host.step.seconds());
    step.total = step.forward + step.backward + step.optimizer;
    // One rank waits for nobody; what its engine copies for reductions is not communication.
    const bool alone = plan_.degrees.data <= 1;
    const double exposed = window.ranks + (alone ? 0.0 : window.wait + crowded + after);
    step.exposed_communication = at_scale(exposed);
    step.exposed_offload = tail.offload() * scale;
    fill_bounds(c, window, tail, after, scale, step);
    const double busy = window.gpu - window.ranks + tail.gpu.seconds();
    const bool dispatches = window.host > window.gpu;
    step.bound = bound_of({{Bound::compute, dispatches ? 0.0 : busy},
                           {Bound::dispatch, dispatches ? window.host : 0.0},
                           {Bound::communication, exposed},
                           {Bound::pcie, (tail.in_backward + tail.copies).seconds()},
                           {Bound::cpu_optimizer, tail.cpu.seconds()},
                           {Bound::nvme, tail.nvme.seconds()}});
    fill_rates(plan_, step);
    return step;
  }

  // All resources at once, and one after the other.
  void fill_bounds(const Coefficients& c,
                   const WindowSeconds& window,
                   const StepTail& tail,
                   double after,
                   double scale,
                   StepTime& step) const {
    const HostCosts host = host_costs(host_software(plan_), c);
    const double G = static_cast<double>(plan_.workload.gradient_accumulation_steps);
    const double fixed = host.step.seconds() + host.micro_step.seconds() * G;
    const double gpu = window.gpu + tail.gpu.seconds();
    const double stream = window.stream + after;
    const double copies = (tail.copies + tail.all_copies_back).seconds();
    step.lower_bound = Seconds::of(
        scale *
        std::max(
            {gpu, stream, window.host, copies, tail.cpu.seconds(), tail.nvme_alone.seconds()}));
    step.upper_bound =
        Seconds::of(scale * (gpu + stream + window.host + copies + fixed + tail.cpu.seconds() +
                             tail.nvme_alone.seconds() + tail.nvme_weights.seconds()));
  }

  static Bound bound_of(std::initializer_list<std::pair<Bound, double>> shares) {
    return std::max_element(shares.begin(),
                            shares.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }

  const Plan& plan_;
  const StepTraffic& traffic_;
  PassCosts costs_;
  std::vector<std::vector<bool>> is_forward_;  // of each window's tasks
  std::vector<CollectiveCost> messages_;
};

// Elements of a parameter that several modules of the model share, first and last stage of a
// pipeline both hold and add up.
Elements tied_elements(const Model& model) {
  std::vector<int> users(model.parameters.size(), 0);
  for (const Module& module : model.modules) {
    for (const int parameter : module.parameters) ++users[static_cast<std::size_t>(parameter)];
  }
  Elements tied;
  for (std::size_t i = 0; i < users.size(); ++i) {
    if (users[i] > 1) tied += model.parameters[i].numel;
  }
  return tied;
}

// A pipeline's step, ready to be evaluated under moved coefficients.
class PipelineModel {
 public:
  PipelineModel(const Plan& plan, const std::vector<StageWork>& stages) : plan_(plan) {
    for (const StageWork& stage : stages) {
      models_.emplace_back(stage.plan, stage.work.graph, stage.traffic);
    }
    const std::vector<std::int64_t> distinct = distinct_stages(plan);
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      const std::int64_t stands_for = representative_stage(plan, static_cast<std::int64_t>(s));
      const auto at = std::find(distinct.begin(), distinct.end(), stands_for);
      model_of_.push_back(static_cast<std::size_t>(at - distinct.begin()));
    }
    tied_ = tied_elements(*plan.tensor_model) * plan.engine.gradient_accumulation_dtype;
  }

  StepTime evaluate(const Coefficients& c, const ClassFactors& factors, bool links_moved) const {
    std::vector<StageTime> distinct;
    for (const StepModel& model : models_) distinct.push_back(model.stage(c, factors, links_moved));
    std::vector<StageSeconds> passes;
    double behind = 0.0, longest = 0.0, sum = 0.0;
    const StageTime* busiest = &distinct.front();
    const double m = static_cast<double>(plan_.workload.gradient_accumulation_steps);
    for (const std::size_t index : model_of_) {
      const StageTime& stage = distinct[index];
      passes.push_back(stage.passes);
      behind = std::max(behind, stage.behind);
      const double own = m * (stage.passes.forward + stage.passes.backward);
      sum += own;
      if (own > longest) busiest = &stage;
      longest = std::max(longest, own);
    }
    const PipelineSpan span = pipeline_span(passes, plan_.workload.gradient_accumulation_steps);
    const double tied = tied_reduction(c);
    const double scale = scaling_factor(plan_.cluster.nodes, c);
    const auto at_scale = [&](double seconds) { return Seconds::of(seconds * scale); };
    StepTime step;
    step.forward = at_scale(span.seconds * span.forward_share);
    step.backward = at_scale(span.seconds * (1.0 - span.forward_share));
    step.optimizer = at_scale(behind + tied);
    step.total = step.forward + step.backward + step.optimizer;
    const double communication = busiest->ranks + busiest->reductions + tied;
    step.exposed_communication = at_scale(communication);
    step.exposed_offload = at_scale(busiest->offload);
    step.lower_bound = at_scale(longest);
    step.upper_bound = at_scale(sum + behind + tied);
    step.bound = communication > longest - busiest->ranks ? Bound::communication : Bound::compute;
    fill_rates(plan_, step);
    return step;
  }

 private:
  double tied_reduction(const Coefficients& c) const {
    if (tied_ == Bytes::zero()) return 0.0;
    const std::int64_t local = plan_.cluster.gpus_per_node();
    const bool inside = plan_.degrees.world <= local;
    const CollectiveGroup ends{.ranks_per_node = inside ? 2 : 1,
                               .nodes = inside ? 1 : 2,
                               .concurrent = inside ? 1 : local};
    return collective_time(Collective::all_reduce, tied_, ends, plan_.cluster, c).seconds();
  }

  const Plan& plan_;
  std::vector<StepModel> models_;      // of the distinct stages
  std::vector<std::size_t> model_of_;  // by stage
  Bytes tied_;
};

// Coefficients of links, and of everything behind the passes.
constexpr Coefficient kLinkCoefficients[] = {Coefficient::nccl_base_seconds,
                                             Coefficient::nccl_hop_seconds,
                                             Coefficient::nccl_gather_efficiency,
                                             Coefficient::nccl_scatter_efficiency,
                                             Coefficient::nccl_reduce_efficiency,
                                             Coefficient::nccl_pair_efficiency,
                                             Coefficient::nccl_sharp_gain,
                                             Coefficient::nccl_gather_ramp_seconds,
                                             Coefficient::nccl_scatter_ramp_seconds,
                                             Coefficient::nccl_reduce_ramp_seconds,
                                             Coefficient::pcie_peer_pair_efficiency,
                                             Coefficient::pcie_peer_efficiency,
                                             Coefficient::pcie_cross_socket_efficiency,
                                             Coefficient::pcie_bridge_efficiency,
                                             Coefficient::pcie_host_efficiency,
                                             Coefficient::pcie_collective_hop_seconds,
                                             Coefficient::network_collective_efficiency,
                                             Coefficient::tcp_collective_efficiency,
                                             Coefficient::nccl_bulk_hop_seconds,
                                             Coefficient::network_bulk_hop_seconds,
                                             Coefficient::network_ramp_seconds};
constexpr Coefficient kOtherCoefficients[] = {Coefficient::host_seconds_per_zero3_tensor,
                                              Coefficient::host_module_hook_seconds,
                                              Coefficient::host_zero3_gradient_seconds,
                                              Coefficient::host_gradient_hook_seconds,
                                              Coefficient::zero3_blocking_host_share,
                                              Coefficient::host_collective_call_seconds,
                                              Coefficient::compute_slowdown_under_communication,
                                              Coefficient::collective_slowdown_under_compute,
                                              Coefficient::scaling_loss_per_doubling,
                                              Coefficient::adam_bandwidth_efficiency,
                                              Coefficient::adam_foreach_traffic_ratio,
                                              Coefficient::step_fixed_seconds,
                                              Coefficient::micro_step_fixed_seconds,
                                              Coefficient::native_step_seconds,
                                              Coefficient::native_micro_step_seconds,
                                              Coefficient::composer_step_seconds,
                                              Coefficient::pcie_copy_efficiency,
                                              Coefficient::pageable_copy_slowdown,
                                              Coefficient::cpu_adam_dram_efficiency,
                                              Coefficient::cpu_adam_parameters_per_second_per_core,
                                              Coefficient::cpu_adam_process_rate,
                                              Coefficient::cpu_adam_unbound_slowdown,
                                              Coefficient::nvme_efficiency};

// Are any of these in play? Those that are not would change nothing.
bool offloads(const StepTraffic& traffic) {
  return traffic.device_to_host + traffic.host_to_device + traffic.host_to_device_pageable >
             Bytes::zero() ||
         traffic.cpu_optimizer > Elements::zero();
}

// Moves each coefficient that takes part by one standard deviation of its own.
template <typename Evaluated>
StepPrediction with_spread(const Evaluated& model,
                           const Plan& plan,
                           const ModelGraph& graph,
                           const StepTraffic& traffic) {
  StepPrediction prediction;
  prediction.time = model.evaluate(plan.coefficients, unmoved(), false);
  const double base = prediction.time.total.seconds();
  if (!std::isfinite(base) || base <= 0.0) return prediction;
  double squares = std::pow(plan.coefficients[Coefficient::step_time_model_sd], 2.0);
  const auto take = [&](const StepTime& moved) {
    squares += std::pow(moved.total.seconds() / base - 1.0, 2.0);
  };
  for (std::size_t i = 0; i < kCostClassCount; ++i) {
    const ClassCoefficient behind = coefficient_of(static_cast<CostClass>(i), plan, graph);
    ClassFactors factors = unmoved();
    factors[i] += plan.coefficients.relative_sd(behind.id);
    take(model.evaluate(plan.coefficients, factors, false));
  }
  const auto move = [&](Coefficient id, bool link) {
    Coefficients moved = plan.coefficients;
    moved.set(id, moved[id] * (1.0 + moved.relative_sd(id)));
    take(model.evaluate(moved, unmoved(), link));
  };
  const Degrees& degrees = plan.degrees;
  if (degrees.data > 1 || degrees.tensor > 1 || degrees.pipeline > 1) {
    for (const Coefficient id : kLinkCoefficients) move(id, true);
  }
  const auto first_of_offload = std::find(std::begin(kOtherCoefficients),
                                          std::end(kOtherCoefficients),
                                          Coefficient::pcie_copy_efficiency);
  const auto end = offloads(traffic) ? std::end(kOtherCoefficients) : first_of_offload;
  for (auto id = std::begin(kOtherCoefficients); id != end; ++id) move(*id, false);
  prediction.relative_sd = std::sqrt(squares);
  return prediction;
}

}  // namespace

Flops model_flops_per_token(const Model& model, std::int64_t sequence_length) {
  const ParameterCounts counts = count_parameters(model);
  const double trainable = static_cast<double>(counts.trainable.count());
  const double total = static_cast<double>(counts.total.count());
  const double layers = static_cast<double>(model.shape.layers + model.shape.encoder_layers);
  return Flops::of(6.0 * trainable + 4.0 * (total - trainable) +
                   12.0 * layers * static_cast<double>(model.shape.hidden) *
                       static_cast<double>(sequence_length));
}

StepTime step_time(const Plan& plan, const ModelGraph& graph, const StepTraffic& traffic) {
  return StepModel(plan, graph, traffic).evaluate(plan.coefficients, unmoved(), false);
}

StepPrediction predict_step_time(const Plan& plan,
                                 const ModelGraph& graph,
                                 const StepTraffic& traffic) {
  return with_spread(StepModel(plan, graph, traffic), plan, graph, traffic);
}

StepTime pipeline_time(const Plan& plan, const std::vector<StageWork>& stages) {
  return PipelineModel(plan, stages).evaluate(plan.coefficients, unmoved(), false);
}

StepPrediction predict_pipeline_time(const Plan& plan, const std::vector<StageWork>& stages) {
  const StageWork& first = stages.front();
  return with_spread(PipelineModel(plan, stages), plan, first.work.graph, first.traffic);
}

}  // namespace zeroplan
