// tuner/kit: what is written for a plan.
#include "tuner/kit/kit.hpp"

#include <algorithm>

#include "model/diagnostic.hpp"
#include "model/families/hf_config.hpp"
#include "model/plan/plan.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"
#include "tuner/kit/kit_template.hpp"
#include "tuner/kit/kit_values.hpp"
#include "tuner/kit/quoting.hpp"

using namespace zeroplan;

namespace {

struct Planned {
  Plan plan;
  std::vector<KitFile> files;

  std::string text(std::string_view path) const {
    const auto found = std::find_if(
        files.begin(), files.end(), [&](const KitFile& file) { return file.path == path; });
    return found == files.end() ? "" : found->text;
  }
};

Planned planned(const char* document) {
  const Scenario scenario = parse_scenario(parse_json(document, "test").root, "test");
  Planned result;
  result.plan = resolve(scenario);
  result.files =
      make_kit(result.plan, scenario_document(result.plan, scenario), simulate(result.plan, {}));
  return result;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a kit for several hosts reaches them, one for a single host needs no names") {
  const Planned two = planned(R"({"model":"llama-3.2-1b","cluster":"2x4xA100-80G"})");
  CHECK(two.text("hostfile") == "node-1 slots=4\nnode-2 slots=4\n");
  CHECK(has(two.text("run.sh"), "deepspeed --hostfile=hostfile "));
  CHECK(has(two.text("run.sh"), "--nnodes=2 "));
  CHECK(has(two.text("accelerate.yaml"), "num_processes: 8\n"));
  CHECK(has(two.text(".deepspeed_env"), "NCCL_SOCKET_IFNAME="));
  for (const std::string_view file : {"PLAN.md", "llamafactory.yaml"}) {
    CHECK(has(two.text(file),
              "FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=0 MASTER_ADDR=node-1 MASTER_PORT=29500 "
              "llamafactory-cli"));
  }
  const Planned one = planned(R"({"model":"llama-3.2-1b","cluster":"4xA100-80G"})");
  CHECK(has(one.text("run.sh"), "deepspeed --num_gpus=4 "));
  CHECK(has(one.text("run.sh"), "--standalone"));
  CHECK_FALSE(has(one.text(".deepspeed_env"), "NCCL_SOCKET_IFNAME"));
  CHECK(has(one.text("PLAN.md"), "FORCE_TORCHRUN=1 llamafactory-cli"));
}

TEST_CASE("GeForce cards get the variables without which NCCL hangs on them") {
  const Planned kit = planned(R"({"model":"llama-3.2-1b","cluster":"4xRTX4090"})");
  CHECK(has(kit.text(".deepspeed_env"), "NCCL_P2P_DISABLE=1\n"));
  CHECK(has(kit.text(".deepspeed_env"), "NCCL_IB_DISABLE=1\n"));
}

TEST_CASE("the launcher starts the script that the model and the frontend need") {
  CHECK(has(planned(R"({"model":"bert-base-uncased","cluster":"1xA100-80G"})").text("run.sh"),
            "train_bert.py"));
  CHECK(has(planned(R"({"model":"llama-3.2-1b","cluster":"1xA100-80G",
                        "workload":{"frontend":"native"}})")
                .text("run.sh"),
            "train_native.py"));
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
  const StepResult result = simulate(plan, {});
  const Json document = scenario_document(plan, scenario);
  plan.cluster.hosts = {"root@gpu-1.example.com", "node_2"};
  const std::vector<KitFile> files = make_kit(plan, document, result);
  const auto text = [&](std::string_view path) {
    return std::find_if(
               files.begin(), files.end(), [&](const KitFile& file) { return file.path == path; })
        ->text;
  };
  CHECK(text("hostfile") == "root@gpu-1.example.com slots=4\nnode_2 slots=4\n");
  CHECK(has(text("run.sh"), "MASTER_ADDR=${MASTER_ADDR:-gpu-1.example.com}\n"));
  CHECK(has(text("accelerate.yaml"), "main_process_ip: gpu-1.example.com\n"));
  for (const char* host :
       {"node$(touch${IFS}x)", "", "-oProxyCommand=x", "a b", "a\nb", "fe80::1"}) {
    plan.cluster.hosts = {host, "node_2"};
    INFO(host);
    CHECK_THROWS_AS(make_kit(plan, document, result), InputError);
  }
}

TEST_CASE("other engines than DeepSpeed get documents and the plan alone") {
  const Planned kit =
      planned(R"({"model":"llama-3.2-1b","cluster":"8xA100-80G","workload":{"engine":"fsdp"}})");
  CHECK(kit.files.size() == 3);
  CHECK(has(kit.text("PLAN.md"), "The engine is fsdp"));
}

TEST_CASE("a kit's container has a torch that its DeepSpeed can be imported with") {
  const Planned newest = planned(R"({"model":"llama-3.2-1b","cluster":"1xA100-80G",
      "software":{"deepspeed":"0.19.6","torch":"2.6"}})");
  CHECK(has(newest.text("Dockerfile"), "pytorch:2.7.1-cuda12.6"));
  const Planned older = planned(R"({"model":"llama-3.2-1b","cluster":"1xA100-80G",
      "software":{"deepspeed":"0.16.4","torch":"2.4"}})");
  CHECK(has(older.text("Dockerfile"), "pytorch:2.4.1-cuda12.4"));
}

TEST_CASE("shell's \"$@\" is no name of a template") {
  KitValues values = kit_values(planned(R"({"model":"llama-3.2-1b","cluster":"1xA100-80G"})").plan);
  CHECK(has(filled_in("run.sh.in", values), "\"$script\" \"$@\"\n"));
}
