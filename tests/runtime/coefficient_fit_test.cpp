// The fitter of `zeroplan profile` on timings of real GPUs: it begins at the values of a GPU that
// nobody measured, and has to come as close to a GPU's published matrix products as the tables'
// row of that GPU, which another program fitted to many more of them. The same for collectives.
#include "runtime/profile/coefficient_fit.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/json.hpp"
#include "model/cost/collective.hpp"
#include "model/cost/gemm.hpp"
#include "model/cost/profile.hpp"
#include "model/hardware/cluster.hpp"
#include "model/hardware/known_hardware.hpp"
#include "runtime/profile/gpu_profile.hpp"
#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

using C = Coefficient;
constexpr C kUnknowns[] = {C::matmul_isolated_efficiency,
                           C::matmul_prologue_depth,
                           C::matmul_wave_share,
                           C::matmul_fixed_seconds,
                           C::matmul_tile_128x128,
                           C::matmul_tile_128x64,
                           C::matmul_tile_64x64,
                           C::matmul_memory_efficiency};

Json published(const std::string& name) {
  return read_json_file(std::string(ZEROPLAN_SOURCE_DIR) + "/tests/published/" + name).root;
}

// Rows: batch, m, n, k, microseconds, whether it is added into fp32.
std::vector<FitRow> rows_of(const Json& group, const Gpu& gpu) {
  std::vector<FitRow> rows;
  for (const Json& row : group.find("rows")->items()) {
    const auto& cells = row.items();
    const auto size = [&](std::size_t i) {
      return static_cast<std::int64_t>(cells[i].as_number());
    };
    if (cells[5].as_number() > 0.0 || size(0) > 1) continue;
    const MatrixProduct product{1, size(1), size(2), size(3), DType::fp16};
    rows.push_back({[gpu, product](const Coefficients& c) {
                      return MatmulTimes(gpu, c).isolated(product).seconds();
                    },
                    1e-6 * cells[4].as_number()});
  }
  return rows;
}

double median_error(const std::vector<FitRow>& rows, const Coefficients& coefficients) {
  std::vector<double> errors;
  for (const FitRow& row : rows) {
    errors.push_back(std::abs(row.seconds(coefficients) / row.measured - 1.0));
  }
  return spread_of(std::move(errors), 0).median;
}

// A machine's published nccl-tests curves as its profile would hold them.
struct Curves {
  Cluster cluster;
  GpuFindings findings;
};
Curves curves_of(const Json& table, const std::string& gpu, int nvlinks) {
  Curves curves;
  for (const Json& group : table.find("groups")->items()) {
    const Cluster cluster = parse_cluster(*group.find("cluster"), "published", "/groups");
    if (cluster.gpu.key != gpu) continue;
    curves.cluster = cluster;
    for (const Json& row : group.find("rows")->items()) {
      curves.findings.rows.push_back(
          {"gpu_nccl_" + group.find("collective")->as_string(),
           {{"ranks", *group.find("ranks")},
            {"bytes", Json(static_cast<std::int64_t>(row.items()[0].as_number()))}},
           "s",
           spread_of({1e-6 * row.items()[1].as_number()}, 0)});
    }
  }
  curves.findings.facts.visible = static_cast<int>(curves.cluster.gpus_per_node());
  curves.findings.facts.nvlinks = nvlinks;
  return curves;
}

double median_error(const Curves& curves, const Coefficients& coefficients) {
  std::vector<double> errors;
  for (const ProfileRow& row : curves.findings.rows) {
    const auto kind = find(kCollectiveNames, row.what.substr(std::string("gpu_nccl_").size()));
    const Seconds seconds = collective_time(*kind,
                                            Bytes::of(whole_setting(row, "bytes")),
                                            {.ranks_per_node = whole_setting(row, "ranks")},
                                            curves.cluster,
                                            coefficients);
    errors.push_back(std::abs(seconds.seconds() / row.spread.median - 1.0));
  }
  return spread_of(std::move(errors), 0).median;
}

}  // namespace

