// What the Hugging Face Trainer writes for "auto", rule by rule.
#include "model/plan/frontend_hf.hpp"

#include <algorithm>

#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

TrainerArguments arguments() {
  TrainerArguments a;
  a.micro_batch_size = 3;
  a.gradient_accumulation_steps = 5;
  a.data_parallel_ranks = 7;
  a.hidden_size = 1000;
  a.stage = 3;
  a.precision = Precision::bf16;
  a.total_steps = 1234;
  a.pipeline_stages = 2;
  return a;
}

// What "auto" becomes under these arguments; Unset where the key is dropped.
KnobValue filled(Knob knob, const TrainerArguments& a = arguments()) {
  DsConfig config;
  config.set_auto(knob);
  CHECK(fill_auto(config, a).empty());
  return config.value(knob);
}

bool is(const KnobValue& value, const KnobValue& expected) { return value == expected; }

}  // namespace

TEST_CASE("batch sizes come from the arguments, the total is their product with the ranks") {
  CHECK(is(filled(Knob::train_micro_batch_size_per_gpu), std::int64_t{3}));
  CHECK(is(filled(Knob::gradient_accumulation_steps), std::int64_t{5}));
  CHECK(is(filled(Knob::train_batch_size), std::int64_t{3 * 5 * 7}));
}

TEST_CASE("clipping and optimizer parameters are TrainingArguments' defaults") {
  CHECK(is(filled(Knob::gradient_clipping), 1.0));
  CHECK(is(filled(Knob::optimizer_lr), 5e-5));
  CHECK(is(filled(Knob::optimizer_eps), 1e-8));
  CHECK(is(filled(Knob::optimizer_weight_decay), 0.0));
  CHECK(is(filled(Knob::optimizer_betas), Json::array({0.9, 0.999})));
}

TEST_CASE("sizes follow the hidden size") {
  CHECK(is(filled(Knob::reduce_bucket_size), std::int64_t{1'000'000}));
  CHECK(is(filled(Knob::stage3_prefetch_bucket_size), std::int64_t{900'000}));
  CHECK(is(filled(Knob::stage3_param_persistence_threshold), std::int64_t{10'000}));
}

TEST_CASE("the prefetch sizes are rounded down to whole elements") {
  TrainerArguments a = arguments();
  a.hidden_size = 4097;  // 0.9 * 4097^2 = 15106868.1
  CHECK(is(filled(Knob::stage3_prefetch_bucket_size, a), std::int64_t{15106868}));
}

TEST_CASE("below stage 3 the two stage-3 sizes are dropped, the bucket is not") {
  TrainerArguments a = arguments();
  a.stage = 2;
  CHECK(is(filled(Knob::reduce_bucket_size, a), std::int64_t{1'000'000}));
  CHECK(is(filled(Knob::stage3_prefetch_bucket_size, a), Unset{}));
  CHECK(is(filled(Knob::stage3_param_persistence_threshold, a), Unset{}));
}

TEST_CASE("a config without a hidden size leaves three keys open and says which") {
  DsConfig config;
  for (const Knob knob : {Knob::reduce_bucket_size,
                          Knob::stage3_prefetch_bucket_size,
                          Knob::stage3_param_persistence_threshold,
                          Knob::gradient_clipping}) {
    config.set_auto(knob);
  }
  TrainerArguments a = arguments();
  a.hidden_size = 0;
  const std::vector<std::string> open = fill_auto(config, a);
  CHECK(open.size() == 3);
  CHECK(std::count(open.begin(), open.end(), "/zero_optimization/reduce_bucket_size") == 1);
  CHECK_FALSE(config.is_set(Knob::reduce_bucket_size));
  CHECK(config.real(Knob::gradient_clipping) == 1.0);
}

TEST_CASE("the number formats are switched by the precision") {
  TrainerArguments a = arguments();
  CHECK(is(filled(Knob::bf16_enabled, a), true));
  CHECK(is(filled(Knob::fp16_enabled, a), false));
  a.precision = Precision::fp16;
  CHECK(is(filled(Knob::bf16_enabled, a), false));
  CHECK(is(filled(Knob::fp16_enabled, a), true));
  a.precision = Precision::fp32;
  CHECK(is(filled(Knob::bf16_enabled, a), false));
  CHECK(is(filled(Knob::fp16_enabled, a), false));
}

TEST_CASE("every rule of the table gives its row's type, or drops the key") {
  for (const KnobRow& row : knob_rows()) {
    INFO(row.pointer);
    const KnobValue value = filled(row.id);
    if (std::holds_alternative<Unset>(value)) {
      const bool none =
          row.automatic <= AutoRule::accelerate_default || row.automatic == AutoRule::apex_level;
      CHECK(none);
      continue;
    }
    CHECK_FALSE(std::holds_alternative<Auto>(value));
    switch (row.type) {
      case KnobType::boolean:
        CHECK(std::holds_alternative<bool>(value));
        break;
      case KnobType::integer:
        CHECK(std::holds_alternative<std::int64_t>(value));
        break;
      case KnobType::real:
        CHECK(std::holds_alternative<double>(value));
        break;
      case KnobType::text:
        CHECK(std::holds_alternative<std::string>(value));
        break;
      case KnobType::list:
      case KnobType::object:
        CHECK(std::holds_alternative<Json>(value));
        break;
    }
  }
}

TEST_CASE("the length of the job fills the scheduler only where it is known") {
  for (const KnobRow& row : knob_rows()) {
    if (row.automatic != AutoRule::total_steps) continue;
    INFO(row.pointer);
    CHECK(is(filled(row.id), std::int64_t{1234}));
    TrainerArguments a = arguments();
    a.total_steps = 0;
    CHECK(is(filled(row.id, a), Unset{}));
  }
}

TEST_CASE("what is not auto stays as it is") {
  DsConfig config;
  config.set(Knob::reduce_bucket_size, std::int64_t{7});
  config.set(Knob::gradient_clipping, 0.3);
  const DsConfig before = config;
  CHECK(fill_auto(config, arguments()).empty());
  CHECK(config == before);
}

TEST_CASE("a loop of DeepSpeed's own has sizes that say auto dropped, whatever the model is") {
  TrainerArguments a = arguments();
  a.runs = false;
  a.hidden_size = 0;
  CHECK(is(filled(Knob::reduce_bucket_size, a), Unset{}));
  CHECK(is(filled(Knob::stage3_prefetch_bucket_size, a), Unset{}));
  CHECK(is(filled(Knob::stage3_param_persistence_threshold, a), Unset{}));
  CHECK(is(filled(Knob::train_micro_batch_size_per_gpu, a), std::int64_t{3}));
}
