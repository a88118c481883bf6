// Matrix products by shape against published timings: single kernels against isolated(), profiles
// of busy GPUs against sustained().
#include "model/cost/gemm.hpp"
#include "model/hardware/known_hardware.hpp"
#include "tests/published/published_data.hpp"
#include "tests/published/timing_errors.hpp"

using namespace zeroplan;
using namespace zeroplan::testing;

namespace {

bool is_sustained(const std::string& source) {
  return source == "vidur" || source.starts_with("SimuMax");
}

Seconds predicted(const MatmulTimes& times,
                  const MatrixProduct& product,
                  bool into_fp32,
                  const std::string& source) {
  const ProductUse use = into_fp32 ? ProductUse::weight_gradient_into_fp32 : ProductUse::forward;
  return is_sustained(source) ? times.sustained(product, use) : times.isolated(product, use);
}

}  // namespace

TEST_CASE("products by shape: errors per GPU and source stay within the recorded bounds") {
  const Json table = published("gemm_times.json");
  for (const Json& group : table.find("groups")->items()) {
    const std::string& key = text(group, "gpu");
    const std::string& source = text(group, "source");
    const MatmulTimes times(gpu_of_key(key), Coefficients(key));
    TimingErrors errors;
    for (const Json& row : group.find("rows")->items()) {
      const auto cell = [&](std::size_t i) { return row.items()[i].as_number(); };
      const auto size = [&](std::size_t i) { return static_cast<std::int64_t>(cell(i)); };
      const MatrixProduct product{size(0), size(1), size(2), size(3), DType::fp16};
      errors.add(predicted(times, product, cell(5) > 0.0, source), cell(4));
    }
    check_errors(key + " " + source, errors, number(group, "median"), number(group, "p95"));
  }
}

// zzc0721/torch-performance-test-data, square products up to 10,000: V100 10 TFLOP/s, T4 2.3.
TEST_CASE("bf16 on GPUs without it: no faster than fp32, as users measured it") {
  constexpr std::int64_t kSide = 8192;
  for (const auto& [key, teraflops] : {std::pair{"v100_sxm2_32gb", 10.0}, std::pair{"t4", 2.3}}) {
    const MatmulTimes times(gpu_of_key(key), Coefficients(key));
    const auto seconds = [&](DType type) {
      return times.sustained({1, kSide, kSide, kSide, type}).seconds();
    };
    const double flops = 2.0 * kSide * kSide * kSide;
    INFO(key);
    CHECK(flops / seconds(DType::bf16) / 1e12 == Approx(teraflops).epsilon(0.1));
    CHECK(seconds(DType::bf16) > seconds(DType::fp32));
    CHECK(seconds(DType::fp32) > seconds(DType::fp16));
  }
}

namespace {

// The GPU and source of a row of the full table; empty where the GPU is not known.
std::pair<std::string, std::string> gpu_and_source(const std::map<std::string, std::string>& row) {
  static const std::map<std::string, std::string> kKeys = {{"V100-SXM2", "v100_sxm2_16gb"},
                                                           {"T4", "t4"},
                                                           {"A100-SXM", "a100_sxm_80gb"},
                                                           {"A100-PCIe", "a100_pcie_80gb"},
                                                           {"H100-SXM", "h100_sxm"},
                                                           {"H200-SXM", "h200_sxm"},
                                                           {"B200", "b200"},
                                                           {"A40", "a40"},
                                                           {"L40S", "l40s"},
                                                           {"RTX-PRO-6000", "rtx_pro_6000_server"},
                                                           {"RTX-4090", "rtx_4090"}};
  const auto key = kKeys.find(row.at("gpu"));
  if (key == kKeys.end()) return {};
  for (const char* name : {"aiconfigurator", "vidur", "SimuMax", "LLMServingSim", "DeepBench"}) {
    if (row.at("source").find(name) != std::string::npos) return {key->second, name};
  }
  return {};
}

}  // namespace

TEST_CASE(
    "products from 1,024 on: the full tables stay within 10 % median and 32 % at the 95th "
    "percentile") {
  std::map<std::pair<std::string, std::string>, TimingErrors> groups;
  std::map<std::string, MatmulTimes> gpus;
  for (const auto& row : read_table(measured_times("gemm_shapes.csv"))) {
    const auto group = gpu_and_source(row);
    if (group.first.empty()) continue;
    const auto whole_of = [&](const char* column) { return std::stoll(row.at(column)); };
    const MatrixProduct product{
        whole_of("b"), whole_of("m"), whole_of("n"), whole_of("k"), DType::fp16};
    if (std::min({product.m, product.n, product.k}) < 1024) continue;
    const auto& times =
        gpus.try_emplace(group.first, gpu_of_key(group.first), Coefficients(group.first))
            .first->second;
    groups[group].add(predicted(times, product, row.at("out_dtype") == "fp32", group.second),
                      std::stod(row.at("time_us")));
  }
  CHECK(groups.size() >= 10);
  for (const auto& [group, errors] : groups) {
    // Sources of B200 lie 30 % apart, those of H100 at work 17 %: the level stands between them.
    const bool disagree =
        group.first == "b200" || (group.first == "h100_sxm" && group.second == "vidur");
    check_errors("all of " + group.first + " " + group.second,
                 errors,
                 disagree ? 0.20 : 0.10,
                 disagree ? 0.45 : 0.32);
  }
}
