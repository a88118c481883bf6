// verl's configuration, as overrides of a command line and as a file.
#include "foreign/verl.hpp"

#include <algorithm>
#include <string>

#include "base/diagnostic.hpp"
#include "foreign/from_file.hpp"
#include "foreign/processes.hpp"
#include "tests/catch.hpp"
#include "tests/support/foreign_files.hpp"
#include "tests/support/yaml.hpp"

using namespace zeroplan;
using testing::Files;
using testing::said;

namespace {

foreign::Meaning read(const std::string& more) {
  Files files;
  return foreign::read_from(files.add(
      "run.sh",
      "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo "
      "actor_rollout_ref.model.path=Qwen/Qwen3-8B trainer.n_gpus_per_node=8 trainer.nnodes=2 " +
          more + "\n"));
}

bool assumes(const foreign::Meaning& meaning, std::string_view words) {
  return std::any_of(meaning.assumed.begin(), meaning.assumed.end(), [&](const Phrase& sentence) {
    return sentence.english().find(words) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("overrides of verl's main_ppo are an FSDP actor, its batch and its rollout") {
  const foreign::Meaning meaning = read(
      "data.max_prompt_length=512 data.max_response_length=1024 "
      "actor_rollout_ref.actor.ppo_mini_batch_size=256 "
      "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.rollout.n=5 "
      "actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.gpu_memory_utilization=0.6 "
      "actor_rollout_ref.rollout.tensor_model_parallel_size=4 "
      "actor_rollout_ref.actor.use_kl_loss=True "
      "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True +trainer.logger=console "
      "actor_rollout_ref.model.lora_rank=32 actor_rollout_ref.model.target_modules=[q_proj,v_proj] "
      "critic.optim.lr=1e-5 $@");
  CHECK(meaning.unknown.empty());
  CHECK(said(meaning, ScenarioKey::model) == "Qwen/Qwen3-8B");
  CHECK(said(meaning, ScenarioKey::engine) == "fsdp");
  CHECK(said(meaning, ScenarioKey::frontend) == "native");
  CHECK(said(meaning, ScenarioKey::fsdp_version) == "1");
  CHECK(said(meaning, ScenarioKey::weights_dtype) == "fp32");
  CHECK(said(meaning, ScenarioKey::precision) == "bf16");
  CHECK(said(meaning, ScenarioKey::sequence_length) == "1536");
  CHECK(said(meaning, ScenarioKey::micro_batch_size) == "4");
  CHECK(said(meaning, ScenarioKey::global_batch_size) == "1280");
  CHECK(said(meaning, ScenarioKey::activation_checkpointing) == "full");
  CHECK(said(meaning, ScenarioKey::checkpoint_reentrant) == "false");
  CHECK(said(meaning, ScenarioKey::attention) == "flash");
  CHECK(said(meaning, ScenarioKey::method) ==
        R"({"lora":{"rank":32,"targets":["q_proj","v_proj"]}})");
  CHECK(said(meaning, ScenarioKey::trainer) ==
        R"({"grpo":{"code":"verl","beta":0,"completions":5,"completion_length":1024,)"
        R"("generation":"colocated","memory_share":0.6,"sleeps":true,)"
        R"("generation_tensor_parallel":4}})");
  CHECK(said(meaning, ScenarioKey::ds_config) ==
        R"({"zero_optimization":{"stage":3},"communication_data_type":"fp32"})");
  CHECK(foreign::cluster_of(meaning.processes) == "2x8");
  CHECK(assumes(meaning, "optimizer_offload"));
  CHECK(assumes(meaning, "the reference's weights wait in host memory"));
}

TEST_CASE("a verl actor under FSDP2, in groups, with batches of tokens") {
  const foreign::Meaning meaning = read(
      "actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.actor.fsdp_config.fsdp_size=8 "
      "actor_rollout_ref.actor.fsdp_config.reshard_after_forward=False "
      "actor_rollout_ref.actor.fsdp_config.offload_policy=True "
      "actor_rollout_ref.actor.use_dynamic_bsz=True "
      "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192 "
      "actor_rollout_ref.actor.fsdp_config.model_dtype=bfloat16 "
      "actor_rollout_ref.actor.entropy_coeff=0.01 actor_rollout_ref.rollout.name=hf");
  CHECK(said(meaning, ScenarioKey::fsdp_version) == "2");
  CHECK(said(meaning, ScenarioKey::sequence_length) == "8192");
  CHECK(said(meaning, ScenarioKey::micro_batch_size) == "1");
  CHECK(said(meaning, ScenarioKey::global_batch_size) == "");
  CHECK(said(meaning, ScenarioKey::weights_dtype) == "bf16");
  CHECK(said(meaning, ScenarioKey::ds_config) ==
        R"({"zero_optimization":{"stage":2,"mics_shard_size":8,"offload_param":{"device":"cpu"}},)"
        R"("communication_data_type":"fp32"})");
  CHECK(said(meaning, ScenarioKey::trainer).find(R"("generation":"trainer")") != std::string::npos);
  CHECK(assumes(meaning, "one row of 8192 tokens"));
  CHECK(assumes(meaning, "entropy"));
}

TEST_CASE("what verl does and plans do not have is refused; a name of nobody is not known") {
  for (const char* more : {"actor_rollout_ref.actor.strategy=megatron",
                           "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2",
                           "actor_rollout_ref.model.use_fused_kernels=True",
                           "actor_rollout_ref.actor.ppo_micro_batch_size=64",
                           "algorithm.adv_estimator=gae"}) {
    INFO(more);
    Files files;
    CHECK_THROWS_AS(
        foreign::read_from(files.add(
            "run.sh",
            std::string("python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=m ") +
                (std::string_view(more).starts_with("algorithm")
                     ? ""
                     : "algorithm.adv_estimator=rloo ") +
                more + "\n")),
        InputError);
  }
  const foreign::Meaning meaning =
      read("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpus=4 bf16=True");
  std::string unknown;
  for (const foreign::ReadLine& line : meaning.unknown) unknown += line.said.english() + ";";
  CHECK(unknown == "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpus: 4;bf16: True;");
}

TEST_CASE("verl's YAML is its command line with sections") {
  if (!testing::has_yaml()) return;
  Files files;
  const foreign::Meaning meaning = foreign::read_from(files.add(
      "ppo.yaml",
      "actor_rollout_ref:\n  model:\n    path: Qwen/Qwen3-8B\n  actor:\n    strategy: fsdp2\n"
      "    ppo_micro_batch_size_per_gpu: 2\n    fsdp_config:\n      param_offload: true\n"
      "  rollout:\n    n: 8\n    name: sglang\n    response_length: ${oc.select:data.x,512}\n"
      "algorithm:\n  adv_estimator: grpo\ntrainer:\n  nnodes: 1\n  n_gpus_per_node: 4\n"));
  CHECK(said(meaning, ScenarioKey::micro_batch_size) == "2");
  CHECK(said(meaning, ScenarioKey::global_batch_size) == "2048");
  CHECK(meaning.scenario.find(ScenarioKey::micro_batch_size)->origin.pointer ==
        "line 6: actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu");
  CHECK(foreign::cluster_of(meaning.processes) == "1x4");
  CHECK(meaning.unknown.empty());
}
