// Checkpoints of plans whose sizes can be summed by hand: docs/model.md [K1] to [K5].
#include "model/predict/checkpoint.hpp"

#include <cstdlib>
#include <string>

#include "model/plan/scenario_reader.hpp"
#include "model/predict/io_checkpoint.hpp"
#include "model/predict/predict.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

struct Setup {
  std::string zero = R"({"stage":2})";
  int gpus = 4;
  std::string workload = "";  // keys beside the usual ones, with a comma in front
  std::string frontend = "native";
  std::string software = "{}";
  std::string more = "";  // sections of ds_config, with a comma in front
};

// Two layers; P is a multiple of 16, so that no partition is padded.
Plan plan_of(const Setup& setup) {
  const std::string text =
      R"({"model":{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":512,
          "intermediate_size":1024,"num_hidden_layers":2,"num_attention_heads":4,
          "num_key_value_heads":4,"max_position_embeddings":65536,"vocab_size":1024,
          "tie_word_embeddings":false},"cluster":{"nodes":1,"gpu":"A100-80G-SXM","gpus_per_node":)" +
      std::to_string(setup.gpus) + R"(},"workload":{"sequence_length":128,"frontend":")" +
      setup.frontend + "\"" + setup.workload +
      R"(},"ds_config":{"bf16":{"enabled":true},"zero_optimization":)" + setup.zero + setup.more +
      R"(},"software":)" + setup.software + "}";
  return resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
}

CheckpointPrediction made_of(const Setup& setup, const CheckpointOptions& options = {}) {
  return predict_checkpoint(plan_of(setup), options).value();
}

Bytes tensors_of(const CheckpointContent& content) {
  Bytes sum;
  for (const CheckpointFiles& entry : content.files) sum += entry.tensors * entry.files;
  return sum;
}

std::int64_t parameters() { return count_parameters(*plan_of({}).model).total.count(); }

constexpr const char* kLora = R"(,"method":{"lora":{"rank":8,"targets":["q_proj"]}})";

TEST_CASE("A native checkpoint has 14 bytes a parameter at every stage") {
  for (const int stage : {0, 1, 2, 3}) {
    INFO(stage);
    const std::string zero = "{\"stage\":" + std::to_string(stage) + "}";
    // Stage 3 writes no 16-bit weights: zero_to_fp32.py makes them of the fp32 ones.
    const std::int64_t width = stage == 3 ? 12 : 14;
    CHECK(tensors_of(made_of({.zero = zero}).native).count() == width * parameters());
  }
}

TEST_CASE("States are one file a rank, the module one of all ranks but at stage 3") {
  const CheckpointPrediction two = made_of({});
  REQUIRE(two.native.files.size() == 2);
  CHECK(two.native.files[0].files == 1);
  CHECK(two.native.files[1].files == 4);
  CHECK(two.native.files[1].tensors.count() == 12 * parameters() / 4);
  const CheckpointPrediction three = made_of({.zero = R"({"stage":3})"});
  CHECK(three.native.files[0].files == 4);
  CHECK(three.native.files[0].tensors == Bytes::zero());
}

TEST_CASE(
    "The Trainer leaves frozen weights out, a script of one's own has them twice at stage 2") {
  const Bytes own = tensors_of(made_of({.workload = kLora}).native);
  const Bytes trainer = tensors_of(made_of({.workload = kLora, .frontend = "hf-trainer"}).native);
  CHECK((own - trainer).count() == 2 * 2 * parameters());
  const Bytes stage1 = tensors_of(made_of({.zero = R"({"stage":1})", .workload = kLora}).native);
  CHECK((own - stage1).count() == 2 * parameters());
}

TEST_CASE("The model alone: 2 P, adapters alone under the Trainer, nothing without a gather") {
  CHECK(made_of({}).model->files[0].tensors.count() == 2 * parameters());
  const CheckpointPrediction adapters = made_of({.workload = kLora, .frontend = "hf-trainer"});
  CHECK(adapters.model->files[0].path == "adapter_model.safetensors");
  CHECK(adapters.model->total().count() < parameters() / 4);
  const CheckpointPrediction without =
      made_of({.zero = R"({"stage":3})", .frontend = "hf-trainer"});
  CHECK_FALSE(without.model);
  CHECK(without.model_problem.english().find("stage3_gather_16bit_weights_on_model_save") == 0);
  CHECK(without.native_written_twice);
  const CheckpointPrediction gathered =
      made_of({.zero = R"({"stage":3,"stage3_gather_16bit_weights_on_model_save":true})",
               .frontend = "hf-trainer"});
  CHECK(gathered.model->files[0].tensors.count() == 2 * parameters());
  CHECK(gathered.saving.gpu_peak > without.saving.gpu_peak);
}

TEST_CASE("Host memory while saving: staged states, or the weights where these are more") {
  // With the optimizer on the host nothing of it is staged.
  const std::string offload = R"(,"offload_optimizer":{"device":"cpu"}})";
  const Bytes without =
      made_of({.zero = R"({"stage":3)" + offload, .frontend = "hf-trainer"}).saving.host_peak;
  const Bytes gathered =
      made_of({.zero = R"({"stage":3,"stage3_gather_16bit_weights_on_model_save":true)" + offload,
               .frontend = "hf-trainer"})
          .saving.host_peak;
  CHECK((gathered - without).count() == 2 * parameters());
  // Below it the Trainer clones the state dict on each of four ranks, a loop of one's own does not.
  const Setup own = {.zero = R"({"stage":1)" + offload};
  Setup trainer = own;
  trainer.frontend = "hf-trainer";
  CHECK(made_of(trainer).saving.host_peak > made_of(own).saving.host_peak);
}

