// Rows of a GPU as coefficients. The rows are invented from the model's own formulas with other
// coefficients than the tables': the profile made of them must give these rows again, whatever the
// coefficients it found.
#include <cmath>
#include <set>

#include "model/cost/collective.hpp"
#include "model/cost/copies.hpp"
#include "model/cost/gemm.hpp"
#include "model/cost/kernel_time.hpp"
#include "model/cost/profile.hpp"
#include "model/hardware/cluster.hpp"
#include "model/hardware/known_hardware.hpp"
#include "runtime/profile/gpu_profile.hpp"
#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

using C = Coefficient;
constexpr const char* kGpu = "NVIDIA H100 80GB HBM3";
constexpr double kHostMemory = 4e11;

Gpu gpu() { return find_gpu(kGpu, 8)->gpu; }

// Unlike the tables': another level, other tiles, a slower host.
Coefficients truth() {
  Coefficients c(gpu().key);
  c.set(C::matmul_isolated_efficiency, 0.74);
  c.set(C::matmul_prologue_depth, 210.0);
  c.set(C::matmul_wave_share, 0.5);
  c.set(C::matmul_fixed_seconds, 3.6e-6);
  c.set(C::matmul_tile_128x128, 0.9);
  c.set(C::matmul_tile_128x64, 0.75);
  c.set(C::matmul_memory_efficiency, 0.6);
  c.set(C::matmul_sustained_derate, 1.2);
  c.set(C::matmul_fp32_efficiency, 0.7);
  c.set(C::kernel_floor_seconds, 1.4e-6);
  c.set(C::pointwise_bandwidth_efficiency, 0.89);
  c.set(C::copy_bandwidth_efficiency, 0.79);
  c.set(C::host_launch_seconds, 2.3e-6);
  c.set(C::pcie_copy_efficiency, 0.87);
  c.set(C::copy_fixed_seconds, 5e-6);
  c.set(C::gpu_allocation_call_seconds, 7e-5);
  c.set(C::gpu_allocation_rate, 8e10);
  c.set(C::pageable_copy_slowdown, 3.1);
  c.set(C::nccl_base_seconds, 8e-6);
  c.set(C::nccl_hop_seconds, 9e-7);
  c.set(C::nccl_gather_efficiency, 0.74);
  c.set(C::nccl_reduce_efficiency, 0.8);
  c.set(C::nccl_gather_ramp_seconds, 25e-6);
  c.set(C::nccl_pair_efficiency, 0.9);
  return c;
}

ProfileRow row_of(const std::string& what,
                  std::vector<std::pair<std::string, Json>> settings,
                  const char* unit,
                  double value) {
  return {what, std::move(settings), unit, Spread{value, 0.99 * value, 1.01 * value, 9, 2}};
}

void add_products(const GpuScale& scale, const Coefficients& c, std::vector<ProfileRow>& rows) {
  const MatmulTimes times(gpu(), c);
  const MatmulTimes fast(gpu(), c, true);
  for (const GpuCase& each : product_cases(scale, true)) {
    const MatrixProduct product =
        matrix_product(each.call.kernel, each.shape[0], each.shape[1], each.shape[2], each.dtype);
    const MatmulTimes& used = each.tf32 ? fast : times;
    const Seconds seconds = each.sustained ? used.sustained(product) : used.isolated(product);
    rows.push_back(row_of(
        "gpu_" + std::string(name(each.call.kernel)),
        {{"loop_seconds", Json(scale.sustained.seconds())},
         {"dtype", Json(each.tf32 ? "tf32" : text_of(each.dtype))},
         {"shape", Json::array({Json(each.shape[0]), Json(each.shape[1]), Json(each.shape[2])})},
         {"mode", Json(each.sustained ? "sustained" : "isolated")}},
        "flop/s",
        each.flops / seconds.seconds()));
  }
}

KernelTimes kernels(const Coefficients& c) { return {gpu(), c, AttentionSoftware{}}; }

