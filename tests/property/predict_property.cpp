// What must hold of every prediction, over seeded random scenarios.
#include <cmath>
#include <thread>

#include "model/predict/io_step_result.hpp"
#include "model/predict/predict.hpp"
#include "model/predict/step_time.hpp"
#include "model/predict/step_traffic.hpp"
#include "tests/catch.hpp"
#include "tests/property/random_scenario.hpp"

using namespace zeroplan;
using namespace zeroplan::testing;

namespace {

constexpr int kScenarios = 150;

StepResult predicted(const Json& document) { return predict(resolve(read(document))); }

Json with(Json document, const char* key, const Json& value) {
  document["workload"][key] = value;
  return document;
}

bool is_sane(Seconds time) { return std::isfinite(time.seconds()) && time >= Seconds::zero(); }

}  // namespace

TEST_CASE("no category is negative, and the nine of them sum to the total") {
  ScenarioGenerator random(1);
  for (int i = 0; i < kScenarios; ++i) {
    const Json document = random.scenario();
    INFO(document.dump());
    const GpuMemory gpu = predicted(document).gpu;
    for (const Bytes part : gpu.breakdown_at_peak) CHECK(part >= Bytes::zero());
    CHECK(sum(gpu.breakdown_at_peak) == gpu.peak_total);
    CHECK(at(gpu.breakdown_at_peak, MemoryCategory::fragmentation) ==
          gpu.peak_reserved - gpu.peak_allocated);
    CHECK(gpu.static_allocated >= Bytes::zero());
    CHECK(gpu.static_allocated <= gpu.peak_allocated);
    CHECK(gpu.peak_allocated <= gpu.peak_reserved);
    CHECK_FALSE(gpu.peak_total.is_infinite());
    for (const CategoryBytes& phase : gpu.by_phase) {
      for (const Bytes part : phase) CHECK(part >= Bytes::zero());
      CHECK(sum(phase) <= gpu.peak_allocated);
    }
  }
}

TEST_CASE("forward, backward and optimizer are the step, and exposed times are parts of it") {
  ScenarioGenerator random(2);
  for (int i = 0; i < kScenarios; ++i) {
    const Json document = random.scenario();
    INFO(document.dump());
    const StepTime step = predicted(document).step;
    const double parts =
        step.forward.seconds() + step.backward.seconds() + step.optimizer.seconds();
    CHECK(parts == Approx(step.total.seconds()).epsilon(1e-9));
    for (const Seconds time : {step.total,
                               step.forward,
                               step.backward,
                               step.optimizer,
                               step.exposed_communication,
                               step.exposed_offload}) {
      CHECK(is_sane(time));
      CHECK(time <= step.total);
    }
    CHECK(step.total > Seconds::zero());
    CHECK(step.mfu > 0.0);
    CHECK(std::isfinite(step.mfu));
  }
}

TEST_CASE("intervals hold their prediction, and probabilities are probabilities") {
  ScenarioGenerator random(3);
  for (int i = 0; i < kScenarios; ++i) {
    const StepResult result = predicted(random.scenario());
    CHECK(result.fit_probability >= 0.0);
    CHECK(result.fit_probability <= 1.0);
    CHECK(result.fits == result.limits.empty());
    CHECK(result.peak_allocated_interval.low <= result.gpu.peak_allocated);
    CHECK(result.gpu.peak_allocated <= result.peak_allocated_interval.high);
    CHECK(result.peak_reserved_interval.low <= result.gpu.peak_reserved);
    CHECK(result.gpu.peak_reserved <= result.peak_reserved_interval.high);
    CHECK(result.peak_total_interval.low <= result.gpu.peak_total);
    CHECK(result.gpu.peak_total <= result.peak_total_interval.high);
    CHECK(result.step_interval.low <= result.step.total);
    CHECK(result.step.total <= result.step_interval.high);
    CHECK(result.host.pinned <= result.host.peak);
    CHECK(result.host.load_peak <= result.host.peak);
  }
}

TEST_CASE("one rank costs no communication") {
  ScenarioGenerator random(4);
  for (int i = 0; i < kScenarios / 3; ++i) {
    Json document = random.scenario();
    document["cluster"] = "1x1xA100-80G-SXM";
    INFO(document.dump());
    CHECK(predicted(document).step.exposed_communication == Seconds::zero());
  }
}

// The fused loss cuts its tokens into chunks of a power of two, so that more of them may need fewer
// launches: without it here and in the next property.
TEST_CASE("a larger micro-batch needs more memory and more time") {
  ScenarioGenerator random(5);
  for (int i = 0; i < kScenarios / 2; ++i) {
    // Outputs that a loop keeps between steps are larger, too.
    const Json document = with(with(random.scenario(), "fused_loss", false), "outputs_kept", false);
    const std::int64_t now = document.find("workload")->find("micro_batch_size")->as_integer();
    INFO(document.dump());
    const StepResult small = predicted(document);
    const StepResult large = predicted(with(document, "micro_batch_size", now + 1));
    CHECK(large.gpu.peak_allocated >= small.gpu.peak_allocated);
    CHECK(large.gpu.static_allocated == small.gpu.static_allocated);
    // Where the host decides, contention counts a little more beside memory-bound kernels.
    CHECK(large.step.total.seconds() >= 0.999 * small.step.total.seconds());
  }
}