TEST_CASE("collectives of real machines become values that are as close as the tables'") {
  const Json table = published("collective_times.json");
  for (const auto& [gpu, nvlinks] : {std::pair{"a100_sxm_80gb", 12},
                                     std::pair{"h100_sxm", 18},
                                     std::pair{"h200_sxm", 18},
                                     std::pair{"b200", 18},
                                     std::pair{"rtx_pro_6000_server", 0}}) {
    const Curves curves = curves_of(table, gpu, nvlinks);
    REQUIRE(curves.findings.rows.size() >= 100);
    ValueList list;
    gpu_collective_values(curves.findings,
                          curves.cluster.gpu,
                          curves.cluster.node.pcie_bandwidth.value.value(),
                          0.0,
                          list);
    const Profile profile = parse_profile(
        Json::object({{"schema", "zeroplan.profile/1"}, {"values", list.values}}), "profile", "");
    const double tables = median_error(curves, Coefficients(curves.cluster.gpu.key));
    const double fitted =
        median_error(curves, Coefficients(curves.cluster.gpu.key, profile.coefficients));
    CAPTURE(gpu, curves.findings.rows.size(), tables, fitted, list.notes.dump());
    CHECK(profile.coefficients.size() >= 4);
    CHECK(fitted <= tables + 0.005);
    CHECK(fitted < 0.1);
  }
}

TEST_CASE("a fit to a GPU's published products is as close as the tables' row of the GPU") {
  const Json table = published("gemm_times.json");
  int fitted = 0;
  for (const Json& group : table.find("groups")->items()) {
    const std::string source = group.find("source")->as_string();
    if (!source.starts_with("aiconfigurator") && source != "DeepBench") continue;
    const Gpu gpu = gpu_of_key(group.find("gpu")->as_string());
    const std::vector<FitRow> rows = rows_of(group, gpu);
    if (rows.size() < 20) continue;
    const CoefficientFit fit = fit_coefficients(Coefficients(), kUnknowns, rows);
    const double before = median_error(rows, Coefficients());
    const double tables = median_error(rows, Coefficients(gpu.key));
    CAPTURE(gpu.key, source, rows.size(), before, tables, fit.median_error, fit.largest_error);
    CHECK(fit.median_error <= before);
    CHECK(fit.median_error <= tables + 0.01);
    for (const FittedCoefficient& found : fit.found) {
      CAPTURE(info(found.id).name, found.value);
      CHECK(found.value >= info(found.id).low);
      CHECK(found.value <= info(found.id).high);
      CHECK(found.relative_sd > 0.0);
    }
    ++fitted;
  }
  CHECK(fitted >= 5);
}

TEST_CASE("a coefficient that the rows say nothing of keeps its prior") {
  const Gpu gpu = gpu_of_key("h100_sxm");
  const MatrixProduct large{1, 8192, 8192, 8192, DType::bf16};
  const double measured = 1.1 * MatmulTimes(gpu, Coefficients(gpu.key)).isolated(large).seconds();
  const std::vector<FitRow> rows(
      6,
      {[&](const Coefficients& c) { return MatmulTimes(gpu, c).isolated(large).seconds(); },
       measured});
  const Coefficients prior(gpu.key);
  const CoefficientFit fit = fit_coefficients(prior, kUnknowns, rows);
  CHECK(fit.median_error < 0.01);
  for (const FittedCoefficient& found : fit.found) {
    CAPTURE(info(found.id).name);
    const bool level = found.id == C::matmul_isolated_efficiency;
    CHECK(found.informed == level);
    // The level alone moves: a large product in whole tiles of the largest size knows no other.
    if (!level) CHECK(fit.coefficients[found.id] == prior[found.id]);
  }
}

}  // namespace zeroplan::runtime
