// Sizes of an engine's buffers and temporaries, worked out by hand from the rules that
// buffers_*.cpp, swapping.hpp and transients.hpp state with their sources.
#include "model/engine/buffers.hpp"

#include <vector>

#include "model/engine/gradient_buckets.hpp"
#include "model/engine/optimizer_states.hpp"
#include "model/engine/swapping.hpp"
#include "model/engine/transients.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

std::vector<EngineParameter> sized(std::initializer_list<std::int64_t> numels) {
  std::vector<EngineParameter> parameters;
  for (std::int64_t numel : numels) parameters.push_back({.numel = Elements::of(numel)});
  return parameters;
}

EngineConfig zero(int stage, int ranks) {
  EngineConfig config;
  config.stage = stage;
  config.data_parallel_ranks = ranks;
  config.reduce_bucket = Elements::of(1000);
  config.overlap_comm = stage == 3;
  config.stage3.parameter_persistence_threshold = Elements::zero();
  return config;
}

Bytes at(const EngineConfig& config,
         const std::vector<EngineParameter>& parameters,
         BufferPlace place,
         EngineMoment moment) {
  return bytes_at(
      engine_buffers(config, parameters), place, moment, config.gradient_accumulation_steps);
}

Bytes gpu(const EngineConfig& config,
          const std::vector<EngineParameter>& parameters,
          EngineMoment moment = EngineMoment::after_step) {
  return at(config, parameters, BufferPlace::gpu, moment);
}

// Bytes of the buffers with that path, whatever their lifetime.
Bytes named(const EngineConfig& config,
            const std::vector<EngineParameter>& parameters,
            std::string_view name) {
  Bytes sum;
  for (const EngineBuffer& buffer : engine_buffers(config, parameters)) {
    if (path(buffer) == name) sum += buffer.bytes;
  }
  return sum;
}

}  // namespace

TEST_CASE("between steps stages 0 to 3 hold what the memory table says") {
  const auto p = sized({6000, 2000});  // P = 8000
  CHECK(gpu(zero(0, 4), p) == Bytes::of((2 + 4 + 8) * 8000));
  CHECK(gpu(zero(1, 4), p) == Bytes::of(2 * 8000 + 12 * 2000));
  CHECK(gpu(zero(2, 4), p) == Bytes::of(2 * 8000 + 12 * 2000));
  // 2 + 12 bytes, 2 for the gradient buffer, and the permanent bucket.
  CHECK(gpu(zero(3, 4), p) == Bytes::of((2 + 12 + 2) * 2000 + 2 * 1000));
}

TEST_CASE("Adam states appear with the first step, not at initialisation") {
  const auto p = sized({8000});
  CHECK(gpu(zero(2, 4), p, EngineMoment::initialised) == Bytes::of(2 * 8000 + 4 * 2000));
  CHECK(gpu(zero(2, 4), p) - gpu(zero(2, 4), p, EngineMoment::initialised) == Bytes::of(8 * 2000));
}

TEST_CASE("BF16_Optimizer keeps fp32 gradients of the whole model") {
  EngineConfig config = zero(1, 4);
  config.gradient_accumulation_dtype = DType::fp32;
  CHECK(gpu(config, sized({8000})) == Bytes::of(2 * 8000 + 4 * 8000 + 12 * 2000));
}

TEST_CASE("owned gradients count parameters cut by the partition's border whole") {
  EngineConfig config = zero(2, 4);
  config.rank = 1;
  const auto p = sized({3000, 5000});  // the partition of rank 1: 1000 of the first and 1000
  CHECK(named(config, p, "averaged_gradients[0][0]") == Bytes::of(2 * 8000));
  config.rank = 3;
  CHECK(named(config, p, "averaged_gradients[0][0]") == Bytes::of(2 * 5000));
}

TEST_CASE("stage 2 needs a second gradient storage in later micro-steps") {
  EngineConfig config = zero(2, 1);
  CHECK(named(config, sized({500}), "grads_in_partition") == Bytes::zero());
  config.gradient_accumulation_steps = 2;
  CHECK(named(config, sized({500}), "grads_in_partition") == Bytes::of(1000));
}

