#include "tuner/peak_inventory.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.hpp"
#include "model/step/graph_options.hpp"
#include "simulator/allocator_options.hpp"

namespace zeroplan::tuner {
namespace {

using simulator::Purpose;

std::string_view flag(ScenarioKey key) { return info(key).flag; }

// What an attribute of DeepSpeed's engines holds, and the knobs that move it.
struct BufferMeaning {
  BufferName name;
  std::string_view what;
  std::array<Knob, 2> knobs;
};

constexpr std::array kBufferMeanings = {
    BufferMeaning{BufferName::ipg_bucket,
                  "bucket that gradients are reduced in",
                  {Knob::reduce_bucket_size, Knob::overlap_comm}},
    BufferMeaning{BufferName::outside_bucket,
                  "gradient larger than the bucket",
                  {Knob::reduce_bucket_size, Knob::zero_stage}},
    BufferMeaning{BufferName::bit16_groups_flat,
                  "all weights of a group in one flat buffer",
                  {Knob::zero_stage, Knob::zero_stage}},
    BufferMeaning{BufferName::fp16_groups_flat,
                  "all weights of a group in one flat buffer",
                  {Knob::zero_stage, Knob::zero_stage}},
    BufferMeaning{BufferName::bf16_groups_flat,
                  "all weights of a group in one flat buffer",
                  {Knob::zero_stage, Knob::zero_stage}},
    BufferMeaning{BufferName::module_parameters, "weights", {Knob::zero_stage, Knob::zero_stage}},
    BufferMeaning{BufferName::module_gradients, "gradients", {Knob::zero_stage, Knob::zero_stage}},
    BufferMeaning{BufferName::fp32_groups_flat,
                  "fp32 master weights",
                  {Knob::zero_stage, Knob::offload_optimizer_device}},
    BufferMeaning{BufferName::fp32_groups_flat_partition,
                  "fp32 master weights of this rank",
                  {Knob::zero_stage, Knob::offload_optimizer_device}},
    BufferMeaning{BufferName::single_partition_of_fp32_groups,
                  "fp32 master weights of this rank",
                  {Knob::offload_optimizer_device, Knob::zero_stage}},
    BufferMeaning{BufferName::fp32_partitioned_groups_flat,
                  "fp32 master weights of this rank, a sub-group",
                  {Knob::offload_optimizer_device, Knob::sub_group_size}},
    BufferMeaning{BufferName::fp32_groups_gradients_flat,
                  "fp32 gradients",
                  {Knob::zero_stage, Knob::offload_optimizer_device}},
    BufferMeaning{
        BufferName::state, "optimizer states", {Knob::offload_optimizer_device, Knob::zero_stage}},
    BufferMeaning{BufferName::averaged_gradients,
                  "gradients of this rank's partition",
                  {Knob::offload_optimizer_device, Knob::zero_stage}},
    BufferMeaning{BufferName::grads_in_partition,
                  "gradients of this rank's partition",
                  {Knob::offload_optimizer_device, Knob::zero_stage}},
    BufferMeaning{BufferName::grad_partitions_flat_buffer,
                  "gradients of this rank's partition",
                  {Knob::offload_optimizer_device, Knob::zero_stage}},
    BufferMeaning{BufferName::grad_accum,
                  "accumulated gradients",
                  {Knob::zero_stage, Knob::data_types_grad_accum_dtype}},
    BufferMeaning{BufferName::fp16_partitioned_groups,
                  "weights of this rank's partition",
                  {Knob::offload_param_device, Knob::offload_param_device}},
    BufferMeaning{BufferName::lp_param_buffer,
                  "weights of this rank's partition in one flat buffer",
                  {Knob::offload_param_device, Knob::offload_param_device}},
    BufferMeaning{BufferName::frozen_ds_tensor,
                  "frozen weights of this rank's partition",
                  {Knob::offload_param_device, Knob::offload_param_device}},
    BufferMeaning{BufferName::ds_secondary_tensor,
                  "secondary partition of the weights inside the node",
                  {Knob::zero_hpz_partition_size, Knob::zero_hpz_partition_size}},
    BufferMeaning{
        BufferName::persistent_parameters,
        "weights that stay gathered",
        {Knob::stage3_param_persistence_threshold, Knob::stage3_model_persistence_threshold}},
    BufferMeaning{BufferName::temp_grad_buffer_for_gpu_offload,
                  "largest gradient on its way to the host",
                  {Knob::offload_optimizer_device, Knob::offload_optimizer_device}},
    BufferMeaning{BufferName::flat_param_local_shard,
                  "weights of this rank's shards",
                  {Knob::zero_stage, Knob::zero_stage}},
};

std::vector<std::string_view> activation_knobs(MemoryCategory category, const Plan& plan) {
  std::vector<std::string_view> knobs;
  if (category == MemoryCategory::activations) {
    knobs.push_back(flag(ScenarioKey::activation_checkpointing));
  }
  knobs.push_back(flag(ScenarioKey::micro_batch_size));
  knobs.push_back(flag(ScenarioKey::sequence_length));
  if (category == MemoryCategory::logits && calls_fused_loss(plan)) {
    knobs.push_back(flag(ScenarioKey::fused_loss));
  }
  return knobs;
}

std::string without_last_dot(std::string text) {
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// The operation that makes a storage, in the first pass that allocates it: in PyTorch an output is
// allocated by the operation that writes it, so it is the next one.
struct Maker {
  const Operation* operation = nullptr;
  Pass pass = Pass::forward;
};

Maker maker_of(const Block& block, std::int32_t storage) {
  for (std::size_t p = 0; p < kPassCount; ++p) {
    const Pass pass = static_cast<Pass>(p);
    bool found = false;
    for (const Event& event : block.of(pass)) {
      found = found || (event.kind == EventKind::allocate && event.index == storage);
      if (!found || event.kind != EventKind::operation) continue;
      return {&block.operations[static_cast<std::size_t>(event.index)], pass};
    }
  }
  return {};
}

// A purpose as `explain` names it, and the key of ds_config.json that moves it.
struct PurposeMeaning {
  Purpose purpose;
  std::string_view what;
  std::string_view name;
  std::optional<Knob> knob;
  bool is_sum = false;
};

constexpr std::array kPurposes = {
    PurposeMeaning{Purpose::building,
                   "weights while the model is built and moved to the GPU",
                   "",
                   Knob::zero_stage,
                   true},
    PurposeMeaning{Purpose::partitioning,
                   "copies while DeepSpeed flattens and partitions",
                   "deepspeed.initialize",
                   Knob::zero_stage,
                   true},
    PurposeMeaning{
        Purpose::registered_buffers, "buffers registered by modules (masks, tables)", "", {}},
    PurposeMeaning{
        Purpose::kept_outputs, "outputs that the last stage of the pipeline keeps", "", {}},
    PurposeMeaning{Purpose::kernel_workspace, "workspace of cuBLAS", "CUBLAS_WORKSPACE_CONFIG", {}},
    PurposeMeaning{Purpose::cast_weight, "autocast's copies of weights", "", {}},
    PurposeMeaning{Purpose::gathered_together,
                   "weights gathered together",
                   "",
                   Knob::stage3_prefetch_bucket_size},
    PurposeMeaning{Purpose::weights_from_host,
                   "this rank's partition of weights, copied from the host",
                   "",
                   Knob::offload_param_device},
    PurposeMeaning{Purpose::flat_gradients,
                   "flat copy of gradients for a collective",
                   "",
                   Knob::reduce_bucket_size},
    PurposeMeaning{
        Purpose::step_flat_gradients, "flat copy of gradients", "", Knob::sub_group_size},
    PurposeMeaning{Purpose::step_gradients,
                   "fp32 copy of this rank's gradients for the step",
                   "",
                   Knob::sub_group_size},
    PurposeMeaning{Purpose::norm_copy,
                   "copy that the norm of the gradients is taken of",
                   "",
                   Knob::sub_group_size},
    PurposeMeaning{
        Purpose::overflow_scan, "copies of the scan for inf and nan", "", Knob::sub_group_size},
    PurposeMeaning{Purpose::gradient_to_host,
                   "fp32 copy of a gradient for the optimizer on the host",
                   "",
                   Knob::sub_group_size},
    PurposeMeaning{Purpose::gradient_from_host,
                   "gradients of this rank's partition, copied from the host",
                   "",
                   Knob::offload_optimizer_device},
    PurposeMeaning{Purpose::master_from_host,
                   "fp32 master weights, copied from the host",
                   "",
                   Knob::offload_optimizer_device},
    PurposeMeaning{Purpose::optimizer_temporary,
                   "temporary of the optimizer's step over this rank's partition",
                   "a torch optimizer that is not fused",
                   Knob::optimizer_type},
    PurposeMeaning{
        Purpose::whole_unit, "whole weights of a unit of FSDP before they are sharded", "", {}},
    PurposeMeaning{Purpose::shard_cast, "shards of weights in the dtype of the arithmetic", "", {}},
    PurposeMeaning{Purpose::gathered_unit, "gathered weights of units", "", {}},
    PurposeMeaning{
        Purpose::copied_out, "gathered weights of units, each in a tensor of its own", "", {}},
    PurposeMeaning{Purpose::unit_gradients, "gradients of units before they are reduced", "", {}},
    PurposeMeaning{Purpose::reduced_shard, "gradients of this rank's shard, just reduced", "", {}},
    PurposeMeaning{Purpose::shard_gradients, "gradients of this rank's shards", "", {}},
    PurposeMeaning{
        Purpose::sent_state, "flat copies in which the module's state is sent at first", "", {}},
    PurposeMeaning{
        Purpose::gradient_bucket, "bucket that gradients are reduced in", "reducer.buckets", {}},
    PurposeMeaning{Purpose::weights_beside, "weights of models beside the trained one", "", {}},
    PurposeMeaning{Purpose::passes_beside,
                   "tensors of passes without gradients, of this model or of others",
                   "",
                   {}},
    PurposeMeaning{
        Purpose::loop_outputs, "logits and log-probabilities of the trainer's loop", "", {}},
};

struct Gathered {
  std::string_view what;
  Knob knob;
};

Gathered gathered(simulator::SlotKind kind) {
  if (kind == simulator::SlotKind::secondary_parameter) {
    return {"secondary partition of the weights inside the node", Knob::zero_hpz_partition_size};
  }
  if (kind == simulator::SlotKind::saved_parameter) {
    return {"gathered weights that autograd keeps for backward", Knob::memory_efficient_linear};
  }
  return {"gathered weights", Knob::stage3_max_live_parameters};
}

}  // namespace

PeakInventoryBuilder::PeakInventoryBuilder(const Plan& plan,
                                           const ModelGraph& graph,
                                           const simulator::RankProgram& rank)
    : plan_(plan), graph_(graph), rank_(rank), buffers_(engine_buffers(plan, rank.rank)) {}

const simulator::SlotRange* PeakInventoryBuilder::range_of(simulator::SlotIndex slot) const {
  const std::vector<simulator::SlotRange>& ranges = rank_.program.slot_ranges;
  auto after = std::upper_bound(
      ranges.begin(),
      ranges.end(),
      slot,
      [](simulator::SlotIndex value, const simulator::SlotRange& r) { return value < r.first; });
  if (after == ranges.begin()) return nullptr;
  const simulator::SlotRange& range = *--after;
  return slot < range.first + range.count ? &range : nullptr;
}

// --- names

// The keys of ds_config.json move nothing where DeepSpeed does not run.
void PeakInventoryBuilder::add_knob(std::vector<std::string_view>& knobs, Knob knob) const {
  const std::string_view pointer = pointer_of(knob);
  if (!runs_deepspeed(plan_.workload)) return;
  if (std::find(knobs.begin(), knobs.end(), pointer) == knobs.end()) knobs.push_back(pointer);
}

TensorSort PeakInventoryBuilder::buffer_sort(const EngineBuffer& buffer) const {
  TensorSort sort;
  sort.name = path(buffer);
  // Sub-groups and parameters of one list are one sort.
  if (buffer.index >= 0 || buffer.name == BufferName::state)
    sort.name = std::string(path_of(buffer.name)) + "[...]" + std::string(buffer.suffix);
  const auto meaning =
      std::find_if(kBufferMeanings.begin(), kBufferMeanings.end(), [&](const BufferMeaning& row) {
        return row.name == buffer.name;
      });
  if (meaning == kBufferMeanings.end()) {
    sort.what = "buffer of the engine";
    add_knob(sort.knobs, Knob::zero_stage);
    return sort;
  }
  sort.what = meaning->what;
  const bool gradient_of_master =
      buffer.suffix == ".grad" && buffer.category == MemoryCategory::gradients;
  if (gradient_of_master) sort.what = phrase("gradients of {}", sort.what);
  if (buffer.name == BufferName::state) sort.what = "Adam's and other states of the optimizer";
  for (const Knob knob : meaning->knobs) add_knob(sort.knobs, knob);
  return sort;
}

TensorSort PeakInventoryBuilder::storage_sort(std::int32_t instance, std::int32_t storage) const {
  const BlockInstance& where = graph_.instances[static_cast<std::size_t>(instance)];
  const Block& block = graph_.block_of(where);
  const Storage& what = block.storages[static_cast<std::size_t>(storage)];
  for (const WeightGradient& gradient : block.weight_gradients) {
    if (gradient.storage != storage) continue;
    const auto parameter = static_cast<std::size_t>(gradient.parameter);
    TensorSort sort{
        phrase("gradient of {} in {}", block.parameters[parameter].name, block.name), "", {}};
    for (const Knob knob : {Knob::zero_stage, Knob::reduce_bucket_size}) {
      add_knob(sort.knobs, knob);
    }
    return sort;
  }
  TensorSort sort;
  sort.knobs = activation_knobs(what.category, plan_);
  const Maker maker = maker_of(block, storage);
  if (maker.operation == nullptr) {
    sort.what = phrase("tensor of {}", block.name);
    return sort;
  }
  const std::int32_t module = maker.operation->module;
  std::string place = block.name;
  if (module >= 0 && !block.modules[static_cast<std::size_t>(module)].name.empty()) {
    place += "." + block.modules[static_cast<std::size_t>(module)].name;
  }
  sort.what = Phrase(maker.pass == Pass::backward ? "gradient made by " : "output of ") +
              std::string(maker.operation->name) + " in " + place + ", " +
              std::string(name(what.dtype));
  return sort;
}

TensorSort PeakInventoryBuilder::purpose_sort(Purpose purpose) const {
  if (purpose == Purpose::kernel_workspace && plan_.engine.embedded) {
    return {"workspace of the runtime's kernels", "", {}};
  }
  const auto row = std::find_if(kPurposes.begin(), kPurposes.end(), [&](const PurposeMeaning& one) {
    return one.purpose == purpose;
  });
  ZP_CHECK(row != kPurposes.end(), "an allocation is in a slot of a range, or has a purpose");
  TensorSort sort{std::string(row->what), std::string(row->name), {}, row->is_sum};
  if (!row->knob) return sort;
  const bool sub_groups = *row->knob != Knob::sub_group_size || plan_.engine.stage == 3;
  add_knob(sort.knobs, sub_groups ? *row->knob : Knob::zero_stage);
  if (purpose == Purpose::optimizer_temporary) add_knob(sort.knobs, Knob::zero_stage);
  return sort;
}

TensorSort PeakInventoryBuilder::sort_of(std::size_t instruction) const {
  const simulator::Instruction& what = rank_.program.code[instruction];
  const simulator::SlotRange* range = range_of(what.index);
  if (range == nullptr) return purpose_sort(what.purpose);
  const std::int32_t at = range->index + (what.index - range->first);
  switch (range->kind) {
    case simulator::SlotKind::engine_buffer:
      return buffer_sort(buffers_[static_cast<std::size_t>(at)]);
    case simulator::SlotKind::storage:
      return storage_sort(range->index, what.index - range->first);
    case simulator::SlotKind::waiting_gradient:
      return {"gradients kept until the optimizer's step",
              ".grad",
              {pointer_of(Knob::zero_stage), flag(ScenarioKey::gradient_accumulation_steps)}};
    case simulator::SlotKind::batch:
      return {"token ids, labels and mask", "", activation_knobs(MemoryCategory::logits, plan_)};
    case simulator::SlotKind::gathered_parameter:
    case simulator::SlotKind::secondary_parameter:
    case simulator::SlotKind::saved_parameter:
      break;
  }
  const Gathered row = gathered(range->kind);
  return {std::string(row.what), "", {pointer_of(row.knob)}};
}

std::string PeakInventoryBuilder::place_of(std::size_t instruction) const {
  const simulator::Instruction& what = rank_.program.code[instruction];
  const simulator::SlotRange* range = range_of(what.index);
  if (range == nullptr || range->kind == simulator::SlotKind::batch) return "";
  const std::int32_t at = range->index + (what.index - range->first);
  if (range->kind == simulator::SlotKind::storage) {
    return without_last_dot(graph_.instances[static_cast<std::size_t>(range->index)].prefix);
  }
  if (range->kind == simulator::SlotKind::engine_buffer)
    return path(buffers_[static_cast<std::size_t>(at)]);
  return plan_.model->parameters[static_cast<std::size_t>(at)].name;
}

// --- the walk

// visit(instruction index, phase, times): every instruction in the order of the run. Micro-steps
// that repeat are walked twice: from the second on they leave what they found.
template <typename Visitor>
void PeakInventoryBuilder::walk(Visitor&& visit) const {
  Phase phase = Phase::init;
  const auto section = [&](const simulator::Section& part) {
    for (std::size_t i = part.begin; i < part.end; ++i) {
      const simulator::Instruction& instruction = rank_.program.code[i];
      if (instruction.opcode == simulator::Opcode::mark)
        phase = static_cast<Phase>(instruction.index);
      visit(i, phase);
    }
  };
  const auto step = [&](const simulator::StepSections& sections) {
    constexpr std::int64_t kTwice = 2;
    for (const simulator::RepeatedSection& part : sections.micro_steps) {
      for (std::int64_t i = 0; i < std::min(part.times, kTwice); ++i) section(part.section);
    }
    section(sections.optimizer);
  };
  section(rank_.initialisation);
  for (const simulator::StepSections& first : rank_.first_steps) step(first);
  step(rank_.steady);
  step(rank_.steady);
}

namespace {

// What the allocator counts: which slots hold what, made by which instruction.
class Ledger {
 public:
  explicit Ledger(const simulator::Program& program)
      : program_(program), holder_(static_cast<std::size_t>(program.slots), kNothing) {}

