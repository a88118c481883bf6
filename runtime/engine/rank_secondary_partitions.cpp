// hpZ: a secondary partition of the weights, shared by few neighbours. Initialisation makes it, and
// the first release of a weight whose copy went with the last update; gathers between are of it.
// Source: DeepSpeed zero/partition_parameters.py _partition_param_sec, stage3.py
// invalidate_secondary_tensor; the coordinator says when.
#include <algorithm>

#include "base/check.hpp"
#include "runtime/engine/rank_engine.hpp"
#include "runtime/engine/tensor_ops.hpp"

namespace zeroplan::runtime {

// What of a piece is no padding.
Elements RankEngine::real_piece(std::int32_t p, bool second, int rank) const {
  const Elements size = piece(p, second);
  return std::clamp(numel(p) - size * rank, Elements::zero(), size);
}

// From where the weights come, as all that stays.
void RankEngine::make_secondary_partitions() {
  if (groups_.second() == nullptr) return;
  const int rank = groups_.second()->rank();
  secondary_partitions_.resize(parameters_.size());
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].name != BufferName::ds_secondary_tensor) continue;
    const auto p = static_cast<std::int32_t>(buffers_[i].index);
    secondary_partitions_[static_cast<std::size_t>(p)] = i;
    held_[i] = allocate(buffers_[i]);
    const Elements first = piece(p, true) * rank;
    const Elements real = real_piece(p, true, rank);
    fill_weights(p, first, held_[i].data(), config_.model_dtype, real);
  }
}

// A gathered weight is about to be released.
void RankEngine::keep_secondary_partition(const FetchEvent& event) {
  const std::int32_t p = event.subject;
  Buffer& copy = held_[secondary_partitions_[static_cast<std::size_t>(p)]];
  if (!copy) copy = allocate(buffers_[secondary_partitions_[static_cast<std::size_t>(p)]]);
  const int rank = groups_.second()->rank();
  const std::byte* whole = gathered_[static_cast<std::size_t>(p)].data;
  const DType dtype = config_.model_dtype;
  device_.convert(advance(const_cast<std::byte*>(whole), piece(p, true) * rank, dtype),
                  dtype,
                  copy.data(),
                  dtype,
                  real_piece(p, true, rank));
}

// After an update: what is trained is out of date.
void RankEngine::drop_secondary_partitions() {
  for (std::size_t p = 0; p < secondary_partitions_.size(); ++p) {
    if (parameters_[p].trainable) held_[secondary_partitions_[p]].reset();
  }
}

std::byte* RankEngine::secondary_partition(std::int32_t parameter) const {
  const Buffer& copy = held_[secondary_partitions_[static_cast<std::size_t>(parameter)]];
  ZP_CHECK(static_cast<bool>(copy), "a secondary partition is gathered that is out of date");
  return copy.data();
}

// To the device, where it may be already.
void RankEngine::copy_own_piece(std::int32_t parameter, bool second, DType dtype, std::byte* to) {
  if (!second) {
    copy_own_part(parameter, dtype, to);
    return;
  }
  device_.convert(secondary_partition(parameter), dtype, to, dtype, piece(parameter, true));
}

}  // namespace zeroplan::runtime
