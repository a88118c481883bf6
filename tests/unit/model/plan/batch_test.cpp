#include "model/plan/batch.hpp"

#include "base/diagnostic.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Scenario scenario_of(Json workload, Json ds_config = Json()) {
  Json document = Json::object(
      {{"model", "gpt2"}, {"cluster", "8xA100-80G"}, {"workload", std::move(workload)}});
  if (!ds_config.is_null()) document["ds_config"] = std::move(ds_config);
  return parse_scenario(document, "test");
}

std::int64_t sequences(const BatchSizes& sizes, std::int64_t ranks) {
  return sizes.micro_batch * sizes.accumulation * ranks;
}

}  // namespace

TEST_CASE("without a word a step has about 128 sequences, divided in every way") {
  const BatchChoices choices = batch_choices({}, 8, 2048);
  CHECK(choices.sizes == std::vector<BatchSizes>{{1, 16}, {2, 8}, {4, 4}, {8, 2}, {16, 1}});
  CHECK(choices.assumption.english().starts_with("128 sequences a step (16 for each of 8"));
}

TEST_CASE("each rank's share is the power of two that comes nearest to the usual batch") {
  CHECK(usual_share(1, 2048) == 128);
  CHECK(usual_share(3, 2048) == 32);   // 96 and not 192
  CHECK(usual_share(10, 2048) == 16);  // 160 and not 80
  CHECK(usual_share(128, 2048) == 1);
  CHECK(usual_share(1000, 2048) == 1);
  for (std::int64_t ranks = 1; ranks <= 128; ++ranks) {
    const double batch = static_cast<double>(usual_share(ranks, 1024) * ranks);
    CHECK(batch <= 128.0 * 1.4143);
    CHECK(batch >= 128.0 / 1.4143);
  }
}

TEST_CASE("long sequences are fewer, at least one") {
  CHECK(usual_share(1, 131072) == 32);
  CHECK(usual_share(8, 1 << 24) == 1);
}

TEST_CASE("what was said is kept, and the rest of the usual batch is accumulated") {
  CHECK(batch_choices({4, {}, {}}, 8, 2048).sizes == std::vector<BatchSizes>{{4, 4}});
  CHECK(batch_choices({64, {}, {}}, 8, 2048).sizes == std::vector<BatchSizes>{{64, 1}});
  CHECK(batch_choices({3, 7, {}}, 8, 2048).sizes == std::vector<BatchSizes>{{3, 7}});
  CHECK(batch_choices({3, 7, {}}, 8, 2048).assumption.empty());
  const BatchChoices steps = batch_choices({{}, 4, {}}, 8, 2048);
  CHECK(steps.sizes == std::vector<BatchSizes>{{1, 4}, {2, 4}, {4, 4}});
  CHECK_FALSE(steps.assumption.empty());
}

TEST_CASE("a global batch is divided without a remainder") {
  const BatchChoices choices = batch_choices({{}, {}, 48}, 4, 2048);
  CHECK(choices.sizes == std::vector<BatchSizes>{{1, 12}, {2, 6}, {3, 4}, {4, 3}, {6, 2}, {12, 1}});
  CHECK(choices.assumption.empty());
  CHECK(batch_choices({6, {}, 48}, 4, 2048).sizes == std::vector<BatchSizes>{{6, 2}});
  CHECK_THROWS_AS(batch_choices({{}, {}, 50}, 4, 2048), InputError);
  for (const BatchSizes& sizes : choices.sizes) CHECK(sequences(sizes, 4) == 48);
}

TEST_CASE("a micro-batch beyond those that are searched makes the batch, too") {
  CHECK(batch_choices({512, {}, 1024}, 1, 128).sizes == std::vector<BatchSizes>{{512, 2}});
}

TEST_CASE("flags count before the file") {
  const DsConfig file = parse_ds_config(
      parse_json(R"({"train_batch_size":64,"gradient_accumulation_steps":"auto"})", "ds.json"));
  const SaidBatch of_file = said_batch(scenario_of(Json::object({})), &file);
  CHECK(of_file.global == 64);
  CHECK_FALSE(of_file.accumulation.has_value());
  const SaidBatch said = said_batch(
      scenario_of(Json::object({{"global_batch_size", 32}, {"micro_batch_size", 2}})), &file);
  CHECK(said.global == 32);
  CHECK(said.micro_batch == 2);
}

TEST_CASE("one configuration without a batch has micro-batch 1 and no accumulation") {
  const Plan plan = resolve(scenario_of(Json::object({})));
  CHECK(plan.workload.micro_batch_size == 1);
  CHECK(plan.workload.gradient_accumulation_steps == 1);
}

TEST_CASE("a global batch that was said is accumulated where nothing else was") {
  const Plan plan = resolve(scenario_of(Json::object({{"global_batch_size", 64}})));
  CHECK(plan.workload.micro_batch_size == 1);
  CHECK(plan.workload.gradient_accumulation_steps == 8);
  const Plan four =
      resolve(scenario_of(Json::object({{"global_batch_size", 64}, {"micro_batch_size", 4}})));
  CHECK(four.workload.gradient_accumulation_steps == 2);
}

TEST_CASE("a global batch that the ranks cannot make is an error with its flag") {
  try {
    resolve(scenario_of(Json::object({{"global_batch_size", 20}})));
    FAIL("20 sequences on 8 ranks");
  } catch (const InputError& error) {
    CHECK(error.diagnostics().front().pointer == "/workload/global_batch_size");
    CHECK(error.diagnostics().front().got == "20");
  }
}