void add_memory(const Coefficients& c, std::vector<ProfileRow>& rows) {
  const Bytes bytes = Bytes::of(400'000'000);
  const auto add = [&](const char* what, OpKind kind) {
    rows.push_back(
        row_of(what,
               {{"traffic_bytes", Json(bytes.count())}},
               "bytes/s",
               static_cast<double>(bytes.count()) / kernels(c).streaming(kind, bytes).seconds()));
  };
  add("gpu_add", OpKind::pointwise);
  add("gpu_device_copy", OpKind::copy);
  // Not PyTorch's kernels: whatever they reach stays a row.
  add("gpu_rms_norm_forward", OpKind::pointwise);
  add("gpu_adamw", OpKind::pointwise);
  rows.push_back(row_of("gpu_attention_forward",
                        {{"dtype", Json("bf16")}, {"mode", Json("isolated")}},
                        "flop/s",
                        2e14));
  rows.push_back(row_of("gpu_kernel_floor", {}, "s", c[C::kernel_floor_seconds]));
  rows.push_back(row_of("gpu_launch", {}, "s", c[C::host_launch_seconds]));
  // Half of the time to clear memory passes when it is taken, half when it is given back.
  for (const std::int64_t piece : {std::int64_t{1} << 12, std::int64_t{1} << 31}) {
    const double clearing = 0.5 * static_cast<double>(piece) / c[C::gpu_allocation_rate];
    for (const char* what : {"gpu_malloc", "gpu_free"}) {
      rows.push_back(row_of(what,
                            {{"bytes", Json(piece)}, {"clock", Json("host")}},
                            "s",
                            c[C::gpu_allocation_call_seconds] + clearing));
    }
  }
}

Node node() {
  Node result;
  result.pcie_bandwidth.value = pcie_line_rate(5, 16);
  result.host_memory_bandwidth.value = BytesPerSecond::of(kHostMemory);
  return result;
}

void add_copies(const Coefficients& c, std::vector<ProfileRow>& rows) {
  for (const std::int64_t bytes : {1 << 12, 1 << 20, 1 << 28}) {
    for (const auto& [direction, factor] :
         {std::pair{"to_gpu", 1.04}, std::pair{"to_host", 0.96}}) {
      for (const bool pinned : {true, false}) {
        const Seconds seconds = copy_time(Bytes::of(bytes), 1, node(), {.pinned = pinned}, c);
        rows.push_back(row_of(pinned ? "gpu_pinned_copy" : "gpu_pageable_copy",
                              {{"direction", Json(direction)}, {"bytes", Json(bytes)}},
                              "bytes/s",
                              factor * static_cast<double>(bytes) / seconds.seconds()));
      }
    }
  }
}

void add_collectives(const Coefficients& c, std::vector<ProfileRow>& rows) {
  const Cluster cluster = parse_cluster_text("1x8x" + gpu().name);
  for (const std::int64_t ranks : {2, 4, 8}) {
    for (const Collective kind : {Collective::all_gather,
                                  Collective::reduce_scatter,
                                  Collective::all_reduce,
                                  Collective::broadcast,
                                  Collective::all_to_all}) {
      for (std::int64_t bytes = 1 << 12; bytes <= 1 << 28; bytes *= 8) {
        const Seconds seconds =
            collective_time(kind, Bytes::of(bytes), {.ranks_per_node = ranks}, cluster, c);
        rows.push_back(row_of("gpu_nccl_" + std::string(name(kCollectiveNames, kind)),
                              {{"ranks", Json(ranks)}, {"bytes", Json(bytes)}},
                              "s",
                              seconds.seconds()));
      }
    }
  }
}

GpuFindings invented(bool quick = false) {
  GpuFindings findings;
  findings.facts.name = kGpu;
  findings.facts.visible = 8;
  findings.facts.nvlinks = 18;
  findings.facts.pcie_generation = 5;
  findings.facts.pcie_lanes = 16;
  const Coefficients c = truth();
  add_products(gpu_scale(quick, false), c, findings.rows);
  add_memory(c, findings.rows);
  add_copies(c, findings.rows);
  add_collectives(c, findings.rows);
  return findings;
}

Profile profile_of(const ValueList& list) {
  return parse_profile(Json::object({{"schema", "zeroplan.profile/1"}, {"values", list.values}}),
                       "profile.json",
                       "");
}

