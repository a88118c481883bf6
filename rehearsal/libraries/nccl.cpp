// NCCL: communicators of any size, of which this process is one rank. Collectives are counted; of
// small ones the values are what every other rank would have to hold if it held what this rank
// does.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "rehearsal/libraries/gpu/memory.hpp"
#include "rehearsal/libraries/gpu/record.hpp"
#include "rehearsal/libraries/gpu/settings.hpp"

namespace {

using namespace zeroplan::gpu;

constexpr int kDone = 0;  // ncclSuccess
constexpr std::size_t kIdBytes = 128;
constexpr int kSum = 0;  // ncclSum

struct Identity {
  char bytes[kIdBytes];
};

struct Communicator {
  int ranks;
  int rank;
  int device;
};

// ncclDataType_t: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, fp8
// twice.
std::size_t width(int type) {
  constexpr std::size_t kWidths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  constexpr int kTypes = sizeof kWidths / sizeof kWidths[0];
  return type >= 0 && type < kTypes ? kWidths[type] : 1;
}

int create(Communicator** made, int ranks, int rank) {
  *made = new Communicator{ranks, rank, current_device()};
  return kDone;
}

struct Broadcast {
  const void* from;
  void* to;
  std::size_t bytes;
  bool is_mine;
};

// Calls between ncclGroupStart and ncclGroupEnd are launched together.
struct Group {
  int depth = 0;
  bool has_calls = false;
  std::vector<Broadcast> broadcasts;
};
thread_local Group group;

// torch 2.15 gathers into a list by one broadcast of each rank. Others send what this rank sends.
void share_broadcasts() {
  const auto mine = std::find_if(group.broadcasts.begin(),
                                 group.broadcasts.end(),
                                 [](const Broadcast& call) { return call.is_mine; });
  if (mine != group.broadcasts.end()) {
    for (const Broadcast& call : group.broadcasts) {
      if (!call.is_mine && call.bytes == mine->bytes) copy_values(call.to, mine->from, call.bytes);
    }
  }
  group.broadcasts.clear();
}

void collective(const char* name, std::size_t bytes, const Communicator& among, void* stream) {
  const bool joins = group.depth > 0 && group.has_calls;
  enqueue(Work::collective, stream, "%s %zu %d %d", name, bytes, among.ranks, joins ? 1 : 0);
  group.has_calls = true;
}

template <typename Number>
void add_times(void* to, std::size_t count, int ranks) {
  for (std::size_t i = 0; i < count; ++i) {
    Number value;
    char* const at = static_cast<char*>(to) + i * sizeof value;
    std::memcpy(&value, at, sizeof value);
    value *= static_cast<Number>(ranks);
    std::memcpy(at, &value, sizeof value);
  }
}

// The sum of equal whole numbers over the ranks; floats have no values that matter.
void sum_whole_numbers(void* to, std::size_t count, int type, int ranks) {
  if (to == nullptr || count * width(type) > kMostCopied) return;
  if (type == 2) add_times<std::int32_t>(to, count, ranks);
  if (type == 4) add_times<std::int64_t>(to, count, ranks);
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = settings().nccl;
  return kDone;
}
int ncclGetUniqueId(Identity* id) {
  std::memset(id, 7, sizeof *id);
  return kDone;
}
const char* ncclGetErrorString(int) { return "the status of an emulated NCCL"; }
const char* ncclGetLastError(Communicator*) { return ""; }

int ncclCommInitRank(Communicator** made, int ranks, Identity, int rank) {
  return create(made, ranks, rank);
}
int ncclCommInitRankConfig(Communicator** made, int ranks, Identity, int rank, void*) {
  return create(made, ranks, rank);
}
int ncclCommInitRankScalable(Communicator** made, int ranks, int rank, int, void*, void*) {
  return create(made, ranks, rank);
}
int ncclCommInitAll(Communicator** made, int count, const int* devices) {
  for (int i = 0; i < count; ++i) made[i] = new Communicator{count, i, devices ? devices[i] : i};
  return kDone;
}
// Whom a color joins is known to the other ranks alone; torch splits by groups that it made
// beforehand.
int ncclCommSplit(Communicator* from, int, int, Communicator** made, void*) {
  *made = new Communicator(*from);
  return kDone;
}
int ncclCommDestroy(Communicator* comm) {
  delete comm;
  return kDone;
}
int ncclCommAbort(Communicator* comm) { return ncclCommDestroy(comm); }
int ncclCommFinalize(Communicator*) { return kDone; }
int ncclCommCount(Communicator* comm, int* ranks) {
  *ranks = comm->ranks;
  return kDone;
}
int ncclCommUserRank(Communicator* comm, int* rank) {
  *rank = comm->rank;
  return kDone;
}
int ncclCommCuDevice(Communicator* comm, int* device) {
  *device = comm->device;
  return kDone;
}
int ncclCommGetAsyncError(Communicator*, int* status) {
  *status = kDone;
  return kDone;
}
int ncclCommRegister(Communicator*, void*, std::size_t, void** handle) {
  *handle = nullptr;
  return kDone;
}
int ncclCommDeregister(Communicator*, void*) { return kDone; }
int ncclMemAlloc(void** address, std::size_t bytes) {
  *address = memory().allocate(current_device(), bytes);
  return *address == nullptr ? 1 : kDone;  // ncclUnhandledCudaError
}
int ncclMemFree(void* address) {
  memory().free(address);
  return kDone;
}
int ncclGroupStart() {
  if (group.depth++ == 0) group.has_calls = false;
  return kDone;
}
int ncclGroupEnd() {
  if (group.depth > 0 && --group.depth == 0) share_broadcasts();
  return kDone;
}
int ncclRedOpCreatePreMulSum(int* operation, void*, int, int, Communicator*) {
  *operation = kSum;
  return kDone;
}
int ncclRedOpDestroy(int, Communicator*) { return kDone; }

int ncclAllGather(
    const void* from, void* to, std::size_t count, int type, Communicator* comm, void* stream) {
  const std::size_t bytes = count * width(type);
  const std::size_t ranks = static_cast<std::size_t>(comm->ranks);
  collective("all_gather", bytes, *comm, stream);
  if (bytes * ranks > kMostCopied) return kDone;
  for (std::size_t i = 0; i < ranks; ++i) {
    copy_values(static_cast<char*>(to) + i * bytes, from, bytes);
  }
  return kDone;
}
// From NCCL 2.28 on. Other ranks have sent what this one has.
int ncclAlltoAll(
    const void* from, void* to, std::size_t count, int type, Communicator* comm, void* stream) {
  const std::size_t bytes = count * width(type);
  const std::size_t ranks = static_cast<std::size_t>(comm->ranks);
  collective("all_to_all", bytes * ranks, *comm, stream);
  if (bytes * ranks > kMostCopied) return kDone;
  const char* const mine =
      static_cast<const char*>(from) + static_cast<std::size_t>(comm->rank) * bytes;
  for (std::size_t i = 0; i < ranks; ++i)
    copy_values(static_cast<char*>(to) + i * bytes, mine, bytes);
  return kDone;
}
int ncclGather(const void* from,
               void* to,
               std::size_t count,
               int type,
               int root,
               Communicator* comm,
               void* stream) {
  const std::size_t bytes = count * width(type);
  const std::size_t ranks = static_cast<std::size_t>(comm->ranks);
  collective("gather", bytes, *comm, stream);
  if (comm->rank != root || bytes * ranks > kMostCopied) return kDone;
  for (std::size_t i = 0; i < ranks; ++i)
    copy_values(static_cast<char*>(to) + i * bytes, from, bytes);
  return kDone;
}
int ncclScatter(const void* from,
                void* to,
                std::size_t count,
                int type,
                int root,
                Communicator* comm,
                void* stream) {
  const std::size_t bytes = count * width(type);
  collective("scatter", bytes, *comm, stream);
  if (comm->rank != root) return kDone;
  copy_values(to, static_cast<const char*>(from) + static_cast<std::size_t>(root) * bytes, bytes);
  return kDone;
}
int ncclReduceScatter(const void* from,
                      void* to,
                      std::size_t count,
                      int type,
                      int,
                      Communicator* comm,
                      void* stream) {
  const std::size_t bytes = count * width(type);
  collective("reduce_scatter", bytes, *comm, stream);
  copy_values(
      to, static_cast<const char*>(from) + static_cast<std::size_t>(comm->rank) * bytes, bytes);
  return kDone;
}
int ncclAllReduce(const void* from,
                  void* to,
                  std::size_t count,
                  int type,
                  int operation,
                  Communicator* comm,
                  void* stream) {
  collective("all_reduce", count * width(type), *comm, stream);
  copy_values(to, from, count * width(type));
  if (operation == kSum) sum_whole_numbers(to, count, type, comm->ranks);
  return kDone;
}
int ncclBroadcast(const void* from,
                  void* to,
                  std::size_t count,
                  int type,
                  int root,
                  Communicator* comm,
                  void* stream) {
  const std::size_t bytes = count * width(type);
  collective("broadcast", bytes, *comm, stream);
  copy_values(to, from, bytes);
  if (group.depth > 0) group.broadcasts.push_back({from, to, bytes, root == comm->rank});
  return kDone;
}
int ncclBcast(void*, std::size_t count, int type, int, Communicator* comm, void* stream) {
  collective("broadcast", count * width(type), *comm, stream);
  return kDone;
}
int ncclReduce(const void* from,
               void* to,
               std::size_t count,
               int type,
               int operation,
               int root,
               Communicator* comm,
               void* stream) {
  collective("reduce", count * width(type), *comm, stream);
  if (comm->rank != root) return kDone;
  copy_values(to, from, count * width(type));
  if (operation == kSum) sum_whole_numbers(to, count, type, comm->ranks);
  return kDone;
}
int ncclSend(const void*, std::size_t count, int type, int, Communicator* comm, void* stream) {
  collective("send", count * width(type), *comm, stream);
  return kDone;
}
int ncclRecv(void*, std::size_t count, int type, int, Communicator* comm, void* stream) {
  collective("recv", count * width(type), *comm, stream);
  return kDone;
}
}
