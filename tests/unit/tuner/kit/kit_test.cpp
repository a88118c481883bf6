// tuner/kit: what is written for a plan.
#include "tuner/kit/kit.hpp"

#include <algorithm>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/quoting.hpp"
#include "cli/language/translation.hpp"
#include "model/families/hf_config.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"
#include "tuner/kit/kit_template.hpp"
#include "tuner/kit/kit_values.hpp"

using namespace zeroplan;

namespace {

struct Planned {
  Plan plan;
  std::vector<tuner::KitFile> files;

  // On top or in kit/.
  const tuner::KitFile* file(std::string_view path) const {
    const auto found = std::find_if(files.begin(), files.end(), [&](const tuner::KitFile& file) {
      return file.path == path || file.path == "kit/" + std::string(path);
    });
    return found == files.end() ? nullptr : &*found;
  }
  std::string text(std::string_view path) const {
    return file(path) == nullptr ? "" : file(path)->text;
  }
  Phrase page(std::string_view path) const { return file(path) == nullptr ? "" : file(path)->page; }
};

Planned planned(const char* document) {
  const Scenario scenario = parse_scenario(parse_json(document, "test").root, "test");
  Planned result;
  result.plan = resolve(scenario);
  result.files = tuner::make_kit(
      result.plan, scenario_document(result.plan, scenario), simulator::simulate(result.plan, {}));
  return result;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a kit for several hosts reaches them, one for a single host needs no names") {
  const Planned two = planned(R"({"model":"llama-3.2-1b","cluster":"2x4xA100-80G"})");
  CHECK(two.text("hostfile") == "node-1 slots=4\nnode-2 slots=4\n");
  CHECK(has(two.text("run.sh"), "deepspeed --hostfile=kit/hostfile "));
  CHECK(has(two.text("run.sh"), "--nnodes=2 "));
  CHECK(has(two.text("accelerate.yaml"), "num_processes: 8\n"));
  CHECK(has(two.text(".deepspeed_env"), "NCCL_SOCKET_IFNAME="));
  for (const std::string_view file : {"PLAN.md", "llamafactory.yaml"}) {
    // A comment's line goes on in the next one.
    const std::string text = std::regex_replace(two.text(file), std::regex(R"(\\\n#   )"), "");
    CHECK(has(text,
              "FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=0 MASTER_ADDR=node-1 MASTER_PORT=29500 "
              "llamafactory-cli"));
  }
  const Planned one = planned(R"({"model":"llama-3.2-1b","cluster":"4xA100-80G"})");
  CHECK(has(one.text("run.sh"), "deepspeed --num_gpus=4 "));
  CHECK(has(one.text("run.sh"), "--standalone"));
  CHECK_FALSE(has(one.text(".deepspeed_env"), "NCCL_SOCKET_IFNAME"));
  CHECK(has(one.text("PLAN.md"), "FORCE_TORCHRUN=1 llamafactory-cli"));
}

TEST_CASE("NCCL's transports are switched off where the user said that they are not there") {
  const Planned kit = planned(R"({"model":"llama-3.2-1b","cluster":"2x4xRTX4090"})");
  CHECK_FALSE(has(kit.text(".deepspeed_env"), "NCCL_P2P_DISABLE"));
  CHECK_FALSE(has(kit.text(".deepspeed_env"), "NCCL_IB_DISABLE"));
  const Planned tcp = planned(R"({"model":"llama-3.2-1b","cluster":{"nodes":2,"gpus_per_node":4,
      "gpu":"A10-24G","inter_node":{"link":"tcp","bandwidth":1.25e9}}})");
  CHECK(has(tcp.text(".deepspeed_env"), "NCCL_IB_DISABLE=1\n"));
}