struct Made {
  ValueList list;
  Profile profile;
  Coefficients coefficients;
};
Made made_of(const GpuFindings& findings) {
  Made made;
  gpu_values(findings, kHostMemory, made.list);
  made.profile = profile_of(made.list);
  made.coefficients = Coefficients(gpu().key, made.profile.coefficients);
  return made;
}

std::string notes_of(const ValueList& list) {
  std::string text;
  for (const Json& note : list.notes.items()) text += note.as_string() + "\n";
  return text;
}

std::set<std::string> names_of(const ValueList& list) {
  std::set<std::string> names;
  for (const Json& value : list.values.items()) names.insert(value.find("name")->as_string());
  return names;
}

void check_products(const Made& made,
                    const GpuFindings& findings,
                    double tolerance,
                    bool loops = true) {
  const MatmulTimes times(gpu(), made.coefficients);
  int compared = 0;
  for (const ProfileRow& row : findings.rows) {
    const std::string dtype = text_setting(row, "dtype");
    if (!row.what.starts_with("gpu_linear") || dtype == "tf32") continue;
    const auto shape = shape_of(row);
    const DType type = dtype == "fp32" ? DType::fp32 : dtype == "bf16" ? DType::bf16 : DType::fp16;
    const Kernel kernel = row.what == "gpu_linear_backward_input" ? Kernel::linear_backward_input
                          : row.what == "gpu_linear_backward_weight"
                              ? Kernel::linear_backward_weight
                              : Kernel::linear_forward;
    const MatrixProduct product = matrix_product(kernel, shape[0], shape[1], shape[2], type);
    const bool sustained = text_setting(row, "mode") == "sustained";
    if (sustained && !loops) continue;
    const Seconds seconds = sustained ? times.sustained(product) : times.isolated(product);
    CAPTURE(row.what, dtype, shape[0], shape[1], shape[2], sustained);
    CHECK(product_flops(shape[0], shape[1], shape[2]) / seconds.seconds() ==
          Approx(row.spread.median).epsilon(tolerance));
    ++compared;
  }
  CHECK(compared >= 20);
}

}  // namespace

TEST_CASE("the profile of a GPU gives the products it was made of") {
  const GpuFindings findings = invented();
  const Made made = made_of(findings);
  INFO(notes_of(made.list));
  check_products(made, findings, 0.03);
  CHECK(made.coefficients[C::matmul_sustained_derate] == Approx(1.2).epsilon(0.001));
  CHECK(made.coefficients[C::matmul_isolated_efficiency] == Approx(0.74).epsilon(0.03));
  CHECK(made.coefficients[C::matmul_fp32_efficiency] == Approx(0.7).epsilon(0.03));
}

TEST_CASE("so does the quick one, whose loops are too short to show a GPU at work") {
  const GpuFindings findings = invented(true);
  const Made made = made_of(findings);
  INFO(notes_of(made.list));
  check_products(made, findings, 0.03, false);
  CHECK(names_of(made.list).count("matmul_sustained_derate") == 0);
  CHECK(notes_of(made.list).find("matmul_sustained_derate stays the table's") != std::string::npos);
}

TEST_CASE("measurements that scatter by 8 % and two that are far off move the fit little") {
  GpuFindings findings = invented();
  int number = 0;
  for (ProfileRow& row : findings.rows) {
    if (!row.what.starts_with("gpu_linear") || text_setting(row, "mode") != "isolated") continue;
    const double scatter = 0.08 * std::sin(2.4 * ++number);  // golden angle: no pattern with shapes
    row.spread.median *= number == 7 || number == 30 ? 0.4 : 1.0 + scatter;
  }
  const Made made = made_of(findings);
  INFO(notes_of(made.list));
  check_products(made, invented(), 0.08, false);
  CHECK(made.coefficients[C::matmul_isolated_efficiency] == Approx(0.74).epsilon(0.05));
}

