// --from: files of other tools as scenarios.
#include "foreign/from_file.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/diagnostic.hpp"
#include "foreign/launch.hpp"
#include "foreign/processes.hpp"
#include "foreign/shell.hpp"
#include "foreign/yaml.hpp"
#include "foreign/yaml_scalar.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"
#include "tests/support/foreign_files.hpp"
#include "tests/support/yaml.hpp"

using namespace zeroplan;

namespace {

namespace fs = std::filesystem;
using testing::Files;
using testing::said;

InputError refused(const std::string& path) {
  try {
    foreign::read_from(path);
  } catch (const InputError& error) {
    return error;
  }
  FAIL("nothing was refused");
  throw;
}

}  // namespace

TEST_CASE("plain scalars are what PyYAML's safe_load makes of them") {
  const std::map<std::string, Json> cases = {
      {"1", Json(1)},         {"-7", Json(-7)},         {"1_000", Json(1000)},
      {"0x10", Json(16)},     {"010", Json(8)},         {"0b11", Json(3)},
      {"1.5", Json(1.5)},     {"1.0e-4", Json(1e-4)},   {".5", Json(0.5)},
      {"1e-4", Json("1e-4")}, {"1.5e4", Json("1.5e4")}, {"yes", Json(true)},
      {"Off", Json(false)},   {"y", Json("y")},         {"~", Json()},
      {"", Json()},           {"null", Json()},         {"NULL", Json()},
      {"nUll", Json("nUll")}, {"1.2.3", Json("1.2.3")}, {"2024-01-01", Json("2024-01-01")},
      {"08", Json("08")},     {"-", Json("-")},         {"+5", Json(5)}};
  for (const auto& [text, value] : cases) {
    INFO(text);
    CHECK(foreign::plain_scalar(text) == value);
    CHECK(foreign::plain_scalar(text).type() == value.type());
  }
}

TEST_CASE("a YAML document keeps lines, copies aliases and merges") {
  if (!testing::has_yaml()) return;
  const Json root = foreign::parse_yaml(
      "# note\na: 1\nb: &x\n  - q_proj\n  - 'yes'\nc: *x\nd: {<<: {e: 1, f: 2}, f: 3}\n", "f");
  CHECK(root.find("a")->line() == 2);
  CHECK(root.find("b")->line() == 3);
  CHECK(*root.find("b") == *root.find("c"));
  CHECK(root.find("b")->items()[1] == Json("yes"));
  CHECK(*root.find("d") == Json::object({{"e", 1}, {"f", 3}}));
  CHECK(foreign::parse_yaml("", "f").is_null());
  CHECK(foreign::parse_yaml("# nothing\n", "f").is_null());
}

TEST_CASE("YAML that is none, or too much, is refused with its place") {
  if (!testing::has_yaml()) return;
  for (const char* text : {"a: [1, 2", "a: *missing", "{{ x }}: 1", "a: b: c", "\t- a"}) {
    INFO(text);
    CHECK_THROWS_AS(foreign::parse_yaml(text, "f"), InputError);
  }
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) bomb += (j == 0 ? "*a" : ", *a") + std::to_string(i - 1);
    bomb += "]\n";
  }
  CHECK_THROWS_AS(foreign::parse_yaml(bomb, "f"), InputError);
  CHECK_THROWS_AS(foreign::parse_yaml(std::string(200, '['), "f"), InputError);
}

TEST_CASE("LLaMA-Factory's YAML, with its own defaults") {
  if (!testing::has_yaml()) return;
  Files files;
  const std::string path =
      files.add("train.yaml",
                "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\ncutoff_len: 4096\n"
                "lora_rank: 16\nper_device_train_batch_size: 2\nbf16: true\nflash_attn: fa2\n"
                "learning_rate: 1.0e-4\nmine: 1\n");
  const foreign::Meaning meaning = foreign::read_from(path);
  CHECK(said(meaning, ScenarioKey::model) == "Qwen/Qwen2.5-7B");
  CHECK(said(meaning, ScenarioKey::sequence_length) == "4096");
  CHECK(said(meaning, ScenarioKey::micro_batch_size) == "2");
  CHECK(said(meaning, ScenarioKey::precision) == "bf16");
  CHECK(said(meaning, ScenarioKey::attention) == "flash");
  CHECK(said(meaning, ScenarioKey::activation_checkpointing) == "full");
  CHECK(said(meaning, ScenarioKey::checkpoint_reentrant) == "true");
  const ExplicitValue* method = meaning.scenario.find(ScenarioKey::method);
  REQUIRE(method != nullptr);
  CHECK(*method->value.find("lora")->find("rank") == Json(16));
  CHECK(*method->value.find("lora")->find("targets") == Json("all-linear"));
  REQUIRE(meaning.unknown.size() == 1);
  CHECK(meaning.unknown[0].said == "mine: 1");
  CHECK(meaning.unknown[0].line == 9);
  CHECK(meaning.scenario.find(ScenarioKey::sequence_length)->origin.pointer ==
        "line 3: cutoff_len");
  const std::string text = foreign::describe(meaning);
  CHECK(text.find("train.yaml:3: cutoff_len: 4096 -> --sequence-length 4096\n") !=
        std::string::npos);
  CHECK(text.find("assumed: use_reentrant_gc true") != std::string::npos);
}

TEST_CASE("how often a run saves, evaluates and logs: a strategy counts over its steps") {
  Files files;
  const auto read = [&](const std::string& lines) {
    return foreign::read_from(files.add("train.yaml",
                                        "base_model: qwen3-8b\nlearning_rate: 1e-5\n"
                                        "micro_batch_size: 1\n" +
                                            lines));
  };
  const auto some = read(
      "save_steps: 200\neval_steps: 50\nlogging_steps: 10\n"
      "dataloader_num_workers: 4\n");
  CHECK(said(some, ScenarioKey::save_steps) == "200");
  CHECK(said(some, ScenarioKey::eval_steps) == "no");  // eval_strategy: no is the default
  CHECK(said(some, ScenarioKey::logging_steps) == "10");
  CHECK(said(some, ScenarioKey::dataloader_num_workers) == "4");
  const auto words = read(
      "save_strategy: epoch\nsave_steps: 200\neval_strategy: steps\n"
      "eval_steps: 0.1\nlogging_strategy: steps\n");
  CHECK(said(words, ScenarioKey::save_steps) == "epoch");
  CHECK(said(words, ScenarioKey::eval_steps) == "0.1");
  CHECK(said(words, ScenarioKey::logging_steps) == "500");
  const auto unsaid = read("eval_strategy: steps\nlogging_steps: 25\n");
  CHECK(said(unsaid, ScenarioKey::eval_steps) == "25");           // the Trainer takes logging_steps
  const auto renamed = read("activation_checkpointing: true\n");  // since transformers 5.23
  CHECK(said(renamed, ScenarioKey::activation_checkpointing) == "full");
  CHECK(said(read("save_strategy: 'no'\n"), ScenarioKey::save_steps) == "no");
  CHECK(said(read("save_strategy: no\n"), ScenarioKey::save_steps) == "no");  // YAML's false
  CHECK(said(read(""), ScenarioKey::save_steps).empty());
}

