// OpenRLHF's command lines, of both spellings.
#include "foreign/openrlhf.hpp"

#include <algorithm>
#include <string>

#include "base/diagnostic.hpp"
#include "foreign/from_file.hpp"
#include "foreign/processes.hpp"
#include "foreign/setting_table.hpp"
#include "model/plan/plan.hpp"
#include "tests/catch.hpp"
#include "tests/support/foreign_files.hpp"

using namespace zeroplan;
using testing::Files;
using testing::said;

namespace {

foreign::Meaning read(const std::string& command) {
  Files files;
  return foreign::read_from(files.add("run.sh", command + "\n"));
}

Json ds_config(const foreign::Meaning& meaning) {
  return meaning.scenario.find(ScenarioKey::ds_config)->value;
}

bool assumes(const foreign::Meaning& meaning, std::string_view words) {
  return std::any_of(meaning.assumed.begin(), meaning.assumed.end(), [&](const Phrase& sentence) {
    return sentence.english().find(words) != std::string::npos;
  });
}

const std::string kSft = "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft ";
const std::string kRewards = "python3 -m openrlhf.cli.train_ppo_ray --pretrain m ";

}  // namespace

TEST_CASE("flat arguments and those with dots are the same training") {
  const foreign::Meaning flat = read(
      kSft +
      "--pretrain meta-llama/Meta-Llama-3-8B --max_len 4096 --micro_train_batch_size 2 "
      "--train_batch_size 64 --zero_stage 3 --adam_offload --gradient_checkpointing --overlap_comm "
      "--learning_rate 5e-6 --max_norm 0.5 --packing_samples --lora_rank 8 --target_modules q_proj "
      "v_proj --param_dtype bf16 --zpg 4 --grad_accum_dtype fp32");
  const foreign::Meaning dotted =
      read(kSft +
           "--model.model_name_or_path meta-llama/Meta-Llama-3-8B --data.max_len 4096 "
           "--train.micro_batch_size 2 --train.batch_size 64 --ds.zero_stage 3 --ds.adam_offload "
           "--model.gradient_checkpointing_enable --ds.overlap_comm --adam.lr 5e-6 --max_norm 0.5 "
           "--ds.packing_samples --ds.lora.rank 8 --ds.lora.target_modules q_proj v_proj "
           "--ds.param_dtype bf16 --ds.zpg 4 --ds.grad_accum_dtype fp32");
  for (const ScenarioKeyInfo& key : kScenarioKeys) {
    INFO(key.pointer);
    CHECK(said(flat, key.key) == said(dotted, key.key));
  }
  for (const foreign::Meaning& meaning : {flat, dotted}) CHECK(meaning.unknown.empty());
  CHECK(said(flat, ScenarioKey::engine) == "deepspeed");
  CHECK(said(flat, ScenarioKey::frontend) == "native");
  CHECK(said(flat, ScenarioKey::attention) == "flash");
  CHECK(said(flat, ScenarioKey::checkpoint_reentrant) == "false");
  CHECK(said(flat, ScenarioKey::activation_checkpointing) == "full");
  CHECK(said(flat, ScenarioKey::trainer) == R"({"sft":{"code":"openrlhf"}})");
  CHECK(said(flat, ScenarioKey::method) == R"({"lora":{"rank":8,"targets":["q_proj","v_proj"]}})");
  CHECK(foreign::cluster_of(flat.processes) == "1x8");
  const Json config = ds_config(flat);
  CHECK(*config.find("train_batch_size") == Json(64));
  CHECK(*config.find("train_micro_batch_size_per_gpu") == Json(2));
  const Json& zero = *config.find("zero_optimization");
  CHECK(*zero.find("stage") == Json(3));
  CHECK(*zero.find("overlap_comm") == Json(true));
  CHECK(*zero.find("zero_hpz_partition_size") == Json(4));
  CHECK(*zero.find("offload_optimizer")->find("device") == Json("cpu"));
  CHECK(zero.find("reduce_bucket_size") == nullptr);
}