TEST_CASE("a longer sequence needs more memory and more time") {
  ScenarioGenerator random(6);
  for (int i = 0; i < kScenarios / 2; ++i) {
    const Json document = with(random.scenario(), "fused_loss", false);
    const std::int64_t now = document.find("workload")->find("sequence_length")->as_integer();
    INFO(document.dump());
    const StepResult shorter = predicted(document);
    const StepResult longer = predicted(with(document, "sequence_length", now + 64));
    CHECK(longer.gpu.peak_allocated >= shorter.gpu.peak_allocated);
    CHECK(longer.step.total >= shorter.step.total * (1.0 - 1e-3));  // waves of small kernels
  }
}

TEST_CASE("more accumulation steps take more time and as many samples more") {
  ScenarioGenerator random(7);
  for (int i = 0; i < kScenarios / 3; ++i) {
    const Json document = random.scenario();
    const StepResult one = predicted(with(document, "gradient_accumulation_steps", 2));
    const StepResult more = predicted(with(document, "gradient_accumulation_steps", 6));
    INFO(document.dump());
    CHECK(more.step.total > one.step.total);
    CHECK(more.step.samples_per_second >= one.step.samples_per_second);
  }
}

// Of three layers and more: a single one is recomputed beside the gradients that came down to it,
// and then nothing is gained.
TEST_CASE("checkpointing never needs more memory, and never less time") {
  ScenarioGenerator random(8);
  for (int i = 0; i < kScenarios / 2; ++i) {
    Json document = random.scenario();
    document["model"]["num_hidden_layers"] = random.between(3, 8);
    const StepResult none = predicted(with(document, "activation_checkpointing", "none"));
    const StepResult full = predicted(with(document, "activation_checkpointing", "full"));
    INFO(document.dump());
    CHECK(full.gpu.peak_allocated <= none.gpu.peak_allocated);
    CHECK(full.step.total >= none.step.total);
  }
}

TEST_CASE("a slower link, slower memory or a slower GPU never make a step faster") {
  ScenarioGenerator random(9);
  for (int i = 0; i < kScenarios / 2; ++i) {
    Json document = random.scenario();
    INFO(document.dump());
    const Plan plan = resolve(read(document));
    const Seconds now = predict(plan).step.total;
    Plan slow = plan;
    slow.cluster.node.intra_node.bandwidth.value = plan.cluster.node.intra_node.bandwidth.value / 3;
    CHECK(predict(slow).step.total >= now);
    slow = plan;
    slow.cluster.inter_node.bandwidth.value = plan.cluster.inter_node.bandwidth.value / 3;
    CHECK(predict(slow).step.total >= now);
    slow = plan;
    slow.cluster.node.pcie_bandwidth.value = plan.cluster.node.pcie_bandwidth.value / 3;
    CHECK(predict(slow).step.total >= now);
    slow = plan;
    slow.cluster.gpu.memory_bandwidth.value = plan.cluster.gpu.memory_bandwidth.value / 3;
    CHECK(predict(slow).step.total >= now);
    slow = plan;
    slow.cluster.node.host_memory_bandwidth.value =
        plan.cluster.node.host_memory_bandwidth.value / 3;
    CHECK(predict(slow).step.total >= now);
  }
}

TEST_CASE("overlapping never costs more than one after the other, nor less than the longer one") {
  ScenarioGenerator random(12);
  for (int i = 0; i < kScenarios / 2; ++i) {
    const Json document = random.scenario(random.between(1, 3));
    INFO(document.dump());
    Plan plan = resolve(read(document));
    const StepWork work = step_work(plan);
    const StepTraffic traffic = step_traffic(plan, work);
    plan.engine.overlap_comm = true;
    const Seconds together = step_time(plan, work.graph, traffic).total;
    plan.engine.overlap_comm = false;
    const StepTime apart = step_time(plan, work.graph, traffic);
    CHECK(together.seconds() <= apart.total.seconds() * (1.0 + 1e-12));
    CHECK(together >= apart.exposed_communication);
    CHECK(together >= apart.total - apart.exposed_communication);
  }
}

TEST_CASE("a bigger GPU fits at least as probably") {
  ScenarioGenerator random(10);
  for (int i = 0; i < kScenarios / 2; ++i) {
    const Json document = random.scenario();
    INFO(document.dump());
    Plan plan = resolve(read(document));
    const double now = predict(plan).fit_probability;
    PredictOptions reserved;
    reserved.reserve = Bytes::gib(2);
    CHECK(predict(plan, reserved).fit_probability <= now);
  }
}

TEST_CASE("a prediction does not depend on the thread that asks") {
  ScenarioGenerator random(11);
  std::vector<Json> documents;
  for (int i = 0; i < 24; ++i) documents.push_back(random.scenario());
  std::vector<std::string> alone;
  for (const Json& document : documents) alone.push_back(to_json(predicted(document)).dump());
  std::vector<std::string> together(documents.size());
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < documents.size(); i += 4) {
        together[i] = to_json(predicted(documents[i])).dump();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(together == alone);
}