TEST_CASE("overlap doubles the reduce bucket of stages 1 and 2 and not that of stage 3") {
  const auto p = sized({8000});
  const auto buckets = [&](const EngineConfig& config) {
    return named(config, p, "ipg_buckets[dtype].buffer[0]") +
           named(config, p, "ipg_buckets[dtype].buffer[1]") +
           named(config, p, "ipg_buckets[dtype].buffer");
  };
  EngineConfig config = zero(2, 4);
  CHECK(buckets(config) == Bytes::of(2000));
  config.overlap_comm = true;
  CHECK(buckets(config) == Bytes::of(4000));
  CHECK(buckets(zero(3, 4)) == Bytes::of(2000));
}

TEST_CASE("the bucket of stage 3 has the communication dtype, before 0.17 the model's") {
  EngineConfig config = zero(3, 4);
  config.communication_dtype = DType::fp32;
  CHECK(named(config, sized({8000}), "ipg_buckets[dtype].buffer") == Bytes::of(4000));
  config.release = {0, 16};
  CHECK(named(config, sized({8000}), "ipg_buckets[dtype].buffer") == Bytes::of(2000));
}

TEST_CASE("stage 2 offload takes 18 bytes an owned element, 20 with accumulation") {
  EngineConfig config = zero(2, 4);
  config.offload_optimizer.device = OffloadDevice::cpu;
  config.pin_backend = PinBackend::native;
  const auto p = sized({2048, 2048, 2048, 2048});
  const auto host = [&] {
    return at(config, p, BufferPlace::host_pinned, EngineMoment::after_step) +
           at(config, p, BufferPlace::host_pageable, EngineMoment::after_step);
  };
  const Bytes scratch = Bytes::of(2 * 2048);
  CHECK(host() == Bytes::of(18 * 2048) + scratch);
  config.gradient_accumulation_steps = 2;
  CHECK(host() == Bytes::of(20 * 2048) + scratch);
  config.gradient_accumulation_steps = 1;
  config.release = {0, 16};  // without the 16-bit staging buffer
  CHECK(host() == Bytes::of(16 * 2048) + scratch);
}

TEST_CASE("stage 3 offload takes 18 bytes an owned element, 20 with fp32 accumulation") {
  EngineConfig config = zero(3, 4);
  config.offload_optimizer.device = OffloadDevice::cpu;
  config.pin_backend = PinBackend::native;
  const auto p = sized({8192});
  const auto host = [&] {
    return at(config, p, BufferPlace::host_pinned, EngineMoment::after_step) +
           at(config, p, BufferPlace::host_pageable, EngineMoment::after_step);
  };
  CHECK(host() == Bytes::of(18 * 2048));
  CHECK(gpu(config, p) == Bytes::of(2 * 2048 + 2 * 1000));
  config.gradient_accumulation_dtype = DType::fp32;
  CHECK(host() == Bytes::of(20 * 2048));
  config.gradient_accumulation_dtype = DType::bf16;
  config.offload_parameter.device = OffloadDevice::cpu;
  config.offload_parameter.pin_memory = false;
  CHECK(host() == Bytes::of(20 * 2048));
  CHECK(gpu(config, p) == Bytes::of(2 * 1000));
}

TEST_CASE(
    "the offloaded master is pageable in 0.12, pinned in 0.14 and 0.16, by pin_memory in 0.19") {
  EngineConfig config = zero(2, 4);
  config.offload_optimizer.device = OffloadDevice::cpu;
  const auto place = [&](Version release, bool pin) {
    config.release = release;
    config.offload_optimizer.pin_memory = pin;
    for (const EngineBuffer& buffer : engine_buffers(config, sized({8000}))) {
      if (path(buffer) == "single_partition_of_fp32_groups[0]") return buffer.place;
    }
    return BufferPlace::nvme;
  };
  CHECK(place(Version{0, 12}, true) == BufferPlace::host_pageable);
  CHECK(place(Version{0, 14}, false) == BufferPlace::host_pinned);
  CHECK(place(Version{0, 16}, false) == BufferPlace::host_pinned);
  CHECK(place(Version{0, 19}, false) == BufferPlace::host_pageable);
  CHECK(place(Version{0, 19}, true) == BufferPlace::host_pinned);
}

