// What a prediction says: the step/1 document of docs/contract.md section 5, as types.
// Bytes are per GPU of the worst rank, or per node for the host; times are wall clock.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/enum_names.hpp"
#include "base/phrase.hpp"
#include "base/units.hpp"
#include "model/memory_category.hpp"

namespace zeroplan {

enum class Resource { gpu_memory, host_memory, nvme, time };
inline constexpr EnumNames<Resource, 4> kResourceNames{
    {"gpu_memory", "host_memory", "nvme", "time"}};

// What limits the speed of a step.
enum class Bound { compute, communication, host, pcie, cpu_optimizer, nvme, dispatch };
inline constexpr EnumNames<Bound, 7> kBoundNames{
    {"compute", "communication", "host", "pcie", "cpu_optimizer", "nvme", "dispatch"}};

// Standard deviations on each side of a 90 % interval.
inline constexpr double kNinetyPercent = 1.645;

// A 90 % prediction interval.
template <typename T>
struct Interval {
  T low{};
  T high{};
};

// Speed under another network than the assumed one.
struct NetworkAlternative {
  double gigabits_per_second = 0.0;  // per node and direction
  double tokens_per_second_per_gpu = 0.0;
};

// A resource that does not suffice: needed + margin > available. The two texts are for people.
struct Limit {
  Resource resource = Resource::gpu_memory;
  Bytes needed;  // as predicted: the likeliest
  Bytes margin;  // beside that, with which it suffices with the probability `confidence`
  double confidence = 0.0;
  Bytes available;
  Phrase largest_term;
  Phrase cheapest_change;  // empty where none is known
  // Not memory itself, but the pinned buffers that weights on NVMe pass through: too small a one,
  // too few, or so many that DeepSpeed reads too far ahead.
  enum class Pool { none, size, few, many };
  Pool pool = Pool::none;
  // Nobody said what there is: `available` is what such a node can have at most.
  bool open = false;

  Bytes enough() const { return needed + margin; }
};

// What a plan asks of a node whose host memory is unspecified, where such nodes usually have less:
// with that it fits, and without it does not.
struct HostCondition {
  Bytes enough;                    // whole GiB: with so much it fits with the asked probability
  Bytes margin;                    // the part of that beside the predicted peak
  double usual_probability = 0.0;  // that it fits a node with the usual amount
};

struct GpuMemory {
  std::optional<int> rank;  // whose memory it is, where data-parallel ranks differ
  Bytes capacity;
  Bytes peak_allocated;
  Bytes peak_reserved;
  Bytes replayed_reserved;  // of the allocations that are known, as a memory snapshot of them shows
  Bytes peak_total;
  Bytes static_allocated;
  Phase peak_phase = Phase::backward;
  std::int64_t allocator_flushes = 0;
  CategoryBytes breakdown_at_peak{};                  // sums to peak_total
  std::array<CategoryBytes, kPhaseCount> by_phase{};  // at the allocated peak of each phase
};

struct HostMemory {
  Bytes capacity;  // what such nodes usually have, where nobody said it
  Bytes peak;
  Bytes pinned;
  Bytes load_peak;
  Bytes step_peak;  // from the first forward pass on, saving left out
  Phase peak_phase = Phase::load;
};

struct StepTime {
  Seconds total;
  Seconds forward;
  Seconds backward;  // recomputation included
  Seconds optimizer;
  Seconds exposed_communication;  // part of the above
  Seconds exposed_offload;        // part of the above
  Seconds device_memory;          // part of the above: memory given back and taken again
  Seconds lower_bound;            // all resources at once
  Seconds upper_bound;            // one after the other
  Bound bound = Bound::compute;
  double tokens_per_second_per_gpu = 0.0;
  double samples_per_second = 0.0;  // whole job
  FlopsPerSecond model_flops_per_gpu;
  double mfu = 0.0;
};

// Where the time of a whole run goes.
enum class JobPart {
  steps,       // forward, backward, optimizer: tokens of samples
  padding,     // the same: tokens that only fill sequences up
  dataloader,  // batches that the training process makes itself while its GPU waits
  logging,
  saving,
  evaluation,
  failures  // expected: work done again, checkpoints read again
};
inline constexpr EnumNames<JobPart, 7> kJobPartNames{
    {"steps", "padding", "dataloader", "logging", "saving", "evaluation", "failures"}};

// A whole run of a dataset.
struct JobTime {
  std::int64_t steps = 0;
  double padded_length = 0.0;  // tokens a sequence of a micro-batch has, on average
  // Of the tokens that are computed, those that only fill a sequence up; absent: lengths not told.
  std::optional<double> padding_share;
  // The share of samples longer than the sequence, which are cut or left out; absent: lengths not
  // given one by one.
  std::optional<double> longer_share;
  bool drops_longer = false;
  std::array<Seconds, kJobPartNames.names.size()> parts{};

  Seconds& operator[](JobPart part) { return parts[static_cast<std::size_t>(part)]; }
  Seconds operator[](JobPart part) const { return parts[static_cast<std::size_t>(part)]; }
  // Of all parts.
  Seconds seconds() const {
    Seconds total;
    for (const Seconds part : parts) total += part;
    return total;
  }
};

struct StepResult {
  std::string id;
  bool fits = false;  // under host_condition, where there is one
  double fit_probability = 0.0;
  std::vector<Limit> limits;
  std::optional<HostCondition> host_condition;
  GpuMemory gpu;
  HostMemory host;
  Bytes nvme;  // per node
  StepTime step;
  std::vector<NetworkAlternative> at_network;  // where the network between nodes was assumed
  std::optional<JobTime> job;                  // absent: no dataset given
  Interval<Bytes> peak_allocated_interval;
  Interval<Bytes> peak_reserved_interval;
  Interval<Bytes> peak_total_interval;
  Interval<Seconds> step_interval;
  Elements parameters_total;
  Elements parameters_trainable;
  Elements parameters_active;
  std::vector<Phrase> assumptions;
  std::vector<Phrase> warnings;
};

}  // namespace zeroplan
