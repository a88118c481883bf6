#include "tuner/why.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/diagnostic.hpp"
#include "base/parallel_for.hpp"
#include "model/predict/analytic_estimate.hpp"
#include "tuner/fit.hpp"
#include "tuner/fit_batch.hpp"

namespace zeroplan::tuner {
namespace {

constexpr OffloadDevice kNone = OffloadDevice::none;
constexpr OffloadDevice kCpu = OffloadDevice::cpu;

// Nothing where the engine has none. Stages 1 and 2 offload the optimizer alone, and to the CPU;
// FSDP offloads at stage 3.
std::optional<Strategy> at_stage(Strategy strategy, int stage) {
  if (strategy.engine == TrainingEngine::ddp) return std::nullopt;
  const bool fsdp = strategy.engine == TrainingEngine::fsdp;
  const int lowest = fsdp ? (offload_of(strategy) > 0 ? 3 : 2) : offload_of(strategy) > 0 ? 1 : 0;
  if (stage < lowest || stage > 3) return std::nullopt;
  strategy.stage = stage;
  if (stage == 3) return strategy;
  if (strategy.offload_optimizer != kNone) strategy.offload_optimizer = kCpu;
  strategy.offload_parameter = kNone;
  strategy.small_sub_groups = false;
  return strategy;
}

// From the drive to the host, then the parameters to the GPU, then the optimizer; FSDP's is of all.
std::optional<Strategy> with_less_offload(Strategy strategy) {
  if (offload_of(strategy) == 0) return std::nullopt;
  const auto is_on = [&](OffloadDevice device) {
    return strategy.offload_optimizer == device || strategy.offload_parameter == device;
  };
  if (is_on(OffloadDevice::nvme)) {
    if (strategy.offload_optimizer != kNone) strategy.offload_optimizer = kCpu;
    if (strategy.offload_parameter != kNone) strategy.offload_parameter = kCpu;
  } else if (strategy.offload_parameter != kNone && strategy.engine == TrainingEngine::deepspeed) {
    strategy.offload_parameter = kNone;
  } else {
    strategy.offload_optimizer = strategy.offload_parameter = kNone;
  }
  return strategy;
}

class Alternatives {
 public:
  Alternatives(const Question& question,
               const StrategyResult& chosen,
               const PredictOptions& options)
      : question_(question), chosen_(chosen), options_(options) {}

  std::vector<Alternative> run() {
    add_strategies();
    add_one_node();
    add_communication();
    add_micro_batches();
    std::vector<std::optional<Alternative>> found(asked_.size());
    parallel_for(asked_.size(), machine_threads(), [&](std::size_t i) {
      const WhyKind kind = asked_[i].first;
      question_.missing->attempt(name(kWhyKindNames, kind), [&] {
        try {
          found[i] = asked_[i].second();
          if (found[i]) found[i]->kind = kind;
        } catch (const InputError&) {  // what the question refuses is no alternative
          found[i].reset();
        }
      });
    });
    std::vector<Alternative> alternatives;
    for (std::optional<Alternative>& one : found) {
      if (one) alternatives.push_back(std::move(*one));
    }
    return alternatives;
  }

 private:
  using Make = std::function<std::optional<Alternative>()>;

  StrategyResult played_row(const Question& question,
                            const Strategy& strategy,
                            const BatchSizes& sizes) const {
    StrategyResult row{strategy, plan_strategy(question, strategy, sizes), {}, {}, {}, true, {}};
    play_whole(row, options_, question.memo.get());
    return row;
  }

  // With its best micro-batch and all its numbers, also where it does not fit.
  std::optional<Alternative> with_strategy(const Question& question,
                                           const Strategy& strategy) const {
    std::vector<StrategyResult> rows = settle(question, {&strategy, 1}, options_);
    if (rows.empty()) return std::nullopt;
    StrategyResult& row = rows.front();
    row.simulated = true;
    play_whole(row, options_, question.memo.get());
    return of(std::move(row));
  }

