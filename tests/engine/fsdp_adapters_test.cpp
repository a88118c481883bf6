// FSDP with frozen parameters: adapters apart or mixed in, four-bit weights, offload.
#include <algorithm>

#include "model/engine/fsdp.hpp"
#include "model/quantization.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

EngineParameter parameter(std::int64_t numel, bool trainable, bool quantized = false) {
  EngineParameter p;
  p.numel = Elements::of(numel);
  p.trainable = trainable;
  p.quantized = quantized;
  return p;
}

// An embedding, two blocks of a frozen matrix with two small trained ones, a last norm.
std::vector<EngineParameter> adapted(bool quantized = false) {
  return {parameter(1000, false),
          parameter(6400, false, quantized),
          parameter(80, true),
          parameter(40, true),
          parameter(6400, false, quantized),
          parameter(80, true),
          parameter(40, true),
          parameter(10, false)};
}
const std::vector<int> kBlockOf = {-1, 0, 0, 0, 1, 1, 1, -1};

FsdpConfig two_ranks() {
  FsdpConfig config;
  config.ranks = config.shard_ranks = 2;
  config.storage_dtype = DType::bf16;
  return config;
}

Bytes held(const FsdpConfig& config,
           const std::vector<EngineParameter>& parameters,
           BufferPlace place,
           MemoryCategory category) {
  Bytes sum;
  for (const EngineBuffer& buffer :
       fsdp_buffers(config, fsdp_units(config, parameters, kBlockOf))) {
    if (buffer.place == place && buffer.category == category) sum += buffer.bytes;
  }
  return sum;
}

int events(const FsdpConfig& config, FsdpEventKind kind) {
  const auto units = fsdp_units(config, adapted(), kBlockOf);
  const std::vector<int> visits = {0, 1, 2, 0};
  int count = 0;
  for (const FsdpEvent& event : fsdp_micro_step(config, units, visits, 0)) {
    count += event.kind == kind ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("FSDP: adapters that are wrapped alone leave blocks without gradients") {
  const auto units = fsdp_units(two_ranks(), adapted(), kBlockOf);
  REQUIRE(units.size() == 5);  // root, two blocks, their adapters
  CHECK_FALSE(units[0].trains);
  CHECK_FALSE(units[1].trains);
  CHECK(units[1].numel == Elements::of(6400));
  CHECK(units[1].adapters == 3);
  CHECK(units[3].numel == Elements::of(120));
  CHECK(units[3].messages == 2);
  CHECK(units[3].trains);
  CHECK(fsdp_owned(units) == Elements::of(2 * 60));
  CHECK(fsdp_unit_of(units, 8) == std::vector<int>{0, 1, 3, 3, 2, 4, 4, 0});
}

TEST_CASE("FSDP: only units that train are reduced; adapters are gathered with their block") {
  CHECK(events(two_ranks(), FsdpEventKind::reduce_scatter) == 2);
  // The root once, blocks and adapters forward and backward.
  CHECK(events(two_ranks(), FsdpEventKind::unshard) == 1 + 2 * 4);
}

TEST_CASE("FSDP: behind a block with adapters the next gather is sent at the end of its backward") {
  const auto first_gather_behind = [](bool apart) {
    FsdpConfig config = two_ranks();
    config.separate_adapters = apart;
    const auto units = fsdp_units(config, adapted(), kBlockOf);
    const std::vector<int> visits = {0, 1, 2, 0};
    const auto events = fsdp_micro_step(config, units, visits, 0);
    const auto backward_of = [&](FsdpEventKind kind, int unit) {
      return std::find_if(events.begin(), events.end(), [&](const FsdpEvent& event) {
        return event.kind == kind && event.unit == unit && event.backward;
      });
    };
    return backward_of(FsdpEventKind::unshard, 1) - backward_of(FsdpEventKind::compute, 2);
  };
  CHECK(first_gather_behind(true) == 1);
  CHECK(first_gather_behind(false) == -1);
}

TEST_CASE("FSDP: mixed flat parameters get whole gradients, and states of the trained part") {
  FsdpConfig config = two_ranks();
  config.separate_adapters = false;
  const auto units = fsdp_units(config, adapted(), kBlockOf);
  REQUIRE(units.size() == 3);
  CHECK(units[1].numel == Elements::of(6520));
  CHECK(units[1].trains);
  CHECK_FALSE(units[0].trains);
  // The adapters stand at the end: one rank has all of them.
  CHECK(units[1].owned == Elements::of(120));
  CHECK(held(config, adapted(), BufferPlace::gpu, MemoryCategory::gradients).count() ==
        2 * 3260 * 2);
  CHECK(held(config, adapted(), BufferPlace::gpu, MemoryCategory::optimizer_states).count() >=
        2 * 120 * 2 * 2);
  CHECK(held(config, adapted(), BufferPlace::gpu, MemoryCategory::optimizer_states).count() <
        2 * 120 * 2 * 2 + 64);
  CHECK(events(config, FsdpEventKind::reduce_scatter) == 2);
}

TEST_CASE("FSDP: four-bit weights fill 16-bit elements of the flat parameter") {
  const FsdpConfig config = two_ranks();
  const auto units = fsdp_units(config, adapted(true), kBlockOf);
  CHECK(units[1].numel == Elements::of(6400 / 4));
  CHECK(units[1].quantization_state == four_bit_state(Elements::of(6400), false));
  // Scales are no parameters: every rank has all of them.
  const Bytes four = held(config, adapted(true), BufferPlace::gpu, MemoryCategory::parameters);
  const Bytes sixteen = held(config, adapted(), BufferPlace::gpu, MemoryCategory::parameters);
  CHECK((sixteen - four).count() == 2 * (6400 - 1600) / 2 * 2 - 2 * 400);
  FsdpConfig twice = config;
  twice.double_quant = true;
  CHECK(fsdp_units(twice, adapted(true), kBlockOf)[1].quantization_state ==
        four_bit_state(Elements::of(6400), true));
}

TEST_CASE("FSDP: offloaded shards, gradients and states are on the host; scales stay") {
  FsdpConfig config = two_ranks();
  config.offload = true;
  CHECK(held(config, adapted(true), BufferPlace::gpu, MemoryCategory::parameters) ==
        four_bit_state(Elements::of(6400), false) * 2);
  CHECK(held(config, adapted(), BufferPlace::gpu, MemoryCategory::gradients) == Bytes::zero());
  CHECK(held(config, adapted(), BufferPlace::gpu, MemoryCategory::optimizer_states) ==
        Bytes::zero());
  CHECK(held(config, adapted(), BufferPlace::host_pinned, MemoryCategory::parameters).count() ==
        (505 + 3200 * 2 + 60 * 2) * 2);
  CHECK(held(config, adapted(), BufferPlace::host_pinned, MemoryCategory::gradients).count() ==
        60 * 2 * 2);
}
