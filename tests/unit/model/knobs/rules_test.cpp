#include "model/knobs/rules.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

DsConfig parse(const std::string& text) { return parse_ds_config(parse_json(text, "ds.json")); }

// Codes of errors, in the order found.
std::vector<std::string> refusals(const std::string& text, const RuleContext& context = {}) {
  std::vector<std::string> codes;
  for (const Finding& finding : startup_findings(parse(text), context)) {
    if (finding.severity == Severity::error) codes.push_back(finding.code);
  }
  return codes;
}

using Codes = std::vector<std::string>;

// A file with a batch size, so that the rule under test is the only one that can speak.
std::string with_batch(const std::string& rest) {
  return R"({"train_micro_batch_size_per_gpu": 1, )" + rest + "}";
}

}  // namespace

TEST_CASE("rule codes are words and unique") {
  std::set<std::string_view> codes;
  for (const RuleInfo& rule : knob_rules()) {
    INFO(rule.code);
    CHECK(codes.insert(rule.code).second);
    CHECK(rule.code.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") ==
          std::string_view::npos);
    CHECK_FALSE(rule.summary.empty());
    CHECK_FALSE(rule.source.empty());
    CHECK_FALSE(rule.cost.empty());
    CHECK_FALSE(rule.texts.empty());
  }
}

TEST_CASE("a plain configuration starts") {
  CHECK(startup_findings(parse(R"({
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
    "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/d"}}
  })"),
                         {.world_size = 8})
            .empty());
}

TEST_CASE("the three batch keys must agree with the number of data-parallel ranks") {
  const std::string all = R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2,
                              "gradient_accumulation_steps": 4})";
  CHECK(refusals(all, {.world_size = 4}).empty());
  CHECK(refusals(all, {.world_size = 8}) == Codes{"batch-identity"});
  CHECK(refusals(all, {.world_size = 8, .tensor_parallel = 2}).empty());
  CHECK(refusals(all, {.world_size = 8, .sequence_parallel = 2}).empty());
  CHECK(refusals(all, {.world_size = 8, .pipeline_parallel = 2}).empty());
  const auto finding = startup_findings(parse(all), {.world_size = 8}).front();
  CHECK(finding.pointer == "/train_batch_size");
  CHECK(finding.fix.english().find("64") != std::string::npos);
}

TEST_CASE("two batch keys must divide, because DeepSpeed fills the third by integer division") {
  CHECK(refusals(R"({"train_batch_size": 12, "train_micro_batch_size_per_gpu": 2})",
                 {.world_size = 4}) == Codes{"batch-identity"});
  CHECK(refusals(R"({"train_batch_size": 16, "gradient_accumulation_steps": 2})", {.world_size = 8})
            .empty());
  CHECK(refusals(R"({"train_batch_size": 4})", {.world_size = 8}) == Codes{"batch-identity"});
  CHECK(refusals(R"({"train_batch_size": 16})", {.world_size = 8}).empty());
}

TEST_CASE("a native file needs a batch size and no auto, for the Trainer auto is enough") {
  const RuleContext trainer{.style = ConfigStyle::hf_trainer};
  CHECK(refusals("{}") == Codes{"batch-missing"});
  CHECK(refusals("{}", trainer) == Codes{"zero-section-missing", "trainer-batch"});
  CHECK(refusals(R"({"train_batch_size": "auto"})") == Codes{"auto-without-trainer"});
  CHECK(refusals(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto",
                     "zero_optimization": {"stage": 0}})",
                 trainer)
            .empty());
}

TEST_CASE("elasticity refuses batch keys unless it is told to ignore them") {
  CHECK(refusals(R"({"elasticity": {"enabled": true}})").empty());
  CHECK(refusals(with_batch(R"("elasticity": {"enabled": true})")) ==
        Codes{"elasticity-batch-keys"});
  CHECK(refusals(with_batch(R"("elasticity": {"enabled": true,
                                              "ignore_non_elastic_batch_info": true})"))
            .empty());
}

