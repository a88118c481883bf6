#include "model/knobs/ds_config.hpp"

#include <algorithm>
#include <string>

#include "base/diagnostic.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

DsConfig parse(const std::string& text) { return parse_ds_config(parse_json(text, "ds.json")); }

std::vector<Diagnostic> errors_of(const std::string& text) {
  try {
    parse(text);
  } catch (const InputError& error) {
    return error.diagnostics();
  }
  FAIL("no error for: " << text);
  return {};
}

const Finding* note_of(const DsConfig& config, std::string_view code) {
  const auto found = std::find_if(config.notes().begin(),
                                  config.notes().end(),
                                  [&](const Finding& note) { return note.code == code; });
  return found == config.notes().end() ? nullptr : &*found;
}

}  // namespace

TEST_CASE("a plain file is read without notes and nothing more is set than it says") {
  const DsConfig config = parse(R"({
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": true},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.8}},
    "optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.95], "lr": 1e-5}}
  })");
  CHECK(config.integer(Knob::train_micro_batch_size_per_gpu) == 2);
  CHECK(config.boolean(Knob::bf16_enabled) == true);
  CHECK(config.integer(Knob::zero_stage) == 3);
  CHECK(config.text(Knob::offload_optimizer_device) == "cpu");
  CHECK(config.real(Knob::offload_optimizer_ratio) == 0.8);
  CHECK(config.text(Knob::optimizer_type) == "AdamW");
  REQUIRE(config.json(Knob::optimizer_betas) != nullptr);
  CHECK(config.json(Knob::optimizer_betas)->items().size() == 2);
  CHECK(config.values().size() == 8);
  CHECK_FALSE(config.is_set(Knob::overlap_comm));
  CHECK(config.notes().empty());
  CHECK(config.unknown().empty());
}

TEST_CASE("an integer may be written as 5e8, which HJSON and Python read as a float") {
  const DsConfig config =
      parse(R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}})");
  CHECK(config.integer(Knob::reduce_bucket_size) == 500000000);
  REQUIRE(note_of(config, note_code::kFloatInteger) != nullptr);
  CHECK(note_of(config, note_code::kFloatInteger)->severity == Severity::info);
}

TEST_CASE("a fraction of an element is cut with a warning, a fraction of anything else refused") {
  const DsConfig config =
      parse(R"({"zero_optimization": {"stage3_prefetch_bucket_size": 15099494.4}})");
  CHECK(config.integer(Knob::stage3_prefetch_bucket_size) == 15099494);
  CHECK(note_of(config, note_code::kRoundedNumber)->severity == Severity::warning);
  CHECK(errors_of(R"({"gradient_accumulation_steps": 1.5})")[0].expected ==
        "an integer between 1 and 1048576");
}

TEST_CASE("quoted numbers and booleans are read as what they say") {
  const DsConfig config = parse(R"({
    "gradient_accumulation_steps": "8",
    "fp16": {"enabled": "true", "auto_cast": "False", "loss_scale": "0.5"},
    "zero_optimization": {"reduce_bucket_size": "2e8", "overlap_comm": 1}
  })");
  CHECK(config.integer(Knob::gradient_accumulation_steps) == 8);
  CHECK(config.boolean(Knob::fp16_enabled) == true);
  CHECK(config.boolean(Knob::fp16_auto_cast) == false);
  CHECK(config.real(Knob::fp16_loss_scale) == 0.5);
  CHECK(config.integer(Knob::reduce_bucket_size) == 200000000);
  CHECK(config.boolean(Knob::overlap_comm) == true);
  CHECK(note_of(config, note_code::kQuotedValue) != nullptr);
  CHECK(note_of(config, note_code::kNumberForBoolean) != nullptr);
}