TEST_CASE("Other ranks: stage 0 goes on, the others by way of a universal checkpoint") {
  CHECK(made_of({.zero = R"({"stage":0})"}).other_ranks == Resume::directly);
  for (const char* zero : {R"({"stage":1})", R"({"stage":2})", R"({"stage":3})"}) {
    INFO(zero);
    const CheckpointPrediction made = made_of({.zero = zero});
    CHECK(made.other_ranks == Resume::by_universal);
    CHECK(made.converting_disk_peak.count() >= 2 * 12 * parameters());
    CHECK(made.converting.host_peak > Bytes::zero());
  }
}

TEST_CASE("What the converter does not read is said") {
  const auto problem = [](const Setup& setup) {
    const CheckpointPrediction made = made_of(setup);
    CHECK(made.other_ranks == Resume::never);
    CHECK_FALSE(made.universal);
    return made.universal_problem;
  };
  CHECK(problem({.zero = R"({"stage":3})", .software = R"({"deepspeed":"0.14.2"})"}) ==
        "ds_to_universal.py of DeepSpeed 0.14.2 converts no stage 3");
  CHECK(problem({.software = R"({"deepspeed":"0.14.2"})"}).english().find("Megatron-DeepSpeed") !=
        std::string::npos);
  CHECK(problem({.zero = R"({"stage":2,"elastic_checkpoint":true})"})
            .english()
            .find("elastic_checkpoint") != std::string::npos);
  CHECK(problem({.workload = R"(,"optimizer":"sgd")"}).english().find("Adam") != std::string::npos);
  CHECK(problem({.zero = R"({"stage":3,"offload_optimizer":{"device":"nvme","nvme_path":"/d"}})"})
            .english()
            .find("NVMe") != std::string::npos);
}

TEST_CASE("elastic_checkpoint makes every rank hold the states of all") {
  const CheckpointPrediction plain = made_of({});
  const CheckpointPrediction elastic =
      made_of({.zero = R"({"stage":2,"elastic_checkpoint":true})"});
  // Four ranks with four files each; before, the module's file of 2 P and own states of 3 P.
  const std::int64_t more = 4 * (12 - 3) * parameters();
  CHECK(std::abs((elastic.loading.host_peak - plain.loading.host_peak).count() - more) <
        more / 100);
  CHECK(*elastic.loading.seconds > *plain.loading.seconds);
}

TEST_CASE("At stage 3 every rank reads the whole of a universal checkpoint") {
  const CheckpointPrediction two = made_of({});
  const CheckpointPrediction three = made_of({.zero = R"({"stage":3})"});
  CHECK(three.loading_other.seconds->seconds() > 2.0 * two.loading_other.seconds->seconds());
  // A node's storage gives it once.
  CHECK(three.loading_other.bytes.count() >= 12 * parameters());
  CHECK(three.loading_other.bytes.count() < 13 * parameters());
}

TEST_CASE("Seconds follow the storage's rate until a rank's own core is slower") {
  const auto seconds = [](double rate) {
    CheckpointOptions options;
    options.bandwidth = BytesPerSecond::of(rate);
    return made_of({}, options).saving.seconds->seconds();
  };
  CHECK(seconds(1e6) == Approx(2.0 * seconds(2e6)));
  CHECK(seconds(1e12) == seconds(1e13));
  CHECK(seconds(1e13) > 0.0);
}

TEST_CASE("Offloaded states are saved from the host, and those on NVMe as the swapper's files") {
  const CheckpointPrediction cpu =
      made_of({.zero = R"({"stage":3,"offload_optimizer":{"device":"cpu"}})"});
  CHECK(tensors_of(cpu.native).count() == 12 * parameters());
  const CheckpointPrediction nvme =
      made_of({.zero = R"({"stage":3,"offload_optimizer":{"device":"nvme","nvme_path":"/d"}})"});
  CHECK(nvme.native.files.back().path.find("offloaded_tensors") != std::string::npos);
}

TEST_CASE("Only DeepSpeed's checkpoints are predicted, and a document says so") {
  const Plan fsdp = plan_of({.zero = R"({"stage":3})", .workload = R"(,"engine":"fsdp")"});
  CHECK_FALSE(predict_checkpoint(fsdp));
  const Json none = step_document(fsdp, predict(fsdp), {});
  CHECK(none.find("checkpoint")->is_null());
  const Plan plan = plan_of({});
  const Json document = step_document(plan, predict(plan), {});
  const Json& checkpoint = *document.find("checkpoint");
  CHECK(checkpoint.find("native")->find("bytes")->as_integer() ==
        native_checkpoint(plan, {}).total().count());
  CHECK(checkpoint.find("other_ranks")->find("resume")->as_string() == "by_universal");
}

}  // namespace
