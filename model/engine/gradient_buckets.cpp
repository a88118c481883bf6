#include "model/engine/gradient_buckets.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "model/releases.hpp"

namespace zeroplan {

namespace {

// engine.py MEMORY_OPT_ALLREDUCE_SIZE: bucket of stage 0, whatever reduce_bucket_size says.
constexpr Elements kDenseBucket = Elements::of(500'000'000);

// The rank is the one whose products of Muon's updates take longest.
std::vector<OwnedSlice> owned_by_busiest(const EngineConfig& config,
                                         std::span<const EngineParameter> parameters,
                                         const FlatPartition& partition) {
  std::vector<OwnedSlice> busiest;
  double most = -1.0;
  for (int rank = 0; rank < partition.ranks; ++rank) {
    std::vector<OwnedSlice> owned = owned_slices(partition, rank);
    double work = 0.0;
    for (const OwnedSlice& slice : owned) {
      const MuonMatrices& matrices = parameters[static_cast<std::size_t>(slice.parameter)].muon;
      if (!matrices.any()) continue;
      const NewtonSchulzProducts products = newton_schulz_products(matrices, config.newton_schulz);
      const auto n = static_cast<double>(products.n);
      work += static_cast<double>(matrices.count) * n * n *
              (static_cast<double>(products.wide * products.m) +
               static_cast<double>(products.square) * n);
    }
    if (work <= most) continue;
    most = work;
    busiest = std::move(owned);
  }
  return busiest;
}

}  // namespace

bool makes_buckets_before_backward(const EngineConfig& config) {
  return optimizer_wrapper(config) == OptimizerWrapper::zero12 && !config.embedded &&
         !config.pipeline && !config.acts(ReleaseRule::makes_buckets_on_demand);
}

GradientReducer::GradientReducer(const EngineConfig& config,
                                 std::span<const EngineParameter> parameters)
    : config_(config),
      parameters_(parameters.begin(), parameters.end()),
      wrapper_(optimizer_wrapper(config)) {
  if (wrapper_ == OptimizerWrapper::zero12 || wrapper_ == OptimizerWrapper::bf16_optimizer) {
    partition_ = flat_partition(config_, parameters_);
    owned_ = owned_slices(partition_, partition_rank(config_));
    slice_of_.assign(parameters_.size(), -1);
    for (std::size_t i = 0; i < owned_.size(); ++i) {
      slice_of_[static_cast<std::size_t>(owned_[i].parameter)] = static_cast<int>(i);
    }
  }
  if (config_.optimizer == OptimizerKind::muon && wrapper_ == OptimizerWrapper::zero12) {
    of_busiest_ = owned_by_busiest(config_, parameters_, partition_);
  }
  if (config_.overlap_comm && !config_.pipeline && has_zero_wrapper(config_)) {
    reduce_stream_ = EngineStream::reduce;
  }
  if (config_.stage != 3 || config_.offload_optimizer.device != OffloadDevice::nvme) return;
  const std::vector<SubGroup> groups = sub_groups(config_, parameters_);
  const OptimizerSwap swap = optimizer_swap(config_, parameters_, groups);
  gradient_batches_.emplace(swap.buffer, swap.buffers);
  swapped_group_.assign(parameters_.size(), -1);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (!swap.swapped[g]) continue;
    for (const int p : groups[g].parameters) {
      swapped_group_[static_cast<std::size_t>(p)] = static_cast<int>(g);
    }
  }
}

bool GradientReducer::contiguous() const {
  // stage_1_and_2.py: offload requires contiguous gradients. Stage 3 does as it is told.
  return config_.contiguous_gradients || (config_.stage < 3 && offloads());
}

Bytes GradientReducer::moved_into_bucket(Bytes waiting) const {
  // A sum of another type stays until the window's end.
  const bool moves = wrapper_ == OptimizerWrapper::zero12 && !reduces_in_hooks(micro_step_) &&
                     !separate_accumulation();
  return moves ? std::min(config_.reduce_bucket * config_.model_dtype, waiting) : Bytes::zero();
}

bool GradientReducer::reduces_in_hooks(int micro_step) const {
  const bool boundary = micro_step == config_.gradient_accumulation_steps - 1;
  switch (wrapper_) {
    case OptimizerWrapper::zero12:
      // process_gradients, reduce_ready_partitions_and_remove_grads.
      return config_.stage == 2 || (reduce_stream_ == EngineStream::reduce && boundary);
    case OptimizerWrapper::zero3:
    case OptimizerWrapper::mics:
      return true;
    default:
      return false;
  }
}

EngineAction GradientReducer::action(ActionKind kind, EngineStream stream) const {
  EngineAction result;
  result.kind = kind;
  result.stream = stream;
  return result;
}