TEST_CASE("axolotl's YAML: adapters in four bits under FSDP2") {
  if (!testing::has_yaml()) return;
  Files files;
  const std::string path = files.add(
      "a.yml",
      "base_model: NousResearch/Llama-2-7b-hf\nadapter: qlora\nload_in_4bit: true\nlora_r: 32\n"
      "lora_target_modules: [q_proj, v_proj]\nsequence_len: 2048\nmicro_batch_size: 2\n"
      "optimizer: adamw_bnb_8bit\nbf16: auto\nsdp_attention: true\nfsdp: [full_shard, auto_wrap]\n"
      "fsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n");
  const foreign::Meaning meaning = foreign::read_from(path);
  CHECK(said(meaning, ScenarioKey::engine) == "fsdp");
  CHECK(said(meaning, ScenarioKey::fsdp_version) == "2");
  CHECK(said(meaning, ScenarioKey::attention) == "sdpa");
  CHECK(said(meaning, ScenarioKey::optimizer) == "adamw8bit");
  const Json& method = meaning.scenario.find(ScenarioKey::method)->value;
  CHECK(method == Json::object({{"qlora",
                                 Json::object({{"rank", 32},
                                               {"targets", Json::array({"q_proj", "v_proj"})},
                                               {"double_quant", true}})}}));
  CHECK(said(meaning, ScenarioKey::ds_config).find("offload_param") != std::string::npos);
}

TEST_CASE("adapters' dropout and how bits are stored are read, under each tool's names") {
  if (!testing::has_yaml()) return;
  Files files;
  const auto method = [&](const std::string& name, const std::string& text) {
    const std::string path = files.add(name, text);
    const foreign::Meaning meaning = foreign::read_from(path);
    return meaning.scenario.find(ScenarioKey::method)->value.find("qlora")->dump();
  };
  CHECK(method("lf.yaml",
               "model_name_or_path: m\nfinetuning_type: lora\nlora_dropout: 0.1\n"
               "lora_target: q_proj\nquantization_bit: 4\nquantization_type: fp4\n"
               "double_quantization: false\n") ==
        R"({"rank":8,"dropout":0.1,"targets":["q_proj"],"quant":"fp4","double_quant":false})");
  CHECK(method("ax.yaml",
               "base_model: m\nadapter: qlora\nload_in_4bit: true\nlora_r: 4\n"
               "bnb_config_kwargs:\n  bnb_4bit_quant_type: nf4\n"
               "  bnb_4bit_use_double_quant: false\n") ==
        R"({"rank":4,"quant":"nf4","double_quant":false})");
  CHECK(method("trl.sh",
               "trl sft --model_name_or_path m --use_peft --lora_r 4 --load_in_4bit "
               "--bnb_4bit_quant_type nf4 --use_bnb_nested_quant --max_length 512\n") ==
        R"({"rank":4,"quant":"nf4","double_quant":true})");
}

TEST_CASE("FSDP's words, sections and numbers become a stage, groups and what is offloaded") {
  if (!testing::has_yaml()) return;
  Files files;
  const auto config = [&](const std::string& text) {
    const foreign::Meaning meaning = foreign::read_from(files.add("a.yaml", text));
    CHECK(said(meaning, ScenarioKey::engine) == "fsdp");
    return said(meaning, ScenarioKey::ds_config);
  };
  const std::string trainer = "output_dir: o\nper_device_train_batch_size: 1\n";
  CHECK(config(trainer + "fsdp: full_shard auto_wrap\n").empty());
  CHECK(config(trainer + "fsdp: shard_grad_op auto_wrap\n") ==
        R"({"zero_optimization":{"stage":2}})");
  CHECK(config(trainer + "fsdp: true\nfsdp_config: {version: 2, reshard_after_forward: false}\n") ==
        R"({"zero_optimization":{"stage":2}})");
  CHECK(config(trainer + "fsdp: full_shard offload auto_wrap\n") ==
        R"({"zero_optimization":{"stage":3,"offload_param":{"device":"cpu"}}})");
  const std::string accelerate =
      "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_machines: 2\n"
      "num_processes: 8\nfsdp_config:\n  fsdp_sharding_strategy: ";
  CHECK(config(accelerate + "3\n") == R"({"zero_optimization":{"stage":0}})");
  CHECK(config(accelerate + "HYBRID_SHARD\n") ==
        R"({"zero_optimization":{"stage":3,"mics_shard_size":4}})");
}

TEST_CASE("who loads a sharded model is the Trainer's default where its arguments shard") {
  if (!foreign::reads_yaml()) return;
  Files files;
  const auto loading = [&](const std::string& text, std::map<ScenarioKey, std::string> flags = {}) {
    return said(
        foreign::read_from(files.add("a.yaml", "model_name_or_path: m\n" + text), std::move(flags)),
        ScenarioKey::loading);
  };
  CHECK(loading("fsdp: full_shard auto_wrap\n") == "every-rank");
  CHECK(loading("fsdp: full_shard\nfsdp_config: {cpu_ram_efficient_loading: false}\n") ==
        "every-rank");
  CHECK(loading("fsdp: full_shard\nfsdp_config: {cpu_ram_efficient_loading: true}\n") == "usual");
  CHECK(loading("fsdp: ''\n").empty());
  CHECK(loading("fsdp: full_shard\n", {{ScenarioKey::engine, "deepspeed"}}).empty());
  // accelerate's default is the other one.
  const foreign::Meaning launched = foreign::read_from(files.add(
      "run.sh", "accelerate launch --num_processes 8 --use_fsdp t.py --model_name_or_path m\n"));
  CHECK(said(launched, ScenarioKey::loading).empty());
  CHECK(said(launched, ScenarioKey::fsdp_version).empty());
}

TEST_CASE("axolotl's rl names the trainer, and its section trl has the trainer's arguments") {
  if (!foreign::reads_yaml()) return;
  Files files;
  const auto trainer = [&](const std::string& text) {
    return said(
        foreign::read_from(files.add("ax.yaml", "base_model: m\nsequence_len: 1024\n" + text)),
        ScenarioKey::trainer);
  };
  CHECK(trainer("rl: dpo\nrl_beta: 0.2\n") == R"({"dpo":{"beta":0.2}})");
  CHECK(trainer("rl: ipo\nprecompute_ref_log_probs: true\n") ==
        R"({"dpo":{"precompute_reference":true}})");
  CHECK(trainer("rl: kto\n") == R"({"kto":{}})");
  CHECK(
      trainer("rl: grpo\ntrl:\n  beta: 0.01\n  use_vllm: true\n  vllm_mode: colocate\n"
              "  num_generations: 4\n  max_completion_length: 512\n  reward_funcs: [r.f]\n") ==
      R"({"grpo":{"beta":0.01,"completions":4,"completion_length":512,"generation":"colocated"}})");
  CHECK(trainer("adapter: lora\n").empty());
  CHECK_THROWS_AS(trainer("rl: orpo\n"), InputError);
}

TEST_CASE("which FSDP the Trainer's arguments mean without a version is the release's") {
  if (!foreign::reads_yaml()) return;
  Files files;
  const auto version = [&](const std::string& text, const char* transformers) {
    return said(foreign::read_from(files.add("a.yaml", "model_name_or_path: m\n" + text),
                                   {{ScenarioKey::transformers_version, transformers}}),
                ScenarioKey::fsdp_version);
  };
  CHECK(version("fsdp: full_shard auto_wrap\n", "5.9.0").empty());
  CHECK(version("fsdp: full_shard auto_wrap\n", "5.10.1") == "2");
  CHECK(version("fsdp: true\nfsdp_config: {version: 1}\n", "5.17.0") == "1");
  CHECK(version("bf16: true\n", "5.17.0").empty());
}