  std::optional<Alternative> instead(const Strategy& strategy) const {
    std::optional<Alternative> alternative = with_strategy(question_, strategy);
    if (alternative && batch_of(*alternative->other) != batch_of(chosen_)) {
      alternative->same_batch = played_row(question_, strategy, batch_of(chosen_));
    }
    return alternative;
  }

  static Alternative of(StrategyResult row) {
    Alternative alternative;
    alternative.other = std::move(row);
    return alternative;
  }

  void ask(WhyKind kind, Make make) { asked_.emplace_back(kind, std::move(make)); }

  void add_strategies() {
    const Strategy& now = chosen_.strategy;
    const auto add = [&](WhyKind kind, const std::optional<Strategy>& other) {
      if (other) ask(kind, [this, other] { return instead(*other); });
    };
    add(WhyKind::lower_stage, at_stage(now, now.stage - 1));
    add(WhyKind::higher_stage, at_stage(now, now.stage + 1));
    Strategy other = now;
    if (now.checkpointing == ActivationCheckpointing::none) {
      other.checkpointing = ActivationCheckpointing::full;
      add(WhyKind::checkpointing, other);
    } else {
      other.checkpointing = ActivationCheckpointing::none;
      ask(WhyKind::no_checkpointing, [this, other] {
        std::optional<Alternative> alternative = instead(other);
        if (!alternative) return alternative;
        const StrategyResult& alike =
            alternative->same_batch ? *alternative->same_batch : *alternative->other;
        const double share = 1.0 - alike.result.step.total / chosen_.result.step.total;
        if (share > 0.0) alternative->share = share;
        return alternative;
      });
    }
    if (const auto less = with_less_offload(now)) {
      ask(WhyKind::less_offload, [this, less] {
        std::optional<Alternative> alternative = instead(*less);
        const StepTime& step = chosen_.result.step;
        if (alternative) alternative->share = step.exposed_offload / step.total;
        return alternative;
      });
    }
  }

  void add_one_node() {
    if (chosen_.plan.cluster.nodes == 1) return;
    ask(WhyKind::one_node, [this]() -> std::optional<Alternative> {
      Question single = question_;
      set_nodes(single, 1);
      if (auto found = found_roughly(single, options_)) return of(std::move(*found));
      return with_strategy(single, chosen_.strategy);
    });
  }

  void add_communication() {
    const Cluster& cluster = chosen_.plan.cluster;
    if (cluster.total_gpus() == 1) return;
    ask(WhyKind::communication, [this, &cluster] {
      std::optional<Alternative> alternative(std::in_place);
      if (cluster.nodes > 1) {
        Question faster = question_;
        const double gigabits = 2.0 * 8e-9 * cluster.inter_node.bandwidth.value.value();
        faster.prepared.cluster = std::make_shared<const Cluster>(on_network(cluster, gigabits));
        alternative = of(played_row(faster, chosen_.strategy, batch_of(chosen_)));
      }
      const StepTime& step = chosen_.result.step;
      alternative->share = step.exposed_communication / step.total;
      return alternative;
    });
  }

  // The ways to make the same step that have the next smaller and the next larger micro-batch.
  void add_micro_batches() {
    const std::vector<BatchSizes>& sizes = question_.batches.sizes;
    const auto now = std::find(sizes.begin(), sizes.end(), batch_of(chosen_));
    if (now == sizes.end()) return;
    const auto add = [&](WhyKind kind, const BatchSizes& other) {
      ask(kind, [this, other] { return of(played_row(question_, chosen_.strategy, other)); });
    };
    if (now != sizes.begin()) add(WhyKind::smaller_micro_batch, *(now - 1));
    if (now + 1 != sizes.end()) add(WhyKind::larger_micro_batch, *(now + 1));
  }

  const Question& question_;
  const StrategyResult& chosen_;
  const PredictOptions& options_;
  std::vector<std::pair<WhyKind, Make>> asked_;
};

}  // namespace

std::vector<Alternative> why(const Question& question,
                             const StrategyResult& chosen,
                             const PredictOptions& options) {
  return Alternatives(question, chosen, options).run();
}

}  // namespace zeroplan::tuner
