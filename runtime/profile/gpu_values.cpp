// From rows to the model's terms. A coefficient is made where the row measures what the coefficient
// means; the formula it stands in is named beside it.
#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "model/cost/gemm.hpp"
#include "model/hardware/known_hardware.hpp"
#include "runtime/profile/coefficient_fit.hpp"
#include "runtime/profile/gpu_profile.hpp"

namespace zeroplan::runtime {
namespace {

using C = Coefficient;

std::optional<Kernel> product_of(const ProfileRow& row) {
  if (row.what == "gpu_linear_forward") return Kernel::linear_forward;
  if (row.what == "gpu_linear_backward_input") return Kernel::linear_backward_input;
  if (row.what == "gpu_linear_backward_weight") return Kernel::linear_backward_weight;
  return std::nullopt;
}

double combined(double a, double b) { return std::hypot(a, b); }

// The mean time a byte of both directions, as a rate.
double both_ways(double to_gpu, double to_host) { return 2.0 / (1.0 / to_gpu + 1.0 / to_host); }

class GpuValues {
 public:
  GpuValues(const GpuFindings& findings,
            const Gpu& gpu,
            double host_memory_bandwidth,
            ValueList& to)
      : findings_(findings),
        rows_(findings.rows),
        gpu_(gpu),
        host_memory_bandwidth_(host_memory_bandwidth),
        to_(to),
        coefficients_(gpu.key) {}

  void make() {
    derate();
    half_products();
    fp32_products();
    memory();
    launches();
    device_memory();
    const double link = link_rate();
    copies(link);
    gpu_collective_values(findings_, gpu_, link, host_memory_bandwidth_, to_);
  }

 private:
  void gpu_value(C id, double value, double sd, const std::string& provenance) {
    if (to_.coefficient(id, value, sd, provenance, gpu_.key)) coefficients_.set(id, value, sd);
  }

  // --- [T6] matrix products

  std::vector<const ProfileRow*> products(std::string_view dtype, std::string_view mode) const {
    std::vector<const ProfileRow*> found;
    for (const ProfileRow& row : rows_) {
      const bool fits = product_of(row) && text_setting(row, "dtype") == dtype &&
                        text_setting(row, "mode") == mode && shape_of(row).size() == 3;
      if (fits) found.push_back(&row);
    }
    return found;
  }
  std::string_view half() const { return text_of(gpu_.bf16_supported ? DType::bf16 : DType::fp16); }

  FitRow fit_row(const ProfileRow& row, DType dtype) const {
    const std::vector<std::int64_t> shape = shape_of(row);
    const MatrixProduct product =
        matrix_product(*product_of(row), shape[0], shape[1], shape[2], dtype);
    return {[this, product](const Coefficients& c) {
              return MatmulTimes(gpu_, c).isolated(product).seconds();
            },
            product_flops(shape[0], shape[1], shape[2]) / row.spread.median};
  }

  // A loop's time over that of the same product alone: `sustained` is `isolated` times it. A GPU
  // holds its power limit on the average of about a second, so a shorter loop still runs at the
  // clock of a GPU at rest, and would say that training is as fast.
  void derate() {
    constexpr double kShortest = 2.0;  // seconds, assumed
    std::vector<double> ratios;
    double sd = 0.0;
    bool short_loops = false;
    for (const ProfileRow* loop : products(half(), "sustained")) {
      const Json* const seconds = setting(*loop, "loop_seconds");
      if (seconds == nullptr || seconds->as_number() < kShortest) {
        short_loops = true;
        continue;
      }
      for (const ProfileRow* alone : products(half(), "isolated")) {
        if (alone->what != loop->what || shape_of(*alone) != shape_of(*loop)) continue;
        ratios.push_back(alone->spread.median / loop->spread.median);
        sd = std::max(sd, combined(alone->spread.relative_sd(), loop->spread.relative_sd()));
      }
    }
    if (short_loops) {
      to_.note(
          "matmul_sustained_derate stays the table's: loops of less than 2 s do not show a GPU at "
          "work");
    }
    if (ratios.empty()) return;
    const Spread spread = spread_of(ratios, 0);
    // A GPU that holds its clock is as fast in the loop, and noise must not make it faster.
    gpu_value(C::matmul_sustained_derate,
              std::max(1.0, spread.median),
              std::max({sd, spread.relative_sd(), 0.01}),
              fmt::format("measured: {} products alone and in a loop", ratios.size()));
  }