TEST_CASE("before 0.17 BF16_Optimizer's 16-bit gradients outlive the step") {
  EngineConfig config = zero(1, 4);
  config.gradient_accumulation_dtype = DType::fp32;
  const auto p = sized({8000});
  const Bytes now = gpu(config, p);
  config.release = {0, 16};
  CHECK(gpu(config, p) - now == Bytes::of(2 * 8000));
}

TEST_CASE("torch rounds each pinned allocation up to a power of two") {
  CHECK(pinned_allocation(5_GB, PinBackend::torch_caching) == 8_GiB);
  CHECK(pinned_allocation(4_GiB, PinBackend::torch_caching) == 4_GiB);
  CHECK(pinned_allocation(5_GB, PinBackend::native) == 5_GB);
  EngineConfig config = zero(3, 1);
  config.offload_optimizer.device = OffloadDevice::cpu;
  config.stage3.sub_group_size = Elements::of(1000);
  // Two fp32 gradients of 4000 bytes and a buffer of 4000, each alone.
  CHECK(at(config, sized({1000, 1000}), BufferPlace::host_pinned, EngineMoment::initialised) ==
        Bytes::of(3 * 4096));
}

TEST_CASE("a persistent parameter lies on the GPU padded to the ranks, from the first step on") {
  EngineConfig config = zero(3, 4);
  const auto p = sized({8000, 9});
  const Bytes before = gpu(config, p);
  config.stage3.parameter_persistence_threshold = Elements::of(9);
  CHECK(gpu(config, p) - before == Bytes::of(2 * 12));
  CHECK(gpu(config, p, EngineMoment::initialised) == gpu(zero(3, 4), p, EngineMoment::initialised));
}

TEST_CASE("frozen parameters are replicated in stages 1 and 2 and sharded in stage 3") {
  auto p = sized({8000, 4000});
  p[1].trainable = false;
  CHECK(gpu(zero(2, 4), p) - gpu(zero(2, 4), sized({8000})) == Bytes::of(2 * 4000));
  CHECK(gpu(zero(3, 4), p) - gpu(zero(3, 4), sized({8000})) == Bytes::of(2 * 1000));
}

TEST_CASE("hpZ adds a secondary copy of one share of the node") {
  EngineConfig config = zero(3, 16);
  config.stage3.hpz_partition_size = 8;
  const auto p = sized({1600});
  CHECK(gpu(config, p, EngineMoment::before_step) - gpu(config, p) == Bytes::of(2 * 200));
}

TEST_CASE("hpZ's copies of frozen weights outlive the step, which drops those of its groups") {
  EngineConfig config = zero(3, 16);
  auto p = sized({1600, 3200});
  p[1].trainable = false;
  const Bytes without = gpu(config, p);
  const Bytes without_before = gpu(config, p, EngineMoment::before_step);
  config.stage3.hpz_partition_size = 8;
  CHECK(gpu(config, p, EngineMoment::initialised) >= Bytes::of(2 * 400));
  CHECK(gpu(config, p) - without == Bytes::of(2 * 400));
  CHECK(gpu(config, p, EngineMoment::before_step) - without_before == Bytes::of(2 * (200 + 400)));
  // Quantised like their partitions.
  config.stage3.quantized_nontrainable_weights = true;
  CHECK(named(config, p, "ds_secondary_tensor[1]") == Bytes::of(400));
  CHECK(named(config, p, "ds_secondary_tensor[0]") == Bytes::of(2 * 200));
}

TEST_CASE("MiCS shards everything over the shard group only") {
  EngineConfig config = zero(3, 16);
  config.stage3.mics_shard_size = 4;
  CHECK(gpu(config, sized({8000})) == gpu(zero(3, 4), sized({8000})));
}