TEST_CASE("what evaluates is read by each tool's names, with its own default batch") {
  if (!foreign::reads_yaml()) return;
  Files files;
  const auto evaluation = [&](const std::string& name, const std::string& text) {
    return said(foreign::read_from(files.add(name, text)), ScenarioKey::evaluation);
  };
  const std::string lf = "model_name_or_path: m\nfinetuning_type: lora\ncutoff_len: 512\n";
  CHECK(evaluation("lf.yaml", lf).empty());
  CHECK(evaluation("lf.yaml", lf + "val_size: 0.15\n") == R"({"loss":{"batch_size":8}})");
  CHECK(evaluation("lf.yaml", lf + "val_size: 0.0\n").empty());
  CHECK(evaluation("lf.yaml", lf + "val_size: 0.1\neval_strategy: 'no'\n").empty());
  CHECK(evaluation("lf.yaml",
                   lf + "val_size: 200\neval_strategy: steps\nper_device_eval_batch_size: 2\n") ==
        R"({"loss":{"batch_size":2,"samples":200}})");
  const std::string trainer =
      "output_dir: o\nmodel_name_or_path: m\nper_device_train_batch_size: 1\n";
  CHECK(evaluation("t.yaml", trainer + "per_device_eval_batch_size: 4\n").empty());
  CHECK(evaluation("t.yaml", trainer + "evaluation_strategy: epoch\n") ==
        R"({"loss":{"batch_size":8}})");
  CHECK(evaluation("t.yaml", trainer + "do_eval: true\neval_accumulation_steps: 4\n") ==
        R"({"loss":{"batch_size":8,"accumulation_steps":4}})");
  CHECK(evaluation("t.sh",
                   "python run.py --model_name_or_path m --output_dir o --eval_strategy "
                   "steps --per_device_train_batch_size 1 --per_device_eval_batch_size 3\n") ==
        R"({"loss":{"batch_size":3}})");
  const std::string axolotl = "base_model: m\nsequence_len: 512\nmicro_batch_size: 3\n";
  CHECK(evaluation("ax.yaml", axolotl + "val_set_size: 0.0\neval_steps: 10\n").empty());
  CHECK(evaluation("ax.yaml", axolotl + "val_set_size: 0.05\nevals_per_epoch: 4\n") ==
        R"({"loss":{"batch_size":3}})");
  CHECK(evaluation("ax.yaml", axolotl + "val_set_size: 0.05\neval_batch_size: 1\n") ==
        R"({"loss":{"batch_size":1}})");
}

TEST_CASE("axolotl's counts an epoch are shares of all steps") {
  if (!foreign::reads_yaml()) return;
  Files files;
  const auto every = [&](const std::string& text, ScenarioKey key) {
    return said(foreign::read_from(files.add(
                    "ax.yaml", "base_model: m\nsequence_len: 512\nmicro_batch_size: 3\n" + text)),
                key);
  };
  const std::string held_out = "val_set_size: 0.05\n";
  CHECK(every(held_out + "evals_per_epoch: 4\nnum_epochs: 2\n", ScenarioKey::eval_steps) ==
        "0.125");
  CHECK(every(held_out + "evals_per_epoch: 1\n", ScenarioKey::eval_steps) == "epoch");
  CHECK(every("val_set_size: 0.0\nevals_per_epoch: 4\n", ScenarioKey::eval_steps).empty());
  CHECK(every("saves_per_epoch: 1\nnum_epochs: 3\n", ScenarioKey::save_steps) == "0.333333");
}

TEST_CASE("what weights are loaded in is read, or each tool's own default taken") {
  if (!foreign::reads_yaml()) return;
  Files files;
  const auto weights = [&](const std::string& name, const std::string& text) {
    return said(foreign::read_from(files.add(name, text)), ScenarioKey::weights_dtype);
  };
  const std::string trainer =
      "output_dir: o\nmodel_name_or_path: m\nper_device_train_batch_size: 1\nbf16: true\n";
  CHECK(weights("t.yaml", trainer).empty());
  CHECK(weights("t.yaml", trainer + "torch_dtype: bfloat16\n") == "bf16");
  CHECK(weights("t.yaml", trainer + "dtype: torch.float32\n") == "fp32");
  CHECK(weights("t.yaml", trainer + "dtype: auto\n").empty());
  const std::string lf = "model_name_or_path: m\nfinetuning_type: full\ncutoff_len: 512\n";
  CHECK(weights("lf.yaml", lf + "bf16: true\n") == "fp32");
  CHECK(weights("lf.yaml", lf + "pure_bf16: true\n") == "pure-bf16");
  CHECK(weights("ax.yaml", "base_model: m\nsequence_len: 512\nbf16: true\n") == "bf16");
  CHECK(refused(files.add("ds.yaml", lf + "pure_bf16: true\ndeepspeed: ds.json\n"))
            .diagnostics()[0]
            .pointer == "line 4: pure_bf16");
}

TEST_CASE("a Trainer that starts neither DeepSpeed nor FSDP trains by DDP") {
  if (!testing::has_yaml()) return;
  Files files;
  const auto engine = [&](const std::string& text) {
    foreign::Meaning meaning = foreign::read_from(files.add("a.yaml", text));
    foreign::assume_engine(meaning);
    return said(meaning, ScenarioKey::engine);
  };
  CHECK(engine("model_name_or_path: m\nfinetuning_type: full\n") == "ddp");
  CHECK(engine("model_name_or_path: m\nfinetuning_type: full\nfsdp: full_shard\n") == "fsdp");
  CHECK(engine("compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\n"
               "num_processes: 4\n") == "ddp");
  CHECK(engine("compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"
               "deepspeed_config: {zero_stage: 2}\n") == "deepspeed");
}

TEST_CASE("accelerate's section becomes the ds_config that its plugin makes") {
  if (!testing::has_yaml()) return;
  Files files;
  const std::string path =
      files.add("accelerate.yaml",
                "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"
                "deepspeed_config:\n  zero_stage: 3\n  offload_optimizer_device: cpu\n"
                "  offload_param_device: none\n  gradient_accumulation_steps: 4\n"
                "mixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\n");
  const foreign::Meaning meaning = foreign::read_from(path);
  const Json& config = meaning.scenario.find(ScenarioKey::ds_config)->value;
  CHECK(*config.find("zero_optimization")->find("stage") == Json(3));
  CHECK(*config.find("zero_optimization")->find("offload_optimizer")->find("device") ==
        Json("cpu"));
  CHECK(config.find("zero_optimization")->find("offload_param") == nullptr);
  CHECK(said(meaning, ScenarioKey::gradient_accumulation_steps) == "4");
  CHECK(said(meaning, ScenarioKey::precision) == "bf16");
  CHECK(foreign::cluster_of(meaning.processes) == "2x8");
}

