#include "model/engine/swapping.hpp"

#include <algorithm>

#include "model/engine/optimizer_states.hpp"

namespace zeroplan {

namespace {

constexpr Bytes kAlignedPerThread = Bytes::of(1024);  // AIO_ALIGNED_BYTES
constexpr Bytes kSmallestSwap = Bytes::mib(1);        // MIN_AIO_BYTES

std::int64_t alignment(DType dtype, const EngineConfig& config) {
  return kAlignedPerThread.count() * config.aio_parallelism / width(dtype);
}

}  // namespace

Elements io_aligned(Elements numel, DType dtype, const EngineConfig& config) {
  return Elements::of(round_up(numel.count(), alignment(dtype, config)));
}

bool swappable(Elements numel, DType dtype, const EngineConfig& config) {
  return numel * dtype >= std::max(kSmallestSwap, config.aio_block_size);
}

Elements swapped_gradient(Elements part, const EngineConfig& config) {
  const std::int64_t unit = alignment(config.master_dtype, config);
  const Elements aligned = Elements::of(part.count() / unit * unit);
  return swappable(aligned, config.master_dtype, config) ? aligned : Elements::zero();
}

OptimizerSwap optimizer_swap(const EngineConfig& config,
                             std::span<const EngineParameter> parameters,
                             std::span<const SubGroup> groups) {
  OptimizerSwap swap;
  const DType dtype = config.master_dtype;
  const int ranks = partition_ranks(config);
  Elements largest;
  for (const SubGroup& group : groups) largest = std::max(largest, group.numel);
  swap.tensors = 1 + static_cast<int>(optimizer_states(config.optimizer, largest).size());
  for (const SubGroup& group : groups) {
    swap.swapped.push_back(swappable(group.numel, dtype, config));
    Elements& written = swap.written.emplace_back();
    Elements& read = swap.read.emplace_back();
    Elements& copied = swap.copied.emplace_back();
    if (!swap.swapped.back()) continue;
    swap.swapped_elements += group.numel;
    written = io_aligned(group.numel, dtype, config) * swap.tensors;
    read = written;
    for (int parameter : group.parameters) {
      const Elements part =
          partitioned_numel(parameters[static_cast<std::size_t>(parameter)].numel, ranks);
      const Elements swapped = swapped_gradient(part, config);
      // What stays is a view into the fp32 copy of all of it, whose storage stays too; the embedded
      // runtime copies it out.
      if (swapped < part) swap.gradients_on_gpu += config.embedded ? part - swapped : part;
      read += swapped;
      copied += part - swapped;
    }
  }
  swap.buffer = io_aligned(largest, dtype, config);
  swap.buffers = config.offload_optimizer.buffer_count;
  // Master, states and gradient of one sub-group; the next one's with pipeline_read, the previous
  // one's (written, without gradient) with pipeline_write.
  swap.buffers_needed = swap.tensors + 1;
  if (config.offload_optimizer.pipeline_read) swap.buffers_needed += swap.tensors + 1;
  if (config.offload_optimizer.pipeline_write) swap.buffers_needed += swap.tensors;
  return swap;
}

GradientBatches::Write GradientBatches::add(Elements elements) {
  Write write;
  if (filled_ + elements > buffer_) {
    const bool another = in_flight_ + 1 < buffers_;
    write = {filled_, !another};
    in_flight_ = another ? in_flight_ + 1 : 0;
    filled_ = Elements::zero();
  }
  filled_ += elements;
  return write;
}

GradientBatches::Write GradientBatches::flush() {
  const Write write{filled_, filled_ > Elements::zero() || in_flight_ > 0};
  filled_ = Elements::zero();
  in_flight_ = 0;
  return write;
}

ParameterSwap parameter_swap(const EngineConfig& config,
                             std::span<const EngineParameter> parameters,
                             std::span<const SubGroup> groups) {
  ParameterSwap swap;
  const DType dtype = config.model_dtype;
  const int ranks = partition_ranks(config);
  swap.pool = io_aligned(config.offload_parameter.buffer_size, dtype, config) *
              config.offload_parameter.buffer_count;
  for (const EngineParameter& parameter : parameters) {
    const Elements part = partitioned_numel(parameter.numel, ranks);
    swap.swapped.push_back(swappable(part, dtype, config));
    swap.read.push_back(swap.swapped.back() ? io_aligned(part, dtype, config) : Elements::zero());
    if (swap.swapped.back()) swap.swapped_elements += part;
  }
  // Host buffers are sized group by group until max_in_cpu is used up, whether or not a whole
  // sub-group fits; a sub-group stays in host memory only if it fits entirely.
  Elements used;
  bool some_without = false;
  const Elements limit = config.offload_parameter.max_in_cpu;
  for (std::size_t i = 0; i < groups.size();) {
    Elements total;
    std::size_t end = i;
    for (; end < groups.size() && groups[end].group == groups[i].group; ++end) {
      total += groups[end].numel;
    }
    Elements buffer = total;
    if (used + total > limit) buffer = std::max(Elements::zero(), limit - used);
    used += total;
    swap.host_buffers.push_back(buffer);
    Elements offset;
    for (; i < end; ++i) {
      offset += groups[i].numel;
      swap.kept.push_back(offset <= buffer);
      some_without = some_without || offset > buffer;
      Elements& written = swap.written.emplace_back();
      for (int parameter : groups[i].parameters) {
        Elements& read = swap.read[static_cast<std::size_t>(parameter)];
        if (swap.kept.back()) read = Elements::zero();
        written += read;
      }
    }
  }
  if (!some_without) return swap;
  const auto largest =
      std::max_element(groups.begin(), groups.end(), [](const SubGroup& a, const SubGroup& b) {
        return a.numel < b.numel;
      });
  for (int parameter : largest->parameters) {
    swap.write_back +=
        io_aligned(parameters[static_cast<std::size_t>(parameter)].numel, dtype, config);
  }
  return swap;
}

}  // namespace zeroplan
