// What the embedded runtime's engine does beside kernels and collectives: casts, new memory, AdamW
// on states that caches hold.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "runtime/device/host_device.hpp"
#include "runtime/optimizer/adamw.hpp"
#include "runtime/profile/machine_profile.hpp"

namespace zeroplan::runtime {
namespace {

void cast(const ProfileScale& scale, HostDevice& device, std::vector<ProfileRow>& rows) {
  constexpr std::int64_t kElements = std::int64_t{1} << 18;
  std::vector<float> from(static_cast<std::size_t>(kElements), 0.5F);
  std::vector<std::uint16_t> to(from.size());
  const auto work = [&] {
    device.convert(reinterpret_cast<const std::byte*>(from.data()),
                   DType::fp32,
                   reinterpret_cast<std::byte*>(to.data()),
                   DType::bf16,
                   Elements::of(kElements),
                   1.0);
  };
  rows.push_back({"cast",
                  {{"from", Json("fp32")}, {"to", Json("bf16")}, {"elements", Json(kElements)}},
                  "s",
                  spread_of(repeat(work, scale.repetition), scale.repetition.discard)});
}

// Written once behind its allocation. The device gives it back in between, untimed.
void first_touch(const ProfileScale& scale, HostDevice& device, std::vector<ProfileRow>& rows) {
  constexpr Bytes kBytes = Bytes::mib(48);
  const auto timed = [&] {
    const auto begin = std::chrono::steady_clock::now();
    std::byte* const memory = device.allocate(kBytes);
    device.zero(memory, kBytes);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    device.release(memory, kBytes);
    return passed.count();
  };
  rows.push_back({"first_touch",
                  {{"bytes", Json(kBytes.count())}},
                  "s",
                  spread_of(repeat_timed(timed, scale.repetition), scale.repetition.discard)});
}

void cached_adam(const ProfileScale& scale, std::vector<ProfileRow>& rows) {
  constexpr std::int64_t kParameters = std::int64_t{1} << 18;
  const auto size = static_cast<std::size_t>(kParameters);
  std::vector<float> weights(size, 0.5F), first(size), second(size), gradient(size, 1e-3F);
  std::int64_t step = 0;
  const auto work = [&] { adamw({weights, first, second, gradient}, {}, ++step, 1.0, 1); };
  rows.push_back({"cpu_adam_cached",
                  {{"threads", Json(1)}, {"parameters", Json(kParameters)}},
                  "parameters/s",
                  spread_of(rates(static_cast<double>(kParameters), repeat(work, scale.repetition)),
                            scale.repetition.discard)});
}

}  // namespace

std::vector<ProfileRow> measure_engine_work(const ProfileScale& scale) {
  std::vector<ProfileRow> rows;
  HostDevice device(1);
  cast(scale, device, rows);
  first_touch(scale, device, rows);
  cached_adam(scale, rows);
  return rows;
}

}  // namespace zeroplan::runtime
