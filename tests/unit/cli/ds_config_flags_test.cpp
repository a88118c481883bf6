// Keys of ds_config.json as flags.
#include "cli/ds_config_flags.hpp"

#include "base/diagnostic.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

TEST_CASE("a flag is the one key that has its name") {
  CHECK(cli::knob_of_flag("--stage") == Knob::zero_stage);
  CHECK(cli::knob_of_flag("--zero") == Knob::zero_stage);
  CHECK(cli::knob_of_flag("--reduce-bucket-size") == Knob::reduce_bucket_size);
  CHECK(cli::knob_of_flag("--reduce_bucket_size") == Knob::reduce_bucket_size);
  CHECK(cli::knob_of_flag("--max-live-parameters") == Knob::stage3_max_live_parameters);
  CHECK(cli::knob_of_flag("--hpz-partition-size") == Knob::zero_hpz_partition_size);
  CHECK(cli::knob_of_flag("--offload-optimizer") == Knob::offload_optimizer_device);
  CHECK(cli::knob_of_flag("--offload_param.device") == Knob::offload_param_device);
  CHECK(cli::knob_of_flag("--offload_optimizer.pin_memory") == Knob::offload_optimizer_pin_memory);
  CHECK_FALSE(cli::knob_of_flag("--device"));      // of two sections
  CHECK_FALSE(cli::knob_of_flag("--pin-memory"));  // the same
  CHECK_FALSE(cli::knob_of_flag("--enabled"));
  CHECK_FALSE(cli::knob_of_flag("--zero-optimization"));  // a section
  CHECK_FALSE(cli::knob_of_flag("--"));
}

TEST_CASE("a flag's text is a value of its key's type") {
  CHECK(cli::ds_config_value(Knob::zero_stage, "--stage", "3") == Json(3));
  CHECK(cli::ds_config_value(Knob::reduce_bucket_size, "--b", "2e8") == Json(200000000));
  CHECK(cli::ds_config_value(Knob::reduce_bucket_size, "--b", "auto") == Json("auto"));
  CHECK(cli::ds_config_value(Knob::overlap_comm, "--o", "false") == Json(false));
  CHECK(cli::ds_config_value(Knob::gradient_clipping, "--c", "0.5") == Json(0.5));
  CHECK(cli::ds_config_value(Knob::offload_param_device, "--d", "cpu") == Json("cpu"));
  CHECK_THROWS_AS(cli::ds_config_value(Knob::zero_stage, "--stage", "2.5"), InputError);
  CHECK_THROWS_AS(cli::ds_config_value(Knob::zero_stage, "--stage", "three"), InputError);
  CHECK_THROWS_AS(cli::ds_config_value(Knob::overlap_comm, "--o", "yes"), InputError);
}

TEST_CASE("flags count over the document, and leave the rest of it") {
  const ExplicitValue said{
      Json::object({{"zero_optimization", Json::object({{"stage", 2}, {"overlap_comm", true}})},
                    {"steps_per_print", 7}}),
      {"a.json", "/ds_config"}};
  const ExplicitValue whole =
      cli::with_ds_config_flags(&said,
                                {{"--stage", Knob::zero_stage, Json(3)},
                                 {"--offload-param", Knob::offload_param_device, Json("cpu")}});
  CHECK(whole.value.dump() ==
        R"({"zero_optimization":{"stage":3,"overlap_comm":true,"offload_param":{"device":"cpu"}},)"
        R"("steps_per_print":7})");
  CHECK(whole.origin.file == "a.json");
  const ExplicitValue alone =
      cli::with_ds_config_flags(nullptr, {{"--stage", Knob::zero_stage, Json(1)}});
  CHECK(alone.value.dump() == R"({"zero_optimization":{"stage":1}})");
}

TEST_CASE("a section that is none is refused with its place") {
  const ExplicitValue said{Json::object({{"zero_optimization", true}}), {"a.json", ""}};
  try {
    cli::with_ds_config_flags(&said,
                              {{"--offload-param", Knob::offload_param_device, Json("cpu")}});
    FAIL("taken");
  } catch (const InputError& error) {
    CHECK(error.diagnostics().front().file == "a.json");
    CHECK(error.diagnostics().front().pointer == "/zero_optimization");
  }
}