  static constexpr std::size_t kNothing = static_cast<std::size_t>(-1);

  Bytes allocated() const { return allocated_; }
  // By slot: the instruction that allocated it and the slot's name giver.
  const std::vector<std::size_t>& holders() const { return holder_; }

  Bytes size_of(std::size_t instruction) const {
    const Bytes bytes = Bytes::of(program_.code[instruction].bytes);
    return bytes == Bytes::zero() ? bytes : simulator::round_size(bytes, {});
  }

  void follow(std::size_t index) {
    const simulator::Instruction& instruction = program_.code[index];
    const auto slot = static_cast<std::size_t>(instruction.index);
    if (instruction.opcode == simulator::Opcode::allocate) {
      holder_[slot] = index;
      allocated_ += size_of(index);
    } else if (instruction.opcode == simulator::Opcode::release && holder_[slot] != kNothing) {
      allocated_ -= size_of(holder_[slot]);
      holder_[slot] = kNothing;
    } else if (instruction.opcode == simulator::Opcode::move && holder_[slot] != kNothing) {
      holder_[static_cast<std::size_t>(instruction.bytes)] = holder_[slot];
      holder_[slot] = kNothing;
    }
  }

 private:
  const simulator::Program& program_;
  std::vector<std::size_t> holder_;
  Bytes allocated_;
};

}  // namespace

PeakInventory PeakInventoryBuilder::at_peak() const {
  PeakInventory peak;
  std::vector<std::size_t> held;
  {
    // The highest moment first, then once more to it: copying what is held at every new maximum
    // would cost more than walking twice.
    Ledger ledger(rank_.program);
    std::int64_t steps = 0;
    std::int64_t highest = 0;
    walk([&](std::size_t index, Phase phase) {
      ledger.follow(index);
      ++steps;
      if (ledger.allocated() <= peak.allocated) return;
      peak.allocated = ledger.allocated();
      peak.phase = phase;
      highest = steps;
    });
    Ledger again(rank_.program);
    steps = 0;
    walk([&](std::size_t index, Phase) {
      if (steps++ < highest) again.follow(index);
    });
    for (const std::size_t holder : again.holders()) {
      if (holder != Ledger::kNothing) held.push_back(holder);
    }
    std::map<std::pair<MemoryCategory, std::string>, HeldSort> sorts;
    for (const std::size_t holder : held) {
      const MemoryCategory category = rank_.program.code[holder].category;
      TensorSort sort = sort_of(holder);
      HeldSort& row = sorts[{category, sort.what.english() + "\n" + sort.name}];
      if (row.count++ == 0) row = {category, std::move(sort), place_of(holder), 1, {}};
      row.bytes += again.size_of(holder);
    }
    for (auto& [key, row] : sorts) peak.held.push_back(std::move(row));
  }
  std::stable_sort(peak.held.begin(), peak.held.end(), [](const HeldSort& a, const HeldSort& b) {
    return a.category != b.category ? a.category < b.category : a.bytes > b.bytes;
  });
  return peak;
}

double size_off(Bytes segment, const SizeQuestion& question) {
  const Bytes least = question.size - std::min(question.size, question.rounding);
  if (segment >= least && segment <= question.size + question.rounding) return 0.0;
  const auto asked = static_cast<double>(question.size.count());
  const double off = (static_cast<double>(segment.count()) - asked) / asked;
  return question.size > simulator::kLargeBuffer ? off : std::copysign(1.0, off);
}

std::vector<SizeMatch> PeakInventoryBuilder::matches(const SizeQuestion& question) const {
  std::map<std::string, SizeMatch> found;
  const auto distance = [&](Bytes allocated) {
    if (!question.allocated) return Bytes::zero();
    return std::max(allocated, *question.allocated) - std::min(allocated, *question.allocated);
  };
  Ledger ledger(rank_.program);
  walk([&](std::size_t index, Phase phase) {
    const Bytes before = ledger.allocated();
    ledger.follow(index);
    const simulator::Instruction& instruction = rank_.program.code[index];
    if (instruction.opcode != simulator::Opcode::allocate || instruction.bytes == 0) return;
    const double off = size_off(simulator::segment_size(ledger.size_of(index), {}), question);
    if (std::abs(off) > kNearSize) return;
    TensorSort sort = sort_of(index);
    if (sort.is_sum) return;
    SizeMatch& match = found[sort.what.english() + "\n" + sort.name + "\n" + std::to_string(off)];
    if (match.count == 0 || distance(before) < distance(match.allocated_before)) {
      const std::int64_t count = match.count;
      match = {instruction.category,
               std::move(sort),
               place_of(index),
               phase,
               Bytes::of(instruction.bytes),
               before,
               count,
               off};
    }
    ++match.count;
  });
  std::vector<SizeMatch> result;
  for (auto& [key, match] : found) result.push_back(std::move(match));
  std::stable_sort(result.begin(), result.end(), [&](const SizeMatch& a, const SizeMatch& b) {
    if (a.off != b.off) return std::abs(a.off) < std::abs(b.off);
    return distance(a.allocated_before) < distance(b.allocated_before);
  });
  const auto first_near = std::find_if(
      result.begin(), result.end(), [](const SizeMatch& match) { return match.off != 0.0; });
  if (first_near != result.begin()) result.erase(first_near, result.end());
  return result;
}

}  // namespace zeroplan::tuner
