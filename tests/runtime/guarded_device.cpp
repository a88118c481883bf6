#include "tests/runtime/guarded_device.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/mman.h>

#include "base/check.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/device/host_device.hpp"
#include "runtime/engine/tensor_ops.hpp"

namespace zeroplan::runtime::test {
namespace {

// Who works: the queues, the collectives, the host.
constexpr std::size_t kCollectives = kQueueCount;
constexpr std::size_t kHost = kQueueCount + 1;
constexpr std::size_t kActors = kQueueCount + 2;
using Clock = std::array<std::int64_t, kActors>;

// Who touched which bytes, and whether what follows is ordered behind it.
class RaceDetector {
 public:
  Clock& clock(std::size_t actor) { return clocks_[actor]; }
  void join(std::size_t actor, const Clock& other) {
    for (std::size_t i = 0; i < kActors; ++i) {
      clocks_[actor][i] = std::max(clocks_[actor][i], other[i]);
    }
  }
  // Work is ordered: behind what the host knows is done.
  void begin(std::size_t actor) {
    join(actor, clocks_[kHost]);
    ++clocks_[actor][actor];
  }
  void access(std::size_t actor, const std::byte* data, Bytes bytes, bool writes) {
    if (data == nullptr || bytes == Bytes::zero()) return;
    const std::byte* end = data + bytes.count();
    const Clock& now = clocks_[actor];
    std::erase_if(touched_, [&](const Touch& t) {
      if (t.begin >= end || data >= t.end) return false;
      const bool ordered = now[t.actor] >= t.time;
      if (!ordered && (writes || t.writes)) {
        throw std::logic_error("a race on device memory: actor " + std::to_string(actor) +
                               (writes ? " writes" : " reads") + " what actor " +
                               std::to_string(t.actor) + (t.writes ? " writes" : " reads"));
      }
      const bool covered = t.begin >= data && t.end <= end;
      return covered && ordered && (writes || (!t.writes && t.actor == actor));
    });
    touched_.push_back({data, end, actor, now[actor], writes});
  }

 private:
  struct Touch {
    const std::byte* begin;
    const std::byte* end;
    std::size_t actor;
    std::int64_t time;
    bool writes;
  };
  std::array<Clock, kActors> clocks_{};
  std::vector<Touch> touched_;
};

struct Range {
  const std::byte* data;
  Bytes bytes;
  bool writes;
};

class GuardedDevice : public HostDevice, private Arena::Backend {
 public:
  GuardedDevice() : HostDevice(1) {
    void* region =
        ::mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) throw std::runtime_error("mmap");
    region_ = static_cast<std::byte*>(region);
  }
  GuardedDevice(const GuardedDevice&) = delete;
  GuardedDevice& operator=(const GuardedDevice&) = delete;
  ~GuardedDevice() override { ::munmap(region_, kSize); }

  // Within its scope the memory can be touched.
  class Open {
   public:
    explicit Open(GuardedDevice& device) : device_(device) {
      if (device_.open_++ == 0) device_.protect(PROT_READ | PROT_WRITE);
    }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
    ~Open() {
      if (--device_.open_ == 0) device_.protect(PROT_NONE);
    }

   private:
    GuardedDevice& device_;
  };

  bool owns(const std::byte* data) const { return data >= region_ && data < region_ + kSize; }
  RaceDetector& races() { return races_; }
  void touch(const std::byte* data) { arena_.touch(data, in_use()); }

  // --- Device
  std::byte* allocate(Bytes bytes) override {
    std::byte* data = arena_.allocate(bytes, in_use());
    const Open open(*this);
    if (data != nullptr) std::memset(data, 0xff, static_cast<std::size_t>(bytes.count()));
    return data;
  }
  void release(std::byte* data, Bytes) noexcept override { arena_.release(data); }