TEST_CASE("number formats that exclude each other are refused") {
  CHECK(refusals(with_batch(R"("fp16": {"enabled": true}, "bf16": {"enabled": true})")) ==
        Codes{"fp16-and-bf16"});
  CHECK(
      refusals(with_batch(R"("fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"})")).empty());
  CHECK(refusals(with_batch(R"("amp": {"enabled": true}, "zero_optimization": {"stage": 1})")) ==
        Codes{"amp-conflict"});
  CHECK(refusals(with_batch(R"("amp": {"opt_level": "O1"})")) == Codes{"amp-conflict"});
  CHECK(refusals(with_batch(R"("amp": {"enabled": true}, "fp16": {"enabled": true})")) ==
        Codes{"amp-conflict"});
}

TEST_CASE("16-bit master weights need a stage, and offload unless the states are bf16 on the GPU") {
  const auto bf16 = [](const std::string& keys, const std::string& zero) {
    return with_batch(R"("bf16": {"enabled": true, )" + keys + R"(}, "zero_optimization": {)" +
                      zero + "}");
  };
  const std::string master = R"("bf16_master_weights_and_grads": true)";
  const std::string states = R"("bf16_optimizer_states": true)";
  CHECK(refusals(bf16(master, "")) == Codes{"master-weights"});
  CHECK(refusals(bf16(master, R"("stage": 2)")) == Codes{"master-weights"});
  CHECK(refusals(bf16(master, R"("stage": 2, "offload_optimizer": {"device": "cpu"})")).empty());
  CHECK(refusals(bf16(master + "," + states, R"("stage": 2)")).empty());
  CHECK(refusals(bf16(states, R"("stage": 2)")) == Codes{"master-weights"});
}

TEST_CASE("the loss scale must suit release and optimizer") {
  const std::string half = with_batch(R"("fp16": {"min_loss_scale": 0.5})");
  CHECK(refusals(half) == Codes{"loss-scale"});
  CHECK(refusals(half, {.deepspeed = DeepSpeedVersion::v0_16}).empty());
  CHECK(refusals(with_batch(R"("fp16": {"enabled": true, "loss_scale_window": 0})")) ==
        Codes{"loss-scale"});
  CHECK(refusals(
            with_batch(R"("fp16": {"enabled": true, "loss_scale": 128, "loss_scale_window": 0})"))
            .empty());
  CHECK(refusals(with_batch(R"("optimizer": {"type": "Lamb"}, "fp16": {"loss_scale": 128})")) ==
        Codes{"loss-scale"});
}

TEST_CASE("without ZeRO gradients accumulate only in formats that have a wrapper") {
  const std::string fp32 =
      with_batch(R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"})");
  const std::string bf16 =
      with_batch(R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "bf16"})");
  CHECK(refusals(fp32) == Codes{"accumulation-format"});
  CHECK(refusals(bf16).empty());
  const RuleContext old{.deepspeed = DeepSpeedVersion::v0_16};
  CHECK(refusals(fp32, old).empty());
  CHECK(refusals(bf16, old) == Codes{"accumulation-format"});
  CHECK(refusals(with_batch(R"("bf16": {"enabled": true}, "zero_optimization": {"stage": 1},
                               "data_types": {"grad_accum_dtype": "fp32"})"))
            .empty());
}

TEST_CASE("offload that the stage cannot do") {
  CHECK(refusals(with_batch(R"("zero_optimization": {"stage": 2,
                               "offload_optimizer": {"device": "cpu", "ratio": 0.5}})")) ==
        Codes{"offload-ratio-stage"});
  CHECK(refusals(with_batch(R"("zero_optimization": {"stage": 3,
                               "offload_optimizer": {"device": "cpu", "ratio": 0.5}})"))
            .empty());
  // Ignored by DeepSpeed, so a warning and no refusal.
  const auto findings = startup_findings(
      parse(with_batch(R"("zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}})")),
      {});
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].code == "offload-param-stage");
  CHECK(findings[0].severity == Severity::warning);
}

TEST_CASE("nvme needs a path at stage 3 and none at stage 2, where it means cpu") {
  const auto nvme = [](int stage) {
    return with_batch(R"("zero_optimization": {"stage": )" + std::to_string(stage) +
                      R"(, "offload_optimizer": {"device": "nvme"}})");
  };
  CHECK(refusals(nvme(3)) == Codes{"nvme-path-missing"});
  CHECK(refusals(nvme(2)).empty());
}