TEST_CASE("three files lie on top of a kit, and of one without scripts these alone") {
  const auto on_top = [](const Planned& kit) {
    std::vector<std::string> names;
    for (const tuner::KitFile& file : kit.files) {
      if (!file.path.starts_with("kit/")) names.push_back(file.path);
    }
    std::sort(names.begin(), names.end());
    return names;
  };
  CHECK(on_top(planned(R"({"model":"llama-3.2-1b","cluster":"2x4xA100-80G"})")) ==
        std::vector<std::string>{"PLAN.md", "ds_config.json", "run.sh"});
  CHECK(on_top(planned(R"({"model":"llama-3.2-1b","cluster":"4xA100-80G","workload":
      {"engine":"fsdp"}})")) == std::vector<std::string>{"PLAN.md", "accelerate.yaml", "run.sh"});
}

TEST_CASE("one learning rate stands in all files of a kit, by what is trained") {
  const auto rate = [](const char* workload) {
    const Planned kit =
        planned((std::string(R"({"model":"llama-3.2-1b","cluster":"4xA100-80G","workload":)") +
                 workload + "}")
                    .c_str());
    const Json run = parse_json(kit.text("training.json"), "training.json").root;
    const double said = run.find("learning_rate")->as_number();
    for (const char* path : {"llamafactory.yaml", "axolotl.yaml", "trl.yaml"}) {
      const std::string text = kit.text(path);
      const std::size_t at = text.find("learning_rate: ");
      if (at == std::string::npos) continue;
      CHECK(std::stod(text.substr(at + 15)) == Approx(said));
    }
    CHECK(has(kit.text("PLAN.md"), "the learning rate"));
    return said;
  };
  CHECK(rate(R"({"trainer":"dpo"})") == Approx(5e-7));
  CHECK(rate(R"({"trainer":"grpo","micro_batch_size":8})") == Approx(1e-6));
  CHECK(rate(R"({"method":"lora"})") == Approx(2e-4));
  CHECK(rate("{}") == Approx(2e-5));
}

TEST_CASE("the user's own file stays in a kit: data, rates, schedule, epochs, output") {
  const Scenario scenario = parse_scenario(
      parse_json(R"({"model":"llama-3.2-1b","cluster":"4xA100-80G"})", "test").root, "test");
  const Plan plan = resolve(scenario);
  tuner::OwnTraining own;
  own.form = foreign::Form::llama_factory;
  own.settings = {{"dataset", "alpaca_zh"},
                  {"template", "qwen"},
                  {"learning_rate", 3e-6},
                  {"lr_scheduler_type", "cosine"},
                  {"output_dir", "saves/mine"}};
  Planned kit;
  kit.files =
      tuner::make_kit(plan, scenario_document(plan, scenario), simulator::simulate(plan, {}), own);
  const std::string yaml = kit.text("llamafactory.yaml");
  for (const char* line : {"dataset: alpaca_zh",
                           "template: qwen",
                           "lr_scheduler_type: cosine",
                           "output_dir: saves/mine"}) {
    CHECK(has(yaml, line));
  }
  const Json run = parse_json(kit.text("training.json"), "training.json").root;
  CHECK(run.find("learning_rate")->as_number() == Approx(3e-6));
  for (const char* other : {"axolotl.yaml", "trl.yaml"}) {
    const std::string text = kit.text(other);
    const std::size_t at = text.find("learning_rate: ");
    REQUIRE(at != std::string::npos);
    CHECK(std::stod(text.substr(at + 15)) == Approx(3e-6));
  }
  CHECK(has(kit.text("PLAN.md"), "the learning rate (3e-06)"));
  CHECK(*run.find("lr_scheduler_type") == Json("cosine"));
  CHECK(*run.find("output_dir") == Json("saves/mine"));
}

TEST_CASE("every file of a kit says the planned implementation of AdamW") {
  for (const char* implementation : {"fused", "foreach"}) {
    const Planned kit = planned((std::string(R"({"model":"llama-3.2-1b","cluster":"4xA100-80G",
        "workload":{"engine":"ddp","optimizer_implementation":")") +
                                 implementation + R"("}})")
                                    .c_str());
    const std::string name =
        std::string("adamw_torch") + (implementation[1] == 'u' ? "_fused" : "");
    INFO(name);
    CHECK(has(kit.text("scenario.json"),
              std::string(R"("optimizer_implementation": ")") + implementation));
    CHECK(has(kit.text("PLAN.md"), "--optim " + name + "\n"));
    for (const char* file : {"trl.yaml", "llamafactory.yaml"}) {
      CHECK(has(kit.text(file), "optim: " + name + "\n"));
    }
    CHECK(has(kit.text("axolotl.yaml"), "optimizer: " + name + "\n"));
    CHECK(has(kit.text("trainer.json"), R"("optim": ")" + name + '"'));
  }
}

TEST_CASE("four-bit weights have a script, bitsandbytes and FSDP's storage") {
  const Planned kit = planned(R"({"model":"llama-3.2-1b","cluster":"4xA100-80G","workload":
      {"engine":"fsdp","method":"qlora"}})");
  CHECK_FALSE(kit.text("train.py").empty());
  CHECK(has(kit.text("requirements.txt"), "bitsandbytes\n"));
  CHECK(has(kit.text("common.py"), "bnb_4bit_quant_storage"));
  CHECK(has(kit.text("PLAN.md"), "FSDP"));
  CHECK(has(kit.text("accelerate.yaml"), "fsdp_use_orig_params: false\n"));
  CHECK_FALSE(has(kit.text("PLAN.md"), "ZeRO-3;"));
}

TEST_CASE("what other tools' files cannot say stands at their top, and nothing that they say") {
  const Planned qlora = planned(R"({"model":"llama-3.2-1b","cluster":"2xRTX-3090","workload":
      {"engine":"fsdp","method":"qlora","load_device":"cpu"}})");
  const Planned half = planned(R"({"model":"llama-3.2-1b","cluster":"2xH100","workload":
      {"engine":"ddp","weights_dtype":"bf16"}})");
  for (const char* file : {"trl.yaml", "llamafactory.yaml", "axolotl.yaml"}) {
    INFO(file);
    CHECK(has(qlora.text(file), "# Not said here: load-device cpu: "));
    CHECK(has(half.text(file), "# Not said here: weights and optimizer states all in bf16") ==
          (file[0] == 'l'));
  }
  // Nor has the environment threads that the plan does not count on.
  CHECK_FALSE(has(qlora.text(".deepspeed_env"), "OMP_NUM_THREADS"));
  CHECK(has(planned(R"({"model":"llama-3.2-1b","cluster":"2xH100","workload":
      {"engine":"fsdp","omp_num_threads":6}})")
                .text(".deepspeed_env"),
            "OMP_NUM_THREADS=6\n"));
}

