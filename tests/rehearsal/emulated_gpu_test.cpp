// The emulated GPU's memory, streams and events (rehearsal/libraries/gpu).
#include <cstring>
#include <map>
#include <string>

#include "rehearsal/libraries/gpu/memory.hpp"
#include "rehearsal/libraries/gpu/record.hpp"
#include "rehearsal/libraries/gpu/settings.hpp"
#include "rehearsal/libraries/gpu/streams.hpp"
#include "tests/catch.hpp"

using namespace zeroplan::gpu;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kGiB = std::size_t{1} << 30;

std::map<std::string, std::string> variables;
const char* said(const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}

}  // namespace

TEST_CASE("An allocation takes whole pages of 2 MiB, a small one units of 512 bytes") {
  CHECK(taken_by(1) == 512);
  CHECK(taken_by(513) == 1024);
  CHECK(taken_by(kMiB - 1) == kMiB);
  CHECK(taken_by(kMiB) == 2 * kMiB);
  CHECK(taken_by(2 * kMiB + 1) == 4 * kMiB);
}

TEST_CASE("The GPU's memory is counted, and what does not fit is refused") {
  Memory memory(10 * kMiB, 1 * kMiB, 1);
  void* const first = memory.allocate(0, 4 * kMiB);
  void* const second = memory.allocate(0, 3 * kMiB);  // takes 4
  REQUIRE(first != nullptr);
  REQUIRE(second != nullptr);
  CHECK(memory.use(0).used == 8 * kMiB);
  CHECK(memory.free_bytes(0) == 1 * kMiB);
  CHECK(memory.allocate(0, 2 * kMiB) == nullptr);
  CHECK(memory.use(0).refused == 1);
  CHECK(memory.free(first));
  CHECK_FALSE(memory.free(first));
  CHECK(memory.use(0).used == 4 * kMiB);
  CHECK(memory.use(0).peak == 8 * kMiB);
  CHECK(memory.use(0).allocations == 2);
  CHECK(memory.use(0).frees == 1);
  CHECK(memory.allocate(0, 4 * kMiB) != nullptr);
}

TEST_CASE("Each GPU of a node has its own memory") {
  Memory memory(4 * kMiB, 0, 2);
  CHECK(memory.allocate(0, 4 * kMiB) != nullptr);
  CHECK(memory.allocate(0, 2 * kMiB) == nullptr);
  CHECK(memory.allocate(1, 4 * kMiB) != nullptr);
  CHECK(memory.use(1).refused == 0);
}

TEST_CASE("Addresses of the GPU can be read and written, cost nothing until then, and are known") {
  Memory memory(200 * kGiB, 0, 1);
  char* const address = static_cast<char*>(memory.allocate(0, 100 * kGiB));
  REQUIRE(address != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(address) % (2 * kMiB) == 0);
  std::memset(address + 50 * kGiB, 7, 64);
  CHECK(address[50 * kGiB + 63] == 7);
  CHECK(memory.where(address + 100 * kGiB - 1).place == Place::gpu);
  CHECK(memory.where(address + 100 * kGiB - 1).device == 0);
  CHECK(memory.where(address + 100 * kGiB).place == Place::elsewhere);
  CHECK(memory.where(&memory).place == Place::elsewhere);
}

TEST_CASE("Pinned memory is counted apart, also where the program had it already") {
  Memory memory(4 * kMiB, 0, 1);
  void* const made = memory.allocate_pinned(3 * kMiB);
  char own[4096];
  memory.pin(own, sizeof own);
  CHECK(memory.where(made).place == Place::pinned);
  CHECK(memory.where(own).place == Place::pinned);
  CHECK(memory.pinned().used == 3 * kMiB + sizeof own);
  CHECK(memory.unpin(own));
  CHECK_FALSE(memory.free(made));  // not the GPU's
  CHECK(memory.free_pinned(made));
  CHECK(memory.pinned().used == 0);
  CHECK(memory.pinned().peak == 3 * kMiB + sizeof own);
  CHECK(memory.use(0).used == 0);
}

TEST_CASE("Memory that mlock keeps counts as pinned, but copies do not know it") {
  Memory memory(4 * kMiB, 0, 1);
  int of_the_host = 0;
  memory.lock(1 << 20);
  memory.lock(1 << 10);
  memory.unlock(1 << 20);
  CHECK(memory.pinned().used == 1 << 10);
  CHECK(memory.pinned().peak == (1 << 20) + (1 << 10));
  CHECK(memory.where(&of_the_host).place == Place::elsewhere);
}