TEST_CASE("a job script: Slurm's lines, the script's variables, continued lines") {
  Files files;
  const std::string path = files.add(
      "job.sbatch",
      "#!/bin/bash\n#SBATCH --nodes=2   # two\n#SBATCH --gres=gpu:a100:8\n"
      "MODEL=org/name\nB=${B:-4}\npython prepare.py --model_name_or_path other\n"
      "srun -n 2 torchrun --nnodes $SLURM_NNODES --nproc-per-node=$SLURM_GPUS_ON_NODE \\\n"
      "  --rdzv_endpoint \"$(hostname):29500\" train.py --model_name_or_path \"$MODEL\" \\\n"
      "  --per_device_train_batch_size $B --bf16 --gradient_checkpointing True \\\n"
      "  --output_dir \"out/$RUN\" --max_length 2048 --deepspeed ds.json\n");
  const std::vector<foreign::Part> parts = foreign::read_launches(read_text_file(path), path);
  REQUIRE(parts.size() == 2);  // prepare.py has a model, too
  const foreign::Part& part = parts[1];
  CHECK(part.processes.nodes == 2);
  CHECK(part.processes.per_node == 8);
  CHECK(part.processes.gpu == "a100");
  std::map<std::string, std::string> values;
  for (const foreign::Setting& setting : part.settings)
    values[setting.name] = foreign::text_of(setting.value);
  CHECK(values["model_name_or_path"] == "org/name");
  CHECK(values["per_device_train_batch_size"] == "4");
  CHECK(values["bf16"] == "true");
  CHECK(values["max_length"] == "2048");
  CHECK(values["deepspeed"] == "ds.json");
  CHECK(part.unread.size() == 1);  // output_dir
}

TEST_CASE("launchers and what they count") {
  struct Case {
    const char* line;
    const char* cluster;
    const char* micro_batch;
  };
  const std::vector<Case> cases = {
      {"deepspeed --num_gpus 4 t.py --per_device_train_batch_size 2", "1x4", "2"},
      {"deepspeed --include localhost:0,1,2 t.py --per_device_train_batch_size=3", "1x3", "3"},
      {"CUDA_VISIBLE_DEVICES=0,1 python t.py --per-device-train-batch-size 5", "1x2", "5"},
      {"python -m torch.distributed.run --standalone --nproc_per_node 8 t.py "
       "--per_device_train_batch_size 1",
       "1x8",
       "1"},
      {"accelerate launch --multi_gpu --num_processes 16 --num_machines 2 t.py "
       "--per_device_train_batch_size 1",
       "2x8",
       "1"},
      {"nohup torchrun --nproc_per_node=2 -m pkg.train --per_device_train_batch_size 7 > log 2>&1 "
       "&",
       "1x2",
       "7"},
      {"trl sft --per_device_train_batch_size 6 --model_name_or_path a/b", "", "6"}};
  Files files;
  for (const Case& one : cases) {
    INFO(one.line);
    const foreign::Meaning meaning = foreign::read_from(files.add("line.sh", one.line));
    CHECK(foreign::cluster_of(meaning.processes) == one.cluster);
    CHECK(said(meaning, ScenarioKey::micro_batch_size) == one.micro_batch);
  }
}

TEST_CASE("the command line counts over the file that it names") {
  if (!testing::has_yaml()) return;
  Files files;
  files.add("acc.yaml",
            "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nnum_machines: 1\n");
  const std::string path = files.add(
      "run.sh",
      "accelerate launch --config_file acc.yaml --num_processes 4 t.py --fp16 --max_length 512\n");
  const foreign::Meaning meaning = foreign::read_from(path);
  CHECK(said(meaning, ScenarioKey::precision) == "fp16");
  CHECK(said(meaning, ScenarioKey::engine) == "fsdp");
  CHECK(foreign::cluster_of(meaning.processes) == "1x4");
}

TEST_CASE("a value that is left to a variable is asked of the flags") {
  if (!testing::has_yaml()) return;
  Files files;
  const std::string path = files.add("a.yaml",
                                     "model_name_or_path: ${MODELS}/b\nfinetuning_type: full\n"
                                     "per_device_train_batch_size: ${BATCH:-2}\nbf16: true\n");
  const InputError error = refused(path);
  CHECK(error.diagnostics().front().got == "\"${BATCH:-2}\"");
  CHECK(error.diagnostics().front().hint ==
        "a variable that is not set here: say --micro-batch-size");
  const foreign::Meaning meaning = foreign::read_from(path, {{ScenarioKey::micro_batch_size, "4"}});
  CHECK(said(meaning, ScenarioKey::micro_batch_size) == "4");
  for (const foreign::ReadLine& line : meaning.read) {
    if (line.line == 3) CHECK(line.taken == "--micro-batch-size 4");
  }
}

TEST_CASE("a script with the line ends of Windows reads as any other") {
  Files files;
  const std::string unix_lines =
      "export OMP_NUM_THREADS=8\ntorchrun --nproc_per_node 8 train.py \\\n"
      "  --model_name_or_path a/b --bf16 True \\\n  --max_seq_length 4096\n";
  std::string windows_lines;
  for (const char c : unix_lines) windows_lines += c == '\n' ? "\r\n" : std::string(1, c);
  const foreign::Meaning expected = foreign::read_from(files.add("unix.sh", unix_lines));
  const foreign::Meaning meaning = foreign::read_from(files.add("windows.sh", windows_lines));
  for (const ScenarioKey key : {ScenarioKey::model,
                                ScenarioKey::sequence_length,
                                ScenarioKey::precision,
                                ScenarioKey::omp_num_threads}) {
    CHECK_FALSE(said(expected, key).empty());
    CHECK(said(meaning, key) == said(expected, key));
  }
}

TEST_CASE("a loop of DeepSpeed's own keeps the batch of its ds_config") {
  Files files;
  const foreign::Meaning meaning = foreign::read_from(files.add(
      "run.sh", "deepspeed train.py --deepspeed --deepspeed_config ds.json --max_seq_len 1024\n"));
  CHECK(said(meaning, ScenarioKey::frontend) == "native");
  CHECK(said(meaning, ScenarioKey::ds_config) == "ds.json");
  CHECK(said(meaning, ScenarioKey::micro_batch_size).empty());
}

TEST_CASE("a tower that a tool freezes is frozen where the model has one") {
  Files files;
  const auto frozen = [&](const std::string& lines) {
    const std::string text =
        "model_name_or_path: a/b\ntemplate: x\nstage: sft\nfinetuning_type: full\n" + lines;
    return said(foreign::read_from(files.add("lf.yaml", text)), ScenarioKey::freeze);
  };
  CHECK(frozen("") == "vision?,projector?");  // LLaMA-Factory's default
  CHECK(frozen("freeze_vision_tower: false\n") == "projector?");
  CHECK(frozen("freeze_vision_tower: false\nfreeze_multi_modal_projector: false\n").empty());
  const auto trained = [](const char* model) {
    const Plan plan = resolve(parse_scenario(
        parse_json(std::string(R"({"model":")") + model +
                       R"(","cluster":"8xA100-80G","workload":{"freeze":"vision?,projector?"}})",
                   "s.json")
            .root,
        "s.json"));
    return std::count_if(plan.model->parameters.begin(),
                         plan.model->parameters.end(),
                         [](const Parameter& one) { return one.trainable; });
  };
  CHECK(trained("qwen2.5-0.5b") == 290);
  CHECK(trained("qwen2.5-vl-7b") == 339);
}

TEST_CASE("upcast_layernorm keeps norms in fp32; settings of adapters alone switch none on") {
  Files files;
  const auto meaning = [&](const std::string& text) {
    return foreign::read_from(files.add("a.yaml", text));
  };
  const foreign::Meaning lora = meaning(
      "model_name_or_path: a/b\ntemplate: x\nfinetuning_type: lora\nupcast_layernorm: true\n");
  CHECK(said(lora, ScenarioKey::method).find(R"("upcast":"norms")") != std::string::npos);
  const foreign::Meaning full = meaning("model_name_or_path: a/b\noutput_dir: o\nlora_r: 64\n");
  CHECK(said(full, ScenarioKey::method).empty());
  CHECK(foreign::describe(full).english().find("lora_r without a word for adapters") !=
        std::string::npos);
}