TEST_CASE("TRL trains four-bit weights from the release that leaves the rest of them as it is") {
  const auto kit = [](const char* trl, const char* trainer) {
    return planned((std::string(R"({"model":"llama-3.2-1b","cluster":"4xA100-80G","workload":
        {"engine":"ddp","method":"qlora","micro_batch_size":8,"trainer":")") +
                    trainer + R"("},"software":{"trl":")" + trl + R"("}})")
                       .c_str());
  };
  struct Row {
    const char* trainer;
    const char* before;
    const char* since;
  };
  for (const auto& [trainer, before, since] : {Row{"dpo", "0.28.0", "0.29.0"},
                                               Row{"grpo", "0.28.0", "0.29.0"},
                                               Row{"kto", "1.3.0", "1.4.0"}}) {
    const Planned now = kit(since, trainer);
    CHECK_FALSE(now.text("train_trl.py").empty());
    CHECK(has(now.text("requirements.txt"), "bitsandbytes\n"));
    CHECK(has(now.text("PLAN.md"),
              "adapters are in bf16: TRL " + std::string(since) + " casts them"));
    CHECK(has(kit(before, trainer).text("PLAN.md"), "cast what lies beside them to fp32"));
  }
}

TEST_CASE("the launcher starts the script that the model and the frontend need") {
  CHECK(has(planned(R"({"model":"bert-base-uncased","cluster":"1xA100-80G"})").text("run.sh"),
            "train_bert.py"));
  CHECK(has(planned(R"({"model":"llama-3.2-1b","cluster":"1xA100-80G",
                        "workload":{"frontend":"native"}})")
                .text("run.sh"),
            "train_native.py"));
}

