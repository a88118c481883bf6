// What the CPU's rows say of the model's coefficients of CPU ranks ([T19], [T20]).
#include "runtime/profile/cpu_values.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "model/cost/cpu_rank.hpp"
#include "runtime/profile/coefficient_fit.hpp"
#include "runtime/profile/cpu_cases.hpp"

namespace zeroplan::runtime {
namespace {

using C = Coefficient;

// All of the rows fit together: a product's terms are known from several shapes only, and the
// conversions of 16-bit numbers from several kernels. What packing takes beside a product and how
// much the caches keep stay the table's: the rows do not tell them apart.
constexpr std::array kCpuFree = {C::cpu_product_rate,
                                 C::cpu_strided_pack_seconds,
                                 C::cpu_score_seconds,
                                 C::cpu_rms_norm_seconds,
                                 C::cpu_rms_norm_backward_seconds,
                                 C::cpu_layer_norm_seconds,
                                 C::cpu_layer_norm_backward_seconds,
                                 C::cpu_swiglu_seconds,
                                 C::cpu_swiglu_backward_seconds,
                                 C::cpu_gelu_seconds,
                                 C::cpu_gelu_backward_seconds,
                                 C::cpu_exact_gelu_seconds,
                                 C::cpu_exact_gelu_backward_seconds,
                                 C::cpu_softmax_seconds,
                                 C::cpu_softmax_backward_seconds,
                                 C::cpu_table_gradient_seconds,
                                 C::cpu_rotary_angle_seconds,
                                 C::cpu_rotary_pair_seconds,
                                 C::cpu_stream_rate,
                                 C::cpu_memory_rate,
                                 C::cpu_bf16_seconds,
                                 C::cpu_fp16_seconds,
                                 C::cpu_cast_seconds,
                                 C::cpu_half_sum_seconds,
                                 C::cpu_parallel_seconds,
                                 C::cpu_thread_gain,
                                 C::cpu_first_touch_rate,
                                 C::cpu_adamw_rate,
                                 C::cpu_adamw_memory_rate,
                                 C::cpu_collective_seconds};

// Ranks that share the hardware threads of a node.
Node node_of(std::int64_t cores, std::int64_t ranks) {
  Node node;
  node.cpu_cores.value = std::max<std::int64_t>(1, cores);
  node.gpus_per_node = std::max<std::int64_t>(1, ranks);
  return node;
}

using Formula = std::function<Seconds(const CpuRankTimes&)>;

class Rows {
 public:
  explicit Rows(std::int64_t cores) : cores_(cores) {}

  void take(const ProfileRow& row) {
    const std::int64_t threads = whole_setting(row, "threads");
    if (const auto found = case_of(row)) {
      const KernelCall call = call_of(*found);
      add(node_of(threads, 1), row.spread.q1, [call, dtype = found->dtype](const CpuRankTimes& t) {
        return t.kernel(call, dtype);
      });
    } else if (row.what == "cpu_adam" || row.what == "cpu_adam_cached") {
      const Elements parameters = Elements::of(whole_setting(row, "parameters"));
      add(node_of(threads, 1),
          static_cast<double>(parameters.count()) / row.spread.q3,
          [=, cached = row.what == "cpu_adam_cached"](const CpuRankTimes& t) {
            return t.adamw(parameters, cached);
          });
    } else if (row.what == "host_memory_copy") {
      const Bytes own = Bytes::of(2 * whole_setting(row, "array_bytes") / threads);
      add(node_of(threads, threads),
          static_cast<double>(own.count() * threads) / row.spread.q3,
          [=](const CpuRankTimes& t) { return t.stream(own); });
    } else if (row.what == "cast") {
      const Elements elements = Elements::of(whole_setting(row, "elements"));
      const Bytes traffic = elements * DType::fp32 + elements * DType::bf16;
      add(node_of(1, 1), row.spread.q1, [=](const CpuRankTimes& t) {
        return t.stream(traffic, elements, DType::bf16);
      });
    } else if (row.what == "first_touch") {
      const Bytes bytes = Bytes::of(whole_setting(row, "bytes"));
      add(node_of(1, 1), row.spread.q1, [=](const CpuRankTimes& t) {
        return t.stream(bytes) + t.first_touch(bytes);
      });
    } else if (row.what.starts_with("in_process_")) {
      take_collective(row);
    }
  }

  std::vector<FitRow> rows;

 private:
  void take_collective(const ProfileRow& row) {
    const auto kind = find(kCollectiveNames, std::string_view(row.what).substr(11));
    if (!kind) return;
    const std::int64_t ranks = whole_setting(row, "ranks");
    const Bytes message = Bytes::of(whole_setting(row, "bytes"));
    const DType dtype = text_setting(row, "dtype") == "bf16" ? DType::bf16 : DType::fp32;
    add(node_of(cores_, ranks), row.spread.q1, [=](const CpuRankTimes& t) {
      return t.collective(*kind, message, dtype, ranks);
    });
  }

  void add(const Node& node, double seconds, Formula formula) {
    if (!(seconds > 0.0)) return;
    rows.push_back({[node, formula = std::move(formula)](const Coefficients& c) {
                      return formula(CpuRankTimes(node, c)).seconds();
                    },
                    seconds});
  }

  std::int64_t cores_;
};

}  // namespace

void cpu_values(const std::vector<ProfileRow>& measured, std::int64_t cores, ValueList& to) {
  Rows rows(cores);
  for (const ProfileRow& row : measured) rows.take(row);
  if (rows.rows.empty()) return;
  const CoefficientFit fit = fit_coefficients(Coefficients(), kCpuFree, rows.rows);
  const std::string provenance =
      fmt::format("fitted: {} rows of the embedded runtime on {} threads", rows.rows.size(), cores);
  for (const FittedCoefficient& found : fit.found) {
    if (!found.informed) continue;
    // At the end of its range the fit stopped short, or nearly so.
    constexpr double kNear = 1.2;
    const CoefficientInfo& row = info(found.id);
    if (found.value > kNear * row.low && found.value < row.high) {
      to.coefficient(found.id, found.value, found.relative_sd, provenance);
    } else {
      to.note(
          fmt::format("{} {:.4g} is the end of its range, and is left out", row.name, found.value));
    }
  }
  to.note(
      fmt::format("CPU ranks: with these values the model is {:.0f} % from its {} rows in the "
                  "median, {:.0f} % at most",
                  100.0 * fit.median_error,
                  rows.rows.size(),
                  100.0 * fit.largest_error));
}

}  // namespace zeroplan::runtime
