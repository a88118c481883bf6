#include "model/engine/action_work.hpp"

#include <algorithm>

#include "model/engine/optimizer_states.hpp"
#include "model/engine/optimizer_step.hpp"
#include "model/engine/partition.hpp"
#include "model/releases.hpp"

namespace zeroplan {

namespace {

// stage_1_and_2.py _has_inf_or_nan: fp32 copy (where it is not fp32), three masks of one byte, the
// mask as fp32.
Bytes overflow_scan_bytes(Elements elements, DType dtype) {
  const std::int64_t copy = dtype == DType::fp32 ? 0 : width(DType::fp32);
  return elements.times_width(copy + 3 + width(DType::fp32));
}

// stage3.py _constant_buffered_norm2, buffer_size
constexpr Elements kNormPiece = Elements::of(250'000'000);

Bytes norm_copy_bytes(Elements elements) { return elements * DType::fp64; }

Bytes bytes_of(const EngineAction& action) { return action.elements * action.dtype; }

ActionWork kernels(const char* name, Bytes traffic, std::int64_t count = 1, Elements cast = {}) {
  ActionWork work;
  work.kind = WorkKind::kernels;
  work.name = name;
  work.bytes = traffic;
  work.kernels = count;
  work.cast = cast;
  return work;
}

// From one tensor into another of the same type.
ActionWork copied(const char* name, const EngineAction& action, Elements cast = {}) {
  return kernels(name, bytes_of(action) * 2, 1, cast);
}

// The model's numbers are 16-bit or the message's are not: a flat copy of another type casts.
Elements cast_by_flat_copy(const EngineConfig& config, const EngineAction& action) {
  return action.dtype == config.model_dtype ? Elements::zero() : action.elements;
}

// In backward the root is squared again, on the GPU (stage3.py _constant_buffered_norm2).
ActionWork norm(const EngineConfig& config, const EngineAction& action) {
  const Bytes copy = action_temporaries(config, action);
  return kernels("norm", bytes_of(action) + copy * 2, action.in_step ? 3 : 5);
}

// 0.19 reads the gradient twice and makes no fp32 copy.
ActionWork overflow_scan(const EngineConfig& config, const EngineAction& action) {
  const Bytes once = bytes_of(action);
  const bool reduces = config.acts(ReleaseRule::scan_reduces_first);
  const Bytes traffic = reduces ? once * 2 : once + action_temporaries(config, action) * 2;
  return kernels("overflow scan", traffic, overflow_scan_kernels(config));
}

// A pass over host memory. New pages: stage 3 copies its fp32 masters to 16-bit weights on the GPU
// in one call (zero/stage3.py _reassign_or_swap_out_partitioned_parameters), for which torch casts
// on the CPU into a temporary (aten/src/ATen/native/cuda/Copy.cu copy_kernel_cuda, a blocking copy
// of two types). Stages 1 and 2 have a buffer for it since 0.17 and cast on the GPU before.
ActionWork host_pass(const EngineConfig& config, const EngineAction& action) {
  ActionWork work;
  work.kind = WorkKind::host_pass;
  work.bytes = bytes_of(action);
  switch (action.kind) {
    case ActionKind::scale:
      work.name = "scale gradient on the host";
      work.bytes = work.bytes * 2;
      return work;
    case ActionKind::update_weights:
      work.name = "cast weights on the host";
      if (config.stage == 3 && config.offload_parameter.device == OffloadDevice::none) {
        work.new_pages = work.bytes;
      }
      work.bytes += action.elements * config.master_dtype;
      work.cast = action.elements;
      return work;
    default:
      work.name = "scan on the host";
      return work;
  }
}

// Stages 1 and 2: a rank's partition is one stretch of the layers, so that one rank copies at a
// time in backward, unless round_robin_gradients spreads them.
ActionWork copy(const EngineConfig& config, const EngineAction& action) {
  ActionWork work;
  work.kind =
      action.kind == ActionKind::copy_to_host ? WorkKind::copy_to_host : WorkKind::copy_to_device;
  work.bytes = bytes_of(action);
  work.copies_alone = !action.in_step && config.stage < 3 && !config.round_robin_gradients;
  return work;
}

ActionWork transfer(const EngineAction& action) {
  ActionWork work;
  work.bytes = bytes_of(action);
  if (work.bytes == Bytes::zero()) return work;  // nothing but a wait
  work.kind = action.kind == ActionKind::swap_in ? WorkKind::nvme_read : WorkKind::nvme_write;
  return work;
}

ActionWork update(const EngineAction& action) {
  ActionWork work;
  work.kind = action.on_host ? WorkKind::cpu_update : WorkKind::gpu_update;
  if (action.matrices.any()) work.kind = WorkKind::muon_addition;
  work.updated = action.elements;
  return work;
}

ActionWork orthogonalized(const EngineAction& action) {
  ActionWork work;
  work.kind = WorkKind::muon_update;
  work.matrices = action.matrices;
  return work;
}

// Of the type that autograd makes, or of another; nothing where it stays what autograd made.
ActionWork accumulate(const EngineConfig& config, const EngineAction& action) {
  const Bytes own = action.elements * config.model_dtype;
  if (action.pieces > 0) return kernels("add gradient", own + bytes_of(action) * 2);
  if (action.dtype == config.model_dtype) return {};
  return kernels("cast gradient", own + bytes_of(action));
}

// A sum of another type is cast first.
ActionWork insert(const EngineConfig& config, const EngineAction& action) {
  const Bytes own = action.elements * config.model_dtype;
  if (!action.keeps_source) return kernels("copy gradient", own + bytes_of(action));
  const Bytes sum = action.elements * config.gradient_accumulation_dtype;
  return kernels("cast gradient", sum + own * 3, 2);
}

// What the GPU itself does with tensors.
ActionWork on_gpu(const EngineConfig& config, const EngineAction& action) {
  const Bytes bytes = bytes_of(action);
  switch (action.kind) {
    case ActionKind::accumulate_gradient:
      return accumulate(config, action);
    case ActionKind::insert_gradient:
      return insert(config, action);
    case ActionKind::add_to_master_gradient:  // hp += lp.to(fp32)
      return kernels("accumulate gradient", action.elements * config.model_dtype + bytes * 4, 2);
    case ActionKind::flatten:
    case ActionKind::concatenate:
      return copied("flatten", action, cast_by_flat_copy(config, action));
    case ActionKind::cast:
      return copied("cast", action, action.elements);
    case ActionKind::divide:
      return copied("divide gradients", action);
    case ActionKind::copy_back:
      return copied("copy back", action);
    case ActionKind::keep_owned:
      return copied("keep gradient", action);
    case ActionKind::keep_partitions:  // parameter by parameter (stage3.py partition_grads)
      return kernels("keep partitions",
                     bytes * (action.pieces == 0 ? 2 : 3),
                     std::max<std::int64_t>(1, action.member_count));
    case ActionKind::accumulate_on_host:  // the sum comes to the GPU and goes back
      return action.pieces == 0 ? ActionWork() : kernels("add gradient", bytes * 3);
    case ActionKind::gradient_to_master:
      return copied("cast gradient", action, action.elements);
    case ActionKind::norm:
      return norm(config, action);
    case ActionKind::overflow_scan:
      return overflow_scan(config, action);
    case ActionKind::scale:
      return copied("scale gradient", action);
    case ActionKind::update_weights:
      return kernels(
          "update weights", bytes + action.elements * config.master_dtype, 1, action.elements);
    default:
      return {};
  }
}

}  // namespace

ActionWork action_work(const EngineConfig& config, const EngineAction& action) {
  switch (action.kind) {
    case ActionKind::optimizer_step:
      return update(action);
    case ActionKind::orthogonalize:
      return orthogonalized(action);
    case ActionKind::copy_to_host:
    case ActionKind::copy_to_device:
      return copy(config, action);
    case ActionKind::swap_in:
    case ActionKind::swap_out:
    case ActionKind::swap_out_weights:
      return transfer(action);
    default:
      return action.on_host ? host_pass(config, action) : on_gpu(config, action);
  }
}

Bytes action_temporaries(const EngineConfig& config, const EngineAction& action) {
  if (action.on_host) return Bytes::zero();
  if (config.embedded && action.kind != ActionKind::gradient_to_master) return Bytes::zero();
  switch (action.kind) {
    case ActionKind::norm:
      // Stage 0 takes norms of the tensors themselves; stage 3 goes piece by piece
      // (stage3.py _constant_buffered_norm2).
      if (config.stage == 0) return Bytes::zero();
      if (optimizer_wrapper(config) == OptimizerWrapper::bf16_optimizer) {
        // runtime/utils.py get_global_norm_of_tensors: t.float(), which copies no fp32.
        return action.dtype == DType::fp32 ? Bytes::zero() : action.elements * DType::fp32;
      }
      return norm_copy_bytes(config.stage == 3 ? std::min(action.elements, kNormPiece)
                                               : action.elements);
    case ActionKind::overflow_scan:
      // Stage 3: isinf(...).any(), which compares absolute values: a copy and one mask. Stages 0 to
      // 2 up to 0.18: x.float().sum() (runtime/utils.py CheckOverflow._has_inf_or_nan), and
      // overflow_scan_bytes. 0.19.6 reduces first (runtime/utils.py has_inf_or_nan).
      if (config.stage == 3) return action.elements.times_width(1 + width(action.dtype));
      if (config.acts(ReleaseRule::scan_reduces_first)) return Bytes::zero();
      if (config.stage == 0) return action.elements * DType::fp32;
      return overflow_scan_bytes(action.elements, action.dtype);
    case ActionKind::optimizer_step:
      return action.elements * action.dtype *
             update_temporaries(config.optimizer, config.optimizer_implementation);
    case ActionKind::gradient_to_master:
      return action.elements * action.dtype;
    default:
      return Bytes::zero();
  }
}

}  // namespace zeroplan