TEST_CASE("TRL's trainers have a script that makes the models which the plan counts") {
  const Planned dpo = planned(R"({"model":"llama-3.2-1b","cluster":"2xA100-80G","workload":
      {"trainer":{"dpo":{"prompt_length":256}}},"software":{"trl":"1.16.0"}})");
  CHECK(has(dpo.text("run.sh"), "script=kit/${SCRIPT:-train_trl.py}"));
  CHECK(has(dpo.text("train_trl.py"), "DPOTrainer"));
  CHECK(has(dpo.text("accelerate.yaml"), "train_trl.py"));
  CHECK(has(dpo.text("requirements.txt"), "trl==1.16.0"));
  CHECK(has(dpo.text("trl.yaml"), "max_length: "));
  CHECK(has(dpo.text("PLAN.md"), "trl dpo --config kit/trl.yaml"));
  CHECK(dpo.text("train.py").empty());
  CHECK(dpo.text("llamafactory.yaml").empty());
  const Planned grpo = planned(R"({"model":"llama-3.2-1b","cluster":"2xA100-80G","workload":
      {"engine":"ddp","micro_batch_size":8,"trainer":"grpo"}})");
  CHECK(has(grpo.text("run.sh"), "accelerate.yaml kit/train_trl.py"));
  const Planned ppo = planned(R"({"model":"llama-3.2-1b","cluster":"2xA100-80G","workload":
      {"micro_batch_size":4,"trainer":"ppo"},"ds_config":{"zero_optimization":{"stage":2}}})");
  CHECK(has(ppo.text("run.sh"), "script=kit/${SCRIPT:-train_trl.py}"));
  CHECK(has(ppo.text("requirements.txt"), "trl==1.12.0"));
  CHECK(ppo.text("trl.yaml").empty());  // there is no `trl ppo`
  // A reference elsewhere than TRL puts it, and other models, need a program of one's own.
  for (const char* models : {R"([{"role":"reference","placement":"sharded"}])",
                             R"([{"role":"teacher","model":"llama-3-8b"}])"}) {
    const std::string document =
        std::string(R"({"model":"llama-3.2-1b","cluster":"2xA100-80G","workload":
        {"trainer":"dpo","models":)") +
        models + R"(},"ds_config":{"zero_optimization":{"stage":2}}})";
    const Planned other = planned(document.c_str());
    CHECK(other.text("run.sh").empty());
    CHECK(has(other.text("PLAN.md"), "which is TRL's"));
  }
}

TEST_CASE("the model's config stands in the kit, also for a bare size") {
  const Planned kit = planned(R"({"model":"1.3B","cluster":"8xA100-80G"})");
  const Json config = parse_json(kit.text("model/config.json"), "config.json").root;
  const Model model = read_model(config, "config.json");
  CHECK(count_parameters(model).total == count_parameters(*kit.plan.model).total);
}

TEST_CASE("a drive's path stands in the kit as it was said, whatever a shell or YAML makes of it") {
  for (const std::string path : {"/local_nvme",
                                 "/my drives/nvme 0",
                                 "/nvme/$(touch x)",
                                 "/nvme/`x`",
                                 "/nvme/a: b #c",
                                 "/nvme/$HOME",
                                 "/nvme/'\"",
                                 "/nvme/{a,b}",
                                 "/nvme/%s",
                                 "/nvme/\u202e",
                                 "/nvme/-x/.."}) {
    Json document = parse_json(R"({"model":"llama-3.2-1b","cluster":"4xA100-80G","ds_config":
        {"zero_optimization":{"stage":3,"offload_param":{"device":"nvme","nvme_path":"PATH"}}}})",
                               "test")
                        .root;
    document["ds_config"]["zero_optimization"]["offload_param"]["nvme_path"] = path;
    const Planned kit = planned(document.dump().c_str());
    INFO(path);
    CHECK(has(kit.text("docker-compose.yml"), "source: " + compose_string(path) + "\n"));
    CHECK(has(kit.text("docker-compose.yml"), "target: " + compose_string(path) + "\n"));
    const Json written = parse_json(kit.text("ds_config.json"), "ds_config.json").root;
    CHECK(*written.find("zero_optimization")->find("offload_param")->find("nvme_path") ==
          Json(path));
  }
}