TEST_CASE("what is not planned is refused at its line") {
  Files files;
  struct Case {
    const char* text;
    const char* pointer;
  };
  const std::vector<Case> cases = {
      {R"({"model_name_or_path": "a/b", "use_unsloth": true})", "use_unsloth"},
      {R"({"model_name_or_path": "a/b", "template": "x", "stage": "rm"})", "stage"},
      {R"({"model_name_or_path": "a/b", "template": "x", "finetuning_type": "freeze"})",
       "finetuning_type"},
      {R"({"model_name_or_path": "a/b", "template": "x", "quantization_bit": 8})",
       "quantization_bit"},
      {R"({"output_dir": "o", "per_device_train_batch_size": "many"})",
       "per_device_train_batch_size"},
      {R"({"output_dir": "o", "optim": "paged_lion_8bit"})", "optim"},
      {R"({"model_name_or_path": "a/b", "template": "x", "use_muon": true})", "use_muon"},
      {R"({"base_model": "a/b", "plugins": ["axolotl.integrations.cut_cross_entropy.X"]})",
       "plugins"},
      {R"({"base_model": "a/b", "sequence_parallel_degree": 8})", "sequence_parallel_degree"}};
  for (const Case& one : cases) {
    INFO(one.text);
    const InputError error = refused(files.add("a.json", one.text));
    CHECK(error.diagnostics()[0].pointer == std::string("line 1: ") + one.pointer);
  }
  CHECK_THROWS_AS(foreign::read_from(files.add("run.sh", "trl rloo --model_name_or_path a/b\n")),
                  InputError);
}

TEST_CASE("files of another kind are refused with the option that takes them") {
  Files files;
  CHECK(refused(files.add("ds.json", R"({"zero_optimization": {}})"))
            .diagnostics()[0]
            .hint.english()
            .find("--ds-config") != std::string::npos);
  CHECK(refused(files.add("s.json", R"({"workload": {}, "model": "7B"})"))
            .diagnostics()[0]
            .hint.english()
            .find("--scenario") != std::string::npos);
  CHECK(refused(files.add("c.json", R"({"hidden_size": 1})"))
            .diagnostics()[0]
            .hint.english()
            .find("--model") != std::string::npos);
  CHECK_THROWS_AS(foreign::read_from(files.add("empty.yaml", "")), InputError);
  CHECK_THROWS_AS(foreign::read_from(files.add("x.sh", "echo hello\n")), InputError);
  const auto hint_of = [&] {
    return refused(files.add("job.sbatch", "srun torchrun --nproc_per_node=8 train.py \"$@\"\n"))
        .diagnostics()[0]
        .hint.english();
  };
  CHECK(hint_of().find("say them as flags") != std::string::npos);
  files.add("scenario.json", "{}");
  CHECK(hint_of().find("scenario.json") != std::string::npos);
}

TEST_CASE("checkpoints that a tool keeps on the host are full checkpointing with offload") {
  if (!foreign::reads_yaml()) return;
  Files files;
  const auto read = [&](const std::string& line) {
    return foreign::read_from(
        files.add("a.yaml", "base_model: m\nsequence_len: 8\n" + line + "\n"));
  };
  for (const char* word : {"offload", "unsloth"}) {
    const foreign::Meaning meaning = read("gradient_checkpointing: " + std::string(word));
    CHECK(said(meaning, ScenarioKey::activation_checkpointing) == "full");
    CHECK(said(meaning, ScenarioKey::activation_offload) == "cpu");
  }
  CHECK(said(read("activation_offloading: true"), ScenarioKey::activation_offload) == "cpu");
  CHECK(said(read("activation_offloading: false"), ScenarioKey::activation_offload) == "none");
  CHECK(said(read("gradient_checkpointing: off"), ScenarioKey::activation_checkpointing) == "none");
  CHECK_THROWS_AS(read("gradient_checkpointing: offload_disk"), InputError);
  CHECK_THROWS_AS(read("activation_offloading: disk"), InputError);
  CHECK_THROWS_AS(read("gradient_checkpointing: sometimes"), InputError);
  CHECK(said(foreign::read_from(files.add("t.sh", "trl sft --activation_offloading True\n")),
             ScenarioKey::activation_offload) == "cpu");
}

TEST_CASE("a command that is put together in variables") {
  const foreign::Script script = foreign::read_script(
      "L=\"accelerate launch \\\n  --num_processes 8\"\nARGS=\"--a 'b c'\"\nCMD=\"$L train.py "
      "$ARGS\"\nsrun $CMD");
  const std::vector<foreign::Word>& words = script.commands.back().words;
  REQUIRE(words.size() == 9);
  CHECK(words[1].text == "accelerate");
  CHECK(words[4].text == "8");
  CHECK(words[6].text == "--a");
}

TEST_CASE("LLaMA-Factory's stages of preferences are trainers with its own loss") {
  Files files;
  const auto read = [&](const std::string& more) {
    return foreign::read_from(files.add("a.json",
                                        R"({"model_name_or_path": "a/b", "finetuning_type": "full",
                                         "cutoff_len": 512, "template": "qwen", )" +
                                            more + "}"));
  };
  CHECK(said(read(R"("stage": "dpo", "pref_beta": 0.2)"), ScenarioKey::trainer) ==
        R"({"dpo":{"code":"llama-factory","beta":0.2}})");
  CHECK(said(read(R"("stage": "kto")"), ScenarioKey::trainer) ==
        R"({"kto":{"code":"llama-factory"}})");
  CHECK(said(read(R"("stage": "dpo", "pref_loss": "simpo")"), ScenarioKey::trainer) ==
        R"({"dpo":{"code":"llama-factory","precompute_reference":true}})");
  CHECK(read(R"("stage": "sft")").scenario.find(ScenarioKey::trainer) == nullptr);
  CHECK_THROWS_AS(read(R"("stage": "ppo")"), InputError);
  CHECK_THROWS_AS(read(R"("stage": "dpo", "ref_model": "c/d")"), InputError);
}

TEST_CASE("TRL's ppo.py says the rollout and the reward model") {
  Files files;
  const auto meaning = foreign::read_from(
      files.add("run.sh",
                "accelerate launch ppo.py --sft_model_path a/b --reward_model_path c/d "
                "--per_device_train_batch_size 8 --response_length 128 "
                "--local_rollout_forward_batch_size 2 --num_ppo_epochs 1 --num_mini_batches 1 "
                "--kl_coef 0.1 --total_episodes 10000 --missing_eos_penalty 1.0\n"));
  CHECK(
      said(meaning, ScenarioKey::trainer) ==
      R"({"ppo":{"completion_length":128,"rollout_rows":2,"epochs":1,"mini_batches":1,"beta":0.1}})");
  CHECK(said(meaning, ScenarioKey::models) == R"([{"role":"reward","model":"c/d"}])");
  CHECK(said(meaning, ScenarioKey::model) == "a/b");
}

