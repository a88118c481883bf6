#include "runtime/cuda/nccl_communicator.hpp"

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nccl.h>

#include "base/check.hpp"
#include "runtime/cuda/cuda_check.hpp"

namespace zeroplan::runtime::cuda {
namespace {

using Clock = std::chrono::steady_clock;

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::fp16:
      return ncclFloat16;
    case DType::fp64:
      return ncclFloat64;
    case DType::int64:
      return ncclInt64;
    case DType::int8:
      return ncclInt8;
    case DType::uint8:
    case DType::boolean:
      break;
  }
  return ncclUint8;
}

class NcclCommunicator : public Communicator {
 public:
  // `whole`: of a part, whose host group it owns.
  NcclCommunicator(Communicator& host,
                   CudaDevice& device,
                   std::chrono::milliseconds patience,
                   std::unique_ptr<Communicator> own_host = nullptr,
                   NcclCommunicator* whole = nullptr)
      : own_host_(std::move(own_host)),
        host_(host),
        device_(device),
        patience_(patience),
        whole_(whole) {
    ncclUniqueId id{};
    if (host.rank() == 0) call(ncclGetUniqueId(&id), "ncclGetUniqueId");
    auto* bytes = reinterpret_cast<std::byte*>(&id);
    host.run({.kind = CollectiveKind::broadcast,
              .dtype = DType::uint8,
              .elements = Elements::of(static_cast<std::int64_t>(sizeof id)),
              .input = bytes,
              .output = bytes});
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t begun =
        ncclCommInitRankConfig(&communicator_, host.ranks(), id, host.rank(), &config);
    try {
      if (begun != ncclInProgress) call(begun, "ncclCommInitRankConfig");
      settle("ncclCommInitRankConfig");
    } catch (...) {
      abort();
      throw;
    }
    if (whole_ != nullptr) {
      whole_->parts_.push_back(this);
      return;
    }
    device.watch([this](Clock::duration waited) {
      watch(waited);
      for (NcclCommunicator* part : parts_) part->watch(waited);
    });
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  ~NcclCommunicator() override {
    if (whole_ == nullptr) device_.watch({});
    if (whole_ != nullptr) std::erase(whole_->parts_, this);
    if (communicator_ == nullptr) return;
    try {
      if (ncclCommFinalize(communicator_) == ncclInProgress) settle("ncclCommFinalize");
      if (communicator_ != nullptr) ncclCommDestroy(communicator_);
    } catch (const std::exception&) {
      abort();
    }
  }

  int rank() const override { return host_.rank(); }
  int ranks() const override { return host_.ranks(); }
  std::optional<std::string> failure() const override { return host_.failure(); }

  void fail(std::string_view reason) noexcept override {
    host_.fail(reason);
    abort_all();
  }

  // With an id of its own, which its host group carries: what ncclCommSplit does, in every release.
  std::unique_ptr<Communicator> split(std::span<const int> members) override {
    auto host = host_.split(members);
    Communicator& of_part = *host;
    NcclCommunicator* whole = whole_ == nullptr ? this : whole_;
    return std::make_unique<NcclCommunicator>(of_part, device_, patience_, std::move(host), whole);
  }

  Pending start(const Exchange& exchange) override {
    const bool in = device_.holds(exchange.input);
    const bool out = device_.holds(exchange.output);
    if (!in && !out) return host_.start(exchange);
    if (communicator_ == nullptr) throw CollectiveError(reason());
    device_.touch(exchange.input);
    device_.touch(exchange.output);
    cudaStream_t stream = device_.collectives_stream();
    const Fence ready = device_.record(device_.in_use());
    ZP_CUDA(cudaStreamWaitEvent(stream, event_of(ready), 0));
    order(exchange, stream);
    const Fence done = device_.record_on(stream);
    return Pending([this, done] { device_.wait(device_.in_use(), done); });
  }

 private:
  void call(ncclResult_t status, const char* name) const {
    if (status != ncclSuccess && status != ncclInProgress) failed(status, name);
  }
  // NCCL often notices another rank's end before that rank's reason is here: its reason is worth a
  // moment.
  [[noreturn]] void failed(ncclResult_t status, const char* name) const {
    const auto begin = Clock::now();
    while (Clock::now() - begin < std::chrono::seconds(2)) {
      if (const auto group = host_.failure()) throw CollectiveError(*group);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    throw CollectiveError(
        fmt::format("rank {}: {}: {}", host_.rank(), name, ncclGetErrorString(status)));
  }
  std::string reason() const {
    return host_.failure().value_or(fmt::format("rank {}: NCCL was aborted", host_.rank()));
  }

  // After a call that does not block: it is on the stream when NCCL says so. NCCL's own thread puts
  // it there in tens of microseconds, less than a sleep: stage 3 has hundreds of calls in a step.
  void settle(const char* name) {
    constexpr auto kSpin = std::chrono::milliseconds(1);
    const auto begin = Clock::now();
    for (;;) {
      ncclResult_t state = ncclSuccess;
      call(ncclCommGetAsyncError(communicator_, &state), "ncclCommGetAsyncError");
      if (state == ncclSuccess) return;
      if (state != ncclInProgress) failed(state, name);
      const auto waited = Clock::now() - begin;
      watch(waited);
      if (waited < kSpin) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
  }

  // Throws where a collective will not be done: NCCL has failed, another rank has, or time is up.
  void watch(Clock::duration waited) {
    if (communicator_ == nullptr) throw CollectiveError(reason());
    ncclResult_t state = ncclSuccess;
    (void)ncclCommGetAsyncError(communicator_, &state);
    const bool bad = state != ncclSuccess && state != ncclInProgress;
    const bool late = waited > patience_;
    const auto group = host_.failure();
    if (!bad && !group && !late) return;
    abort_all();
    if (group) throw CollectiveError(*group);
    if (bad) failed(state, "a collective");
    throw CollectiveError(fmt::format("rank {} has waited {} s for a collective of NCCL",
                                      host_.rank(),
                                      std::chrono::duration<double>(patience_).count()));
  }

  // What another of the groups waits for will not come either.
  void abort_all() noexcept {
    NcclCommunicator& whole = whole_ == nullptr ? *this : *whole_;
    for (NcclCommunicator* part : whole.parts_) part->abort();
    whole.abort();
    abort();  // one that does not stand yet
  }

  void abort() noexcept {
    if (communicator_ == nullptr) return;
    ncclCommAbort(communicator_);
    communicator_ = nullptr;
  }

  void order(const Exchange& exchange, cudaStream_t stream);
  void all_to_all(const Exchange& exchange, cudaStream_t stream);

  std::unique_ptr<Communicator> own_host_;  // of a part
  Communicator& host_;
  CudaDevice& device_;
  const std::chrono::milliseconds patience_;
  NcclCommunicator* whole_ = nullptr;     // of a part
  std::vector<NcclCommunicator*> parts_;  // of the whole, standing
  ncclComm_t communicator_ = nullptr;
};

void NcclCommunicator::order(const Exchange& exchange, cudaStream_t stream) {
  const auto count = static_cast<std::size_t>(exchange.elements.count());
  const ncclDataType_t type = type_of(exchange.dtype);
  const ncclRedOp_t operation = exchange.operation == ReduceOperation::sum ? ncclSum : ncclMax;
  const void* input = exchange.input;
  void* output = exchange.output;
  switch (exchange.kind) {
    case CollectiveKind::all_reduce:
      call(ncclAllReduce(input, output, count, type, operation, communicator_, stream),
           "ncclAllReduce");
      break;
    case CollectiveKind::reduce:
      call(ncclReduce(input, output, count, type, operation, exchange.root, communicator_, stream),
           "ncclReduce");
      break;
    case CollectiveKind::reduce_scatter:
      call(ncclReduceScatter(input, output, count, type, operation, communicator_, stream),
           "ncclReduceScatter");
      break;
    case CollectiveKind::all_gather:
      call(ncclAllGather(input, output, count, type, communicator_, stream), "ncclAllGather");
      break;
    case CollectiveKind::broadcast:
      call(ncclBroadcast(input, output, count, type, exchange.root, communicator_, stream),
           "ncclBroadcast");
      break;
    case CollectiveKind::all_to_all:
      all_to_all(exchange, stream);
      break;
    case CollectiveKind::barrier:
      return;
  }
  settle(name_of(exchange.kind).data());
}

void NcclCommunicator::all_to_all(const Exchange& exchange, cudaStream_t stream) {
  const auto count = static_cast<std::size_t>(exchange.elements.count());
  const std::int64_t share = (exchange.elements * exchange.dtype).count();
  const ncclDataType_t type = type_of(exchange.dtype);
  call(ncclGroupStart(), "ncclGroupStart");
  for (int r = 0; r < ranks(); ++r) {
    call(ncclSend(exchange.input + share * r, count, type, r, communicator_, stream), "ncclSend");
    call(ncclRecv(exchange.output + share * r, count, type, r, communicator_, stream), "ncclRecv");
  }
  call(ncclGroupEnd(), "ncclGroupEnd");
}

}  // namespace

bool built_with_nccl() { return true; }

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "NCCL";
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::unique_ptr<Communicator> nccl_communicator(Communicator& host,
                                                CudaDevice& device,
                                                std::chrono::milliseconds patience) {
  return std::make_unique<NcclCommunicator>(host, device, patience);
}

}  // namespace zeroplan::runtime::cuda
