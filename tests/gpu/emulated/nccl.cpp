// NCCL without NCCL: as much of its interface as runtime/cuda calls, between threads of a process,
// on the host's memory. A collective is done by the rank that comes last; until then the others'
// communicators are in progress, as NCCL's are that do not block; one that blocks waits for it in
// the call. Checks that ranks call the same.
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <nccl.h>

#include "runtime/collectives/reduce_kernels.hpp"

namespace {

using zeroplan::CollectiveKind;
using zeroplan::DType;
using zeroplan::ReduceOperation;

struct Call {
  CollectiveKind kind = CollectiveKind::barrier;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t operation = ncclSum;
  std::size_t count = 0;
  int root = 0;
  const void* input = nullptr;
  void* output = nullptr;
  std::map<int, const void*> sends;  // by peer
  std::map<int, void*> receives;

  bool same(const Call& other) const {
    return kind == other.kind && type == other.type && operation == other.operation &&
           count == other.count && root == other.root;
  }
};

struct Group {
  std::mutex mutex;
  std::condition_variable changed;
  int ranks = 0;
  int joined = 0;
  bool broken = false;
  std::map<std::int64_t, std::map<int, Call>> calls;  // not yet done, by number and rank
  std::int64_t done = 0;
};

DType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclBfloat16:
      return DType::bf16;
    case ncclFloat16:
      return DType::fp16;
    case ncclFloat64:
      return DType::fp64;
    case ncclInt64:
      return DType::int64;
    case ncclFloat32:
      return DType::fp32;
    default:
      return DType::uint8;
  }
}

void copy(void* to, const void* from, std::size_t bytes) {
  if (to != from) std::memmove(to, from, bytes);
}

// Elements of every rank's input from `at` on, summed into outputs.
void combine(std::map<int, Call>& calls, std::size_t at, const std::vector<std::byte*>& outputs) {
  const Call& call = calls.begin()->second;
  const DType dtype = dtype_of(call.type);
  std::vector<const std::byte*> inputs;
  for (const auto& [rank, each] : calls) {
    inputs.push_back(static_cast<const std::byte*>(each.input) +
                     at * static_cast<std::size_t>(zeroplan::width(dtype)));
  }
  zeroplan::runtime::combine(
      inputs,
      outputs,
      static_cast<std::int64_t>(call.count),
      dtype,
      call.operation == ncclSum ? ReduceOperation::sum : ReduceOperation::maximum);
}

void carry_out(std::map<int, Call>& calls) {
  const Call& first = calls.begin()->second;
  const auto bytes = first.count * static_cast<std::size_t>(zeroplan::width(dtype_of(first.type)));
  const auto output = [&](int rank) { return static_cast<std::byte*>(calls.at(rank).output); };
  std::vector<std::byte*> all;
  for (const auto& [rank, each] : calls) all.push_back(output(rank));
  switch (first.kind) {
    case CollectiveKind::all_reduce:
      combine(calls, 0, all);
      break;
    case CollectiveKind::reduce:
      combine(calls, 0, {output(first.root)});
      break;
    case CollectiveKind::reduce_scatter:
      for (const auto& [rank, each] : calls) {
        combine(calls, static_cast<std::size_t>(rank) * first.count, {output(rank)});
      }
      break;
    case CollectiveKind::all_gather:
      for (const auto& [from, each] : calls) {
        for (std::byte* to : all)
          copy(to + static_cast<std::size_t>(from) * bytes, each.input, bytes);
      }
      break;
    case CollectiveKind::broadcast:
      for (std::byte* to : all) copy(to, calls.at(first.root).input, bytes);
      break;
    case CollectiveKind::all_to_all:
      for (auto& [to, each] : calls) {
        for (const auto& [from, where] : each.receives) {
          copy(where, calls.at(from).sends.at(to), bytes);
        }
      }
      break;
    case CollectiveKind::barrier:
      break;
  }
}

thread_local Call* grouped = nullptr;

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  int rank = 0;
  bool blocks = false;
  std::int64_t posted = 0;

  // Precondition: the group's lock is held.
  template <typename Reached>
  ncclResult_t answer(std::unique_lock<std::mutex>& lock, Reached reached) {
    if (!blocks) return ncclInProgress;
    const auto over = [&] { return group->broken || reached(); };
    if (!group->changed.wait_for(lock, std::chrono::seconds(60), over)) return ncclSystemError;
    return group->broken ? ncclRemoteError : ncclSuccess;
  }

  ncclResult_t post(Call call) {
    std::unique_lock lock(group->mutex);
    if (group->broken) return ncclRemoteError;
    std::map<int, Call>& meeting = group->calls[posted++];
    if (!meeting.empty() && !meeting.begin()->second.same(call)) return ncclInvalidUsage;
    meeting[rank] = std::move(call);
    if (static_cast<int>(meeting.size()) == group->ranks) {
      carry_out(meeting);
      group->calls.erase(posted - 1);
      ++group->done;
      group->changed.notify_all();
    }
    return answer(lock, [this] { return group->done >= posted; });
  }
};

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "an error of the emulated NCCL"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::mutex mutex;
  static int next = 0;
  const std::lock_guard lock(mutex);
  std::memset(id, 0, sizeof *id);
  const std::string text = "emulated " + std::to_string(next++);
  std::memcpy(id->internal, text.c_str(), text.size());
  return ncclSuccess;
}