TEST_CASE("the profile of a GPU gives its memory, launches and copies") {
  const GpuFindings findings = invented();
  const Made made = made_of(findings);
  const Coefficients& c = made.coefficients;
  INFO(notes_of(made.list));
  const Bytes bytes = Bytes::of(400'000'000);
  for (const OpKind kind : {OpKind::pointwise, OpKind::copy}) {
    CHECK(kernels(c).streaming(kind, bytes).seconds() ==
          Approx(kernels(truth()).streaming(kind, bytes).seconds()).epsilon(1e-6));
  }
  CHECK(c[C::host_launch_seconds] == Approx(2.3e-6));
  CHECK(c[C::gpu_allocation_call_seconds] == Approx(7e-5).epsilon(1e-3));
  CHECK(c[C::gpu_allocation_rate] == Approx(8e10).epsilon(1e-3));
  for (const std::int64_t size : {1 << 12, 1 << 20, 1 << 28}) {
    for (const bool pinned : {true, false}) {
      CAPTURE(size, pinned);
      // The fixed part is not slowed down by pageable memory, and what is measured of it is.
      const double tolerance = pinned || size == 1 << 28 ? 0.01 : 0.6;
      CHECK(copy_time(Bytes::of(size), 1, node(), {.pinned = pinned}, c).seconds() ==
            Approx(copy_time(Bytes::of(size), 1, node(), {.pinned = pinned}, truth()).seconds())
                .epsilon(tolerance));
    }
  }
  bool figure = false;
  for (const MachineValue& value : made.profile.machine) {
    figure |= value.figure->name == "pcie_bandwidth" &&
              value.value == Approx(pcie_line_rate(5, 16).value());
  }
  CHECK(figure);
}

TEST_CASE("the profile of a machine gives the collectives of its GPUs") {
  const GpuFindings findings = invented();
  const Made made = made_of(findings);
  INFO(notes_of(made.list));
  const Cluster cluster = parse_cluster_text("1x8x" + gpu().name);
  int compared = 0;
  for (const ProfileRow& row : findings.rows) {
    if (!row.what.starts_with("gpu_nccl_")) continue;
    const auto kind = find(kCollectiveNames, row.what.substr(std::string("gpu_nccl_").size()));
    const Seconds seconds = collective_time(*kind,
                                            Bytes::of(whole_setting(row, "bytes")),
                                            {.ranks_per_node = whole_setting(row, "ranks")},
                                            cluster,
                                            made.coefficients);
    CAPTURE(row.what, whole_setting(row, "bytes"), whole_setting(row, "ranks"));
    CHECK(seconds.seconds() == Approx(row.spread.median).epsilon(0.03));
    ++compared;
  }
  CHECK(compared == 3 * 5 * 6);
}

TEST_CASE("kernels that are not PyTorch's give no coefficient") {
  const Made made = made_of(invented());
  for (const std::string& name : names_of(made.list)) {
    INFO(name);
    CHECK(name.find("flash") == std::string::npos);
    CHECK(name.find("attention") == std::string::npos);
    CHECK(name.find("norm") == std::string::npos);
    CHECK(name.find("adam") == std::string::npos);
  }
  CHECK(names_of(made.list).size() >= 15);
}

TEST_CASE("a GPU that nobody knows gives rows and a note, no coefficients") {
  GpuFindings findings = invented();
  findings.facts.name = "Graphcore 9000";
  ValueList list;
  gpu_values(findings, kHostMemory, list);
  CHECK(list.values.items().empty());
  CHECK(notes_of(list).find("Graphcore 9000 is not among the GPUs") != std::string::npos);
}

TEST_CASE("a value outside its bounds is left out and noted") {
  GpuFindings findings = invented();
  std::erase_if(findings.rows, [](const ProfileRow& row) { return row.what == "gpu_launch"; });
  findings.rows.push_back(row_of("gpu_launch", {}, "s", 1e-3));
  ValueList list;
  gpu_values(findings, kHostMemory, list);
  CHECK(names_of(list).count("host_launch_seconds") == 0);
  CHECK(notes_of(list).find("host_launch_seconds 0.001 lies outside its bounds") !=
        std::string::npos);
}

