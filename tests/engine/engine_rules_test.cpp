// Rules of partitions, buckets and the step as sentences, on sizes worked out by hand from the
// DeepSpeed sources that the policies name.
#include <string>
#include <vector>

#include "model/engine/gradient_buckets.hpp"
#include "model/engine/optimizer_step.hpp"
#include "model/engine/partition.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

std::vector<EngineParameter> sized(std::initializer_list<std::int64_t> numels) {
  std::vector<EngineParameter> parameters;
  for (std::int64_t numel : numels) parameters.push_back({.numel = Elements::of(numel)});
  return parameters;
}

EngineConfig zero(int stage, int ranks, std::int64_t bucket = 1000) {
  EngineConfig config;
  config.stage = stage;
  config.data_parallel_ranks = ranks;
  config.reduce_bucket = Elements::of(bucket);
  config.overlap_comm = stage == 3;
  return config;
}

// Backward of the boundary micro-step: gradients in reverse order.
EngineActions backward(const EngineConfig& config,
                       const std::vector<EngineParameter>& parameters,
                       bool for_slowest_owner = false) {
  GradientReducer reducer(config, parameters);
  if (for_slowest_owner) reducer.keep_for_slowest_owner();
  EngineActions actions;
  reducer.begin_backward(config.gradient_accumulation_steps - 1);
  for (std::size_t i = parameters.size(); i-- > 0;) {
    if (parameters[i].trainable) reducer.gradient_ready(static_cast<int>(i), actions);
  }
  reducer.end_backward(actions);
  return actions;
}

std::vector<std::int64_t> sizes(const EngineActions& actions, ActionKind kind) {
  std::vector<std::int64_t> result;
  for (const EngineAction& action : actions.actions) {
    if (action.kind == kind) result.push_back(action.elements.count());
  }
  return result;
}

std::vector<std::int64_t> collectives(const EngineActions& actions, CollectiveKind kind) {
  std::vector<std::int64_t> result;
  for (const EngineAction& action : actions.actions) {
    if (action.kind == ActionKind::collective && action.collective.kind == kind) {
      result.push_back(action.elements.count());
    }
  }
  return result;
}

EngineActions step(const EngineConfig& config, const std::vector<EngineParameter>& parameters) {
  EngineActions actions;
  optimizer_step(config, parameters, false, actions);
  return actions;
}

using Sizes = std::vector<std::int64_t>;

// A matrix that Muon updates beside what Adam does: 10 x 6 and 6 x 4 in the first group, the rest
// in the second.
std::vector<EngineParameter> with_muon() {
  std::vector<EngineParameter> parameters = sized({40, 24, 60, 10});
  for (EngineParameter& parameter : parameters) parameter.group = 1;
  parameters[1].group = parameters[2].group = 0;
  parameters[1].muon = {1, 6, 4};
  parameters[1].place = 1;
  parameters[2].muon = {1, 10, 6};
  return parameters;
}

EngineConfig muon(int stage, int ranks, std::int64_t bucket = 1000) {
  EngineConfig config = zero(stage, ranks, bucket);
  config.optimizer = OptimizerKind::muon;
  return config;
}

std::vector<int> orthogonalized(const EngineActions& actions) {
  std::vector<int> parameters;
  for (const EngineAction& action : actions.actions) {
    if (action.kind == ActionKind::orthogonalize) parameters.push_back(action.parameter);
  }
  return parameters;
}

}  // namespace

// original_muon.py MuonWithAuxAdam.__init__
TEST_CASE("Muon's group holds the largest matrix first") {
  const FlatPartition partition = flat_partition(muon(2, 2), with_muon());
  REQUIRE(partition.groups.size() == 2);
  CHECK(partition.groups[0].declared == std::vector<int>{2, 1});
  CHECK(partition.groups[1].declared == std::vector<int>{0, 3});
}