  using Device::convert;
  void zero(std::byte* to, Bytes bytes) override {
    work({{to, bytes, true}}, [&] { HostDevice::zero(to, bytes); });
  }
  void convert(const std::byte* from,
               DType from_dtype,
               std::byte* to,
               DType to_dtype,
               Elements count,
               double factor) override {
    work({{from, count * from_dtype, false}, {to, count * to_dtype, true}},
         [&] { HostDevice::convert(from, from_dtype, to, to_dtype, count, factor); });
  }
  void add_to(std::byte* to,
              DType to_dtype,
              const std::byte* from,
              DType from_dtype,
              Elements count) override {
    work({{from, count * from_dtype, false}, {to, count * to_dtype, true}},
         [&] { HostDevice::add_to(to, to_dtype, from, from_dtype, count); });
  }
  void adamw(const UpdateState& state,
             const AdamWOptions& options,
             std::int64_t step,
             double scale) override {
    const bool here = owns(state.weights);
    const std::byte* const others[] = {state.first_moment, state.second_moment, state.gradient};
    for (const std::byte* other : others) {
      if (owns(other) != here) throw std::logic_error("an update on two devices");
    }
    if (state.rounded != nullptr && owns(state.rounded) != here) {
      throw std::logic_error("an update on two devices");
    }
    const Bytes size = state.elements * state.dtype;
    const auto update = [&] { HostDevice::adamw(state, options, step, scale); };
    if (state.rounded == nullptr) {
      work({{state.gradient, size, false},
            {state.weights, size, true},
            {state.first_moment, size, true},
            {state.second_moment, size, true}},
           update);
      return;
    }
    work({{state.gradient, size, false},
          {state.weights, size, true},
          {state.first_moment, size, true},
          {state.second_moment, size, true},
          {state.rounded, state.elements * state.rounded_dtype, true}},
         update);
  }
  void add_squares_of(const std::byte* data, DType dtype, Elements count, Scalar to) override {
    work({{data, count * dtype, false}, {scalar(to), Bytes::of(8), true}},
         [&] { HostDevice::add_squares_of(data, dtype, count, to); });
  }
  void find_overflow(const std::byte* data, DType dtype, Elements count) override {
    work({{data, count * dtype, false}, {scalar(Scalar::overflow), Bytes::of(8), true}},
         [&] { HostDevice::find_overflow(data, dtype, count); });
  }
  void upload(std::byte* to, const void* from, Bytes bytes) override {
    work({{to, bytes, true}}, [&] { HostDevice::upload(to, from, bytes); });
  }
  void download(void* to, const std::byte* from, Bytes bytes) override {
    work({{from, bytes, false}}, [&] { HostDevice::download(to, from, bytes); });
    synchronize();
  }
  double take(Scalar which) override {
    synchronize();
    return HostDevice::take(which);
  }
  void synchronize() override {
    for (std::size_t q = 0; q <= kCollectives; ++q) races_.join(kHost, races_.clock(q));
  }
  using Device::wait;
  Fence record(Queue queue) override {
    return std::make_shared<Clock>(races_.clock(static_cast<std::size_t>(queue)));
  }
  void wait(Queue queue, const Fence& fence) override {
    if (fence) races_.join(static_cast<std::size_t>(queue), *static_cast<Clock*>(fence.get()));
  }
  DeviceUse measured_use() override { return {arena_.reserved(), arena_.reserved()}; }

 private:
  static constexpr std::size_t kSize = std::size_t{64} << 20;

  // On the queue in use where something is the device's; else on the host, behind everything.
  template <typename Body>
  void work(std::initializer_list<Range> ranges, Body&& body) {
    const bool here = std::any_of(
        ranges.begin(), ranges.end(), [&](const Range& range) { return owns(range.data); });
    const std::size_t actor = here ? static_cast<std::size_t>(in_use()) : kHost;
    if (!here) synchronize();
    races_.begin(actor);
    for (const Range& range : ranges) {
      races_.access(actor, range.data, range.bytes, range.writes);
      touch(range.data);
    }
    const Open open(*this);
    body();
  }
  // An address that stands for the number.
  const std::byte* scalar(Scalar which) const {
    return numbers_ + 8 * static_cast<std::size_t>(which);
  }
  void protect(int how) { ::mprotect(region_, used_, how); }

  // --- Arena::Backend
  std::byte* take_segment(Bytes bytes) override {
    const auto size = static_cast<std::size_t>(round_up(bytes.count(), 4096));
    if (used_ + size > kSize) return nullptr;
    used_ += size;
    return region_ + used_ - size;
  }
  void return_segment(std::byte*, Bytes) noexcept override {}
  // As late as it may be: when the host has seen it.
  bool passed(const Fence& fence) override {
    const Clock& then = *static_cast<Clock*>(fence.get());
    const Clock& host = races_.clock(kHost);
    for (std::size_t i = 0; i < kActors; ++i) {
      if (host[i] < then[i]) return false;
    }
    return true;
  }
  void drain() override { synchronize(); }