TEST_CASE("hosts that no launcher takes are in no kit, whoever named them") {
  const Scenario scenario = parse_scenario(
      parse_json(R"({"model":"llama-3.2-1b","cluster":"2x4xA100-80G"})", "test").root, "test");
  Plan plan = resolve(scenario);
  const StepResult result = simulator::simulate(plan, {});
  const Json document = scenario_document(plan, scenario);
  plan.cluster.hosts = {"root@gpu-1.example.com", "node_2"};
  const std::vector<tuner::KitFile> files = tuner::make_kit(plan, document, result);
  const auto text = [&](std::string_view path) {
    return std::find_if(files.begin(),
                        files.end(),
                        [&](const tuner::KitFile& file) {
                          return file.path == path || file.path == "kit/" + std::string(path);
                        })
        ->text;
  };
  CHECK(text("hostfile") == "root@gpu-1.example.com slots=4\nnode_2 slots=4\n");
  CHECK(has(text("run.sh"), "MASTER_ADDR=${MASTER_ADDR:-gpu-1.example.com}\n"));
  CHECK(has(text("accelerate.yaml"), "main_process_ip: gpu-1.example.com\n"));
  for (const char* host :
       {"node$(touch${IFS}x)", "", "-oProxyCommand=x", "a b", "a\nb", "fe80::1"}) {
    plan.cluster.hosts = {host, "node_2"};
    INFO(host);
    CHECK_THROWS_AS(tuner::make_kit(plan, document, result), InputError);
  }
}

TEST_CASE("FSDP and DDP start through accelerate with what was planned") {
  const Planned kit = planned(R"({"model":"llama-3.2-1b","cluster":"2x4xA100-80G","workload":
      {"engine":"fsdp"},"ds_config":{"zero_optimization":{"stage":2},"bf16":{"enabled":true}}})");
  const std::string yaml = kit.text("accelerate.yaml");
  CHECK(has(yaml, "distributed_type: FSDP\n"));
  CHECK(has(yaml, "  fsdp_sharding_strategy: SHARD_GRAD_OP\n"));
  CHECK(has(yaml, "mixed_precision: bf16\n"));
  CHECK(has(yaml, "num_processes: 8\n"));
  CHECK(has(yaml, "main_process_ip: node-1\n"));
  CHECK(has(kit.text("run.sh"), "accelerate launch --config_file accelerate.yaml --machine_rank "));
  CHECK_FALSE(has(kit.text("requirements.txt"), "deepspeed"));
  CHECK(kit.text("train_native.py").empty());
  const Planned adapters = planned(R"({"model":"llama-3.2-1b","cluster":"4xA100-80G","workload":
      {"engine":"fsdp","method":"lora"}})");
  CHECK(has(adapters.text("accelerate.yaml"), "mixed_precision: bf16\n"));
  const Planned pure = planned(R"({"model":"llama-3.2-1b","cluster":"4xA100-80G","workload":
      {"engine":"ddp","method":{"lora":{"autocast":false}}}})");
  CHECK(has(pure.text("accelerate.yaml"), "mixed_precision: 'no'\n"));
  const Planned ddp =
      planned(R"({"model":"llama-3.2-1b","cluster":"4xA100-80G","workload":{"engine":"ddp"}})");
  CHECK(has(ddp.text("accelerate.yaml"), "distributed_type: MULTI_GPU\n"));
}

TEST_CASE("a plan that no script trains has documents and says why") {
  for (const auto& [document, reason] :
       {std::pair(R"({"model":"bloom-1b7","cluster":"8xA100-80G","workload":
            {"frontend":"native","implementation":"megatron","pipeline_parallel":2},"ds_config":{"zero_optimization":{"stage":1}}})",
                  "the code of megatron"),
        std::pair(R"({"model":"llama-2-7b","cluster":"8xA100-80G","workload":
            {"frontend":"native","pipeline_parallel":2,"fused_loss":true},"ds_config":{"zero_optimization":{"stage":1}}})",
                  "a fused loss in a pipeline"),
        std::pair(R"({"model":"llama-3.2-1b","cluster":"4xA100-80G","workload":
            {"engine":"fsdp","frontend":"native"}})",
                  "under FSDP or DDP"),
        std::pair(R"({"model":"llama-2-7b","cluster":"4xA100-80G","workload":
            {"engine":"fsdp","frontend":"native","implementation":"litgpt"}})",
                  "the code of litgpt")}) {
    const Planned kit = planned(document);
    INFO(document);
    CHECK(kit.files.size() == 3);
    CHECK(has(kit.text("PLAN.md"), reason));
    CHECK(has(kit.text("PLAN.md"), "has no script"));
  }
}

