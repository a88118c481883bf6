// foreign/command_settings: a command of OpenRLHF or verl that is planned otherwise, written again
// and read back, is the plan; what no plan has stays as it was.
#include "foreign/command_settings.hpp"

#include <string>
#include <vector>

#include "foreign/from_file.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/plan/workload_document.hpp"
#include "tests/catch.hpp"
#include "tests/support/foreign_files.hpp"

using namespace zeroplan;
using testing::Files;

namespace {

using Changes = std::vector<std::pair<ScenarioKey, Json>>;

Plan resolved(const foreign::Meaning& meaning, const Changes& changes) {
  Scenario scenario = meaning.scenario;
  scenario.set(ScenarioKey::cluster, Json("2x4xH100"), {"test", ""});
  scenario.set(ScenarioKey::model, Json("qwen3-8b"), {"test", ""});
  for (const auto& [key, value] : changes) scenario.set(key, value, {"test", ""});
  return resolve(scenario);
}

struct Written {
  std::string text;
  Plan before, after;
};

// Written for the plan with the changes, and read back without them.
Written written(const std::string& command, const Changes& changes) {
  Files files;
  const foreign::Meaning meaning = foreign::read_from(files.add("run.sh", command + "\n"));
  const Plan plan = resolved(meaning, changes);
  foreign::FormPlace place{.file = "new.sh", .ds_config = "", .model = "qwen3-8b"};
  for (const foreign::Setting& setting : meaning.kept) {
    Json value = setting.value;
    if (!setting.words.empty()) value = Json::array();
    for (const std::string& word : setting.words) value.push_back(word);
    place.kept.push_back({setting.name, value});
  }
  const bool verl = meaning.tool == foreign::Tool::verl;
  const foreign::Form form = verl ? foreign::Form::verl : foreign::Form::openrlhf;
  const std::string launcher =
      foreign::starts_by_ray(plan) ? "python3 -m " : "deepspeed --num_gpus 4 --module ";
  const std::string text = launcher + foreign::module_of_command(plan) + " " +
                           foreign::command_words(plan, form, place, " ");
  const foreign::Meaning again = foreign::read_from(files.add("new.sh", text + "\n"));
  return {text, plan, resolved(again, {})};
}

Json without_batches(Json workload) {
  workload.erase("gradient_accumulation_steps");
  return workload;
}

const std::string kSft =
    "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --data.max_len 4096 --data.dataset a/b "
    "--train.batch_size 128 --train.micro_batch_size 2 --model.model_name_or_path m "
    "--ds.zero_stage 3 --ds.adam_offload --ds.packing_samples --ds.overlap_comm "
    "--model.gradient_checkpointing_enable --adam.betas 0.9 0.95";
const std::string kDpo =
    "deepspeed --num_gpus 8 --module openrlhf.cli.train_dpo --pretrain m --bf16 --flash_attn "
    "--max_len 2048 --train_batch_size 64 --micro_train_batch_size 1 --zero_stage 3 --ref_offload "
    "--gradient_checkpointing --lora_rank 8 --target_modules q_proj v_proj --dataset 'a b'";
const std::string kRewards =
    "python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path m --data.max_len 8192 "
    "--rollout.max_new_tokens 6144 --rollout.n_samples_per_prompt 8 --train.batch_size 256 "
    "--train.micro_batch_size 1 --ds.packing_samples --actor.num_nodes 1 "
    "--actor.num_gpus_per_node 8 --ref.num_gpus_per_node 8 --vllm.num_engines 4 "
    "--vllm.tensor_parallel_size 2 --vllm.gpu_memory_utilization 0.5 --vllm.enable_sleep "
    "--train.colocate_all --ds.zero_stage 3 --algo.advantage.estimator reinforce "
    "--algo.kl.init_coef 1e-5";
const std::string kVerl =
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=a.parquet "
    "data.max_prompt_length=512 data.max_response_length=1536 actor_rollout_ref.model.path=m "
    "actor_rollout_ref.actor.ppo_mini_batch_size=64 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.rollout.n=5 "
    "actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.rollout.name=vllm "
    "trainer.n_gpus_per_node=8 trainer.nnodes=1 +data.seed_of_mine=1";

Json stage(std::int64_t number, bool offload) {
  Json zero = Json::object({{"stage", number}});
  if (offload) zero["offload_optimizer"] = Json::object({{"device", "cpu"}});
  return Json::object({{"bf16", Json::object({{"enabled", true}})}, {"zero_optimization", zero}});
}

bool has(const std::string& text, std::string_view words) {
  return text.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("a command that is written for a plan is read as that plan") {
  const std::vector<Changes> changes = {
      {},
      {{ScenarioKey::activation_checkpointing, Json("none")},
       {ScenarioKey::micro_batch_size, Json(4)}},
      {{ScenarioKey::attention, Json("sdpa")}, {ScenarioKey::sequence_length, Json(3072)}},
      {{ScenarioKey::method, Json("full")}},
      {{ScenarioKey::fused_loss, Json(true)}},
  };
  for (const std::string& command : {kSft, kDpo, kRewards, kVerl}) {
    for (const Changes& one : changes) {
      if (has(command, "max_len 8192") && one.size() == 2) continue;  // its attention is flash's
      if (has(command, "--ds.packing_samples") && !one.empty() &&
          one.front().first == ScenarioKey::attention) {
        continue;  // without padding attention is flash's, whatever is said
      }
      const Written it = written(command, one);
      INFO(it.text);
      CHECK(without_batches(workload_document(it.before)).dump() ==
            without_batches(workload_document(it.after)).dump());
      CHECK(it.before.engine.stage == it.after.engine.stage);
    }
  }
}

TEST_CASE("stages and offload become OpenRLHF's arguments, in the spelling of the command") {
  const Changes changes = {{ScenarioKey::ds_config, stage(2, false)},
                           {ScenarioKey::micro_batch_size, Json(2)},
                           {ScenarioKey::gradient_accumulation_steps, Json(8)}};
  const std::string sft = written(kSft, changes).text;
  INFO(sft);
  CHECK(has(sft, "--ds.zero_stage 2"));
  CHECK_FALSE(has(sft, "adam_offload"));
  CHECK_FALSE(has(sft, "overlap_comm"));
  CHECK(has(sft, "--train.batch_size 128"));
  CHECK(has(sft, "--adam.betas 0.9 0.95"));  // of the user's, in words
  const Changes offload = {{ScenarioKey::ds_config, stage(1, true)}};
  const std::string dpo = written(kDpo, offload).text;
  INFO(dpo);
  CHECK(has(dpo, "--zero_stage 1"));
  CHECK(has(dpo, "--adam_offload"));
  CHECK(has(dpo, "--dataset 'a b'"));
  CHECK(has(dpo, "--ref_offload"));
}

TEST_CASE("Ray starts as many processes as the plan has GPUs, and engines for all of them") {
  const std::string rewards = written(kRewards, {}).text;
  INFO(rewards);
  CHECK(has(rewards, "--actor.num_nodes 2 --actor.num_gpus_per_node 4"));
  CHECK(has(rewards, "--ref.num_gpus_per_node 4"));
  CHECK(has(rewards, "--vllm.num_engines 4"));
  CHECK(has(rewards, "--algo.kl.init_coef 1e-5"));
  const std::string verl = written(kVerl, {}).text;
  INFO(verl);
  CHECK(has(verl, "trainer.nnodes=2 trainer.n_gpus_per_node=4"));
  CHECK(has(verl, "++data.seed_of_mine=1"));  // Hydra adds what its configuration does not have
}
