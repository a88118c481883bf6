// The CPU's rows as coefficients of CPU ranks: timings invented from other coefficients have to
// come out of the model again.
#include "runtime/profile/cpu_values.hpp"

#include <cmath>
#include <set>
#include <string>

#include "model/cost/cpu_rank.hpp"
#include "model/cost/profile.hpp"
#include "runtime/profile/cpu_cases.hpp"
#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

using C = Coefficient;

ProfileScale scale() {
  ProfileScale scale;
  scale.tokens = 128;
  scale.hidden = {768, 1536};
  return scale;
}

Node node_of(std::int64_t cores, std::int64_t ranks) {
  Node node;
  node.cpu_cores.value = cores;
  node.gpus_per_node = ranks;
  return node;
}

Spread exactly(double value) { return {value, value, value, 3, 1}; }

// Another machine: every coefficient off by up to a factor of two, none like its neighbour.
Coefficients other_machine() {
  Coefficients c;
  int i = 0;
  for (const CoefficientInfo& row : coefficient_rows()) {
    if (!row.name.starts_with("cpu_") || row.provenance.find("own kernels") == row.provenance.npos)
      continue;
    if (row.id == C::cpu_pack_seconds || row.id == C::cpu_cached_bytes) continue;
    const double factor = row.id == C::cpu_thread_gain ? 0.8 : std::exp2(std::sin(1.7 * ++i));
    c.set(row.id, row.value * factor);
  }
  return c;
}