// Gradients are divided by the ranks before they are reduced (coalesced_collectives.py
// reduce_scatter_coalesced "pre-divide", stage_1_and_2.py average_tensor, engine.py
// allreduce_bucket); the embedded runtime multiplies the sum.
void GradientReducer::collective(CollectiveKind kind,
                                 Elements elements,
                                 DType dtype,
                                 EngineActions& out) const {
  EngineAction result = action(ActionKind::divide, reduce_stream_);
  result.elements = elements;
  result.dtype = dtype;
  if (!config_.embedded) out.actions.push_back(result);
  result.kind = ActionKind::collective;
  result.collective.kind = kind;
  result.collective.ranks = partition_ranks(config_);
  out.actions.push_back(result);
}

void GradientReducer::copy_back(Elements elements, DType dtype, EngineActions& out) const {
  EngineAction result = action(ActionKind::copy_back, reduce_stream_);
  result.elements = elements;
  result.dtype = dtype;
  out.actions.push_back(result);
}

void GradientReducer::flush_event(EngineActions& out) {
  EngineAction result = action(ActionKind::flush, reduce_stream_);
  result.elements = bucket_elements_;
  result.first_member = static_cast<std::int64_t>(out.members.size());
  result.member_count = static_cast<std::int64_t>(bucket_.size());
  out.members.insert(out.members.end(), bucket_.begin(), bucket_.end());
  out.actions.push_back(result);
  if (config_.stage < 3) drop_flushed(out);  // of the flush before
  for (std::size_t i = 0; i < bucket_.size(); ++i) {
    if (outside_buffer_[i]) flushed_.push_back(bucket_[i]);
  }
}

void GradientReducer::clear_bucket() {
  bucket_.clear();
  outside_buffer_.clear();
  bucket_elements_ = Elements::zero();
}

void GradientReducer::begin_backward(int micro_step) {
  ZP_CHECK(bucket_.empty(), "the last backward was not ended");
  micro_step_ = micro_step;
  if (micro_step == 0 || arrived_.empty()) arrived_.assign(parameters_.size(), false);
}

bool GradientReducer::separate_accumulation() const {
  return wrapper_ == OptimizerWrapper::zero12 &&
         config_.gradient_accumulation_dtype != config_.model_dtype;
}

// Until the boundary: the first micro-step's gradient stays where autograd made it, later ones are
// added to it. Stage 1 with another accumulation dtype keeps a sum of its own.
void GradientReducer::accumulate(int parameter, bool first, EngineActions& out) const {
  EngineAction result = action(ActionKind::accumulate_gradient, EngineStream::compute);
  result.parameter = parameter;
  result.pieces = first ? 0 : 1;
  result.elements = numel_of(parameter);
  result.dtype =
      separate_accumulation() ? config_.gradient_accumulation_dtype : config_.model_dtype;
  out.actions.push_back(result);
}

// Stages 1 and 2 copy on the compute stream (stage_1_and_2.py
// reduce_independent_p_g_buckets_and_remove_grads), stage 3 on the reduce stream (stage3.py
// __add_grad_to_ipg_bucket).
void GradientReducer::join_bucket(int parameter, bool from_sum, EngineActions& out) {
  EngineAction result = action(ActionKind::insert_gradient,
                               config_.stage == 3 ? reduce_stream_ : EngineStream::compute);
  result.parameter = parameter;
  result.elements = numel_of(parameter);
  result.dtype = config_.stage == 3 ? config_.communication_dtype : config_.model_dtype;
  result.keeps_source = from_sum && separate_accumulation();
  if (!result.keeps_source && (!contiguous() || result.elements > config_.reduce_bucket)) {
    result.dtype = config_.model_dtype;
    result.kind = result.elements > config_.reduce_bucket ? ActionKind::keep_outside
                                                          : ActionKind::list_gradient;
  }
  out.actions.push_back(result);
  const bool outside = result.kind != ActionKind::insert_gradient;
  if (config_.stage < 3 && result.elements == Elements::zero()) {  // nothing to reduce
    if (outside) flushed_.push_back(parameter);
    return;
  }
  bucket_.push_back(parameter);
  outside_buffer_.push_back(outside);
  bucket_elements_ += result.elements;
}

void GradientReducer::gradient_ready(int parameter, EngineActions& out) {
  const bool first = !arrived_[static_cast<std::size_t>(parameter)];
  arrived_[static_cast<std::size_t>(parameter)] = true;
  if (!reduces_in_hooks(micro_step_)) {
    accumulate(parameter, first, out);
  } else if (wrapper_ == OptimizerWrapper::zero12) {
    // Stage 1 with overlap: what earlier micro-steps left is reduced with it.
    add_zero12(parameter, config_.stage == 1 && !first, out);
    if (clears_list_at_once()) drop_flushed(out);
  } else {
    add_zero3(parameter, out);
  }
}

void GradientReducer::end_backward(EngineActions& out) {
  switch (wrapper_) {
    case OptimizerWrapper::zero12:
      end_zero12(out);
      return;
    case OptimizerWrapper::zero3:
    case OptimizerWrapper::mics:
      flush_zero3(out);
      out.actions.push_back(action(ActionKind::host_wait_stream, reduce_stream_));
      // The engine does it at the step's first swap-in, with nothing but norms in between.
      if (gradient_batches_ && at_boundary()) write_gradients(gradient_batches_->flush(), out);
      return;
    default:
      if (wrapper_ == OptimizerWrapper::bf16_optimizer) add_to_master_gradients(out);
      if (at_boundary()) end_dense(out);
  }
}