namespace {

bool said(const char* variable, int rank) {
  const char* text = std::getenv(variable);
  return text != nullptr && std::to_string(rank) == text;
}

}  // namespace

ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const bool blocks = config->blocking != 0;
  if (said("ZEROPLAN_EMULATED_FAILING_RANK", rank)) return ncclSystemError;
  if (blocks && said("ZEROPLAN_EMULATED_FAILING_BLOCKING", rank)) return ncclSystemError;
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Group>> groups;
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(mutex);
    std::shared_ptr<Group>& known = groups[id.internal];
    if (!known) known = std::make_shared<Group>();
    group = known;
  }
  std::unique_lock of_group(group->mutex);
  group->ranks = ranks;
  const bool absent = said("ZEROPLAN_EMULATED_ABSENT_RANK", rank) ||
                      (blocks && said("ZEROPLAN_EMULATED_ABSENT_BLOCKING", rank));
  if (!absent) ++group->joined;
  group->changed.notify_all();
  *communicator = new ncclComm{.group = group, .rank = rank, .blocks = blocks};
  return (*communicator)->answer(of_group, [&] { return group->joined == group->ranks; });
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  Group& group = *communicator->group;
  const std::lock_guard lock(group.mutex);
  const bool waits = group.joined < group.ranks || group.done < communicator->posted;
  *state = group.broken && waits ? ncclRemoteError : waits ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  delete communicator;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  {
    const std::lock_guard lock(communicator->group->mutex);
    communicator->group->broken = true;
    communicator->group->changed.notify_all();
  }
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* input,
                           void* output,
                           std::size_t count,
                           ncclDataType_t type,
                           ncclRedOp_t operation,
                           ncclComm_t communicator,
                           cudaStream_t) {
  return communicator->post(
      {CollectiveKind::all_reduce, type, operation, count, 0, input, output, {}, {}});
}
ncclResult_t ncclReduce(const void* input,
                        void* output,
                        std::size_t count,
                        ncclDataType_t type,
                        ncclRedOp_t operation,
                        int root,
                        ncclComm_t communicator,
                        cudaStream_t) {
  return communicator->post(
      {CollectiveKind::reduce, type, operation, count, root, input, output, {}, {}});
}
ncclResult_t ncclReduceScatter(const void* input,
                               void* output,
                               std::size_t count,
                               ncclDataType_t type,
                               ncclRedOp_t operation,
                               ncclComm_t communicator,
                               cudaStream_t) {
  return communicator->post(
      {CollectiveKind::reduce_scatter, type, operation, count, 0, input, output, {}, {}});
}
ncclResult_t ncclAllGather(const void* input,
                           void* output,
                           std::size_t count,
                           ncclDataType_t type,
                           ncclComm_t communicator,
                           cudaStream_t) {
  return communicator->post(
      {CollectiveKind::all_gather, type, ncclSum, count, 0, input, output, {}, {}});
}
ncclResult_t ncclBroadcast(const void* input,
                           void* output,
                           std::size_t count,
                           ncclDataType_t type,
                           int root,
                           ncclComm_t communicator,
                           cudaStream_t) {
  return communicator->post(
      {CollectiveKind::broadcast, type, ncclSum, count, root, input, output, {}, {}});
}

// Sends and receives, in a group alone.
namespace {
thread_local ncclComm_t grouped_for = nullptr;
}
ncclResult_t ncclGroupStart() {
  grouped = new Call{.kind = CollectiveKind::all_to_all};
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  const std::unique_ptr<Call> call(std::exchange(grouped, nullptr));
  return grouped_for->post(*call);
}
ncclResult_t ncclSend(const void* from,
                      std::size_t count,
                      ncclDataType_t type,
                      int peer,
                      ncclComm_t communicator,
                      cudaStream_t) {
  if (grouped == nullptr) return ncclInvalidUsage;
  grouped_for = communicator;
  grouped->type = type;
  grouped->count = count;
  grouped->sends[peer] = from;
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* to,
                      std::size_t count,
                      ncclDataType_t type,
                      int peer,
                      ncclComm_t communicator,
                      cudaStream_t) {
  if (grouped == nullptr) return ncclInvalidUsage;
  grouped_for = communicator;
  grouped->type = type;
  grouped->count = count;
  grouped->receives[peer] = to;
  return ncclSuccess;
}
