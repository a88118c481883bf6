#include "model/plan/spellings.hpp"

#include "base/diagnostic.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/plan/scenario_values.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Json said(ScenarioKey key, const std::string& text) { return parse_flag(info(key), text); }

Diagnostic problem(ScenarioKey key, const std::string& text) {
  try {
    said(key, text);
  } catch (const InputError& error) {
    return error.diagnostics().front();
  }
  return {};
}

}  // namespace

TEST_CASE("a length may be written 4k") {
  CHECK(said(ScenarioKey::sequence_length, "4k") == Json(4096));
  CHECK(said(ScenarioKey::sequence_length, "128K") == Json(131072));
  CHECK(said(ScenarioKey::sequence_length, "1M") == Json(1048576));
  CHECK(said(ScenarioKey::sequence_length, "2048") == Json(2048));
  for (const char* wrong :
       {"4kk", "k", "0k", "-4k", "99999999999999999999", "999999999999m", "4.5k"}) {
    CAPTURE(wrong);
    CHECK(problem(ScenarioKey::sequence_length, wrong).expected ==
          "a whole number from 1 to 16777216, or 4k");
  }
}

TEST_CASE("choices are known by other tools' names and in any case") {
  CHECK(said(ScenarioKey::precision, "bfloat16") == Json("bf16"));
  CHECK(said(ScenarioKey::precision, "torch.float16") == Json("fp16"));
  CHECK(said(ScenarioKey::attention, "flash_attention_2") == Json("flash"));
  CHECK(said(ScenarioKey::attention, "SDPA") == Json("sdpa"));
  CHECK(said(ScenarioKey::optimizer, "adamw_torch_fused") == Json("adamw"));
  CHECK(said(ScenarioKey::optimizer, "Muon") == Json("muon"));
  CHECK(said(ScenarioKey::activation_checkpointing, "true") == Json("full"));
  CHECK(said(ScenarioKey::method, "LoRA") == Json("lora"));
  CHECK(said(ScenarioKey::method, R"({"QLoRA":{"rank":4}})").members()[0].first == "qlora");
  CHECK(said(ScenarioKey::engine, "ZeRO") == Json("deepspeed"));
  CHECK(said(ScenarioKey::checkpoint_reentrant, "no") == Json(false));
}

TEST_CASE("every other name stands for a choice of its key, and every other thing has a reason") {
  for (const ScenarioKeyInfo& row : kScenarioKeys) {
    if (row.type != ScenarioType::choice) continue;
    for (const char* word : {"true", "false", "hf", "transformers", "megatronlm", "fp8", "lamb"}) {
      const auto meant = meaning_of(row.key, row.choices, word);
      if (!meant) continue;
      CAPTURE(row.flag, word);
      CHECK(meaning_of(row.key, row.choices, *meant) == *meant);
    }
  }
}

TEST_CASE("what exists and is not modelled is said to be so") {
  const Diagnostic eight = problem(ScenarioKey::precision, "FP8");
  CHECK(eight.got == "\"FP8\", which is not modelled");
  CHECK(eight.hint.english().find("bf16 is the nearest") != std::string::npos);
  CHECK(problem(ScenarioKey::method, "DoRA").got == "\"DoRA\", which is not modelled");
  CHECK(problem(ScenarioKey::optimizer, "paged_lion_32bit").hint ==
        "its states and its step are not modelled");
  CHECK(problem(ScenarioKey::precision, "bf61").hint == "did you mean bf16?");
  CHECK(problem(ScenarioKey::deepspeed_version, "ds.json").hint ==
        "the file is --ds-config ds.json");
}