TEST_CASE("TRL's gkd.py says the teacher, and what it generates alone names no trainer") {
  Files files;
  const auto read = [&](const std::string& command) {
    return foreign::read_from(files.add("run.sh", command + "\n"));
  };
  const auto meaning = read(
      "accelerate launch gkd.py --model_name_or_path a/b --teacher_model_name_or_path c/d "
      "--lmbda 1.0 --beta 0 --max_new_tokens 64 --temperature 0.9 --max_length 512");
  CHECK(said(meaning, ScenarioKey::trainer) ==
        R"({"gkd":{"lmbda":1.0,"beta":0.0,"completion_length":64}})");
  CHECK(said(meaning, ScenarioKey::teacher) == "c/d");
  CHECK(said(meaning, ScenarioKey::sequence_length) == "512");
  CHECK(said(read("python my.py --model_name_or_path m --lmbda 0.5"), ScenarioKey::trainer) ==
        R"({"gkd":{"lmbda":0.5}})");
  CHECK(read("python my.py --model_name_or_path m --max_new_tokens 64")
            .scenario.find(ScenarioKey::trainer) == nullptr);
  CHECK_THROWS_AS(read("trl gkd --model_name_or_path m"), InputError);
}

TEST_CASE("what LLaMA-Factory is told behind its file counts over it") {
  if (!testing::has_yaml()) return;
  Files files;
  files.add("a.yaml", "model_name_or_path: a/b\nfinetuning_type: full\ncutoff_len: 1024\n");
  const foreign::Meaning meaning = foreign::read_from(files.add(
      "run.sh",
      "FORCE_TORCHRUN=1 NPROC_PER_NODE=8 llamafactory-cli train a.yaml cutoff_len=512\n"));
  CHECK(said(meaning, ScenarioKey::sequence_length) == "512");
  CHECK(said(meaning, ScenarioKey::model) == "a/b");
  CHECK(said(meaning, ScenarioKey::method) == "full");
  CHECK(foreign::cluster_of(meaning.processes) == "1x8");
}

TEST_CASE("words of a shell") {
  const foreign::Script script = foreign::read_script(
      "A=1 B='x y'\nexport C=\"$B z\"\nrun $A \"$C\" a\\ b 'it''s' \"q\\\"q\" # no\nD=$(date)\nrun "
      "${D} ${E:-e} `w`; next");
  REQUIRE(script.commands.size() == 6);
  const std::vector<foreign::Word>& words = script.commands[2].words;
  REQUIRE(words.size() == 6);
  CHECK(words[1].text == "1");
  CHECK(words[2].text == "x y z");
  CHECK(words[3].text == "a b");
  CHECK(words[4].text == "its");
  CHECK(words[5].text == "q\"q");
  CHECK(words[5].line == 3);
  const std::vector<foreign::Word>& open = script.commands[4].words;
  CHECK_FALSE(open[1].whole);
  CHECK(open[2].text == "e");
  CHECK(open[2].whole);
  CHECK_FALSE(open[3].whole);
}

TEST_CASE("a script's launcher says how many threads each process has") {
  const auto threads = [](const std::string& text) {
    Files files;
    return said(foreign::read_from(files.add("run.sh", text)), ScenarioKey::omp_num_threads);
  };
  const std::string train = " train.py --per_device_train_batch_size 1 --model_name_or_path m\n";
  CHECK(threads("torchrun --nproc_per_node 8" + train) == "1");
  CHECK(threads("torchrun --nproc_per_node 1" + train).empty());
  CHECK(threads("accelerate launch --num_processes 8" + train) == "1");
  CHECK(threads("accelerate launch --num_processes 1" + train).empty());
  CHECK(threads("accelerate launch" + train).empty());
  CHECK(threads("deepspeed --num_gpus 8" + train).empty());
  CHECK(threads("export OMP_NUM_THREADS=12\ntorchrun --nproc_per_node 8" + train) == "12");
  CHECK(threads("OMP_NUM_THREADS=4 deepspeed --num_gpus 8" + train) == "4");
  CHECK(threads("N=3\nexport OMP_NUM_THREADS=$N\ndeepspeed --num_gpus 8" + train) == "3");
}

TEST_CASE("every key of a file is taken for something or listed by its name") {
  if (!foreign::reads_yaml()) return;
  Files files;
  // Names of all tools, sections and their members, and names that nobody has.
  const std::vector<std::string> lines = {
      "learning_rate: 1.0e-5",
      "num_train_epochs: 3",
      "save_strategy: epoch",
      "save_steps: 10",
      "eval_steps: 20",
      "torch_dtype: bfloat16",
      "dtype: auto",
      "bf16: true",
      "fp16: false",
      "packing: true",
      "freeze_vision_tower: true",
      "lr_scheduler_kwargs: {min_lr: 1}",
      "gradient_checkpointing_kwargs: {use_reentrant: false, determinism_check: none, odd_one: 1}",
      "bnb_config_kwargs: {bnb_4bit_quant_type: nf4, odd_two: 2}",
      "accelerator_config: {odd_seven: 7, gradient_accumulation_kwargs: {sync_each_batch: true}}",
      "fsdp_config: {fsdp_version: 2, state_dict_type: x, odd_three: 3}",
      "wandb_project: p",
      "odd_four: 4",
      "num_generations: 8",
      "deepspeed: null"};
  const auto key_of = [](const std::string& line) { return line.substr(0, line.find(':')); };
  for (std::size_t left_out = 0; left_out <= lines.size(); ++left_out) {
    std::string text = "model_name_or_path: m\nper_device_train_batch_size: 1\n";
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (i != left_out) text += lines[i] + "\n";
    }
    const foreign::Meaning meaning = foreign::read_from(files.add("a.yaml", text));
    const std::string said = foreign::describe(meaning);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (i == left_out) continue;
      INFO(lines[i] << "\n" << said);
      CHECK(said.find(key_of(lines[i])) != std::string::npos);
    }
  }
  const std::string said = foreign::describe(foreign::read_from(
      files.add("b.yaml",
                "model_name_or_path: m\nper_device_train_batch_size: 1\n" + lines[12] + "\n" +
                    lines[13] + "\n" + lines[14] + "\n" + lines[15] + "\n")));
  for (const char* odd : {"odd_one", "odd_two", "odd_three", "odd_seven", "determinism_check"}) {
    INFO(odd << "\n" << said);
    CHECK(said.find(odd) != std::string::npos);
  }
  const std::string accelerate = foreign::describe(foreign::read_from(files.add(
      "c.yaml",
      "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\n"
      "num_machines: 1\nrdzv_backend: static\nodd_five: 1\n"
      "deepspeed_config: {zero_stage: 3, zero3_init_flag: true, odd_six: 6}\n")));
  for (const char* key :
       {"num_processes", "rdzv_backend", "odd_five", "zero3_init_flag", "odd_six"}) {
    INFO(key << "\n" << accelerate);
    CHECK(accelerate.find(key) != std::string::npos);
  }
  // Without zero.Init, or with all ranks of a node reading, every rank loads the whole model.
  for (const char* whole :
       {"accelerate launch --use_deepspeed --zero_stage 3 --zero3_init_flag false t.py\n",
        "accelerate launch --fsdp_cpu_ram_efficient_loading false --use_fsdp t.py\n"}) {
    const foreign::Meaning meaning = foreign::read_from(files.add("w.sh", whole));
    INFO(whole);
    REQUIRE(meaning.scenario.find(ScenarioKey::loading) != nullptr);
    CHECK(meaning.scenario.find(ScenarioKey::loading)->value == Json("every-rank"));
  }
  const std::string script = foreign::describe(foreign::read_from(
      files.add("d.sh",
                "#SBATCH --time=1:00\nNCCL_DEBUG=INFO srun -p main -N 2 --gres=gpu:a100:8 torchrun "
                "--nproc_per_node 8 --master_port 29501 t.py word --per_device_train_batch_size 1 "
                "--odd 7\n")));
  for (const char* key :
       {"--time", "NCCL_DEBUG", "-p", "-N", "--gres", "master_port", "word", "odd"}) {
    INFO(key << "\n" << script);
    CHECK(script.find(key) != std::string::npos);
  }
}

