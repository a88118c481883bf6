// Lines of measurements that tests make, and what is simulated for their scenarios.
#pragma once

#include <string>

#include "evidence/measurement.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/software_sets.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan::test {

// What every scenario of these tests states: all keys that have alternatives.
inline constexpr const char* kStated =
    R"("micro_batch_size":1,"gradient_accumulation_steps":1,"precision":"bf16","attention":"sdpa",)"
    R"("activation_checkpointing":"none","frontend":"hf-trainer","fused_loss":false)";

// The software of the defaults, stated.
inline constexpr const char* kSoftware =
    R"("software":{"deepspeed":"0.19.6","torch":"2.6","transformers":"4.50"})";

inline std::string line_of(
    const std::string& id,
    const std::string& workload,
    const std::string& measured,
    const std::string& rest = R"(,"ds_config":{"zero_optimization":{"stage":2}})") {
  return R"({"id":")" + id + R"(","source":"here","tier":"A","scenario":{"id":")" + id +
         R"(","model":"gpt2","cluster":"1x2xA100-80G","workload":{"sequence_length":512,)" +
         workload + "}," + kSoftware + rest + R"(},"measured":{)" + measured + "}}\n";
}

inline Scenario scenario_of(const std::string& line) {
  return evidence::parse_measurements(line, "m.jsonl").measurements.front().scenario;
}

inline StepResult simulated(const Scenario& scenario) {
  return simulator::simulate(resolve(with_reported_software(scenario)));
}

}  // namespace zeroplan::test
