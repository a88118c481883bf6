// NCCL: communicators of any size, of which this process is one rank. Each collective is put on its
// stream (gpu/collectives.hpp says what that means on which GPU); the values that are carried are
// what every other rank would have to hold if it held what this rank does.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "rehearsal/libraries/gpu/collectives.hpp"
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
  void* stream;
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
      if (!call.is_mine && call.bytes == mine->bytes)
        carry(call.to, mine->from, call.bytes, call.stream);
    }
  }
  group.broadcasts.clear();
}

// A collective on its stream, around what it copies.
class Collective {
 public:
  Collective(const char* name, std::size_t bytes, const Communicator& among, void* stream)
      : call_{name, bytes, among.ranks, group.depth > 0 && group.has_calls}, stream_(stream) {
    group.has_calls = true;
    begin_collective(stream);
  }
  ~Collective() { end_collective(call_, stream_); }
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

 private:
  CollectiveCall call_;
  void* stream_;
};

// The sum of equal whole numbers over the ranks; floats have no values that matter.
void sum_whole_numbers(void* to, std::size_t count, int type, int ranks, void* stream) {
  constexpr int kInt32 = 2, kInt64 = 4;
  if (type == kInt32 || type == kInt64) {
    multiply_whole_numbers(to, count, width(type), ranks, stream);
  }
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
  *address = allocate_on_gpu(bytes);
  return *address == nullptr ? 1 : kDone;  // ncclUnhandledCudaError
}
int ncclMemFree(void* address) {
  free_on_gpu(address);
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
  const Collective running("all_gather", bytes, *comm, stream);
  if (!carries(bytes * ranks)) return kDone;
  for (std::size_t i = 0; i < ranks; ++i) {
    carry(static_cast<char*>(to) + i * bytes, from, bytes, stream);
  }
  return kDone;
}
// From NCCL 2.28 on. Other ranks have sent what this one has.
int ncclAlltoAll(
    const void* from, void* to, std::size_t count, int type, Communicator* comm, void* stream) {
  const std::size_t bytes = count * width(type);
  const std::size_t ranks = static_cast<std::size_t>(comm->ranks);
  const Collective running("all_to_all", bytes * ranks, *comm, stream);
  if (!carries(bytes * ranks)) return kDone;
  const char* const mine =
      static_cast<const char*>(from) + static_cast<std::size_t>(comm->rank) * bytes;
  for (std::size_t i = 0; i < ranks; ++i)
    carry(static_cast<char*>(to) + i * bytes, mine, bytes, stream);
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
  const Collective running("gather", bytes, *comm, stream);
  if (comm->rank != root || !carries(bytes * ranks)) return kDone;
  for (std::size_t i = 0; i < ranks; ++i)
    carry(static_cast<char*>(to) + i * bytes, from, bytes, stream);
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
  const Collective running("scatter", bytes, *comm, stream);
  if (comm->rank != root) return kDone;
  carry(to, static_cast<const char*>(from) + static_cast<std::size_t>(root) * bytes, bytes, stream);
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
  const Collective running("reduce_scatter", bytes, *comm, stream);
  carry(to,
        static_cast<const char*>(from) + static_cast<std::size_t>(comm->rank) * bytes,
        bytes,
        stream);
  return kDone;
}
int ncclAllReduce(const void* from,
                  void* to,
                  std::size_t count,
                  int type,
                  int operation,
                  Communicator* comm,
                  void* stream) {
  const Collective running("all_reduce", count * width(type), *comm, stream);
  carry(to, from, count * width(type), stream);
  if (operation == kSum) sum_whole_numbers(to, count, type, comm->ranks, stream);
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
  const Collective running("broadcast", bytes, *comm, stream);
  carry(to, from, bytes, stream);
  if (group.depth > 0) group.broadcasts.push_back({from, to, bytes, root == comm->rank, stream});
  return kDone;
}
int ncclBcast(void*, std::size_t count, int type, int, Communicator* comm, void* stream) {
  const Collective running("broadcast", count * width(type), *comm, stream);
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
  const Collective running("reduce", count * width(type), *comm, stream);
  if (comm->rank != root) return kDone;
  carry(to, from, count * width(type), stream);
  if (operation == kSum) sum_whole_numbers(to, count, type, comm->ranks, stream);
  return kDone;
}
int ncclSend(const void*, std::size_t count, int type, int, Communicator* comm, void* stream) {
  const Collective running("send", count * width(type), *comm, stream);
  return kDone;
}
int ncclRecv(void*, std::size_t count, int type, int, Communicator* comm, void* stream) {
  const Collective running("recv", count * width(type), *comm, stream);
  return kDone;
}
}
