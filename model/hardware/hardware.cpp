#include "model/hardware/hardware.hpp"

#include <array>

#include "base/check.hpp"

namespace zeroplan {

const Quantity<FlopsPerSecond>& dense_peak(const Gpu& gpu, DType type) {
  switch (type) {
    case DType::fp16:
      return gpu.peak.fp16;
    case DType::bf16:
      return gpu.peak.bf16 ? *gpu.peak.bf16 : gpu.peak.fp32;
    default:
      return gpu.peak.fp32;
  }
}

// Transfers per second and lane of generations 1 to 6, times the share the line code leaves.
// Source: PCI Express Base Specification 6.0: 2.5, 5 GT/s with 8b/10b; 8, 16, 32 GT/s with
// 128b/130b; 64 GT/s with 242 of 256 bytes of a flit for data.
BytesPerSecond pcie_line_rate(int generation, int lanes) {
  constexpr std::array<double, 7> kBytesPerLane = {0.0,
                                                   2.5e9 * 8 / 10 / 8,
                                                   5e9 * 8 / 10 / 8,
                                                   8e9 * 128 / 130 / 8,
                                                   16e9 * 128 / 130 / 8,
                                                   32e9 * 128 / 130 / 8,
                                                   64e9 * 242 / 256 / 8};
  ZP_CHECK(generation >= 1 && generation <= 6 && lanes >= 1, "no such PCIe link");
  return BytesPerSecond::of(kBytesPerLane[static_cast<std::size_t>(generation)] * lanes);
}

}  // namespace zeroplan