TEST_CASE("a pipeline refuses stages 2 and 3") {
  const RuleContext pipeline{.world_size = 4, .pipeline_parallel = 2};
  CHECK(refusals(with_batch(R"("zero_optimization": {"stage": 1})"), pipeline).empty());
  CHECK(refusals(with_batch(R"("zero_optimization": {"stage": 2})"), pipeline) ==
        Codes{"pipeline-zero-stage"});
}

TEST_CASE("prescaled gradients need reduce_scatter off, in 0.12 at stage 1 too") {
  const auto prescaled = [](int stage, bool reduce_scatter) {
    return with_batch(R"("prescale_gradients": true, "zero_optimization": {"stage": )" +
                      std::to_string(stage) + R"(, "reduce_scatter": )" +
                      (reduce_scatter ? "true" : "false") + "}");
  };
  const RuleContext oldest{.deepspeed = DeepSpeedVersion::v0_12};
  CHECK(refusals(prescaled(0, true)).empty());
  CHECK(refusals(prescaled(1, true)).empty());
  CHECK(refusals(prescaled(1, true), oldest) == Codes{"reduce-scatter-scaling"});
  CHECK(refusals(prescaled(2, true)) == Codes{"reduce-scatter-scaling"});
  CHECK(refusals(prescaled(3, false)).empty());
  CHECK(refusals(
            with_batch(R"("gradient_predivide_factor": 8, "zero_optimization": {"stage": 3})")) ==
        Codes{"reduce-scatter-scaling"});
}

TEST_CASE("combinations of ZeRO features that DeepSpeed refuses") {
  const auto zero = [](const std::string& keys, const std::string& rest = "") {
    return with_batch(R"("zero_optimization": {)" + keys + "}" + rest);
  };
  CHECK(refusals(zero(R"("stage": 3)", R"(, "gradient_allreduce_op": "sum")")) ==
        Codes{"allreduce-sum"});
  CHECK(refusals(zero(R"("stage": 2)", R"(, "gradient_allreduce_op": "sum")")).empty());
  CHECK(refusals(zero(R"("stage": 1, "legacy_stage1": true)")) == Codes{"legacy-stage1"});
  CHECK(
      refusals(zero(R"("stage": 3, "zero_quantized_gradients": true, "reduce_scatter": false)")) ==
      Codes{"quantized-gradients"});
  // With one shard there are no replicas to sum over (mics.py allreduce_mics_shard_grads).
  const std::string offloaded =
      R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "mics_shard_size": 2,
          "offload_optimizer": {"device": "cpu"}}})";
  CHECK(refusals(offloaded, {.world_size = 4}) == Codes{"mics-offload"});
  CHECK(refusals(offloaded, {.world_size = 2}).empty());
  CHECK(refusals(zero(R"("stage": 1, "overlap_comm": true)",
                      R"(, "managed_gradient_accumulation": false)")) ==
        Codes{"unmanaged-accumulation"});
}

TEST_CASE("optimizers that ZeRO does not take") {
  const auto optimizer = [](const std::string& type, int stage, const std::string& rest = "") {
    return with_batch(R"("optimizer": {"type": ")" + type +
                      R"("}, "zero_optimization": {"stage": )" + std::to_string(stage) + "}" +
                      rest);
  };
  CHECK(refusals(optimizer("AdamW", 3)).empty());
  CHECK(refusals(optimizer("OneBitAdam", 1)) == Codes{"optimizer-with-zero"});
  CHECK(refusals(optimizer("OneBitAdam", 0)).empty());
  CHECK(refusals(optimizer("Lamb", 2)) == Codes{"optimizer-with-zero"});
  CHECK(refusals(optimizer("Lamb", 2, R"(, "zero_allow_untested_optimizer": true)")).empty());
  CHECK(refusals(optimizer("OneBitAdam", 2, R"(, "zero_allow_untested_optimizer": true)")) ==
        Codes{"optimizer-with-zero"});
  CHECK(refusals(optimizer("Muon", 3)) == Codes{"muon-reduce-scatter"});
  CHECK(
      refusals(with_batch(R"("optimizer": {"type": "Adam", "params": {"max_grad_norm": 1.0}})")) ==
      Codes{"clipping-in-optimizer"});
}

