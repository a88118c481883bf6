#include "model/predict/verdict.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "model/engine/swapping.hpp"

namespace zeroplan {
namespace {

std::string largest_category(const CategoryBytes& bytes) {
  const auto largest = std::max_element(bytes.begin(), bytes.end());
  return std::string(
      kMemoryCategoryNames[static_cast<std::size_t>(std::distance(bytes.begin(), largest))]);
}

// Before a model that is loaded whole is sharded.
bool decides_while_loading(const Plan& plan, const GpuMemory& gpu) {
  return plan.loads_whole && (gpu.peak_phase == Phase::load || gpu.peak_phase == Phase::init);
}

// The GPU lacks memory: of what.
Limit gpu_limit(
    const Plan& plan, const GpuMemory& gpu, const GpuVerdict& need, Bytes room, double confidence) {
  Limit limit{.resource = Resource::gpu_memory,
              .needed = need.needed,
              .margin = need.margin,
              .confidence = confidence,
              .available = room,
              .largest_term = largest_category(gpu.breakdown_at_peak)};
  if (!decides_while_loading(plan, gpu)) return limit;
  limit.largest_term =
      plan.workload.method == Method::qlora
          ? "the whole four-bit model, which is loaded on each GPU before it is sharded"
          : "the whole model, which is on each GPU before it is sharded";
  return limit;
}

// Weights on NVMe pass through a pool of pinned buffers, one a weight; DeepSpeed stops where a
// partition is larger than one ("More elements"), where a fetch finds none ("Not enough buffers"),
// and where it reads so far ahead that a weight comes twice ("already assigned swap buffer").
void judge_pool(const Plan& plan, const MemoryPrediction& memory, Verdict& verdict) {
  const SwapPoolUse& pool = memory.weights_pool;
  const OffloadParameterConfig& weights = plan.engine.offload_parameter;
  const auto too_large = [&](Elements part) { return part > weights.buffer_size; };
  if (!pool.short_of && !pool.twice && !too_large(pool.largest)) return;
  verdict.fits = false;
  verdict.probability = 0.0;
  const auto bytes_of = [&](Elements buffer) {
    return io_aligned(buffer, plan.engine.model_dtype, plan.engine) * plan.engine.model_dtype *
           plan.cluster.gpus_per_node();
  };
  const Bytes one = bytes_of(weights.buffer_size);
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  Limit limit{.resource = Resource::host_memory,
              .needed = one * weights.buffer_count,
              .available = one * weights.buffer_count,
              .pool = Limit::Pool::many};
  if (too_large(pool.largest)) {
    limit.pool = Limit::Pool::size;
    limit.needed = bytes_of(pool.largest) * weights.buffer_count;
    limit.largest_term = phrase("buffers for weights on NVMe: one has {} elements, a partition {}",
                                text(weights.buffer_size.count()),
                                text(pool.largest.count()));
  } else {
    const PoolChanges& changes = memory.pool_changes;
    if (pool.short_of) {
      limit.pool = Limit::Pool::few;
      limit.needed = one * std::max(pool.most, weights.buffer_count + 1);
      limit.largest_term =
          phrase("buffers for weights on NVMe: buffer count is {}, {} are held at once",
                 text(weights.buffer_count),
                 text(pool.most));
    } else {
      limit.largest_term =
          "buffers for weights on NVMe: so many are free that DeepSpeed reads one weight twice";
    }
    limit.cheapest_change =
        changes.without_reuse && changes.more_buffers
            ? phrase("stage3_max_reuse_distance 0, or buffer count {}", text(*changes.more_buffers))
        : changes.without_reuse    ? "stage3_max_reuse_distance 0"
        : changes.more_buffers     ? phrase("buffer count {}", text(*changes.more_buffers))
        : changes.without_prefetch ? "stage3_prefetch_bucket_size 0"
                                   : "";
  }
  verdict.limits.push_back(std::move(limit));
}

// A probability that everything has which is said to suffice.
constexpr double kSurest = 1.0 - 1e-6;

}  // namespace

double probability_below(const NormalDemand& demand, Bytes limit) {
  if (limit.is_infinite() || demand.mean == Bytes::zero()) return 1.0;
  const double mean = static_cast<double>(demand.mean.count());
  const double room = static_cast<double>(limit.count());
  const double sd = std::max(1.0, std::hypot(mean * demand.relative_sd, room * demand.capacity_sd));
  return 0.5 * std::erfc((mean - room) / sd / std::sqrt(2.0));
}

// By bisection.
Bytes needed_for(const NormalDemand& demand, double confidence) {
  double low = 0.0;
  double high = 16.0;
  for (int i = 0; i < 50; ++i) {
    const double middle = 0.5 * (low + high);
    const Bytes room = Bytes::nearest(static_cast<double>(demand.mean.count()) * middle);
    (probability_below(demand, room) < confidence ? low : high) = middle;
  }
  return Bytes::nearest(static_cast<double>(demand.mean.count()) * high);
}

// The memory of CPU ranks is their node's: that is no requirement beside it.
HostRoom::HostRoom(const Plan& plan, const MemoryPrediction& memory, const PredictOptions& options)
    : capacity_(memory.host.capacity),
      sd_(memory.host_relative_sd),
      confidence_(options.confidence) {
  const Quantity<Bytes>& said = plan.cluster.node.host_memory;
  open_ = options.host_is_open && said.confidence == Confidence::assumed &&
          !capacity_.is_infinite() && !plan.cluster.gpu.is_cpu();
  if (!open_) capacity_sd_ = said.relative_sd;
}

Bytes HostRoom::most() const { return open_ ? capacity_ * kOpenHostMemory : capacity_; }

double HostRoom::probability(Bytes needed) const {
  const double below = probability_below(demand(needed), most());
  return open_ && below >= confidence_ ? 1.0 : below;
}

Limit HostRoom::limit(Bytes needed, Phrase largest_term, Phrase change) const {
  return {.resource = Resource::host_memory,
          .needed = needed,
          .margin = needed_for(demand(needed), confidence_) - needed,
          .confidence = confidence_,
          .available = most(),
          .largest_term = std::move(largest_term),
          .cheapest_change = std::move(change),
          .open = open_};
}

std::optional<HostCondition> HostRoom::condition(Bytes needed, double of_the_rest) const {
  if (!open_ || of_the_rest < confidence_) return std::nullopt;
  const Bytes enough = needed_for(demand(needed), std::min(kSurest, confidence_ / of_the_rest));
  if (enough <= capacity_) return std::nullopt;
  const Bytes whole = Bytes::gib((enough.count() + (1_GiB).count() - 1) / (1_GiB).count());
  return HostCondition{
      whole, whole - needed, of_the_rest * probability_below(demand(needed), capacity_)};
}

Phrase condition_text(const StepResult& result) {
  if (!result.host_condition) return "";
  return phrase(", if a node has {} GiB of host memory (usual: {:.1f} GiB)",
                result.host_condition->enough.count() >> 30,
                result.host.capacity.gib());
}

GpuVerdict gpu_verdict(const MemoryPrediction& memory, const PredictOptions& options) {
  const NormalDemand demand{memory.gpu_needed, memory.relative_sd};
  return {probability_below(demand, memory.gpu.capacity - options.reserve),
          memory.gpu.peak_total,
          needed_for(demand, options.confidence) - memory.gpu_needed};
}

Verdict judge(const Plan& plan,
              const MemoryPrediction& memory,
              const GpuVerdict& of_gpu,
              const PredictOptions& options) {
  Verdict verdict;
  const GpuMemory& gpu = memory.gpu;
  const Bytes gpu_room = gpu.capacity - options.reserve;
  const Node& node = plan.cluster.node;
  const HostRoom host(plan, memory, options);
  const double on_host = host.probability(memory.host.peak);
  Bytes nvme_room;
  if (node.nvme) nvme_room = node.nvme->capacity.value;
  const bool on_nvme = memory.nvme <= nvme_room;
  verdict.probability = of_gpu.probability * on_host * (on_nvme ? 1.0 : 0.0);
  verdict.fits = verdict.probability >= options.confidence;
  if (of_gpu.probability < options.confidence) {
    verdict.limits.push_back(gpu_limit(plan, gpu, of_gpu, gpu_room, options.confidence));
  }
  if (on_host < options.confidence) {
    const Phase phase = memory.host.peak_phase;
    const char* largest = phase == Phase::load   ? "weights while loading"
                          : phase == Phase::save ? "weights while saving"
                                                 : "offloaded states";
    verdict.limits.push_back(host.limit(memory.host.peak, largest, ""));
  }
  if (!on_nvme) {
    verdict.limits.push_back({Resource::nvme,
                              memory.nvme,
                              Bytes::zero(),
                              options.confidence,
                              nvme_room,
                              "swapped states",
                              plan.cluster.node.nvme ? "larger drives" : "an NVMe drive"});
  }
  if (!verdict.fits && verdict.limits.empty()) {  // each alone would do, together they do not
    const NormalDemand demand{of_gpu.needed, memory.relative_sd};
    const double alone = std::min(kSurest, options.confidence / on_host);
    const GpuVerdict joint{
        of_gpu.probability, of_gpu.needed, needed_for(demand, alone) - of_gpu.needed};
    verdict.limits.push_back(gpu_limit(plan, gpu, joint, gpu_room, options.confidence));
  }
  judge_pool(plan, memory, verdict);
  return verdict;
}

}  // namespace zeroplan