// stage_1_and_2.py get_flat_partition
TEST_CASE("a rank orthogonalises each matrix of which it owns a part, whole, at the boundary") {
  EngineConfig config = muon(2, 2);  // 84 elements: rank 0 has 42 of the first
  CHECK(orthogonalized(backward(config, with_muon())) == std::vector<int>{2});
  config.rank = 1;
  const EngineActions actions = backward(config, with_muon());
  CHECK(orthogonalized(actions) == std::vector<int>{2, 1});
  CHECK(sizes(actions, ActionKind::orthogonalize) == Sizes{60, 24});
  // The slowest has both.
  config.rank = 0;
  CHECK(orthogonalized(backward(config, with_muon(), true)) == std::vector<int>{2, 1});
  config.gradient_accumulation_steps = 2;
  GradientReducer reducer(config, with_muon());
  EngineActions first;
  reducer.begin_backward(0);
  for (int i = 3; i >= 0; --i) reducer.gradient_ready(i, first);
  reducer.end_backward(first);
  CHECK(orthogonalized(first).empty());
}

// stage_1_and_2.py average_tensor, muon_copy_ranks
TEST_CASE("what Muon updates on two ranks is reduced for all of them, the rest for its owner") {
  EngineConfig config = muon(2, 2);
  config.use_multi_rank_bucket_allreduce = false;
  const EngineActions actions = backward(config, with_muon());
  CHECK(collectives(actions, CollectiveKind::all_reduce).front() == 60);
  CHECK(collectives(actions, CollectiveKind::reduce) == Sizes{10 + 24 + 14, 26});
}

// muon_optimizer.py step
TEST_CASE("the step adds Muon's update to its group's weights and lets Adam update the others") {
  std::vector<bool> adds;
  for (const EngineAction& action : step(muon(2, 2), with_muon()).actions) {
    if (action.kind == ActionKind::optimizer_step) adds.push_back(action.matrices.any());
  }
  CHECK(adds == std::vector<bool>{true, false});
}

// runtime/zero/stage_1_and_2.py __init__, nccl_start_alignment_factor
TEST_CASE("flat groups are padded to twice the ranks and the padding lies at the end") {
  const FlatPartition partition = flat_partition(zero(2, 4), sized({10, 7}));
  REQUIRE(partition.groups.size() == 1);
  CHECK(partition.groups[0].aligned == Elements::of(24));
  CHECK(partition.groups[0].partition == Elements::of(6));
  CHECK(partition_padding(partition, 0, 1) == Elements::zero());
  CHECK(partition_padding(partition, 0, 2) == Elements::of(1));
  CHECK(partition_padding(partition, 0, 3) == Elements::of(6));
}

// runtime/zero/stage_1_and_2.py get_partition_info
TEST_CASE("a parameter cut by a partition border is owned in parts by its ranks") {
  const FlatPartition partition = flat_partition(zero(2, 4), sized({10, 7}));
  const std::vector<OwnedSlice> second = owned_slices(partition, 1);
  REQUIRE(second.size() == 2);
  CHECK(second[0].parameter == 0);
  CHECK(second[0].start == Elements::of(6));
  CHECK(second[0].numel == Elements::of(4));
  CHECK(second[1].parameter == 1);
  CHECK(second[1].partition_offset == Elements::of(4));
  CHECK(second[1].numel == Elements::of(2));
  CHECK(owned_slices(partition, 3).empty());
  for (const OwnedSlice& slice : owned_slices(partition, 2)) CHECK(slice.parameter != 0);
}

// runtime/zero/stage_1_and_2.py average_tensor
TEST_CASE("neighbouring slices of one owner are one run, also across parameters") {
  const FlatPartition partition = flat_partition(zero(2, 2), sized({3, 3, 6}));
  std::vector<OwnerRun> runs;
  for (int parameter : {2, 1, 0}) append_owner_runs(partition, parameter, runs);
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].owner == 1);
  CHECK(runs[0].numel == Elements::of(6));
  CHECK(runs[1].numel == Elements::of(6));
}