TEST_CASE("auto is kept and reported only where nobody replaces it") {
  const DsConfig config = parse(R"({
    "train_batch_size": "auto", "steps_per_print": "auto",
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
                          "offload_param": {"device": "auto"}}
  })");
  CHECK(config.is_auto(Knob::train_batch_size));
  CHECK(config.is_auto(Knob::reduce_bucket_size));
  CHECK(config.is_auto(Knob::offload_param_device));
  CHECK_FALSE(config.integer(Knob::train_batch_size).has_value());
  REQUIRE(config.notes().size() == 1);
  CHECK(config.notes()[0].code == note_code::kAutoUnresolved);
  CHECK(config.notes()[0].pointer == "/steps_per_print");
}

TEST_CASE("zero_optimization: true is the old way to write stage 1") {
  const DsConfig config = parse(R"({"zero_optimization": true, "allgather_size": 2e8})");
  CHECK(config.integer(Knob::zero_stage) == 1);
  CHECK(config.integer(Knob::allgather_bucket_size) == 200000000);
  CHECK(note_of(config, note_code::kBooleanZero)->fix.english().find("\"stage\": 1") !=
        std::string::npos);
  CHECK(parse(R"({"zero_optimization": false})").integer(Knob::zero_stage) == 0);
}

TEST_CASE("cpu_offload and its kin are read as the sections that replaced them") {
  const DsConfig config = parse(R"({"zero_optimization": {
    "stage": 3, "cpu_offload": true, "cpu_offload_params": true,
    "cpu_offload_use_pin_memory": true}})");
  CHECK(config.text(Knob::offload_optimizer_device) == "cpu");
  CHECK(config.text(Knob::offload_param_device) == "cpu");
  CHECK(config.boolean(Knob::offload_optimizer_pin_memory) == true);
  CHECK(config.boolean(Knob::offload_param_pin_memory) == true);
  CHECK(note_of(config, note_code::kDeprecatedKey) != nullptr);

  const DsConfig off = parse(R"({"zero_optimization": {
    "stage": 2, "cpu_offload": false, "cpu_offload_use_pin_memory": true}})");
  CHECK_FALSE(off.is_set(Knob::offload_optimizer_device));
  CHECK_FALSE(off.is_set(Knob::offload_optimizer_pin_memory));
}

TEST_CASE("where an old and a new spelling disagree the new one counts, in any order") {
  for (const char* text : {R"({"zero_optimization": {"cpu_offload": true,
                               "offload_optimizer": {"device": "nvme"}}})",
                           R"({"zero_optimization": {"offload_optimizer": {"device": "nvme"},
                               "cpu_offload": true}})"}) {
    const DsConfig config = parse(text);
    CHECK(config.text(Knob::offload_optimizer_device) == "nvme");
    CHECK(note_of(config, note_code::kConflictingKeys) != nullptr);
  }
}

TEST_CASE("other spellings of keys lead to the same knob") {
  const DsConfig config = parse(R"({
    "bfloat16": {"enabled": true},
    "aio": {"thread_count": 4},
    "zero_optimization": {"stage": 3, "max_live_parameters": 0,
                          "stage3_gather_fp16_weights_on_model_save": true}
  })");
  CHECK(config.boolean(Knob::bf16_enabled) == true);
  CHECK(config.integer(Knob::aio_intra_op_parallelism) == 4);
  CHECK(config.integer(Knob::stage3_max_live_parameters) == 0);
  CHECK(config.boolean(Knob::stage3_gather_16bit_weights_on_model_save) == true);
  CHECK(note_of(config, note_code::kAlternativeKey)->pointer ==
        "/zero_optimization/max_live_parameters");
}

TEST_CASE("values in another spelling are read and normalised") {
  const DsConfig config = parse(R"({
    "communication_data_type": "FP32", "data_types": {"grad_accum_dtype": "torch.bfloat16"},
    "zero_optimization": {"offload_optimizer": {"device": "CPU"}}
  })");
  CHECK(config.text(Knob::communication_data_type) == "fp32");
  CHECK(config.text(Knob::data_types_grad_accum_dtype) == "bf16");
  CHECK(config.text(Knob::offload_optimizer_device) == "cpu");
  CHECK(note_of(config, note_code::kOtherSpelling) != nullptr);
}