TEST_CASE("a command and the files that it names are one training") {
  if (!foreign::reads_yaml()) return;
  Files files;
  const auto trainer = [&](const std::string& command, const std::string& arguments) {
    files.add("a.yaml", "model_name_or_path: m\n" + arguments);
    return foreign::read_from(files.add("run.sh", command + "\n"));
  };
  const std::string grpo =
      "use_vllm: true\nvllm_mode: colocate\nvllm_gpu_memory_utilization: 0.4\nbeta: 0.04\n"
      "max_prompt_length: 512\nmax_completion_length: 1024\nnum_generations: 16\n";
  const foreign::Meaning all = trainer("trl grpo --config a.yaml --num_generations 8", grpo);
  CHECK(said(all, ScenarioKey::trainer) ==
        R"({"grpo":{"completions":8,"memory_share":0.4,"beta":0.04,"completion_length":1024,)"
        R"("generation":"colocated"}})");
  CHECK(said(all, ScenarioKey::sequence_length) == "1536");
  REQUIRE(all.passed_over.size() == 1);
  CHECK(all.passed_over[0].said == "num_generations: 16");
  CHECK(all.unused.empty());
  CHECK(said(trainer("trl dpo --config a.yaml", "beta: 0.2\nprecompute_ref_log_probs: true\n"),
             ScenarioKey::trainer) == R"({"dpo":{"beta":0.2,"precompute_reference":true}})");
  CHECK(said(trainer("trl sft --config a.yaml", "dtype: bfloat16\n"), ScenarioKey::weights_dtype) ==
        "bf16");
  CHECK(said(trainer("python t.py a.yaml --eval_strategy steps", "eval_steps: 7\n"),
             ScenarioKey::eval_steps) == "7");
  CHECK(said(trainer("python t.py a.yaml --use_peft", "lora_r: 32\n"), ScenarioKey::method) ==
        R"({"lora":{"rank":32}})");
  CHECK(said(trainer("swift rlhf --beta 0.1 --num_generations 4 --rlhf_type grpo", ""),
             ScenarioKey::trainer) == R"({"grpo":{"beta":0.1,"completions":4}})");
  CHECK(
      said(trainer("swift rlhf --rlhf_type grpo --use_vllm true --vllm_mode colocate --sleep_level "
                   "2 --vllm_gpu_memory_utilization 0.6",
                   ""),
           ScenarioKey::trainer) ==
      R"({"grpo":{"sleeps":true,"memory_share":0.6,"generation":"colocated"}})");
  CHECK(said(trainer("swift rlhf --rlhf_type grpo --sleep_level 0", ""), ScenarioKey::trainer) ==
        R"({"grpo":{"sleeps":false}})");
}

TEST_CASE("arguments that one trainer has name it where nothing else does") {
  if (!foreign::reads_yaml()) return;
  Files files;
  const auto trainer = [&](const std::string& name, const std::string& text) {
    return said(foreign::read_from(files.add(name, text)), ScenarioKey::trainer);
  };
  const std::string yaml = "model_name_or_path: m\nbeta: 0.1\n";
  CHECK(trainer("a.yaml", yaml + "num_generations: 4\n") ==
        R"({"grpo":{"beta":0.1,"completions":4}})");
  CHECK(trainer("a.yaml", yaml + "num_ppo_epochs: 2\n") == R"({"ppo":{"beta":0.1,"epochs":2}})");
  CHECK(trainer("a.yaml", yaml + "precompute_ref_log_probs: true\n") ==
        R"({"dpo":{"beta":0.1,"precompute_reference":true}})");
  CHECK(trainer("a.yaml", yaml) == "");
  CHECK(trainer("run.sh", "trl sft --model_name_or_path m --num_generations 4\n") == "");
  const foreign::Meaning meaning = foreign::read_from(
      files.add("run.sh", "python my.py --model_name_or_path m --use_vllm true\n"));
  CHECK(said(meaning, ScenarioKey::trainer) == R"({"grpo":{"generation":"colocated"}})");
  CHECK(foreign::describe(meaning).english().find("use_vllm is an argument of its") !=
        std::string::npos);
  // Without a trainer that reads them, nothing is said to be used.
  for (const foreign::ReadLine& line : foreign::read_from(files.add("a.yaml", yaml)).read) {
    CHECK(line.taken != "--trainer");
  }
}

TEST_CASE("what is said twice counts once, and the other is named with what counts") {
  if (!foreign::reads_yaml()) return;
  Files files;
  files.add("more.yaml", "per_device_train_batch_size: 2\nmodel_name_or_path: m\n");
  const std::string script =
      files.add("run.sh", "python t.py --per_device_train_batch_size 4 --config more.yaml\n");
  const foreign::Meaning meaning = foreign::read_from(script);
  CHECK(said(meaning, ScenarioKey::micro_batch_size) == "4");
  REQUIRE(meaning.passed_over.size() == 1);
  CHECK(meaning.passed_over[0].line == 1);
}

TEST_CASE("accelerate's accumulation and the arguments' must be one: the Trainer stops") {
  if (!foreign::reads_yaml()) return;
  Files files;
  files.add("acc.yaml",
            "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 7\n"
            "num_machines: 1\ndeepspeed_config: {zero_stage: 2, gradient_accumulation_steps: 4}\n");
  const auto line = [&](const std::string& arguments) {
    return files.add(
        "run.sh",
        "accelerate launch --config_file acc.yaml t.py --model_name_or_path m " + arguments + "\n");
  };
  const InputError error = refused(line("--gradient_accumulation_steps 2"));
  CHECK(error.diagnostics()[0].got == "4");
  CHECK(error.diagnostics()[0].file.ends_with("acc.yaml"));
  CHECK(said(foreign::read_from(line("--gradient_accumulation_steps 4")),
             ScenarioKey::gradient_accumulation_steps) == "4");
  CHECK(said(foreign::read_from(line("--gradient_accumulation_steps 2"),
                                {{ScenarioKey::gradient_accumulation_steps, "2"}}),
             ScenarioKey::gradient_accumulation_steps) == "2");
}