TEST_CASE("what a command takes where nobody says it is assumed by its name") {
  const foreign::Meaning meaning = read("deepspeed --module openrlhf.cli.train_dpo --pretrain m");
  const Json config = ds_config(meaning);
  CHECK(*config.find("train_batch_size") == Json(128));
  CHECK(*config.find("train_micro_batch_size_per_gpu") == Json(8));
  CHECK(*config.find("zero_optimization")->find("stage") == Json(2));
  CHECK(said(meaning, ScenarioKey::sequence_length) == "512");
  CHECK(said(meaning, ScenarioKey::activation_checkpointing) == "none");
  CHECK(said(meaning, ScenarioKey::trainer) == R"({"dpo":{"code":"openrlhf"}})");
  CHECK(said(meaning, ScenarioKey::models) == R"([{"role":"reference"}])");
  CHECK(assumes(meaning, "max_len 512"));
  CHECK(assumes(meaning, "zero_stage 2"));
  const foreign::Meaning cut = read(
      "deepspeed --module openrlhf.cli.train_dpo --model.model_name_or_path m --ref.offload "
      "--ref.model_name_or_path m --ds.zero_stage 3");
  CHECK(said(cut, ScenarioKey::models) == R"([{"role":"reference","placement":"cpu"}])");
}

TEST_CASE("rewards: who is on the policy's GPUs, and who generates") {
  const std::string together =
      kRewards +
      "--actor_num_nodes 2 --actor_num_gpus_per_node 8 --vllm_num_engines 8 "
      "--vllm_tensor_parallel_size 2 --vllm_gpu_memory_utilization 0.6 --colocate_all_models "
      "--vllm_enable_sleep --deepspeed_enable_sleep --zero_stage 3 --prompt_max_len 1024 "
      "--generate_max_len 3072 --n_samples_per_prompt 8 --init_kl_coef 1e-3 --remote_rm_url f.py ";
  const foreign::Meaning colocated = read(together + "--advantage_estimator group_norm");
  CHECK(foreign::cluster_of(colocated.processes) == "2x8");
  CHECK(said(colocated, ScenarioKey::sequence_length) == "4096");
  CHECK(said(colocated, ScenarioKey::models) == R"([{"role":"reference"}])");
  CHECK(said(colocated, ScenarioKey::trainer) ==
        R"({"grpo":{"code":"openrlhf","beta":0.001,"completions":8,"completion_length":3072,)"
        R"("generation":"colocated","memory_share":0.6,"sleeps":true,)"
        R"("generation_tensor_parallel":2}})");
  CHECK(assumes(colocated, "a process of its own"));
  CHECK(colocated.unknown.empty());
  // gae is the default, whose critic trains there, too.
  CHECK_THROWS_AS(read(together), InputError);
  const foreign::Meaning apart =
      read(kRewards + "--vllm_num_engines 2 --reward_pretrain r --max_len 2048");
  CHECK(said(apart, ScenarioKey::trainer).find(R"("beta":0.0,)") != std::string::npos);
  CHECK(said(apart, ScenarioKey::trainer).find(R"("generation":"server")") != std::string::npos);
  CHECK(said(apart, ScenarioKey::models) == "");
  CHECK(assumes(apart, "the critic of gae trains on GPUs of its own"));
  CHECK(assumes(apart, "the reference model runs on GPUs of its own"));
  CHECK(assumes(apart, "the reward model runs on GPUs of its own"));
  const foreign::Meaning dynamic =
      read(kRewards +
           "--use_dynamic_batch --train_max_tokens_per_gpu 16384 --max_len 2048 "
           "--advantage_estimator rloo");
  CHECK(said(dynamic, ScenarioKey::sequence_length) == "16384");
  CHECK(ds_config(dynamic).find("train_batch_size") == nullptr);
}

TEST_CASE("names that OpenRLHF's commands do not have are not known, whoever else has them") {
  const foreign::Meaning meaning =
      read(kSft + "--pretrain m --zero_stag 3 --ds.seed 1 --per_device_train_batch_size 4 --bf16");
  std::string unknown;
  for (const foreign::ReadLine& line : meaning.unknown) unknown += line.said.english() + ";";
  CHECK(unknown == "zero_stag: 3;ds.seed: 1;per_device_train_batch_size: 4;");
  CHECK(said(meaning, ScenarioKey::micro_batch_size) == "");
}