std::vector<ProfileRow> rows_of(const Coefficients& c, std::int64_t cores) {
  std::vector<ProfileRow> rows;
  const auto kernels = [&](const std::vector<CpuCase>& cases, std::int64_t threads) {
    const CpuRankTimes times(node_of(threads, 1), c);
    for (const CpuCase& at : cases) {
      rows.push_back(row_of(at, threads, exactly(times.kernel(call_of(at), at.dtype).seconds())));
    }
  };
  kernels(cpu_cases(scale()), 1);
  kernels(threaded_cases(scale()), cores);
  const auto adam = [&](const char* what, std::int64_t threads, std::int64_t parameters) {
    const CpuRankTimes times(node_of(threads, 1), c);
    const bool cached = std::string(what) == "cpu_adam_cached";
    const double seconds = times.adamw(Elements::of(parameters), cached).seconds();
    rows.push_back({what,
                    {{"threads", Json(threads)}, {"parameters", Json(parameters)}},
                    "parameters/s",
                    exactly(static_cast<double>(parameters) / seconds)});
  };
  adam("cpu_adam", 1, 100'000'000);
  adam("cpu_adam", cores, 100'000'000);
  adam("cpu_adam_cached", 1, 1 << 18);
  const Bytes array = Bytes::mib(512);
  for (const std::int64_t threads : {std::int64_t{1}, cores}) {
    const CpuRankTimes times(node_of(threads, threads), c);
    const double seconds = times.stream(array * 2 / threads).seconds();
    rows.push_back({"host_memory_copy",
                    {{"threads", Json(threads)}, {"array_bytes", Json(array.count())}},
                    "bytes/s",
                    exactly(2.0 * static_cast<double>(array.count()) / seconds)});
  }
  const CpuRankTimes alone(node_of(1, 1), c);
  const Elements cast = Elements::of(1 << 18);
  rows.push_back({"cast",
                  {{"elements", Json(cast.count())}},
                  "s",
                  exactly(alone.stream(cast.times_width(6), cast, DType::bf16).seconds())});
  const Bytes fresh = Bytes::mib(48);
  rows.push_back({"first_touch",
                  {{"bytes", Json(fresh.count())}},
                  "s",
                  exactly((alone.stream(fresh) + alone.first_touch(fresh)).seconds())});
  for (const std::int64_t ranks : {2, 4}) {
    const CpuRankTimes times(node_of(cores, ranks), c);
    for (const std::int64_t bytes : {1 << 12, 1 << 16, 1 << 20, 1 << 24}) {
      for (const DType dtype : {DType::fp32, DType::bf16}) {
        const Seconds seconds =
            times.collective(Collective::all_reduce, Bytes::of(bytes), dtype, ranks);
        rows.push_back({"in_process_all_reduce",
                        {{"ranks", Json(ranks)},
                         {"bytes", Json(bytes)},
                         {"dtype", Json(dtype == DType::fp32 ? "fp32" : "bf16")}},
                        "s",
                        exactly(seconds.seconds())});
      }
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("a case is found again in its row, and other rows are no cases") {
  for (const CpuCase& at : cpu_cases(scale())) {
    const auto again = case_of(row_of(at, 2, exactly(1.0)));
    REQUIRE(again);
    CHECK(again->kernel == at.kernel);
    CHECK(again->shape == at.shape);
    CHECK(again->dtype == at.dtype);
    CHECK(again->exact_gelu == at.exact_gelu);
  }
  CHECK_FALSE(case_of({"add", {{"mode", Json("isolated")}}, "bytes/s", exactly(1.0)}));
  CHECK_FALSE(case_of({"cast", {}, "s", exactly(1.0)}));
}

TEST_CASE("the cases time every kernel that the model prices by itself, in each type") {
  std::set<Kernel> kernels;
  std::set<DType> types;
  for (const CpuCase& at : cpu_cases(scale())) {
    kernels.insert(at.kernel);
    types.insert(at.dtype);
  }
  CHECK(types.size() == 3);
  for (const Kernel kernel : {Kernel::linear_forward,
                              Kernel::linear_backward_input,
                              Kernel::linear_backward_weight,
                              Kernel::attention_forward,
                              Kernel::attention_backward,
                              Kernel::rms_norm_backward,
                              Kernel::layer_norm_backward,
                              Kernel::swiglu_backward,
                              Kernel::gelu_backward,
                              Kernel::rotary_forward,
                              Kernel::embedding_backward,
                              Kernel::cross_entropy_forward,
                              Kernel::cross_entropy_backward}) {
    INFO(name(kernel));
    CHECK(kernels.contains(kernel));
  }
}

TEST_CASE("with the values of a machine's rows the model gives its times again") {
  constexpr std::int64_t kCores = 4;
  const std::vector<ProfileRow> rows = rows_of(other_machine(), kCores);
  ValueList list;
  cpu_values(rows, kCores, list);
  Coefficients found;
  for (const Json& value : list.values.items()) {
    const auto id = find_coefficient(value.find("name")->as_string());
    REQUIRE(id);
    found.set(*id, value.find("value")->as_number());
  }
  const std::vector<ProfileRow> again = rows_of(found, kCores);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    INFO(row_json(rows[i], 0.0).dump());
    CHECK(again[i].spread.median == Approx(rows[i].spread.median).epsilon(0.04));
  }
  CHECK(found[C::cpu_product_rate] == Approx(other_machine()[C::cpu_product_rate]).epsilon(0.1));
  CHECK(found[C::cpu_thread_gain] == Approx(0.8).epsilon(0.05));
}

TEST_CASE("what a fit leaves at its bound, or does not know, is a note and no value") {
  ValueList list;
  CHECK_FALSE(list.coefficient(C::cpu_thread_gain, 0.5, 2.5, "fitted"));
  CHECK_FALSE(list.coefficient(C::cpu_thread_gain, 0.5, std::nan(""), "fitted"));
  CHECK(list.values.items().empty());
  CHECK(list.notes.items().size() == 2);
  CHECK(list.coefficient(C::cpu_thread_gain, 0.5, 0.1, "fitted"));
  // A second thread that adds nothing, as on a busy machine.
  Coefficients busy = other_machine();
  busy.set(C::cpu_thread_gain, info(C::cpu_thread_gain).low);
  ValueList fitted;
  cpu_values(rows_of(busy, 4), 4, fitted);
  for (const Json& value : fitted.values.items()) {
    CHECK(value.find("name")->as_string() != "cpu_thread_gain");
    CHECK(value.find("relative_sd")->as_number() <= 2.0);
  }
}

TEST_CASE("without rows of CPU ranks there are no values") {
  ValueList list;
  cpu_values({{"drive_read", {}, "bytes/s", exactly(1e9)}}, 2, list);
  CHECK(list.values.items().empty());
  CHECK(list.notes.items().empty());
}

}  // namespace zeroplan::runtime