  std::byte* region_ = nullptr;
  std::size_t used_ = 0;
  int open_ = 0;
  std::byte numbers_[8 * kScalarCount]{};
  RaceDetector races_;
  Arena arena_{*this, Bytes::kib(256)};
};

class GuardedKernels : public Kernels {
 public:
  GuardedKernels(GuardedDevice& device, std::unique_ptr<Kernels> kernels)
      : device_(device), kernels_(std::move(kernels)) {}

  void run(const KernelCall& call, std::span<const Operand> operands) override {
    const auto queue = static_cast<std::size_t>(Queue::compute);
    device_.races().begin(queue);
    const std::vector<OperandUse> uses = operand_uses(call);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Operand& operand = operands[i];
      if (operand.data == nullptr) continue;
      if (!device_.owns(operand.data)) throw std::logic_error("a kernel on host memory");
      const bool writes = uses[i].access != Access::read;
      device_.races().access(queue, operand.data, operand.elements * operand.dtype, writes);
    }
    const GuardedDevice::Open open(device_);
    kernels_->run(call, operands);
  }

 private:
  GuardedDevice& device_;
  std::unique_ptr<Kernels> kernels_;
};

// Collectives on device memory go through copies on the host, as late as the wait.
class GuardedGroup : public Communicator {
 public:
  GuardedGroup(Communicator& host, GuardedDevice& device) : host_(host), device_(device) {}

  int rank() const override { return host_.rank(); }
  int ranks() const override { return host_.ranks(); }
  void fail(std::string_view reason) noexcept override { host_.fail(reason); }

  std::unique_ptr<Communicator> split(std::span<const int> members) override {
    auto part = host_.split(members);
    auto guarded = std::make_unique<GuardedGroup>(*part, device_);
    guarded->own_ = std::move(part);
    return guarded;
  }

  Pending start(const Exchange& exchange) override {
    const bool in = device_.owns(exchange.input);
    const bool out = device_.owns(exchange.output);
    if (!in && !out) return host_.start(exchange);
    if (in != out) throw std::logic_error("a collective from one device to another");
    const Bytes share = exchange.elements * exchange.dtype;
    const Bytes all = Bytes::of(share.count() * ranks());
    const bool gathers = exchange.kind == CollectiveKind::all_gather;
    const bool scatters = exchange.kind == CollectiveKind::reduce_scatter;
    const bool both = exchange.kind == CollectiveKind::all_to_all;
    auto& races = device_.races();
    races.join(kCollectives, races.clock(static_cast<std::size_t>(device_.in_use())));
    races.begin(kCollectives);
    const auto under_way = std::make_shared<UnderWay>();
    under_way->input.resize(static_cast<std::size_t>((scatters || both ? all : share).count()));
    under_way->output.resize(static_cast<std::size_t>((gathers || both ? all : share).count()));
    const auto note = [&](const std::byte* data, std::size_t size, bool writes) {
      races.access(kCollectives, data, Bytes::of(static_cast<std::int64_t>(size)), writes);
      device_.touch(data);
    };
    note(exchange.input, under_way->input.size(), false);
    note(exchange.output, under_way->output.size(), true);
    under_way->done = races.clock(kCollectives);
    {
      const GuardedDevice::Open open(device_);
      std::memcpy(under_way->input.data(), exchange.input, under_way->input.size());
      std::memcpy(under_way->output.data(), exchange.output, under_way->output.size());
    }
    Exchange on_host = exchange;
    on_host.input = under_way->input.data();
    on_host.output = under_way->output.data();
    under_way->pending = host_.start(on_host);
    return Pending([this, under_way, output = exchange.output] {
      under_way->pending.wait();
      const GuardedDevice::Open open(device_);
      std::memcpy(output, under_way->output.data(), under_way->output.size());
      device_.races().join(static_cast<std::size_t>(device_.in_use()), under_way->done);
    });
  }

 private:
  struct UnderWay {
    std::vector<std::byte> input, output;
    Clock done{};
    Pending pending;
  };
  std::unique_ptr<Communicator> own_;  // of a part
  Communicator& host_;
  GuardedDevice& device_;
};

}  // namespace

RankHardware guarded_hardware(Communicator& host_group, std::unique_ptr<Kernels> kernels) {
  auto device = std::make_unique<GuardedDevice>();
  RankHardware hardware;
  hardware.kernels = std::make_unique<GuardedKernels>(*device, std::move(kernels));
  hardware.group = std::make_unique<GuardedGroup>(host_group, *device);
  hardware.device = std::move(device);
  hardware.works_beside_host = true;
  return hardware;
}

}  // namespace zeroplan::runtime::test
