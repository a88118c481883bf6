// `zeroplan profile`'s measurements: their form, and that a profile made of them is read and
// changes a plan. How fast this machine is decides nothing here.
#include "runtime/profile/machine_profile.hpp"

#include <filesystem>
#include <set>

#include "base/diagnostic.hpp"
#include "model/cost/cpu_optimizer.hpp"
#include "model/cost/profile.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "runtime/device/device.hpp"
#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

const Json& measured() {
  static const Json kDocument = [] {
    MachineOptions options;
    options.tiny = true;
    options.name = "test";
    options.date = "2026-11-22";
    options.nvme_path = std::filesystem::temp_directory_path().string();
    options.no_gpu = "built without CUDA";
    return measure_machine(options);
  }();
  return kDocument;
}

const Json* value_named(const std::string& name) {
  for (const Json& value : measured().find("values")->items()) {
    if (*value.find("name") == Json(name)) return &value;
  }
  return nullptr;
}

std::string notes() {
  std::string text;
  for (const Json& note : measured().find("notes")->items()) text += note.as_string() + "\n";
  return text;
}

}  // namespace

TEST_CASE("a spread is the median and the quartiles between ranks") {
  const Spread five = spread_of({5.0, 1.0, 4.0, 2.0, 3.0}, 2);
  CHECK(five.median == 3.0);
  CHECK(five.q1 == 2.0);
  CHECK(five.q3 == 4.0);
  CHECK(five.n == 5);
  CHECK(five.discarded == 2);
  const Spread two = spread_of({1.0, 2.0}, 0);
  CHECK(two.median == 1.5);
  CHECK(two.q1 == 1.25);
  CHECK(spread_of({7.0}, 0).relative_sd() == 0.0);
}

TEST_CASE("repeat discards the warm-up and keeps at least as many as asked for") {
  int calls = 0, before = 0;
  Repetition repetition{.discard = 3, .least = 4, .most = 50, .long_enough = Seconds::zero()};
  CHECK(repeat([&] { ++calls; }, repetition, [&] { ++before; }).size() == 4);
  CHECK(calls == 7);
  CHECK(before == 7);
  repetition.long_enough = Seconds::of(1e9);
  CHECK(repeat([&] { ++calls; }, repetition).size() == 50);
  repetition.least = 40;
  repetition.patience = Seconds::zero();
  CHECK(repeat([&] { ++calls; }, repetition).size() == 3);
  CHECK(rates(6.0, {2.0, 3.0}) == std::vector<double>{3.0, 2.0});
}

TEST_CASE("every measurement has its spread, its number and its warm-up") {
  std::set<std::string> seen;
  const std::set<std::string> units = {"bytes/s", "flop/s", "parameters/s", "s"};
  for (const Json& row : measured().find("measurements")->items()) {
    seen.insert(row.find("what")->as_string());
    INFO(row.dump());
    CHECK(row.find("q1")->as_number() > 0.0);
    CHECK(row.find("q1")->as_number() <= row.find("median")->as_number());
    CHECK(row.find("median")->as_number() <= row.find("q3")->as_number());
    CHECK(row.find("n")->as_integer() >= 3);
    CHECK(row.find("discarded")->as_integer() >= 1);
    CHECK(units.contains(row.find("unit")->as_string()));
    CHECK(row.find("megahertz") != nullptr);
  }
  for (const char* what : {"host_memory_copy",
                           "host_memory_triad",
                           "pageable_host_copy",
                           "cpu_adam",
                           "linear_forward",
                           "linear_backward_input",
                           "linear_backward_weight",
                           "attention_forward",
                           "attention_backward",
                           "rms_norm_forward",
                           "swiglu_forward",
                           "in_process_all_reduce",
                           "in_process_all_gather",
                           "in_process_reduce_scatter",
                           "drive_write",
                           "drive_read"}) {
    INFO(what);
    CHECK(seen.contains(what));
  }
}

TEST_CASE(
    "a drive is measured by blocks and by requests in flight, and it is said who moved them") {
  std::set<std::int64_t> blocks;
  std::set<std::int64_t> requests;
  for (const Json& row : measured().find("measurements")->items()) {
    const std::string what = row.find("what")->as_string();
    if (what != "drive_read" && what != "drive_write") continue;
    blocks.insert(row.find("block_bytes")->as_integer());
    requests.insert(row.find("requests")->as_integer());
    CHECK(row.find("requests")->as_integer() ==
          row.find("queue_depth")->as_integer() * row.find("threads")->as_integer());
    const std::string engine = row.find("engine")->as_string();
    CHECK((engine == "io_uring" || engine == "threads"));
  }
  CHECK(blocks.size() >= 2);
  CHECK(requests.contains(1));
}