TEST_CASE(
    "contiguous checkpoint buffers need partitioned activations; their number may be given later") {
  CHECK(refusals(with_batch(
            R"("activation_checkpointing": {"contiguous_memory_optimization": true})")) ==
        Codes{"contiguous-checkpointing"});
  CHECK(refusals(with_batch(R"("activation_checkpointing": {"partition_activations": true,
            "contiguous_memory_optimization": true, "number_checkpoints": 24})"))
            .empty());
}

TEST_CASE("who reads the file decides whether comments or repeated keys stop it") {
  const std::string comments =
      "{\"zero_optimization\": {\"stage\": 0}, \"train_batch_size\": 1 // one\n}";
  const std::string twice =
      R"({"zero_optimization": {"stage": 0}, "train_batch_size": 1, "train_batch_size": 1})";
  const RuleContext trainer{.style = ConfigStyle::hf_trainer};
  CHECK(refusals(comments).empty());
  CHECK(refusals(comments, trainer) == Codes{"unreadable-file"});
  CHECK(refusals(twice) == Codes{"unreadable-file"});
  CHECK(refusals(twice, trainer).empty());
}

TEST_CASE("a key that the release does not know is refused where it checks and ignored elsewhere") {
  const std::string unknown = with_batch(R"("fp16": {"opt_level": "O2"}, "min_lr": 1)");
  CHECK(refusals(unknown) == Codes{"rejected-key"});
  CHECK(refusals(unknown, {.deepspeed = DeepSpeedVersion::v0_16}).empty());
  const std::string new_key =
      with_batch(R"("zero_optimization": {"stage": 3, "stage3_allgather_sequential": true})");
  CHECK(refusals(new_key).empty());
  CHECK(refusals(new_key, {.deepspeed = DeepSpeedVersion::v0_16}) == Codes{"rejected-key"});
  const auto ignored = startup_findings(parse(with_batch(R"("log_level": "info")")),
                                        {.deepspeed = DeepSpeedVersion::v0_16});
  REQUIRE(ignored.size() == 1);
  CHECK(ignored[0].severity == Severity::warning);
}

TEST_CASE("all findings join notes and rules, errors first, nothing twice") {
  const DsConfig config = parse(R"({"train_micro_batch_size_per_gpu": "1",
    "zero_optimization": {"stage": 2, "comm_overlap": true, "cpu_offload": true},
    "fp16": {"enabled": true}, "bf16": {"enabled": true}})");
  const std::vector<Finding> findings = all_findings(config, {});
  CHECK(std::is_sorted(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return a.severity < b.severity;
  }));
  const auto count = [&](std::string_view code) {
    return std::count_if(findings.begin(), findings.end(), [&](const Finding& finding) {
      return finding.code == code;
    });
  };
  CHECK(count("rejected-key") == 1);
  CHECK(count("fp16-and-bf16") == 1);
  CHECK(count("deprecated-key") == 1);
  CHECK(count("quoted-value") == 1);
  CHECK(count("quotes-refused") == 1);
  CHECK(std::count_if(findings.begin(), findings.end(), [](const Finding& finding) {
          return finding.severity != Severity::info;
        }) == 4);
}

TEST_CASE("keys come and go with the exact release") {
  const std::string added = with_batch(R"("zero_optimization": {"stage": 2,
                                          "parameter_alignment": true})");
  const std::string removed = with_batch(R"("sparse_gradients": false)");
  const auto by = [](int patch) { return RuleContext{.release = {0, 19, patch}}; };
  CHECK(refusals(added, by(6)) == Codes{"added-key"});
  CHECK(refusals(added, by(7)).empty());
  CHECK(refusals(removed, by(7)).empty());
  CHECK(refusals(removed, by(8)) == Codes{"removed-key"});
}