TEST_CASE("Reserved addresses do not count, memory without addresses does") {
  Memory memory(8 * kMiB, 0, 1);
  void* const range = memory.reserve_addresses(0, 64 * kMiB);
  REQUIRE(range != nullptr);
  CHECK(memory.where(range).place == Place::gpu);
  CHECK(memory.free_bytes(0) == 8 * kMiB);
  CHECK(memory.take(0, 6 * kMiB));
  CHECK_FALSE(memory.take(0, 4 * kMiB));
  memory.give_back(0, 6 * kMiB);
  CHECK(memory.release_addresses(range));
  CHECK(memory.use(0).used == 0);
}

TEST_CASE("Where work ends at once no event pends") {
  Streams streams(Ending::done);
  const std::size_t side = streams.create(0);
  Event event;
  streams.enqueue(side);
  streams.record(event);
  CHECK(streams.has_ended(event));
  CHECK(streams.has_ended(side));
}

TEST_CASE("Where work pends it ends when the host waits for it or for later work") {
  Streams streams(Ending::pending);
  const std::size_t side = streams.create(-1);
  CHECK(streams.priority(side) == -1);
  Event first;
  Event second;
  streams.enqueue(side);
  streams.record(first);
  streams.enqueue(Streams::kDefault);
  streams.record(second);
  streams.enqueue(side);
  CHECK_FALSE(streams.has_ended(first));
  streams.synchronize(first);
  CHECK(streams.has_ended(first));
  CHECK_FALSE(streams.has_ended(second));
  streams.synchronize(second);
  CHECK(streams.has_ended(Streams::kDefault));
  CHECK_FALSE(streams.has_ended(side));  // one piece came after it
  streams.synchronize(first);            // what has ended has ended
  CHECK(streams.has_ended(second));
  streams.synchronize(side);
  CHECK(streams.has_ended(side));
}

TEST_CASE(
    "Waiting for the device ends everything, and an event that was never recorded has ended") {
  Streams streams(Ending::pending);
  Event never;
  CHECK(streams.has_ended(never));
  Event event;
  streams.enqueue(streams.create(0));
  streams.record(event);
  streams.synchronize();
  CHECK(streams.has_ended(event));
  CHECK(streams.has_ended(Streams::kDefault));
}

TEST_CASE("The GPU is what the environment says, and an A100 where it says nothing") {
  variables = {};
  CHECK(settings_from(said).capability() == 80);
  variables = {{"ZEROPLAN_GPU_MEMORY", "25331892224"},
               {"ZEROPLAN_GPU_CAPABILITY", "8.9"},
               {"ZEROPLAN_GPU_EVENTS", "pending"},
               {"ZEROPLAN_GPU_NAME", ""}};
  const Settings gpu = settings_from(said);
  CHECK(gpu.memory == 25331892224);
  CHECK(gpu.capability() == 89);
  CHECK(gpu.kernel_capability() == 86);  // what PyTorch's wheels have for it
  CHECK(gpu.threads_per_multiprocessor() == 1536);
  CHECK(gpu.shared_per_block() == 99 * 1024);
  CHECK(gpu.ending == Ending::pending);
  CHECK(gpu.name == "NVIDIA A100-SXM4-80GB");
}

TEST_CASE("A program sees the GPUs that CUDA_VISIBLE_DEVICES names, until the first that is none") {
  CHECK(visible_devices("0,1", 8) == 2);
  CHECK(visible_devices("7", 8) == 1);
  CHECK(visible_devices("2,8,3", 8) == 1);
  CHECK(visible_devices("", 8) == 0);
  CHECK(visible_devices("-1", 8) == 0);
  CHECK(visible_devices("1,1", 8) == 0);
  CHECK(visible_devices("GPU-8932f937,GPU-1a2b", 8) == 2);
  variables = {{"ZEROPLAN_GPU_COUNT", "4"}, {"CUDA_VISIBLE_DEVICES", "3,0"}};
  CHECK(settings_from(said).devices == 2);
  CHECK(settings_from(said).gpus == 4);
  variables = {{"ZEROPLAN_GPU_COUNT", "4"}};
  CHECK(settings_from(said).devices == 4);
}

TEST_CASE("Work is counted by kind, and what nobody emulates is remembered by name") {
  Record record("");
  record.count(Work::kernel);
  record.count(Work::kernel);
  record.count(Work::collective);
  CHECK(record.counted(Work::kernel) == 2);
  CHECK(record.counted(Work::collective) == 1);
  CHECK(record.counted(Work::product) == 0);
  record.called_unknown("cusolverDnXgetrf");
  record.called_unknown("cufftExecC2C");
  record.called_unknown("cufftExecC2C");
  CHECK(record.unknown_names() == "cufftExecC2C cusolverDnXgetrf");
}