TEST_CASE("a repeated key counts with its last value and is reported") {
  const DsConfig config = parse("{\"steps_per_print\": 10,\n \"steps_per_print\": 2000}");
  CHECK(config.integer(Knob::steps_per_print) == 2000);
  REQUIRE(note_of(config, note_code::kDuplicateKey) != nullptr);
  CHECK(note_of(config, note_code::kDuplicateKey)->message.english().find("line 2") !=
        std::string::npos);
}

TEST_CASE("unknown keys are kept verbatim, a warning where DeepSpeed refuses them") {
  const DsConfig config = parse(R"({
    "pipe-parallel-size": 1, "comment": {"a/b": [1, {"c": null}]},
    "zero_optimization": {"stage": 3, "stage3_param_persitence_threshold": 1e5,
                          "gradient_clipping": 1.0}
  })");
  REQUIRE(config.unknown().size() == 4);
  CHECK_FALSE(config.is_set(Knob::stage3_param_persistence_threshold));
  const Finding* rejected = note_of(config, note_code::kRejectedKey);
  REQUIRE(rejected != nullptr);
  CHECK(rejected->severity == Severity::warning);
  CHECK(rejected->fix.english().find("stage3_param_persistence_threshold") != std::string::npos);
  CHECK(note_of(config, note_code::kUnknownKey)->severity == Severity::info);
  CHECK(config.notes().back().fix == "the key belongs at /gradient_clipping");
  CHECK(emit(config).find("comment")->find("a/b")->items().size() == 2);
}

TEST_CASE("null and a section that is auto are read as not given") {
  const DsConfig config = parse(R"({
    "fp16": null, "gradient_clipping": null,
    "zero_optimization": {"offload_param": "auto", "overlap_comm": null,
                          "offload_optimizer": {"device": "none", "nvme_path": null}}
  })");
  CHECK(config.values().size() == 1);
  CHECK(config.text(Knob::offload_optimizer_device) == "none");
  CHECK(note_of(config, note_code::kAutoSection) != nullptr);
}

TEST_CASE("comments and trailing commas are read and mentioned") {
  const DsConfig config = parse("{\"steps_per_print\": 5, // five\n}");
  CHECK(config.integer(Knob::steps_per_print) == 5);
  CHECK(note_of(config, note_code::kComments) != nullptr);
  CHECK(note_of(config, note_code::kTrailingCommas) != nullptr);
}

TEST_CASE("all that is wrong in a file is reported together") {
  const auto errors = errors_of(R"({
    "train_batch_size": -4,
    "zero_optimization": {"stage": 4, "reduce_bucket_size": 1e30,
                          "offload_optimizer": {"device": "gpu", "ratio": 1.5}},
    "fp16": true, "wall_clock_breakdown": "sometimes", "gradient_clipping": {}
  })");
  REQUIRE(errors.size() == 8);
  CHECK(errors[0].pointer == "/train_batch_size");
  CHECK(errors[0].expected == "an integer between 1 and 1099511627776");
  CHECK(errors[0].got == "-4");
  CHECK(errors[1].expected == "an integer between 0 and 3");
  CHECK(errors[3].expected == "\"none\", \"cpu\" or \"nvme\"");
  CHECK(errors[4].expected == "a number between 0 and 1");
  CHECK(errors[5].hint == "write {\"enabled\": true}");
  CHECK(errors[7].got == "an object of 0 members");
}

TEST_CASE("search lists of the autotuner and placeholders of templates get a hint") {
  const auto list = errors_of(R"({"zero_optimization": {"stage": [0, 1, 2, 3]}})");
  CHECK(list[0].hint.english().find("zeroplan tune") != std::string::npos);
  CHECK(errors_of(R"({"zero_optimization": {"stage": "all"}})")[0].hint.english().find(
            "zeroplan fit") != std::string::npos);
  for (const char* text : {R"({"train_batch_size": "CONFIG_BATCH_SIZE"})",
                           R"({"train_batch_size": "${GBS}"})",
                           R"({"fp16": {"enabled": "<enabled>"}})",
                           R"({"optimizer": {"type": "{{ optimizer }}"}})"}) {
    INFO(text);
    CHECK(errors_of(text)[0].hint.english().find("placeholder") != std::string::npos);
  }
  CHECK(errors_of("[1]")[0].expected == "an object");
}