TEST_CASE("the NVMe optimizer's pool is buffer_count times the largest sub-group") {
  EngineConfig config = zero(3, 2);
  config.offload_optimizer.device = OffloadDevice::nvme;
  config.stage3.sub_group_size = Elements::of(1'000'000'000);
  const auto p = sized({2'000'000'000});
  CHECK(named(config, p, "optimizer_swapper.swap_buffer_manager") == 16_GB);
  CHECK(at(config, p, BufferPlace::nvme, EngineMoment::after_step) >= 12_GB);
  // The gradient buffer stays in host memory.
  CHECK(named(config, p, "grad_partitions_flat_buffer") == 2_GB);
}

TEST_CASE("gradients below one mebibyte stay on the GPU when the optimizer is on NVMe") {
  EngineConfig config = zero(3, 1);
  config.offload_optimizer.device = OffloadDevice::nvme;
  const auto p = sized({1 << 20, (1 << 18) - 1, (1 << 18) + 3});
  const OptimizerSwap swap = optimizer_swap(config, p, sub_groups(config, p));
  // What is left of the third is a view that keeps the storage of all of it.
  CHECK(swap.gradients_on_gpu == Elements::of((1 << 18) - 1 + (1 << 18) + 3));
  CHECK(swap.buffers_needed == 4);
  config.offload_optimizer.pipeline_read = true;
  CHECK(optimizer_swap(config, p, sub_groups(config, p)).buffers_needed == 8);
}

TEST_CASE("the NVMe parameter pool and max_in_cpu take pinned memory at their defaults") {
  EngineConfig config = zero(3, 2);
  config.offload_parameter.device = OffloadDevice::nvme;
  const auto p = sized({3'000'000'000});
  // 5 buffers of 1e8 elements, each rounded up to 512 elements.
  CHECK(named(config, p, "param_swapper.buffers") == Bytes::of(2LL * 5 * 100'000'256));
  CHECK(named(config, p, "param_groups_fp16_flat_cpu_memory[0]") == 2_GB);
  // The write-back staging counts full parameters, not partitions.
  CHECK(named(config, p, "param_swapper.partitioned_swap_buffer") >= 6_GB);
}

TEST_CASE(
    "partitions too small for NVMe stay in host memory, alone where no host buffer holds them") {
  EngineConfig config = zero(3, 2);
  config.offload_parameter.device = OffloadDevice::nvme;
  config.stage3.sub_group_size = Elements::of(1'500'000);
  // Two sub-groups of partitions: 2 M and a thousand elements, then 1 M.
  const auto p = sized({2'000, 4'000'000, 2'000'000});
  config.offload_parameter.max_in_cpu = Elements::of(1'000'000);
  const ParameterSwap none = parameter_swap(config, p, sub_groups(config, p));
  CHECK(none.kept == std::vector<bool>{false, false});
  CHECK(none.swapped == std::vector<bool>{false, true, true});
  CHECK(named(config, p, "small ds_tensor[0]") == Bytes::of(2 * 1'000));
  CHECK(named(config, p, "param_swapper.files") == Bytes::of(2 * 3'000'000));
  config.offload_parameter.max_in_cpu = Elements::of(2'500'000);
  const ParameterSwap first = parameter_swap(config, p, sub_groups(config, p));
  CHECK(first.kept == std::vector<bool>{true, false});
  CHECK(named(config, p, "small ds_tensor[0]") == Bytes::zero());
  // The files stay although they are not read.
  CHECK(named(config, p, "param_swapper.files") == Bytes::of(2 * 3'000'000));
}

TEST_CASE("what is written of a gradient is a multiple of an aligned request") {
  EngineConfig config = zero(3, 1);
  config.aio_parallelism = 2;
  const Elements part = Elements::of(600'000);
  const Elements written = swapped_gradient(part, config);
  CHECK(written == Elements::of(600'000 / 512 * 512));  // 2 x 1024 bytes of fp32
  CHECK(swapped_gradient(Elements::of(262'143), config) == Elements::zero());
  config.aio_block_size = Bytes::mib(4);
  CHECK(swapped_gradient(part, config) == Elements::zero());
}

TEST_CASE("CPU Lion keeps two states, 8-bit Adam two bytes and a scale per 256 elements") {
  EngineConfig config;
  const auto bytes = [&](OptimizerKind kind, std::int64_t numel) {
    Bytes sum;
    for (const OptimizerState& state : optimizer_states(kind, Elements::of(numel))) {
      sum += state_numel(state, Elements::of(numel)) * state_dtype(state, config);
    }
    return sum;
  };
  CHECK(bytes(OptimizerKind::cpu_lion, 256) == Bytes::of(8 * 256));
  CHECK(bytes(OptimizerKind::fused_lion, 256) == Bytes::of(4 * 256));
  CHECK(bytes(OptimizerKind::adamw_8bit, 25600) == Bytes::of(2 * 25600 + 2 * 4 * 100));
  CHECK(bytes(OptimizerKind::adamw_8bit, 4095) == Bytes::of(8 * 4095));
  CHECK(bytes(OptimizerKind::sgd, 256) == Bytes::zero());
}

// stage_1_and_2.py get_flat_partition
TEST_CASE("Muon keeps the momentum of whole matrices, and updates in place of gradients") {
  std::vector<EngineParameter> parameters = sized({400, 600});
  parameters[0].group = 1;
  parameters[1].muon = {1, 30, 20};
  EngineConfig config = zero(2, 2);
  config.optimizer = OptimizerKind::muon;
  const auto bytes = [&](MemoryCategory category, BufferLifetime lifetime) {
    Bytes sum;
    for (const EngineBuffer& buffer : engine_buffers(config, parameters)) {
      if (buffer.category == category && buffer.lifetime == lifetime) sum += buffer.bytes;
    }
    return sum;
  };
  CHECK(bytes(MemoryCategory::optimizer_states, BufferLifetime::first_boundary_on) ==
        Bytes::of(2 * 600));
  // Adam's two states of this rank's 200.
  CHECK(bytes(MemoryCategory::optimizer_states, BufferLifetime::first_step_on) ==
        Bytes::of(8 * 200));
  CHECK(bytes(MemoryCategory::gradients, BufferLifetime::updates_to_step) == Bytes::of(2 * 600));
  // The storage of both stays for Adam's gradient.
  CHECK(bytes(MemoryCategory::gradients, BufferLifetime::boundary_to_step) == Bytes::of(2 * 1000));
  parameters[0].trainable = false;
  CHECK(bytes(MemoryCategory::gradients, BufferLifetime::boundary_to_step) == Bytes::zero());
  CHECK(bytes(MemoryCategory::gradients, BufferLifetime::boundary_backward) == Bytes::of(2 * 600));
}

TEST_CASE("the distinct ranks are first, last, the largest parameter's owners and the heaviest") {
  // Partitions of 1000: the embedding spans ranks 1 to 5.
  const auto p = sized({1500, 4000, 2500});
  CHECK(distinct_ranks(zero(2, 8), p) == std::vector<int>{0, 1, 5, 7});
  CHECK(heaviest_rank(zero(2, 8), p) == 5);
  CHECK(distinct_ranks(zero(3, 8), p) == std::vector<int>{0});
}

TEST_CASE("the step of stage 2 needs a flat gradient and its fp32 copy on top") {
  EngineConfig config = zero(2, 4);
  const auto p = sized({200, 200, 7600});  // rank 0 owns parts of all three
  // The norm's fp64 copy of the largest owned piece (1600); the scan of 0.19.6 needs nothing.
  CHECK(step_temporaries(config, p).gpu == Bytes::of(8 * 1600));
  // Before: fp32 copy, three masks, fp32 mask: 11 bytes each.
  config.release = {0, 18};
  CHECK(step_temporaries(config, p).gpu == Bytes::of(11 * 1600));
  config.check_gradient_overflow = false;
  CHECK(step_temporaries(config, p).gpu == Bytes::of(8 * 1600));
  const auto even = sized({500, 500, 500, 500, 6000});
  CHECK(step_temporaries(config, even).gpu == Bytes::of((2 + 4) * 2000));
}

TEST_CASE("smaller sub-groups bound the temporaries of stage 3's step") {
  EngineConfig config = zero(3, 1);
  const auto p = sized({4000, 4000, 4000, 4000});
  CHECK(step_temporaries(config, p).gpu == Bytes::of((2 + 4) * 16000));
  config.stage3.sub_group_size = Elements::of(8000);
  CHECK(step_temporaries(config, p).gpu == Bytes::of((2 + 4) * 8000));
}

TEST_CASE("a bucket's reduction copies it once in stages 2 and 3, and casts it beside the copy") {
  const auto p = sized({400, 400});
  const auto copies = [&](const EngineConfig& config) {
    GradientReducer reducer(config, p);
    EngineActions actions;
    reducer.begin_backward(config.gradient_accumulation_steps - 1);
    for (int parameter : {1, 0}) reducer.gradient_ready(parameter, actions);
    reducer.end_backward(actions);
    return reduction_peak(config, actions);
  };
  EngineConfig config = zero(2, 4);
  CHECK(copies(config) == Bytes::of(2 * 800));
  config.communication_dtype = DType::fp32;
  CHECK(copies(config) == Bytes::of((2 + 4) * 800));
  config = zero(3, 4);
  CHECK(copies(config) == Bytes::of(2 * 800));
}

TEST_CASE("without zero.Init every rank loads the whole model, with it one module and its share") {
  EngineConfig config = zero(3, 4);
  const auto p = sized({6000, 2000});
  CHECK(load_peak(config, p, Elements::of(6000)).gpu == Bytes::of(2 * 8000));
  config.stage3.zero_init = true;
  CHECK(load_peak(config, p, Elements::of(6000)).gpu == Bytes::of(2 * 6000 + 2 * 2000));
  CHECK(load_peak(config, p, Elements::of(6000)).host_pageable == Bytes::zero());
}

TEST_CASE("flattening on the GPU doubles a group while stage 2 is built") {
  EngineConfig config = zero(2, 4);
  const auto p = sized({8000});
  CHECK(initialization_peak(config, p).gpu == Bytes::of(2 * 2 * 8000));
  config.release = {0, 16};  // flattened on the host
  CHECK(initialization_peak(config, p).gpu == Bytes::of(2 * 8000 + 4 * 2000 + 4 * 2000));
  CHECK(initialization_peak(config, p).host_pageable == Bytes::of(2 * 2 * 8000));
}

TEST_CASE("building stage 3 peaks at the whole model or at its states, whichever is more") {
  EngineConfig config = zero(3, 8);
  config.reduce_bucket = Elements::of(8);
  const auto even = sized({1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000});
  CHECK(initialization_peak(config, even).gpu == Bytes::of(2 * 8000 + 2 * 125));
  config.stage3.zero_init = true;
  const auto p = sized({8000, 800});
  // Weights, master, gradient buffer, bucket; then the largest parameter gathered alone.
  CHECK(initialization_peak(config, p).gpu == Bytes::of((2 + 4 + 2) * 1100 + 2 * 8 + 2 * 8000));
}

TEST_CASE("saving 16-bit weights of stage 3 collects the model on rank 0") {
  EngineConfig config = zero(3, 4);
  const auto p = sized({6000, 2000});
  CHECK(save_peak(config, p, Elements::of(6000)).host_pageable == Bytes::zero());
  config.stage3.gather_16bit_weights_on_save = true;
  CHECK(save_peak(config, p, Elements::of(6000)).gpu == Bytes::of(2 * 6000));
  CHECK(save_peak(config, p, Elements::of(6000)).host_pageable == Bytes::of(2 * 8000));
  config.rank = 1;
  CHECK(save_peak(config, p, Elements::of(6000)).host_pageable == Bytes::zero());
}

}  // namespace zeroplan