// runtime/zero/stage_1_and_2.py _round_robin_reorder
TEST_CASE("round robin gives consecutive parameters to different ranks") {
  EngineConfig config = zero(2, 2);
  config.round_robin_gradients = true;
  const FlatPartition partition = flat_partition(config, sized({4, 4, 4, 4}));
  CHECK(partition.groups[0].parameters == std::vector<int>{0, 2, 1, 3});
  CHECK(partition.groups[0].declared == std::vector<int>{0, 1, 2, 3});
}

// runtime/zero/stage3.py _create_fp16_sub_groups
TEST_CASE("a sub-group closes with the parameter that reaches its size") {
  EngineConfig config = zero(3, 2);
  config.stage3.sub_group_size = Elements::of(6);
  const auto groups = sub_groups(config, sized({8, 4, 5, 2}));  // partitioned: 4, 2, 3, 1
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].parameters == std::vector<int>{0, 1});
  CHECK(groups[0].numel == Elements::of(6));
  CHECK(groups[1].parameters == std::vector<int>{2, 3});
}

// runtime/zero/stage3.py _create_fp32_partitions
TEST_CASE("the offload ratio counts sub-groups and leaves the first ones on the GPU") {
  EngineConfig config = zero(3, 1);
  config.offload_optimizer.device = OffloadDevice::cpu;
  config.offload_optimizer.ratio = 0.5;
  config.stage3.sub_group_size = Elements::of(4);
  const auto groups = sub_groups(config, sized({4, 4, 4}));
  REQUIRE(groups.size() == 3);
  CHECK_FALSE(groups[0].on_host);
  CHECK(groups[1].on_host);
  CHECK(groups[2].on_host);
  config.stage3.sub_group_size = Elements::of(1'000'000'000);
  CHECK(sub_groups(config, sized({4, 4, 4}))[0].on_host);
}

// runtime/zero/parameter_offload.py mark_persistent_parameters
TEST_CASE(
    "a parameter past the model's persistence limit is passed over, smaller ones still count") {
  EngineConfig config = zero(3, 2);
  config.stage3.parameter_persistence_threshold = Elements::of(10);
  config.stage3.model_persistence_threshold = Elements::of(20);
  CHECK(persistent_parameters(config, sized({10, 11, 9, 5, 1})) == std::vector<int>{0, 2, 4});
}

// runtime/engine.py _do_optimizer_sanity_check
TEST_CASE("the wrapper follows stage, dtypes, offload and release") {
  EngineConfig config = zero(1, 2);
  CHECK(optimizer_wrapper(config) == OptimizerWrapper::zero12);
  config.gradient_accumulation_dtype = DType::fp32;
  CHECK(optimizer_wrapper(config) == OptimizerWrapper::bf16_optimizer);
  config.offload_optimizer.device = OffloadDevice::cpu;
  CHECK(optimizer_wrapper(config) == OptimizerWrapper::zero12);
  config.offload_optimizer.device = OffloadDevice::nvme;  // only device cpu is asked for
  CHECK(optimizer_wrapper(config) == OptimizerWrapper::bf16_optimizer);
  config = zero(0, 2);
  CHECK(optimizer_wrapper(config) == OptimizerWrapper::fp16_fused);
  config.optimizer = OptimizerKind::torch_adam;
  CHECK(optimizer_wrapper(config) == OptimizerWrapper::fp16_unfused);
  config.gradient_accumulation_dtype = DType::fp32;  // the default up to 0.16
  CHECK(optimizer_wrapper(config) == OptimizerWrapper::bf16_optimizer);
  config.model_dtype = DType::fp32;
  CHECK(optimizer_wrapper(config) == OptimizerWrapper::plain);
  config.stage = 3;
  CHECK(optimizer_wrapper(config) == OptimizerWrapper::zero3);
  config.stage3.mics_shard_size = 2;
  CHECK(optimizer_wrapper(config) == OptimizerWrapper::mics);
}

// runtime/zero/stage_1_and_2.py reduce_independent_p_g_buckets_and_remove_grads
TEST_CASE("a bucket may fill exactly and a larger parameter is reduced alone") {
  EngineConfig config = zero(2, 2, 100);
  config.reduce_scatter = false;
  CHECK(sizes(backward(config, sized({150, 60, 40, 30})), ActionKind::flush) == Sizes{70, 60, 150});
  CHECK(sizes(backward(config, sized({1, 60, 40})), ActionKind::flush) == Sizes{100, 1});
}

// runtime/zero/stage_1_and_2.py allreduce_and_scatter
TEST_CASE("stage 2's reduce-scatter is an all-reduce of the bucket behind a flat copy") {
  const EngineActions actions = backward(zero(2, 2, 100), sized({40, 60}));
  CHECK(collectives(actions, CollectiveKind::all_reduce) == Sizes{100});
  CHECK(collectives(actions, CollectiveKind::reduce_scatter).empty());
  CHECK(sizes(actions, ActionKind::flatten) == Sizes{100});
  // One owner in the bucket: reduced in place.
  CHECK(sizes(backward(zero(2, 1, 100), sized({40, 60})), ActionKind::flatten).empty());
}

// runtime/zero/stage_1_and_2.py allreduce_and_scatter: the sum of slices must exceed the bucket
TEST_CASE("behind each bucket the representative rank does what that bucket's slowest owner does") {
  // Two ranks own 300 elements each: parameters 0, 1 and 60 of 2; 40 of 2, and 3, 4.
  const auto parameters = sized({120, 120, 100, 160, 100});
  EngineConfig config = zero(2, 2, /*bucket=*/260);
  for (const bool offloads : {false, true}) {
    if (offloads) config.offload_optimizer.device = OffloadDevice::cpu;
    const EngineActions stand_in = backward(config, parameters, true);
    // Buckets: 4 and 3 (owner 1 alone), 2 and 1 (owner 0 handles 220 elements, owner 1 100), 0.
    CHECK(sizes(stand_in, ActionKind::flush) == std::vector<std::int64_t>{260, 220, 120});
    CHECK(sizes(stand_in, ActionKind::keep_owned) ==
          std::vector<std::int64_t>{100, 160, 100, 120, 120});
    const std::vector<std::int64_t> copied = {100, 160, 60, 120, 120};
    CHECK(sizes(stand_in, ActionKind::copy_to_host) ==
          (offloads ? copied : std::vector<std::int64_t>{}));
    // One rank alone does its own part of that.
    CHECK(sizes(backward(config, parameters), ActionKind::keep_owned) ==
          std::vector<std::int64_t>{100, 120, 120});
  }
}

TEST_CASE("an extra-large parameter is reduced in pieces just above the bucket size") {
  const EngineActions actions = backward(zero(2, 4, 100), sized({400}));
  CHECK(collectives(actions, CollectiveKind::all_reduce) == Sizes{200, 200});
}

// runtime/zero/stage_1_and_2.py average_tensor, allreduce_no_retain
TEST_CASE(
    "without multi-rank buckets each owner gets a reduce, with overlap behind a device sync") {
  EngineConfig config = zero(2, 2, 100);
  config.use_multi_rank_bucket_allreduce = false;
  config.overlap_comm = true;
  const EngineActions actions = backward(config, sized({40, 60}));
  CHECK(collectives(actions, CollectiveKind::reduce) == Sizes{50, 50});
  CHECK(sizes(actions, ActionKind::host_wait_device).size() == 3);  // the last one ends backward
}

// runtime/engine.py allreduce_gradients; stage_1_and_2.py reduce_gradients
TEST_CASE(
    "stage 1 reduces at the boundary only, in parameter order unless communication overlaps") {
  EngineConfig config = zero(1, 2, 10);
  config.gradient_accumulation_steps = 2;
  const std::vector<EngineParameter> parameters = sized({10, 10});
  GradientReducer reducer(config, parameters);
  EngineActions actions;
  reducer.begin_backward(0);
  reducer.gradient_ready(1, actions);
  reducer.gradient_ready(0, actions);
  reducer.end_backward(actions);
  CHECK(actions.actions.size() == 2);
  CHECK(sizes(actions, ActionKind::accumulate_gradient) == Sizes{10, 10});
  CHECK(backward(config, parameters).members == std::vector<int>{0, 1});
  config.overlap_comm = true;
  CHECK(backward(config, parameters).members == std::vector<int>{1, 0});
}

// reduce_independent_p_g_buckets_and_remove_grads, __add_grad_to_ipg_bucket
TEST_CASE("a gradient joins the bucket behind the flush that it causes, a larger one beside it") {
  for (const int stage : {2, 3}) {
    EngineConfig config = zero(stage, 2, 100);
    const EngineActions actions = backward(config, sized({400, 60, 70}));
    CHECK(sizes(actions, ActionKind::insert_gradient) == Sizes{70, 60});
    CHECK(sizes(actions, ActionKind::keep_outside) == Sizes{400});
    std::vector<ActionKind> order;  // of what happens to buckets
    for (const EngineAction& action : actions.actions) {
      if (action.kind == ActionKind::insert_gradient || action.kind == ActionKind::keep_outside ||
          action.kind == ActionKind::flush) {
        order.push_back(action.kind);
      }
    }
    const ActionKind joins = ActionKind::insert_gradient;
    const ActionKind flush = ActionKind::flush;
    CHECK(order ==
          std::vector<ActionKind>{joins, flush, joins, flush, ActionKind::keep_outside, flush});
    config.contiguous_gradients = false;
    const EngineActions listed = backward(config, sized({400, 60, 70}));
    CHECK(sizes(listed, ActionKind::insert_gradient).empty());
    CHECK(sizes(listed, ActionKind::list_gradient) == Sizes{70, 60});
    CHECK(sizes(listed, ActionKind::keep_outside) == Sizes{400});
  }
}

// What happens to gradients that join a bucket in their own storage, and to what is kept of them.
std::vector<std::string> fates(const EngineConfig& config,
                               const std::vector<EngineParameter>& parameters) {
  const EngineActions actions = backward(config, parameters);
  std::vector<std::string> told;
  for (const EngineAction& action : actions.actions) {
    if (action.kind == ActionKind::flush) told.emplace_back("flush");
    if (action.kind == ActionKind::keep_owned) told.emplace_back("keep");
    if (action.kind == ActionKind::make_owned) told.emplace_back("owned");
    if (action.kind == ActionKind::copy_to_host) told.emplace_back("host");
    if (action.kind == ActionKind::record_event) told.emplace_back("event");
    if (action.kind != ActionKind::drop_gradients) continue;
    for (const int parameter : actions.members_of(action)) {
      told.push_back("drop " + std::to_string(parameter));
    }
  }
  return told;
}

// reduce_ipg_grads, copy_grads_in_partition; the first of two ranks owns the first parameter.
TEST_CASE("stage 2 drops a gradient larger than the bucket when its copy is kept, else behind it") {
  using Fates = std::vector<std::string>;
  const std::vector<EngineParameter> parameters = sized({400, 150, 250});
  EngineConfig config = zero(2, 2, 100);
  CHECK(fates(config, parameters) ==
        Fates{"flush", "drop 2", "flush", "drop 1", "flush", "keep", "drop 0", "owned"});
  config.offload_optimizer.device = OffloadDevice::cpu;  // what goes to the host is read from it
  CHECK(fates(config, parameters) ==
        Fates{"flush", "drop 2", "flush", "drop 1", "flush", "keep", "host", "drop 0", "owned"});
}

// zero_grad() after the pass clears stage 1's; what is owned has its storage by then.
TEST_CASE("stage 1 keeps gradients larger than the bucket that others own to the pass's end") {
  EngineConfig config = zero(1, 2, 100);
  config.rank = 1;
  const std::vector<std::string> expected = {
      "flush", "flush", "keep", "drop 1", "flush", "keep", "drop 2", "owned", "drop 0"};
  CHECK(fates(config, sized({400, 150, 250})) == expected);
}

// _clear_previous_reduced_grads
TEST_CASE("without a bucket's buffer what the rank owns stays for the step") {
  using Fates = std::vector<std::string>;
  const std::vector<EngineParameter> parameters = sized({90, 60, 70});  // each rank has 110
  EngineConfig config = zero(2, 2, 100);
  config.contiguous_gradients = false;
  config.rank = 1;
  CHECK(fates(config, parameters) ==
        Fates{"flush", "flush", "flush", "drop 0", "drop 2", "drop 1", "owned"});
  config.rank = 0;
  CHECK(fates(config, parameters) ==
        Fates{"flush", "drop 2", "flush", "flush", "drop 1", "drop 0", "owned"});
  config.overlap_comm = true;  // the next reduction clears the list
  CHECK(fates(config, parameters) ==
        Fates{"flush", "flush", "drop 2", "flush", "drop 1", "drop 0", "owned"});
}

// stage3.py __reduce_and_partition_ipg_grads
TEST_CASE("stage 3 clears a bucket before it records its event") {
  EngineConfig config = zero(3, 2, 100);
  config.contiguous_gradients = false;
  CHECK(fates(config, sized({60, 30, 70})) ==
        std::vector<std::string>{"flush", "drop 2", "drop 1", "event", "flush", "drop 0", "event"});
}

// stage_1_and_2.py get_gradient_for_reduction: grad_accum, cast to the model's type
TEST_CASE("a sum of another type is cast into the bucket and goes when the window ends") {
  EngineConfig config = zero(1, 2);
  config.release = {0, 18, 4};
  config.model_dtype = DType::fp16;
  config.gradient_accumulation_dtype = DType::fp32;
  config.gradient_accumulation_steps = 2;
  const std::vector<EngineParameter> parameters = sized({60, 40});
  GradientReducer reducer(config, parameters);
  EngineActions first;
  reducer.begin_backward(0);
  for (const int p : {1, 0}) reducer.gradient_ready(p, first);
  reducer.end_backward(first);
  for (const EngineAction& action : first.actions) {
    CHECK(action.kind == ActionKind::accumulate_gradient);
    CHECK(action.pieces == 0);
    CHECK(action.dtype == DType::fp32);
  }
  EngineActions last;
  reducer.begin_backward(1);
  for (const int p : {1, 0}) reducer.gradient_ready(p, last);
  reducer.end_backward(last);
  CHECK(sizes(last, ActionKind::release_gradients).size() == 1);
  for (const EngineAction& action : last.actions) {
    if (action.kind == ActionKind::accumulate_gradient) CHECK(action.pieces == 1);
    if (action.kind == ActionKind::insert_gradient) CHECK(action.keeps_source);
  }
}

// bf16_optimizer.py update_hp_grads
TEST_CASE("BF16_Optimizer adds every micro-step's gradients to its fp32 sums") {
  EngineConfig config = zero(0, 2);
  config.gradient_accumulation_dtype = DType::fp32;
  const EngineActions actions = backward(config, sized({60, 40}));
  CHECK(sizes(actions, ActionKind::add_to_master_gradient) == Sizes{60, 40});
}

// runtime/zero/stage_1_and_2.py average_tensor
TEST_CASE("with overlap the compute stream waits for the bucket before, so one is in flight") {
  EngineConfig config = zero(2, 2, 100);
  config.overlap_comm = true;
  const EngineActions actions = backward(config, sized({100}));
  REQUIRE(actions.actions.size() > 4);
  // An empty bucket was flushed before the parameter? No: 0 + 100 is not above 100.
  CHECK(actions.actions[0].kind == ActionKind::gradient_ready);
  CHECK(actions.actions[1].kind == ActionKind::insert_gradient);
  CHECK(actions.actions[2].kind == ActionKind::flush);
  CHECK(actions.actions[3].kind == ActionKind::wait_stream);
  CHECK(actions.actions[3].stream == EngineStream::reduce);
  CHECK(actions.actions[4].stream == EngineStream::compute);
  CHECK(actions.actions[4].other == EngineStream::reduce);
}

// runtime/comm/coalesced_collectives.py reduce_scatter_coalesced
TEST_CASE("stage 3 concatenates padded partitions except for one tensor that divides evenly") {
  CHECK(sizes(backward(zero(3, 4), sized({8})), ActionKind::concatenate).empty());
  const EngineActions odd = backward(zero(3, 4), sized({9, 8}));
  CHECK(sizes(odd, ActionKind::concatenate) == Sizes{20});
  CHECK(collectives(odd, CollectiveKind::reduce_scatter) == Sizes{20});
}

// runtime/zero/stage3.py __reduce_and_partition_ipg_grads
TEST_CASE("stage 3 without reduce_scatter still scatters a parameter above the bucket size") {
  EngineConfig config = zero(3, 4, 100);
  config.reduce_scatter = false;
  const EngineActions actions = backward(config, sized({400, 60}));
  CHECK(collectives(actions, CollectiveKind::all_reduce) == Sizes{60});
  CHECK(collectives(actions, CollectiveKind::reduce_scatter) == Sizes{400});
}

// runtime/zero/stage_1_and_2.py copy_grads_in_partition
TEST_CASE("offload at stage 2 moves gradients back and forth from the second micro-step on") {
  EngineConfig config = zero(2, 1);
  config.offload_optimizer.device = OffloadDevice::cpu;
  CHECK(sizes(backward(config, sized({50})), ActionKind::copy_to_host) == Sizes{50});
  config.gradient_accumulation_steps = 2;
  const EngineActions actions = backward(config, sized({50}));  // the boundary
  CHECK(sizes(actions, ActionKind::copy_to_device) == Sizes{50});
  CHECK(sizes(actions, ActionKind::copy_to_host) == Sizes{50, 50});
  CHECK(actions.actions.back().dtype == DType::fp32);
}

// runtime/zero/stage3.py partition_grads
TEST_CASE("offload at stage 3 stores a gradient on the host and fetches it back at once") {
  EngineConfig config = zero(3, 2);
  config.offload_optimizer.device = OffloadDevice::cpu;
  const EngineActions actions = backward(config, sized({50}));
  CHECK(sizes(actions, ActionKind::copy_to_host) == Sizes{25, 25});  // bf16, then fp32
  CHECK(sizes(actions, ActionKind::copy_to_device) == Sizes{25});
}

// runtime/zero/stage3.py partition_grads of v0.14.5, v0.16.4 and 0.19.6
TEST_CASE("stage 3 copies offloaded gradients without waiting since 0.17, and in fp32 since 0.16") {
  EngineConfig config = zero(3, 2);
  config.offload_optimizer.device = OffloadDevice::cpu;
  const auto last_copy = [&](Version release) {
    config.release = release;
    EngineAction found;
    for (const EngineAction& action : backward(config, sized({50})).actions) {
      if (action.kind == ActionKind::copy_to_host) found = action;
    }
    return found;
  };
  CHECK_FALSE(last_copy(Version{0, 19}).host_waits);
  CHECK(last_copy(Version{0, 16}).host_waits);
  CHECK(last_copy(Version{0, 16}).dtype == DType::fp32);
  CHECK(last_copy(Version{0, 14}).dtype == DType::bf16);
  CHECK_FALSE(last_copy(Version{0, 14}).pinned);
}

// runtime/zero/mics.py allreduce_mics_shard_grads
TEST_CASE("MiCS sums each bucket's partitions over the replicas at the boundary") {
  EngineConfig config = zero(3, 8);
  config.release = {0, 16};
  config.stage3.mics_shard_size = 2;
  const EngineActions actions = backward(config, sized({50}));
  CHECK(collectives(actions, CollectiveKind::reduce_scatter) == Sizes{50});
  CHECK(collectives(actions, CollectiveKind::all_reduce) == Sizes{25});
  config.gradient_accumulation_steps = 2;
  GradientReducer reducer(config, sized({50}));
  EngineActions first;
  reducer.begin_backward(0);
  reducer.gradient_ready(0, first);
  reducer.end_backward(first);
  CHECK(collectives(first, CollectiveKind::all_reduce).empty());
}

// runtime/zero/stage3.py _get_param_partition_group (0.19): param.ds_process_group, all ranks
TEST_CASE("since 0.19 MiCS reduces over all ranks, and those beyond the shard size keep nothing") {
  EngineConfig config = zero(3, 8);
  config.stage3.mics_shard_size = 2;
  const EngineActions actions = backward(config, sized({50}));
  CHECK(collectives(actions, CollectiveKind::reduce_scatter) == Sizes{56});
  CHECK(collectives(actions, CollectiveKind::all_reduce) == Sizes{7});
  config.rank = 2;
  CHECK(collectives(backward(config, sized({50})), CollectiveKind::all_reduce).empty());
}

// runtime/engine.py MEMORY_OPT_ALLREDUCE_SIZE
TEST_CASE("stage 0 ignores reduce_bucket_size and closes a bucket past 5e8 elements") {
  EngineConfig config = zero(0, 2, 10);
  CHECK(collectives(backward(config, sized({300'000'000, 300'000'000, 5})),
                    CollectiveKind::all_reduce) == Sizes{600'000'000, 5});
}

// runtime/utils.py all_gather_into_tensor_dp_groups
TEST_CASE("after the step stages 1 and 2 gather each group whole, in place, unless alone") {
  const std::vector<EngineParameter> parameters = sized({10, 7});
  CHECK(collectives(step(zero(2, 4), parameters), CollectiveKind::all_gather) == Sizes{24});
  CHECK(collectives(step(zero(2, 1), parameters), CollectiveKind::all_gather).empty());
}

// runtime/zero/stage_1_and_2.py step: 0.19.6 if check_grad_overflow, v0.16.4 if dtype is fp16
TEST_CASE("bf16 gradients are scanned for overflow by new releases in stages 1 and 2 only") {
  EngineConfig config = zero(2, 2);
  CHECK(checks_overflow(config));
  config.release = {0, 16};
  CHECK_FALSE(checks_overflow(config));
  config.model_dtype = DType::fp16;
  CHECK(checks_overflow(config));
  config = zero(3, 2);
  CHECK_FALSE(checks_overflow(config));
}

// stage_1_and_2.py step before and after #7309
TEST_CASE("releases before 0.17 move the fp32 master to the GPU after the CPU step") {
  EngineConfig config = zero(2, 2);
  config.offload_optimizer.device = OffloadDevice::cpu;
  const auto copied = [&] {
    for (const EngineAction& action : step(config, sized({100})).actions) {
      if (action.kind == ActionKind::copy_to_device) return action.elements * action.dtype;
    }
    return Bytes::zero();
  };
  CHECK(copied() == Bytes::of(50 * 2));
  config.release = {0, 16};
  CHECK(copied() == Bytes::of(50 * 4));
}

// runtime/zero/stage_1_and_2.py step
TEST_CASE("a step that overflowed ends after the ranks have agreed on it") {
  EngineActions actions;
  EngineConfig config = zero(2, 2);
  config.model_dtype = DType::fp16;
  optimizer_step(config, sized({100}), true, actions);
  CHECK(collectives(actions, CollectiveKind::all_reduce) == Sizes{1});
  CHECK(sizes(actions, ActionKind::optimizer_step).empty());
}

}  // namespace zeroplan