TEST_CASE("a misspelled value gets the nearest name") {
  const auto errors = errors_of(R"({"zero_optimization": {"offload_param": {"device": "nmve"}}})");
  CHECK(errors[0].hint == "did you mean nvme?");
}

TEST_CASE("set checks the type and unset takes back") {
  DsConfig config;
  config.set(Knob::zero_stage, std::int64_t{2});
  config.set(Knob::gradient_clipping, std::int64_t{1});
  CHECK(config.real(Knob::gradient_clipping) == 1.0);
  CHECK_THROWS_AS(config.set(Knob::zero_stage, true), std::logic_error);
  CHECK_THROWS_AS(config.set(Knob::optimizer_betas, Json::object()), std::logic_error);
  config.unset(Knob::zero_stage);
  CHECK_FALSE(config.is_set(Knob::zero_stage));
}

TEST_CASE("emit writes canonical spelling in the order of the table") {
  const DsConfig config = parse(R"({
    "bfloat16": {"enabled": true}, "foreign": 1,
    "zero_optimization": {"cpu_offload": true, "reduce_bucket_size": 5e8, "mystery": [],
                          "stage": 2},
    "train_batch_size": 32
  })");
  CHECK(
      emit(config).dump() ==
      R"({"train_batch_size":32,"zero_optimization":{"stage":2,"reduce_bucket_size":500000000,)"
      R"("offload_optimizer":{"device":"cpu"},"mystery":[]},"bf16":{"enabled":true},"foreign":1})");
  CHECK(emit(DsConfig()).dump() == "{}");
}

TEST_CASE("for the Trainer its own keys are auto and ours stay") {
  const DsConfig config = parse(R"({
    "train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "torch_adam": true}},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": 100000000}
  })");
  const DsConfig hf = in_style(config, ConfigStyle::hf_trainer);
  for (const Knob knob : {Knob::train_batch_size,
                          Knob::train_micro_batch_size_per_gpu,
                          Knob::gradient_accumulation_steps,
                          Knob::fp16_enabled,
                          Knob::bf16_enabled,
                          Knob::optimizer_lr}) {
    INFO(pointer_of(knob));
    CHECK(hf.is_auto(knob));
  }
  CHECK(hf.integer(Knob::reduce_bucket_size) == 100000000);
  CHECK(hf.boolean(Knob::optimizer_torch_adam) == true);
  CHECK_FALSE(hf.is_set(Knob::optimizer_eps));
  CHECK_FALSE(hf.is_set(Knob::scheduler_total_num_steps));
  CHECK_FALSE(hf.is_set(Knob::gradient_clipping));
  CHECK(for_trainer(parse(R"({"gradient_clipping": 0.5})")).is_auto(Knob::gradient_clipping));
  CHECK(for_trainer(hf) == hf);
  CHECK(in_style(config, ConfigStyle::native) == config);
}

TEST_CASE("defaults as values") {
  CHECK(std::get<std::int64_t>(default_value(Knob::sub_group_size, 3, DeepSpeedVersion::v0_19)) ==
        1000000000);
  CHECK(std::get<std::string>(
            default_value(Knob::offload_param_device, 3, DeepSpeedVersion::v0_12)) == "none");
  CHECK(std::get<Json>(default_value(Knob::optimizer_betas, 0, kNewestDeepSpeed)).items().size() ==
        2);
  CHECK(std::holds_alternative<Unset>(
      default_value(Knob::data_types_grad_accum_dtype, 1, kNewestDeepSpeed)));
}