TEST_CASE("what OpenRLHF does and plans do not have is refused at its line") {
  for (const char* more : {"--ring_attn_size 2",
                           "--ds.ring_attn_size 4",
                           "--deepcompile",
                           "--pretrain_data d",
                           "--ds.experts_implementation eager",
                           "--load_in_4bit --lora_rank 0"}) {
    INFO(more);
    CHECK_THROWS_AS(read(kSft + "--pretrain m " + more), InputError);
  }
  CHECK_NOTHROW(read(kSft + "--pretrain m --ring_attn_size 1"));
  CHECK_THROWS_AS(read("deepspeed --module openrlhf.cli.train_rm --pretrain m"), InputError);
  CHECK(foreign::command_of_openrlhf("/w/openrlhf/cli/train_sft.py") == "train_sft");
  CHECK(foreign::command_of_openrlhf("train_sft.py").empty());
}

TEST_CASE("a command that stands in a here-document or in arrays is read at its own lines") {
  Files files;
  const foreign::Meaning document = foreign::read_from(files.add(
      "a.sh",
      "N=4\nread -r -d '' commands <<EOF\nopenrlhf.cli.train_sft \\\n  --max_len 1024 \\\n"
      "  --micro_train_batch_size $N --pretrain m\nEOF\n\n# more\ndeepspeed --module $commands\n"));
  CHECK(said(document, ScenarioKey::sequence_length) == "1024");
  CHECK(*ds_config(document).find("train_micro_batch_size_per_gpu") == Json(4));
  CHECK(document.scenario.find(ScenarioKey::sequence_length)->origin.pointer == "line 4: max_len");
  const foreign::Meaning arrays = foreign::read_from(files.add(
      "b.sh",
      "A=(\n  --max_len 1024  # longer: 2048\n  # --zero_stage 2\n  --zero_stage 3\n)\nB=(--bf16)\n"
      "ray job submit --address=a -- python3 -m openrlhf.cli.train_sft --pretrain m ${A[@]} "
      "\"${B[@]}\"\n"));
  CHECK(said(arrays, ScenarioKey::sequence_length) == "1024");
  CHECK(*ds_config(arrays).find("zero_optimization")->find("stage") == Json(3));
  CHECK(arrays.scenario.find(ScenarioKey::sequence_length)->origin.pointer == "line 2: max_len");
  CHECK(arrays.unknown.empty());
  // Arrays that name each other grow no further than a file may.
  std::string text = "A0=(" + std::string(1000, 'x') + ")\n";
  for (int i = 1; i < 40; ++i) {
    const std::string before = "${A" + std::to_string(i - 1) + "[@]}";
    text += "A" + std::to_string(i) + "=(" + before + " " + before + ")\n";
  }
  CHECK_THROWS_AS(foreign::read_from(files.add("c.sh", text)), InputError);
  // A document within a document is text, however many there are.
  std::string documents;
  for (int i = 0; i < 50'000; ++i) documents += "read a <<E" + std::to_string(i) + "\n";
  CHECK_THROWS_AS(foreign::read_from(files.add("d.sh", documents)), InputError);
}

// Rehearsed with OpenRLHF 0.11.0's own train_dpo at stage 2: norms are a group of their own, and
// the reference is moved to the GPU behind the trained model's initialisation.
TEST_CASE("OpenRLHF's optimizer has the norms apart, as get_optimizer_grouped_parameters() does") {
  Scenario scenario = read(kSft + "--pretrain m --max_len 512").scenario;
  scenario.set(ScenarioKey::model, Json("qwen3-0.6b"), {"test", ""});
  scenario.set(ScenarioKey::cluster, Json("2xA100-40G"), {"test", ""});
  const Plan plan = resolve(scenario);
  for (std::size_t i = 0; i < plan.engine_parameters.size(); ++i) {
    const bool vector = plan.model->parameters[i].shape.size() <= 1;
    CHECK(plan.engine_parameters[i].group == (vector ? 1 : 0));
  }
}