  void half_products() {
    const DType dtype = gpu_.bf16_supported ? DType::bf16 : DType::fp16;
    std::vector<FitRow> rows;
    for (const ProfileRow* row : products(half(), "isolated")) rows.push_back(fit_row(*row, dtype));
    constexpr std::size_t kFewest = 8;  // as many unknowns
    if (rows.size() < kFewest) return;
    constexpr C kFree[] = {C::matmul_isolated_efficiency,
                           C::matmul_prologue_depth,
                           C::matmul_wave_share,
                           C::matmul_fixed_seconds,
                           C::matmul_tile_128x128,
                           C::matmul_tile_128x64,
                           C::matmul_tile_64x64,
                           C::matmul_memory_efficiency};
    take("matrix products", fit_coefficients(coefficients_, kFree, rows), rows.size());
  }

  void fp32_products() {
    std::vector<FitRow> rows;
    for (const ProfileRow* row : products("fp32", "isolated")) {
      rows.push_back(fit_row(*row, DType::fp32));
    }
    if (rows.empty()) return;
    constexpr C kFree[] = {C::matmul_fp32_efficiency};
    take("fp32 products", fit_coefficients(coefficients_, kFree, rows), rows.size());
  }

  void take(const std::string& what, const CoefficientFit& fit, std::size_t rows) {
    for (const FittedCoefficient& found : fit.found) {
      if (!found.informed) continue;
      gpu_value(found.id,
                found.value,
                found.relative_sd,
                fmt::format("fitted to {} {} of this GPU, median error {:.1f} %",
                            rows,
                            what,
                            100.0 * fit.median_error));
    }
    to_.note(
        fmt::format("{}: the model's formula gives {} measurements within {:.1f} % (median), "
                    "{:.1f} % (largest)",
                    what,
                    rows,
                    100.0 * fit.median_error,
                    100.0 * fit.largest_error));
  }

  // --- [T9] t = t_floor + M / (B e)

  void memory() {
    if (const ProfileRow* floor = best(rows_, "gpu_kernel_floor")) {
      gpu_value(C::kernel_floor_seconds,
                floor->spread.median,
                floor->spread.relative_sd(),
                "measured: additions of a few elements in a row, each");
    }
    const auto share = [&](const char* what, C id, const char* provenance) {
      const ProfileRow* const row = best(rows_, what);
      if (row == nullptr) return;
      const auto bytes = static_cast<double>(whole_setting(*row, "traffic_bytes"));
      const double streaming = bytes / row->spread.median - coefficients_[C::kernel_floor_seconds];
      if (bytes <= 0.0 || streaming <= 0.0) return;
      gpu_value(id,
                bytes / streaming / gpu_.memory_bandwidth.value.value(),
                row->spread.relative_sd(),
                provenance);
    };
    share("gpu_add",
          C::pointwise_bandwidth_efficiency,
          "measured: addition of two large tensors, over the GPU's memory rate");
    share("gpu_device_copy",
          C::copy_bandwidth_efficiency,
          "measured: the driver's copy on the GPU, read and written");
  }

  // [T10]
  void launches() {
    if (const ProfileRow* row = best(rows_, "gpu_launch")) {
      to_.coefficient(C::host_launch_seconds,
                      row->spread.median,
                      row->spread.relative_sd(),
                      "measured: launches of an empty kernel in a row, by the host's clock");
    }
  }

  // --- [T18] t = n t_0 + bytes / r, of taking and giving back together

  // Of the largest or the smallest piece.
  const ProfileRow* allocation_row(const char* what, bool largest) const {
    const ProfileRow* found = nullptr;
    for (const ProfileRow& row : rows_) {
      if (row.what != what) continue;
      const auto bytes = [](const ProfileRow& each) { return whole_setting(each, "bytes"); };
      if (found == nullptr || (bytes(row) > bytes(*found)) == largest) found = &row;
    }
    return found;
  }
  struct Turn {
    double seconds = 0.0, bytes = 0.0, sd = 0.0;
  };
  std::optional<Turn> turn_of(bool largest) const {
    const ProfileRow* const take = allocation_row("gpu_malloc", largest);
    const ProfileRow* const give = allocation_row("gpu_free", largest);
    if (take == nullptr || give == nullptr) return std::nullopt;
    return Turn{take->spread.median + give->spread.median,
                static_cast<double>(whole_setting(*take, "bytes")),
                combined(take->spread.relative_sd(), give->spread.relative_sd())};
  }

  void device_memory() {
    const std::optional<Turn> small = turn_of(false);
    const std::optional<Turn> large = turn_of(true);
    if (!small || !large) return;
    to_.coefficient(C::gpu_allocation_call_seconds,
                    0.5 * small->seconds,
                    small->sd,
                    "measured: the smallest piece taken and given back in turn, each call");
    const double clearing = large->seconds - small->seconds;
    if (clearing <= 0.0) return;
    to_.coefficient(C::gpu_allocation_rate,
                    large->bytes / clearing,
                    large->sd,
                    "measured: the largest piece taken and given back in turn");
  }

