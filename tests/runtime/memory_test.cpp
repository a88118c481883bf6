#include "runtime/memory/memory.hpp"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

constexpr MemoryCategory kWeights = MemoryCategory::parameters;
constexpr MemoryCategory kGradients = MemoryCategory::gradients;

TEST_CASE("allocations count in multiples of 512 bytes and come back when their buffer dies") {
  Memory memory;
  {
    const Buffer a = memory.allocate(1000_B, kWeights, Place::device, "a");
    const Buffer b = memory.allocate(512_B, kGradients, Place::pinned, "b");
    CHECK(a.asked() == 1000_B);
    CHECK(a.taken() == 1024_B);
    CHECK(reinterpret_cast<std::uintptr_t>(a.data()) % 512 == 0);
    const PlaceAccount& device = memory.account().of(Place::device);
    CHECK(at(device.now, kWeights) == 1024_B);
    CHECK(device.total == 1024_B);
    CHECK(device.asked == 1000_B);
    CHECK(at(memory.account().of(Place::pinned).now, kGradients) == 512_B);
  }
  CHECK(memory.account().of(Place::device).total == 0_B);
  CHECK(memory.account().of(Place::device).peak == 1024_B);
  CHECK(memory.account().of(Place::pinned).peak == 512_B);
}

TEST_CASE("space on a drive is counted like memory, and has no data") {
  MemoryLimits limits;
  limits.capacity[static_cast<std::size_t>(Place::file)] = 2_KiB;
  Memory memory(limits);
  const Buffer states =
      memory.allocate_zeroed(1000_B, MemoryCategory::optimizer_states, Place::file, "states");
  CHECK(static_cast<bool>(states));
  CHECK(states.data() == nullptr);
  CHECK(at(memory.account().of(Place::file).now, MemoryCategory::optimizer_states) == 1024_B);
  CHECK_THROWS_AS(memory.allocate(2_KiB, kWeights, Place::file, "weights"), OutOfMemory);
}

TEST_CASE("the breakdown at the peak is that of the highest moment, by phase too") {
  Memory memory;
  memory.begin(Phase::forward);
  const Buffer weights = memory.allocate(1_KiB, kWeights, Place::device, "weights");
  { const Buffer gradient = memory.allocate(2_KiB, kGradients, Place::device, "gradient"); }
  memory.begin(Phase::step);
  const Buffer more = memory.allocate(1_KiB, kWeights, Place::device, "more");
  const PlaceAccount& account = memory.account().of(Place::device);
  CHECK(account.peak == 3_KiB);
  CHECK(account.peak_phase == Phase::forward);
  CHECK(at(account.at_peak, kGradients) == 2_KiB);
  CHECK(sum(account.at_peak) == account.peak);
  CHECK(account.phase_peak[static_cast<std::size_t>(Phase::step)] == 2_KiB);
  CHECK(at(account.peak_of_category, kWeights) == 2_KiB);
  CHECK(account.phase_peak[static_cast<std::size_t>(Phase::backward)] == 0_B);
}

TEST_CASE("a buffer moves with its bytes and can change what it is") {
  Memory memory;
  Buffer a = memory.allocate_zeroed(600_B, MemoryCategory::activations, Place::device, "a");
  Buffer b = std::move(a);
  CHECK_FALSE(static_cast<bool>(a));
  memory.recategorise(b, kGradients);
  const PlaceAccount& account = memory.account().of(Place::device);
  CHECK(at(account.now, kGradients) == 1024_B);
  CHECK(at(account.now, MemoryCategory::activations) == 0_B);
  CHECK(account.total == 1024_B);
  b = memory.allocate(100_B, kWeights, Place::device, "b");
  CHECK(account.total == 512_B);
}

TEST_CASE("running out of memory says who asked, for what, and what was predicted") {
  MemoryLimits limits;
  limits.capacity[static_cast<std::size_t>(Place::device)] = Bytes::mib(2);
  limits.predicted_peak = Bytes::kib(1536);
  limits.rank = 3;
  Memory memory(limits);
  memory.begin(Phase::backward);
  const Buffer held = memory.allocate(Bytes::mib(1), kWeights, Place::device, "weights");
  std::string message;
  try {
    memory.allocate(Bytes::mib(1) + 1_B, kGradients, Place::device, "the reduce bucket");
  } catch (const OutOfMemory& error) {
    message = error.what();
    CHECK(error.category() == kGradients);
    CHECK(error.asked() == Bytes::mib(1) + 1_B);
  }
  CHECK(message ==
        "rank 3: out of device memory in phase backward: the reduce bucket asked for 1.0 MiB "
        "(gradients); 1.0 MiB of 2.0 MiB in use; the plan predicted a peak of 1.5 MiB");
  CHECK_NOTHROW(memory.allocate(Bytes::mib(1), kGradients, Place::device, "fits"));
  CHECK_NOTHROW(memory.allocate(Bytes::mib(8), kGradients, Place::pinned, "another place"));
}

namespace {

// The process's largest resident set so far (VmHWM of /proc/self/status); zero where unknown.
Bytes high_water_mark() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("VmHWM:", 0) == 0) return Bytes::kib(std::atoll(line.c_str() + 6));
  }
  return Bytes::zero();
}

}  // namespace

TEST_CASE("what is counted is what the process takes") {
  const Bytes before = high_water_mark();
  if (before == Bytes::zero()) {
    WARN("skipped: no /proc/self/status here");
    return;
  }
  constexpr Bytes kSize = Bytes::mib(400);
  Memory memory;
  {
    const Buffer big = memory.allocate(kSize, kWeights, Place::device, "big");
    std::memset(big.data(), 1, static_cast<std::size_t>(kSize.count()));
  }
  const Bytes rise = high_water_mark() - before;
  if (!kUnderThreadSanitizer) CHECK(rise <= kSize + Bytes::mib(4));
  CHECK(rise >= kSize - before);  // at its earlier peak the process held at most `before`
  CHECK(memory.account().of(Place::device).peak == kSize);
}

}  // namespace
}  // namespace zeroplan::runtime
