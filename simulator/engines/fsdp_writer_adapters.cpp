// Each adapter's matrix is a unit that its own hooks gather and free inside the block's passes: the
// limiter then holds the host within two of them of the GPU, so that it reaches the next block's
// gather only at the end of this one. FULL_SHARD; else they stay gathered with their block.
#include <algorithm>

#include "simulator/engines/fsdp_writer.hpp"

namespace zeroplan::simulator {

bool FsdpWriter::gathers_adapters_apart() const {
  return config_.sharding == Sharding::full && config_.shard_ranks > 1;
}

void FsdpWriter::find_adapters() {
  adapter_ready_ = writer_.new_event();
  const bool has_adapters = gathers_adapters_apart() &&
                            std::any_of(fsdp_.units.begin(),
                                        fsdp_.units.end(),
                                        [](const FsdpUnit& unit) { return unit.are_adapters; });
  adapters_.resize(model_graph_.blocks.size());
  if (!has_adapters) return;
  for (std::size_t b = 0; b < adapters_.size(); ++b) {
    const Block& block = model_graph_.blocks[b];
    std::vector<Adapter>& found = adapters_[b];
    found.resize(block.modules.size());
    for (std::size_t i = 0; i < block.modules.size(); ++i) {
      const std::string weight = block.modules[i].name + ".weight";
      for (const BlockParameter& parameter : block.parameters) {
        if (!parameter.trainable || parameter.name != weight) continue;
        found[i] = {parameter.numel, writer_.new_slot(), writer_.new_slot()};
      }
    }
  }
}

std::vector<FsdpWriter::Adapter>& FsdpWriter::adapters_of(const PassStep& pass) {
  const BlockInstance& instance = model_graph_.instances[static_cast<std::size_t>(pass.instance)];
  return adapters_[static_cast<std::size_t>(instance.block)];
}

void FsdpWriter::visit_adapter(int unit, const PassStep& pass, const Event& event) {
  if (unit_of(unit).adapters < 0 || !gathers_adapters_apart()) return;
  Adapter& adapter = adapters_of(pass)[static_cast<std::size_t>(event.index)];
  if (adapter.slot < 0) return;
  if (event.kind == EventKind::module_enter) {
    gather_adapter(unit_of(unit_of(unit).adapters), adapter);
  } else {
    free_adapter(adapter);
  }
}

void FsdpWriter::gather_adapter(const FsdpUnit& unit, Adapter& adapter) {
  if (adapter.holds_gathered) return;
  adapter.holds_gathered = true;
  const Elements shard = Elements::of(ceil_div(adapter.numel.count(), config_.shard_ranks));
  const DType computed = computed_dtype(config_, unit);
  const Bytes stored = shard * stored_dtype(config_, unit);
  const Bytes gathered = shard * config_.shard_ranks * computed;
  const bool casts = casts_shards(config_, unit);
  if (casts) {
    writer_.allocate(adapter.cast, shard * computed, kCommunication, prepare_, Purpose::shard_cast);
    writer_.issue(tasks_.kernel("cast shard", stored + shard * computed), prepare_);
    writer_.wait_stream(unshard_, prepare_);
  }
  writer_.throttle(free_events_, kGathersAhead);
  if (config_.offload) {
    writer_.issue(host_copy(TaskKind::copy_to_device, stored), unshard_);
  }
  writer_.allocate(adapter.slot, gathered, kParameters, unshard_, Purpose::gathered_unit);
  const CollectiveGroup group = communicators_.group_of(config_.shard_ranks);
  communicators_.launch(
      unshard_, tasks_.collective(Collective::all_gather, gathered, group), group, false);
  writer_.record_event(adapter_ready_, unshard_);
  if (casts) {
    writer_.use_on_stream(adapter.cast, unshard_);
    writer_.release(adapter.cast);
  }
  writer_.stream_wait(kComputeStream, adapter_ready_);
  writer_.issue(tasks_.host("unit", tasks_.host_costs().fsdp_unit), kComputeStream);
}

void FsdpWriter::free_adapter(Adapter& adapter) {
  if (!adapter.holds_gathered) return;
  adapter.holds_gathered = false;
  writer_.use_on_stream(adapter.slot, kComputeStream);
  writer_.release(adapter.slot);
  writer_.queue_event(free_events_, kComputeStream);
}

}  // namespace zeroplan::simulator