TEST_CASE("a pipeline's kit has a program of layers, dealt out as they were planned") {
  const Planned kit = planned(R"({"model":"baichuan2-7b","cluster":"2x4xV100-32G","workload":
      {"frontend":"native","pipeline_parallel":2,"activation_checkpointing":"full"},
      "ds_config":{"zero_optimization":{"stage":1},"fp16":{"enabled":true}}})");
  CHECK(has(kit.text("run.sh"), "script=kit/${SCRIPT:-train_pipeline.py}"));
  for (const char* path : {"train_pipeline.py", "pipeline.py", "weights.py"}) {
    CHECK_FALSE(kit.text(path).empty());
  }
  for (const char* path : {"train.py", "accelerate.yaml", "llamafactory.yaml"}) {
    CHECK(kit.text(path).empty());
  }
  CHECK(has(kit.text("PLAN.md"), "| 0 | 0 to 3 | 0 to 15 | embedding |"));
  CHECK(has(kit.text("PLAN.md"), "| 1 | 4 to 7 | 16 to 31 | norm, head |"));
  CHECK(has(kit.text("PLAN.md"),
            "PipelineModule(num_stages=2, partition_method=\"type:transformer\", "
            "activation_checkpoint_interval=1)"));
  const Json config = parse_json(kit.text("ds_config.json"), "ds_config.json").root;
  const Json* section = config.find("pipeline");
  REQUIRE(section != nullptr);
  CHECK(section->find("partition")->as_string() == "type:transformer");
  CHECK(section->find("activation_checkpoint_interval")->as_integer() == 1);
}

TEST_CASE("where embedding and head count as layers, both classes are named") {
  // 30 layers on 4 stages: 7, 8, 8, 7 beside the ends.
  const Planned kit = planned(R"({"model":"bloom-7b1","cluster":"4xA100-80G","workload":
      {"frontend":"native","pipeline_parallel":4},"ds_config":{"zero_optimization":{"stage":1}}})");
  CHECK(has(kit.text("ds_config.json"), "\"type:transformer|embedding|head\""));
  CHECK(has(kit.text("PLAN.md"), "| 0 | 0 to 0 | 0 to 6 | embedding |"));
  CHECK(has(kit.text("PLAN.md"), "| 3 | 3 to 3 | 23 to 29 | norm, head |"));
}

TEST_CASE("a kit installs the releases that its plan counts on") {
  const Planned newest = planned(R"({"model":"qwen3-8b","cluster":"8xA100-80G"})");
  CHECK(has(newest.text("requirements.txt"),
            "deepspeed==0.19.6\ntorch==2.11.0\ntransformers==5.17.0\naccelerate=="));
  CHECK(has(newest.text("Dockerfile"), "pytorch:2.11.0-cuda13.0"));
  const Planned volta = planned(R"({"model":"qwen3-8b","cluster":"8xV100-32G"})");
  CHECK(has(volta.text("requirements.txt"), "torch==2.7.1\n"));
  CHECK(has(volta.text("Dockerfile"), "pytorch:2.7.1-cuda12.6"));
  const Planned said = planned(R"({"model":"llama-3.2-1b","cluster":"1xA100-80G",
      "software":{"deepspeed":"0.16.4","torch":"2.4"}})");
  CHECK(has(said.text("requirements.txt"), "deepspeed==0.16.4\ntorch==2.4.0\n"));
  CHECK(has(said.text("Dockerfile"), "pytorch:2.4.1-cuda12.4"));
}