TEST_CASE("collectives are no coefficients where the way between the GPUs is another") {
  for (const auto& [links, why] :
       {std::pair{0, "no link is up"}, std::pair{-1, "NVML does not say"}}) {
    GpuFindings findings = invented();
    findings.facts.nvlinks = links;
    ValueList list;
    gpu_values(findings, kHostMemory, list);
    CHECK(notes_of(list).find(why) != std::string::npos);
    for (const std::string& name : names_of(list)) CHECK_FALSE(name.starts_with("nccl_"));
  }
}

TEST_CASE("NCCL over PCIe becomes the coefficients of PCIe") {
  const Gpu l40s = find_gpu("NVIDIA L40S", 4)->gpu;
  const Cluster cluster = parse_cluster_text("1x4x" + l40s.name);
  Coefficients c(l40s.key);
  c.set(C::pcie_collective_base_seconds, 7e-6);
  c.set(C::pcie_ramp_seconds, 9e-6);
  c.set(C::pcie_peer_pair_efficiency, 0.7);
  c.set(C::pcie_peer_efficiency, 0.5);
  GpuFindings findings;
  findings.facts.name = "NVIDIA L40S";
  findings.facts.visible = 4;
  findings.facts.nvlinks = 0;
  REQUIRE(cluster.node.topology == Topology::pcie);
  for (const std::int64_t ranks : {2, 4}) {
    for (const Collective kind : {Collective::all_gather, Collective::all_reduce}) {
      for (std::int64_t bytes = 1 << 12; bytes <= 1 << 28; bytes *= 8) {
        const Seconds seconds =
            collective_time(kind, Bytes::of(bytes), {.ranks_per_node = ranks}, cluster, c);
        findings.rows.push_back(row_of("gpu_nccl_" + std::string(name(kCollectiveNames, kind)),
                                       {{"ranks", Json(ranks)}, {"bytes", Json(bytes)}},
                                       "s",
                                       seconds.seconds()));
      }
    }
  }
  ValueList list;
  gpu_values(findings, 0.0, list);
  const Profile profile = profile_of(list);
  const Coefficients found(l40s.key, profile.coefficients);
  for (const ProfileRow& row : findings.rows) {
    const auto kind = find(kCollectiveNames, row.what.substr(std::string("gpu_nccl_").size()));
    const CollectiveGroup group{.ranks_per_node = whole_setting(row, "ranks")};
    const Bytes bytes = Bytes::of(whole_setting(row, "bytes"));
    CAPTURE(row.what, bytes.count(), group.ranks_per_node, notes_of(list));
    CHECK(collective_time(*kind, bytes, group, cluster, found).seconds() ==
          Approx(row.spread.median).epsilon(0.03));
  }
}

// 20 TFLOP/s, 300 GB/s and 6 GB/s are less than any GPU with tensor cores and its slot reach: T4.
TEST_CASE("a quick profile of a slow GPU stays within its share of a minute") {
  const GpuScale scale = gpu_scale(true, false);
  const double calls = static_cast<double>(scale.isolated.discard + scale.isolated.most);
  const double least = static_cast<double>(scale.isolated.discard + scale.isolated.least);
  // Calls go on until there are enough or the time is up, as repeat_timed() has it.
  const auto row = [&](double once) {
    const double enough = scale.isolated.long_enough.seconds() / once;
    return std::min(calls, std::max(least, least + enough)) * (once + scale.pause.seconds());
  };
  double seconds = 0.0;
  int rows = 0;
  for (const bool products : {true, false}) {
    for (const GpuCase& each :
         products ? product_cases(scale, true) : attention_cases(scale, true)) {
      const double rate = each.dtype == DType::fp32 ? 4e12 : 20e12;
      seconds +=
          each.sustained ? scale.sustained.seconds() + each.flops / rate : row(each.flops / rate);
      ++rows;
    }
  }
  for (const GpuCase& each : memory_cases(scale, true)) {
    seconds += row(traffic_bytes(each.call, each.dtype) / 3e11);
    ++rows;
  }
  for (std::int64_t bytes = 1 << 12; bytes <= scale.largest_copy; bytes *= 16) {
    seconds += 6.0 * row(static_cast<double>(bytes) / 2e9);
    rows += 6;
  }
  CAPTURE(rows, seconds);
  CHECK(rows < 80);
  CHECK(seconds < 10.0);
}

}  // namespace zeroplan::runtime
