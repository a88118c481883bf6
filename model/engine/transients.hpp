// Memory of an engine that no buffer of buffers.hpp describes because it lives for a moment: while
// the engine is built, inside one bucket's reduction, inside the step, while saving.
//
// Load and initialisation peaks are absolute, because what is resident later is not there yet; the
// others come on top of engine_buffers(). Activations, gathered weights and fresh gradients are not
// in here. Sources: the files named at each function.
#pragma once

#include <span>

#include "base/units.hpp"
#include "model/engine/engine_action.hpp"
#include "model/engine/engine_config.hpp"

namespace zeroplan {

struct HostAndGpu {
  Bytes gpu;
  Bytes host_pageable;
  Bytes host_pinned;  // as allocated
};

// Building the module and moving it to the GPU, before deepspeed.initialize partitions anything.
// Without zero.Init every rank holds the whole model on the GPU, at every stage (engine.py
// _configure_distributed_model); where it was until then predict/host_memory.hpp says. With
// zero.Init a rank holds its partitions and the module under construction
// (partition_parameters.py Init._post_init_method). `largest_module`: the most elements that one
// module has directly.
HostAndGpu load_peak(const EngineConfig& config,
                     std::span<const EngineParameter> parameters,
                     Elements largest_module);

// deepspeed.initialize: flattening beside the originals, clones of master partitions, the first
// optimizer step of the fp16 wrappers, gathers of create_reduce_and_remove_grad_hooks.
// `gpu_room`: what the GPU has for tensors; a group that does not fit twice is flattened on the
// host.
HostAndGpu initialization_peak(const EngineConfig& config,
                               std::span<const EngineParameter> parameters,
                               Bytes gpu_room = Bytes::infinite());

// Most bytes on the GPU that the reductions in `actions` (GradientReducer) make beside buckets and
// gradients: flat copies, concatenations, casts, scans.
Bytes reduction_peak(const EngineConfig& config, const EngineActions& actions);

// Most bytes on the GPU that Muon's updates at the end of `actions` make, one after the other: each
// stays, with what the iteration at hand takes.
Bytes orthogonalization_peak(const EngineConfig& config, const EngineActions& actions);

// Largest sum of temporaries on the GPU during the step: scans and norms, then group by group flat
// gradient, fp32 gradient, the optimizer's own; on the host the cast weights of stage 3.
HostAndGpu step_temporaries(const EngineConfig& config,
                            std::span<const EngineParameter> parameters);

// Saving 16-bit weights gathers one module's parameters on the GPU; rank 0 collects the whole model
// on the host (engine.py _zero3_consolidated_16bit_state_dict). Stages 0 to 2 copy the module's
// state dict on rank 0.
HostAndGpu save_peak(const EngineConfig& config,
                     std::span<const EngineParameter> parameters,
                     Elements largest_module);

// Stages 1 and 2: does every group fit twice while the module is on the GPU? Since 0.18.7 (#7828)
// the engine asks the free memory before it flattens there; until then groups were flattened on the
// host (stage_1_and_2.py of v0.12.6 to v0.17.6).
bool flattens_on_gpu(const EngineConfig& config,
                     std::span<const EngineParameter> parameters,
                     Bytes gpu_room);

}  // namespace zeroplan
