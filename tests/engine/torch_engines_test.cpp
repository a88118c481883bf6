// FSDP's units and order of events, DDP's buckets, and what both hold.
#include <numeric>

#include "model/engine/ddp.hpp"
#include "model/engine/fsdp.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

EngineParameter parameter(std::int64_t numel) {
  EngineParameter p;
  p.numel = Elements::of(numel);
  return p;
}

// An embedding, two blocks of two tensors each, a last norm.
const std::vector<EngineParameter> kParameters = {
    parameter(1000), parameter(101), parameter(9), parameter(101), parameter(9), parameter(10)};
const std::vector<int> kBlockOf = {-1, 0, 0, 1, 1, -1};
const std::vector<int> kVisits = {0, 1, 2, 0};

FsdpConfig eight_ranks() {
  FsdpConfig config;
  config.ranks = config.shard_ranks = 8;
  return config;
}

// "g1" gathers unit 1, "l1" asks the rate limiter alone, "f1" and "b1" compute it, "x1" frees it,
// "r1" reduces it, "a1" adds copies.
std::string text(const std::vector<FsdpEvent>& events) {
  std::string line;
  for (const FsdpEvent& event : events) {
    const char letter = event.kind == FsdpEventKind::unshard          ? 'g'
                        : event.kind == FsdpEventKind::reshard        ? 'x'
                        : event.kind == FsdpEventKind::rate_limit     ? 'l'
                        : event.kind == FsdpEventKind::reduce_scatter ? 'r'
                        : event.kind == FsdpEventKind::all_reduce     ? 'a'
                        : event.backward                              ? 'b'
                                                                      : 'f';
    if (!line.empty()) line += ' ';
    line += letter + std::to_string(event.unit);
  }
  return line;
}

std::string micro_step(const FsdpConfig& config, int number = 0) {
  const auto units = fsdp_units(config, kParameters, kBlockOf);
  return text(fsdp_micro_step(config, units, kVisits, number));
}

Bytes resident(const std::vector<EngineBuffer>& buffers) {
  return bytes_at(buffers, BufferPlace::gpu, EngineMoment::before_step, 1);
}

}  // namespace

TEST_CASE("FSDP: a block's parameters are one unit, padded to the ranks; the root has the rest") {
  const auto units = fsdp_units(eight_ranks(), kParameters, kBlockOf);
  REQUIRE(units.size() == 3);
  CHECK(units[0].numel == Elements::of(1010));
  CHECK(units[0].padded == Elements::of(1016));
  CHECK(units[0].shard == Elements::of(127));
  CHECK(units[1].numel == Elements::of(110));
  CHECK(units[1].padded == Elements::of(112));
  CHECK(units[2].parameters == std::vector<int>{3, 4});
}

TEST_CASE("FSDP1: the optimizer has what each parameter has of the first rank's shard") {
  FsdpConfig config = eight_ranks();
  config.ranks = config.shard_ranks = 1;
  const auto numbers = [&](const std::vector<Elements>& list) {
    std::vector<std::int64_t> counts;
    for (const Elements elements : list) counts.push_back(elements.count());
    return counts;
  };
  using Counts = std::vector<std::int64_t>;
  CHECK(numbers(fsdp_units(config, kParameters, kBlockOf)[1].owned_shards) == Counts{101, 9});
  const auto units = fsdp_units(eight_ranks(), kParameters, kBlockOf);
  CHECK(numbers(units[1].views) == Counts{14, 0});
  CHECK(numbers(units[1].owned_shards) == Counts{14});
  config.original_parameters = false;
  CHECK(numbers(fsdp_units(config, kParameters, kBlockOf)[1].owned_shards) == Counts{110});
}

TEST_CASE("FULL_SHARD frees blocks after forward, keeps the root, and prefetches backward") {
  CHECK(micro_step(eight_ranks()) ==
        "g0 f0 g1 f1 x1 g2 f2 x2 f0 "
        "l0 g2 b0 g1 b2 x2 r2 b1 x1 r1 b0 x0 r0");
  FsdpConfig config = eight_ranks();
  config.backward_prefetch = false;
  CHECK(micro_step(config) ==
        "g0 f0 g1 f1 x1 g2 f2 x2 f0 "
        "l0 b0 g2 b2 x2 r2 g1 b1 x1 r1 b0 x0 r0");
}

TEST_CASE(
    "SHARD_GRAD_OP gathers once a micro-step, and asks the rate limiter as if it did in backward") {
  FsdpConfig config = eight_ranks();
  config.sharding = Sharding::grad_op;
  CHECK(micro_step(config) == "g0 f0 g1 f1 g2 f2 f0 l0 l2 b0 l1 b2 x2 r2 b1 x1 r1 b0 x0 r0");
}