  // --- [T13] r = e P, t = n t_0 + bytes / r

  // What GPU and slot do together, where NVML says so; else the GPU's own side.
  double link_rate() const {
    const bool by_pcie = gpu_.pcie_generation > 0;
    if (by_pcie && findings_.facts.pcie_generation > 0 && findings_.facts.pcie_lanes > 0) {
      return pcie_line_rate(findings_.facts.pcie_generation, findings_.facts.pcie_lanes).value();
    }
    return gpu_.host_link.value.value();
  }

  // Of the largest or the smallest copy.
  const ProfileRow* copy_row(const char* what, const char* direction, bool largest) const {
    const ProfileRow* found = nullptr;
    for (const ProfileRow& row : rows_) {
      if (row.what != what || text_setting(row, "direction") != direction) continue;
      const auto bytes = [](const ProfileRow& each) { return whole_setting(each, "bytes"); };
      const bool better = found == nullptr || (bytes(row) > bytes(*found)) == largest;
      if (better) found = &row;
    }
    return found;
  }
  struct Copy {
    double rate = 0.0, sd = 0.0, seconds = 0.0;
  };
  std::optional<Copy> copy_of(const char* what, bool largest) const {
    const ProfileRow* const in = copy_row(what, "to_gpu", largest);
    const ProfileRow* const out = copy_row(what, "to_host", largest);
    if (in == nullptr || out == nullptr) return std::nullopt;
    const auto bytes = static_cast<double>(whole_setting(*in, "bytes"));
    const double rate = both_ways(in->spread.median, out->spread.median);
    return Copy{rate, combined(in->spread.relative_sd(), out->spread.relative_sd()), bytes / rate};
  }

  void copies(double link) {
    const std::optional<Copy> large = copy_of("gpu_pinned_copy", true);
    if (!large) return;
    const std::string way = findings_.facts.pcie_generation > 0 && gpu_.pcie_generation > 0
                                ? fmt::format("PCIe {}.0, {} lanes, as NVML says",
                                              findings_.facts.pcie_generation,
                                              findings_.facts.pcie_lanes)
                                : "the GPU's own side, NVML does not say what the slot does";
    const bool taken = to_.coefficient(C::pcie_copy_efficiency,
                                       large->rate / link,
                                       large->sd,
                                       "measured: large pinned copies, both directions in turn");
    if (!taken) return;
    to_.figure("pcie_bandwidth", link, 0.0, "derived: " + way);
    const double share = coefficients_[C::copy_dram_share];
    if (host_memory_bandwidth_ > 0.0 && large->rate > share * host_memory_bandwidth_) {
      to_.note(
          "pinned copies are faster than copy_dram_share of the host memory's rate allows: the "
          "model holds them to that");
    }
    if (const std::optional<Copy> small = copy_of("gpu_pinned_copy", false)) {
      const double bytes = small->seconds * small->rate;
      to_.coefficient(C::copy_fixed_seconds,
                      small->seconds - bytes / large->rate,
                      small->sd,
                      "measured: the smallest pinned copies in a row, each");
    }
    if (const std::optional<Copy> pageable = copy_of("gpu_pageable_copy", true)) {
      to_.coefficient(C::pageable_copy_slowdown,
                      large->rate / pageable->rate,
                      combined(large->sd, pageable->sd),
                      "measured: large copies from and to pageable memory");
    }
  }

  const GpuFindings& findings_;
  const std::vector<ProfileRow>& rows_;
  const Gpu& gpu_;
  double host_memory_bandwidth_;
  ValueList& to_;
  Coefficients coefficients_;
};

}  // namespace

void gpu_values(const GpuFindings& findings, double host_memory_bandwidth, ValueList& to) {
  for (const std::string& note : findings.notes) to.note(note);
  const GpuFacts& facts = findings.facts;
  const std::optional<GpuMatch> match = find_gpu(facts.name, std::max(1, facts.visible));
  if (!match || match->gpu.is_cpu()) {
    to.note(facts.name +
            " is not among the GPUs of profiles/gpus.json: its measurements stand in the table, "
            "and no coefficient was made of them");
    return;
  }
  if (!match->assumption.empty()) to.note(match->assumption);
  GpuValues(findings, match->gpu, host_memory_bandwidth, to).make();
}

}  // namespace zeroplan::runtime
