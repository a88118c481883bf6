// The largest model that the ZeRO-Offload paper trains on one V100 with 32 GB (Ren et al. 2021,
// arXiv:2101.06840: 13 billion parameters). Micro-batch 1, sequence 1024, fp16, checkpointed
// activations, a DGX-2's host.
//
// Compared is a step, not the start: today's DeepSpeed clones the rank's 16-bit partition on the
// GPU before it goes to the host (runtime/zero/stage_1_and_2.py, `.detach().clone().to(device)`;
// the releases up to 0.12 moved it first), so on one GPU it needs the weights twice for a moment.
#include <algorithm>

#include "model/plan/scenario_reader.hpp"
#include "model/plan/software_sets.hpp"
#include "model/predict/predict.hpp"
#include "tests/catch.hpp"
#include "tests/published/published_data.hpp"

using namespace zeroplan;
using namespace zeroplan::testing;

namespace {

StepResult predicted(const Json& row) {
  Json zero = Json::object({{"stage", whole(row, "stage")}, {"overlap_comm", false}});
  if (row.find("offload_optimizer")->as_boolean()) {
    zero["offload_optimizer"] = Json::object({{"device", "cpu"}, {"pin_memory", false}});
  }
  const Json model = Json::object({{"model_type", "gpt2"},
                                   {"architectures", Json::array({"GPT2LMHeadModel"})},
                                   {"vocab_size", 50257},
                                   {"n_positions", 1024},
                                   {"n_embd", whole(row, "hidden")},
                                   {"n_layer", whole(row, "layers")},
                                   {"n_head", whole(row, "heads")}});
  const Json document = Json::object(
      {{"model", model},
       {"cluster",
        Json::object({{"nodes", 1},
                      {"gpus_per_node", 1},
                      {"gpu", "V100-32G-SXM3"},
                      {"host_memory_bytes", std::int64_t{1'500'000'000'000}}})},
       {"workload",
        Json::object({{"frontend", "native"},
                      {"sequence_length", 1024},
                      {"activation_checkpointing", "full"}})},
       {"ds_config",
        Json::object({{"fp16", Json::object({{"enabled", true}})}, {"zero_optimization", zero}})}});
  return predict(resolve(with_reported_software(parse_scenario(document, "zero_offload.json"))));
}

// Allocated in forward, backward and step, and what is outside the allocator.
Bytes needed_by_a_step(const GpuMemory& gpu) {
  Bytes peak;
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::step}) {
    peak = std::max(peak, sum(gpu.by_phase[static_cast<std::size_t>(phase)]));
  }
  return peak + (gpu.peak_total - gpu.peak_reserved);
}

}  // namespace

TEST_CASE(
    "a step of what the ZeRO-Offload paper trained on one V100 fits, and what it could not does "
    "not") {
  const Json table = published("zero_offload.json");
  for (const Json& row : table.find("rows")->items()) {
    INFO(text(row, "what"));
    const StepResult result = predicted(row);
    const double billions = static_cast<double>(result.parameters_total.count()) / 1e9;
    CHECK(billions == Approx(number(row, "billions")).epsilon(number(table, "size_tolerance")));
    const Bytes needed = needed_by_a_step(result.gpu);
    INFO("needs " << needed.count() << " of " << result.gpu.capacity.count());
    CHECK((needed <= result.gpu.capacity) == row.find("trains")->as_boolean());
  }
}