TEST_CASE("NO_SHARD gathers from nobody and reduces whole gradients") {
  FsdpConfig config = eight_ranks();
  config.sharding = Sharding::no_shard;
  const auto units = fsdp_units(config, kParameters, kBlockOf);
  for (const FsdpEvent& event : fsdp_micro_step(config, units, kVisits, 0)) {
    CHECK(event.kind != FsdpEventKind::reduce_scatter);
    if (event.kind == FsdpEventKind::unshard) CHECK(event.ranks == 1);
    if (event.kind == FsdpEventKind::all_reduce) CHECK(event.ranks == 8);
  }
}

TEST_CASE("hybrid sharding reduces inside a group, then the shards across groups") {
  FsdpConfig config = eight_ranks();
  config.ranks = 32;
  CHECK(micro_step(config).ends_with("x1 r1 a1 b0 x0 r0 a0"));
  const auto units = fsdp_units(config, kParameters, kBlockOf);
  const auto events = fsdp_micro_step(config, units, kVisits, 0);
  CHECK(events.back().ranks == 4);
  CHECK(events.back().bytes == units[0].shard * config.reduce_dtype);
}

TEST_CASE("under no_sync only the last micro-step reduces") {
  FsdpConfig config = eight_ranks();
  config.reduces_every_micro_step = false;
  config.gradient_accumulation_steps = 2;
  CHECK(micro_step(config, 0).find('r') == std::string::npos);
  CHECK(micro_step(config, 1).find('r') != std::string::npos);
}

TEST_CASE("SHARD_GRAD_OP under no_sync gathers in the first micro-step and frees in the last") {
  FsdpConfig config = eight_ranks();
  config.sharding = Sharding::grad_op;
  config.reduces_every_micro_step = false;
  config.gradient_accumulation_steps = 3;
  CHECK(micro_step(config, 0) == "g0 f0 g1 f1 g2 f2 f0 l0 l2 b0 l1 b2 b1 b0");
  CHECK(micro_step(config, 1) == "f0 f1 f2 f0 l0 l2 b0 l1 b2 b1 b0");
  CHECK(micro_step(config, 2) == "f0 f1 f2 f0 l0 l2 b0 l1 b2 x2 r2 b1 x1 r1 b0 x0 r0");
  config.version = 2;
  CHECK(micro_step(config, 1).starts_with("g0"));
}

TEST_CASE("FSDP with fp32 shards holds 16 bytes an element before the step, bf16 shards 8") {
  FsdpConfig config = eight_ranks();
  const auto units = fsdp_units(config, kParameters, kBlockOf);
  const Elements owned = fsdp_owned(units);
  CHECK(owned == Elements::of(127 + 14 + 14));
  CHECK(resident(fsdp_buffers(config, units)) == owned.times_width(16));
  config.storage_dtype = DType::bf16;
  const auto half = fsdp_units(config, kParameters, kBlockOf);
  CHECK(resident(fsdp_buffers(config, half)) == owned.times_width(8));
}

TEST_CASE("no_sync keeps whole gradients in the dtype of the computation") {
  FsdpConfig config = eight_ranks();
  config.reduces_every_micro_step = false;
  config.gradient_accumulation_steps = 4;
  const auto units = fsdp_units(config, kParameters, kBlockOf);
  Bytes whole;
  for (const EngineBuffer& buffer : fsdp_buffers(config, units)) {
    if (buffer.name == BufferName::flat_param_grad) whole += buffer.bytes;
  }
  CHECK(whole == Elements::of(1016 + 112 + 112).times_width(2));
}

TEST_CASE("DDP: the first bucket closes at 1 MiB, the others at 25 MiB") {
  DdpConfig config;
  config.ranks = 2;
  std::vector<EngineParameter> parameters(40, parameter(1 << 20));  // 4 MiB each
  std::vector<std::int32_t> order(parameters.size());
  std::iota(order.begin(), order.end(), 0);
  const auto buckets = ddp_buckets(config, parameters, order);
  REQUIRE(buckets.size() == 7);
  CHECK(buckets[0].parameters.size() == 1);
  CHECK(buckets[1].parameters.size() == 7);  // 28 MiB: the one that reaches the limit is in it
  CHECK(buckets[6].parameters.size() == 4);
}

TEST_CASE("DDP holds weights, gradients, buckets and Adam's states; views save the gradients") {
  DdpConfig config;
  const Elements all = Elements::of(1230);
  // One GPU has no wrapper around the module, so no buckets.
  CHECK(resident(ddp_buffers(config, kParameters)) == all.times_width(4 + 4 + 8));
  config.ranks = 2;
  CHECK(resident(ddp_buffers(config, kParameters)) == all.times_width(4 + 4 + 4 + 8));
  config.gradient_as_bucket_view = true;
  CHECK(resident(ddp_buffers(config, kParameters)) == all.times_width(4 + 4 + 8));
}