TEST_CASE("swift's command lines, with its own names, files and defaults") {
  Files files;
  const foreign::Meaning meaning = foreign::read_from(files.add(
      "sft.sh",
      "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B-Instruct --tuner_type lora --dataset d "
      "--torch_dtype bfloat16 --max_length 4096 --quant_method bnb --quant_bits 4 --freeze_vit "
      "true "
      "--target_modules all-linear --deepspeed zero3 --attn_impl flash_attn\n"));
  CHECK(said(meaning, ScenarioKey::model) == "Qwen/Qwen2.5-7B-Instruct");
  CHECK(said(meaning, ScenarioKey::precision) == "bf16");
  CHECK(said(meaning, ScenarioKey::sequence_length) == "4096");
  CHECK(said(meaning, ScenarioKey::micro_batch_size) == "1");
  CHECK(said(meaning, ScenarioKey::gradient_accumulation_steps) == "2");
  CHECK(said(meaning, ScenarioKey::method) ==
        R"({"qlora":{"rank":8,"targets":"all-linear","double_quant":true}})");
  CHECK(said(meaning, ScenarioKey::engine) == "deepspeed");
  CHECK(said(meaning, ScenarioKey::ds_config).find(R"("stage":3)") != std::string::npos);
  CHECK(foreign::cluster_of(meaning.processes) == "1x8");
  CHECK(meaning.unknown.empty());
  CHECK(said(foreign::read_from(files.add(
                 "rlhf.sh", "swift rlhf --rlhf_type dpo --model m --train_type full --beta 0.2\n")),
             ScenarioKey::trainer) == R"({"dpo":{"beta":0.2}})");
  // Samples that are split off are evaluated as often as it saves.
  const auto split = [&](const std::string& more) {
    return foreign::read_from(files.add("a.sh",
                                        "swift sft --model m --split_dataset_ratio 0.05 "
                                        "--save_steps 40 --attn_impl flash_attn " +
                                            more + "\n"));
  };
  CHECK(said(split("--eval_steps 50"), ScenarioKey::eval_steps) == "50");
  CHECK(said(split(""), ScenarioKey::eval_steps) == "40");
  CHECK(said(split(""), ScenarioKey::evaluation) == R"({"loss":{"batch_size":1}})");
  CHECK(said(split(""), ScenarioKey::attention) == "flash");
  CHECK(said(split("--save_strategy no"), ScenarioKey::evaluation) == "");
  CHECK_THROWS_AS(foreign::read_from(files.add("x.sh", "xtuner train cfg --launcher slurm\n")),
                  InputError);
}

TEST_CASE("what a job exports and may have of memory is used or listed") {
  Files files;
  const foreign::Meaning meaning = foreign::read_from(
      files.add("job.sh",
                "#SBATCH --mem=480G\nexport OMP_NUM_THREADS=8 NCCL_IB_DISABLE=1 DATA=/d\n"
                "export CUDA_VISIBLE_DEVICES=0,1,2\nNCCL_ALGO=Ring NCCL_DEBUG=INFO deepspeed "
                "t.py --model_name_or_path m --optim paged_adamw_8bit\n"));
  CHECK(meaning.processes.host_memory == std::int64_t{480} << 30);
  CHECK(said(meaning, ScenarioKey::omp_num_threads) == "8");
  CHECK(said(meaning, ScenarioKey::optimizer) == "adamw8bit");
  CHECK(foreign::cluster_of(meaning.processes) == "1x3");
  const std::string text = foreign::describe(meaning).english();
  for (const char* line : {"--mem: 480G -> --host-memory",
                           "OMP_NUM_THREADS: 8 -> --omp-num-threads",
                           "assumed: NCCL_IB_DISABLE=1: between hosts the network is as fast",
                           "not known: " /* its place */,
                           "NCCL_ALGO=Ring",
                           "depend on it: NCCL_DEBUG\n",
                           "assumed: paged_adamw_8bit: its states stay on the GPU"}) {
    INFO(line << "\n" << text);
    CHECK(text.find(line) != std::string::npos);
  }
  const foreign::Meaning paged =
      foreign::read_from(files.add("p.sh", "python t.py --optim paged_adamw_32bit\n"));
  CHECK(said(paged, ScenarioKey::optimizer) == "adamw");
  CHECK(said(paged, ScenarioKey::optimizer_implementation) == "fused");
  CHECK(foreign::describe(paged).english().find("paged_adamw_32bit: its states stay on the GPU") !=
        std::string::npos);
  CHECK(foreign::read_from(files.add("b.sh", "#SBATCH --mem=4096\npython t.py --bf16 true\n"))
            .processes.host_memory == std::int64_t{4096} << 20);
  const foreign::Meaning shares = foreign::read_from(
      files.add("d.sh",
                "#SBATCH --mem-per-gpu=60G\n#SBATCH --gres=gpu:a100:8\nexport NCCL_IB_DISABLE=1\n"
                "torchrun --nproc_per_node=8 t.py --bf16 true\n"));
  CHECK(shares.processes.host_memory == std::int64_t{480} << 30);
  CHECK(foreign::describe(shares).english().find("depend on it: NCCL_IB_DISABLE\n") !=
        std::string::npos);
  CHECK(foreign::describe(shares).english().find("--mem-per-gpu: 60G -> --host-memory") !=
        std::string::npos);
  CHECK(shares.unknown.empty());
  const foreign::Meaning nobody_says =
      foreign::read_from(files.add("e.sh", "#SBATCH --mem-per-gpu=60G\npython t.py --bf16 true\n"));
  CHECK(nobody_says.processes.host_memory == 0);
  CHECK(foreign::describe(nobody_says).english().find("not known: ") != std::string::npos);
  CHECK_THROWS_AS(foreign::read_from(
                      files.add("c.sh", "python t.py --attn_implementation flash_attention_3\n")),
                  InputError);
}

TEST_CASE("Slurm's own options say the processes where a script is told that Slurm starts it") {
  Files files;
  const foreign::Meaning meaning = foreign::read_from(files.add(
      "s.sh",
      "srun -p main --gres=gpu:h100:8 --nodes=2 --ntasks-per-node=8 python t.py --launcher slurm "
      "--per_device_train_batch_size 1\n"));
  CHECK(foreign::cluster_of(meaning.processes) == "2x8xh100");
  CHECK(meaning.unknown.empty());
}

TEST_CASE("a value of the wrong kind is bad input, of every key") {
  if (!foreign::reads_yaml()) return;
  Files files;
  for (const char* key : {"cutoff_len",
                          "per_device_train_batch_size",
                          "gradient_accumulation_steps",
                          "mixed_precision",
                          "optim",
                          "fsdp_version",
                          "dataloader_num_workers",
                          "model_name_or_path"}) {
    for (const char* value : {"true", "{}", "{a: 1}", "[1, 2]", "-1", "1.5"}) {
      INFO(key << ": " << value);
      const std::string path = files.add(
          "a.yaml", "stage: sft\noutput_dir: o\n" + std::string(key) + ": " + value + "\n");
      try {
        foreign::read_from(path);
      } catch (const InputError& error) {
        CHECK_FALSE(error.diagnostics()[0].expected.empty());
      }
    }
  }
}

TEST_CASE("files that would take the machine are refused at their bounds") {
  Files files;
  std::string doubling = "A=xxxxxxxxxxxxxxxx\n";
  for (int i = 0; i < 40; ++i) doubling += "A=$A$A\n";
  CHECK_THROWS_AS(foreign::read_from(files.add("a.sh", doubling + "python t.py --x $A\n")),
                  InputError);
  CHECK_THROWS_AS(foreign::read_from(files.add("long.sh", std::string(9 << 20, 'x'))), InputError);
  std::string many = "{\"output_dir\": 1";
  for (int i = 0; i < 20000; ++i) many += ",\"k" + std::to_string(i) + "\": 1";
  CHECK_THROWS_AS(foreign::read_from(files.add("many.json", many + "}")), InputError);
  if (!foreign::reads_yaml()) return;
  std::string keys = "output_dir: o\n";
  for (int i = 0; i < 60000; ++i) keys += "k" + std::to_string(i) + ": 1\n";
  CHECK_THROWS_AS(foreign::read_from(files.add("many.yaml", keys)), InputError);
  std::string nested = "output_dir: o\na: ";
  for (int i = 0; i < 60; ++i) nested += "&a" + std::to_string(i) + " [";
  for (int i = 0; i < 20000; ++i) nested += "1, ";
  nested += std::string(60, ']') + "\n";
  CHECK_THROWS_AS(foreign::read_from(files.add("nested.yaml", nested)), InputError);
}