// ---- gradients in their own storage ----

void GradientReducer::drop(std::span<const int> gradients, EngineActions& out) const {
  if (gradients.empty()) return;
  EngineAction result = action(ActionKind::drop_gradients, reduce_stream_);
  result.first_member = static_cast<std::int64_t>(out.members.size());
  result.member_count = static_cast<std::int64_t>(gradients.size());
  out.members.insert(out.members.end(), gradients.begin(), gradients.end());
  out.actions.push_back(result);
}

// With overlap and without a bucket's buffer the next reduction clears the list
// (stage_1_and_2.py _clear_previous_reduced_grads).
bool GradientReducer::clears_list_at_once() const {
  return !config_.overlap_comm || contiguous() || config_.embedded;
}

// The bucket's list lets go of them at the end of the flush (stage_1_and_2.py reduce_ipg_grads),
// and stage 2 of param.grad. Stage 1 clears that once the backward pass is over (zero_grad), and
// without a bucket's buffer what the rank owns stays for the step.
void GradientReducer::drop_flushed(EngineActions& out) {
  if (flushed_.empty() || (config_.stage == 1 && !config_.embedded)) return;
  const auto goes = std::stable_partition(flushed_.begin(), flushed_.end(), [&](int parameter) {
    return !contiguous() && owns(parameter);
  });
  const auto kept = static_cast<std::size_t>(goes - flushed_.begin());
  drop(std::span(flushed_).subspan(kept), out);
  flushed_.erase(goes, flushed_.end());
}

// copy_grads_in_partition: the gradient's data is now the copy's.
void GradientReducer::drop_kept(int parameter, EngineActions& out) {
  if (config_.embedded || offloads()) return;
  const auto found = std::find(flushed_.begin(), flushed_.end(), parameter);
  if (found == flushed_.end()) return;
  const auto at = static_cast<std::size_t>(found - flushed_.begin());
  drop(std::span(flushed_).subspan(at, 1), out);
  flushed_.erase(found);
}

void GradientReducer::drop_all(EngineActions& out) {
  drop(flushed_, out);
  flushed_.clear();
}

// ---- stage 0 and BF16_Optimizer ----

// bf16_optimizer.py update_hp_grads: hp += lp.to(fp32), one parameter after the other.
void GradientReducer::add_to_master_gradients(EngineActions& out) const {
  EngineAction add = action(ActionKind::add_to_master_gradient, EngineStream::compute);
  add.dtype = config_.gradient_accumulation_dtype;
  for (std::size_t p = 0; p < arrived_.size(); ++p) {
    if (!arrived_[p]) continue;
    add.parameter = static_cast<int>(p);
    add.elements = parameters_[p].numel;
    out.actions.push_back(add);
  }
}

// engine.py _get_gradients_for_reduction: every trainable parameter in order, unused ones as zeros.
// BF16_Optimizer hands over its fp32 gradient buffers instead, one tensor per group.
void GradientReducer::end_dense(EngineActions& out) {
  std::vector<Elements> tensors;
  DType dtype = config_.model_dtype;
  if (wrapper_ == OptimizerWrapper::bf16_optimizer) {
    for (const FlatGroup& group : partition_.groups) tensors.push_back(group.aligned);
    dtype = config_.gradient_accumulation_dtype;
  } else {
    for (const EngineParameter& parameter : parameters_) {
      if (parameter.trainable && parameter.numel != Elements::zero()) {
        tensors.push_back(parameter.numel);
      }
    }
  }
  std::size_t first = 0;
  Elements sum;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    sum += tensors[i];
    if (sum > kDenseBucket || i + 1 == tensors.size()) {
      reduce_dense(std::span<const Elements>(tensors).subspan(first, i + 1 - first), dtype, out);
      first = i + 1;
      sum = Elements::zero();
    }
  }
}

// engine.py allreduce_bucket: flatten (a view where it is one tensor), cast, all-reduce, copy back.
void GradientReducer::reduce_dense(std::span<const Elements> tensors,
                                   DType dtype,
                                   EngineActions& out) {
  Elements sum;
  for (Elements tensor : tensors) sum += tensor;
  if (tensors.size() > 1) {
    EngineAction copy = action(ActionKind::flatten, EngineStream::compute);
    copy.pieces = static_cast<int>(tensors.size());
    copy.elements = sum;
    copy.dtype = dtype;
    out.actions.push_back(copy);
  }
  if (dtype != config_.communication_dtype) {
    EngineAction cast = action(ActionKind::cast, EngineStream::compute);
    cast.elements = sum;
    cast.dtype = config_.communication_dtype;
    out.actions.push_back(cast);
  }
  collective(CollectiveKind::all_reduce, sum, config_.communication_dtype, out);
  if (tensors.size() > 1 || dtype != config_.communication_dtype) {
    copy_back(sum, config_.communication_dtype, out);
  }
}

}  // namespace zeroplan