TEST_CASE("a model of its own code gets its classes' places, and its files are asked for") {
  const Planned kit = planned(R"({"model":"chatglm2-6b","cluster":"8xA100-80G"})");
  CHECK(has(kit.text("model/config.json"), "modeling_chatglm.ChatGLMForConditionalGeneration"));
  CHECK(has(kit.text("PLAN.md"), "modeling_chatglm.py"));
  CHECK(has(kit.text("PLAN.md"), "trust_remote_code"));
  CHECK(has(kit.text("requirements.txt"), "transformers==4.50.3\n"));
}

TEST_CASE("keys and weights stay out of images") {
  const std::string ignored = planned(R"({"model":"llama-3.2-1b","cluster":"2x4xA100-80G"})")
                                  .text("Dockerfile.dockerignore");
  for (const char* line : {"\nkit/ssh\n", "\nkit/model/*.safetensors\n", "\nkit/model/*.bin\n"}) {
    CHECK(has(ignored, line));
  }
}

TEST_CASE("hosts of a hostfile are in the kit of its scenario") {
  const Scenario scenario = parse_scenario(parse_json(R"({"model":"llama-3.2-1b","cluster":
          {"nodes":2,"hosts":["gpu-a","gpu-b"],"gpus_per_node":4,"gpu":"A100-80G"}})",
                                                      "test")
                                               .root,
                                           "test");
  const Plan plan = resolve(scenario);
  const Json document = scenario_document(plan, scenario);
  const Plan again = resolve(parse_scenario(document, "kit"));
  CHECK(again.cluster.hosts == std::vector<std::string>{"gpu-a", "gpu-b"});
  CHECK(tuner::hostfile_text(again.cluster) == "gpu-a slots=4\ngpu-b slots=4\n");
}

TEST_CASE("the pages of a kit are Chinese for who asks in Chinese") {
  static const std::regex code("`[^`]*`");
  static const std::regex english("[a-z]{2,} [a-z]{2,}");
  for (const char* document : {R"({"model":"llama-3.2-1b","cluster":"2x4xA100-80G"})",
                               R"({"model":"chatglm2-6b","cluster":"A100-80G"})",
                               R"({"model":"llama-3.2-1b","cluster":"2x4xA100-80G","workload":
                                   {"engine":"fsdp"}})",
                               R"({"model":"llama-3-8b","cluster":"8xA100-80G","workload":
                                   {"activation_offload":"cpu","activation_checkpointing":"full"},
                                   "ds_config":{"zero_optimization":{"stage":3,
                                   "offload_optimizer":{"device":"cpu"}}}})"}) {
    const Planned kit = planned(document);
    for (const char* page : {"PLAN.md", "OVERLAY.md"}) {
      std::istringstream lines(cli::Translation(cli::Language::zh).text(kit.page(page)));
      bool fenced = false;
      for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("```")) fenced = !fenced;
        if (fenced) continue;
        INFO(page << ": " << line);
        CHECK_FALSE(std::regex_search(std::regex_replace(line, code, ""), english));
      }
    }
  }
}

TEST_CASE("the Trainer's line has what the plan depends on") {
  const Planned kit = planned(R"({"model":"llama-3.2-1b","cluster":"4xA100-80G","workload":
      {"micro_batch_size":2,"gradient_accumulation_steps":3,"activation_checkpointing":"full",
       "checkpoint_reentrant":false,"optimizer":"adafactor","attention":"eager"}})");
  const std::string page = kit.text("PLAN.md");
  CHECK(has(page,
            "With the Trainer: --deepspeed ds_config.json --per_device_train_batch_size 2 "
            "--gradient_accumulation_steps 3 --bf16 --gradient_checkpointing "
            "--gradient_checkpointing_kwargs '{\"use_reentrant\": false}' --optim adafactor\n"));
  CHECK(has(page, "In the script: sequences of 2048 tokens, attn_implementation=\"eager\"\n"));
  CHECK(has(page, "Installed: deepspeed==0.19.6 torch==2.11.0 transformers==5.17.0 "));
}

TEST_CASE("shell's \"$@\" is no name of a template") {
  tuner::KitValues values =
      tuner::kit_values(planned(R"({"model":"llama-3.2-1b","cluster":"1xA100-80G"})").plan);
  CHECK(has(tuner::filled_in("run.sh.in", values), "\"$script\" \"$@\"\n"));
}