TEST_CASE("products are measured by dtype, alone and in a loop") {
  std::set<std::string> dtypes, modes;
  for (const Json& row : measured().find("measurements")->items()) {
    if (*row.find("what") != Json("linear_forward")) continue;
    dtypes.insert(row.find("dtype")->as_string());
    modes.insert(row.find("mode")->as_string());
  }
  CHECK(dtypes == std::set<std::string>{"bf16", "fp16", "fp32"});
  CHECK(modes == std::set<std::string>{"in a row", "isolated", "sustained"});
}

TEST_CASE("a measured profile is read and changes CPU Adam of a plan") {
  const Profile profile = parse_profile(measured(), "profile.json", "");
  CHECK(profile.name == "test");
  CHECK(profile.machine.size() >= 4);
  const Json* const rate = value_named("cpu_adam_process_rate");
  if (rate == nullptr) {
    // A sanitizer makes the kernels slower than any machine is.
    CHECK(notes().find("cpu_adam_process_rate") != std::string::npos);
    WARN("SKIPPED: CPU Adam is out of bounds in this build");
    return;
  }

  Json scenario = Json::object({{"model", "1.5B"}, {"cluster", "RTX4090-24G"}});
  const Plan plain = resolve(parse_scenario(scenario, "s.json"));
  scenario["profile"] = measured();
  const Plan here = resolve(parse_scenario(scenario, "s.json"));
  CHECK(here.coefficients[Coefficient::cpu_adam_process_rate] == rate->find("value")->as_number());
  CHECK(here.cluster.node.cpu_cores.value == machine_facts().cores);
  CHECK(here.cluster.node.host_memory_bandwidth.confidence == Confidence::measured);
  const auto adam = [](const Plan& plan) {
    return cpu_adam_parameters_per_second(DType::fp32, plan.cluster.node, {}, plan.coefficients);
  };
  CHECK(adam(here) != adam(plain));
  // What the model gives is no more than what was measured.
  CHECK(adam(here) <= rate->find("value")->as_number() * 1.001);
}

TEST_CASE("the document says what was not measured") {
  CHECK(notes().find("no GPU was measured (built without CUDA)") != std::string::npos);
  CHECK(*measured().find("machine")->find("gpus") == Json("not measured"));
  MachineOptions missing;
  missing.tiny = true;
  missing.nvme_path = "/no/such/folder";
  CHECK_THROWS_AS(measure_machine(missing), InputError);
}

TEST_CASE("a GPU that fails as a whole leaves the CPU's part") {
  MachineOptions options;
  options.tiny = true;
  options.gpus = [](const GpuScale&) -> GpuFindings { throw DeviceError("cudaSetDevice: busy"); };
  const Json document = measure_machine(options);
  CHECK(document.find("measurements")->items().size() > 20);
  CHECK(document.find("notes")->dump().find("no GPU was measured (cudaSetDevice: busy)") !=
        std::string::npos);
}

TEST_CASE("what a GPU gave stands in the document with its own clock") {
  MachineOptions options;
  options.tiny = true;
  options.gpus = [](const GpuScale&) {
    GpuFindings findings;
    findings.facts.name = "NVIDIA H100 80GB HBM3";
    findings.rows.push_back({"gpu_launch", {}, "s", spread_of({2e-6, 2e-6, 2e-6}, 1), 1755.0});
    findings.rows.back().beside.emplace_back("note", Json("kept"));
    findings.notes.push_back("no collectives between GPUs: one is visible");
    return findings;
  };
  const Json document = measure_machine(options);
  const Json& row = document.find("measurements")->items().back();
  CHECK(*row.find("what") == Json("gpu_launch"));
  CHECK(*row.find("megahertz") == Json(1755.0));
  CHECK(*row.find("note") == Json("kept"));
  CHECK(*document.find("machine")->find("gpus")->find("name") == Json("NVIDIA H100 80GB HBM3"));
  CHECK(document.find("notes")->dump().find("one is visible") != std::string::npos);
  CHECK(document.dump().find("host_launch_seconds") != std::string::npos);
  CHECK_NOTHROW(parse_profile(document, "profile.json", ""));
}

}  // namespace zeroplan::runtime
