#include "tuner/kit/kit_values.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/quoting.hpp"
#include "model/hardware/hostfile.hpp"
#include "model/plan/software_sets.hpp"
#include "tuner/kit/kit_scope.hpp"
#include "tuner/kit/trainer_line.hpp"

namespace zeroplan::tuner {
namespace {

// Tags of pytorch/pytorch on Docker Hub for releases that no set of configs/software.json has: the
// newest patch of each and its CUDA.
struct TorchImage {
  Version torch;
  std::string_view tag;
};
constexpr std::array kTorchImages = {TorchImage{{2, 1}, "2.1.2-cuda12.1-cudnn8-devel"},
                                     TorchImage{{2, 3}, "2.3.1-cuda12.1-cudnn8-devel"},
                                     TorchImage{{2, 4}, "2.4.1-cuda12.4-cudnn9-devel"},
                                     TorchImage{{2, 5}, "2.5.1-cuda12.4-cudnn9-devel"},
                                     TorchImage{{2, 8}, "2.8.0-cuda12.8-cudnn9-devel"}};

// The image whose torch is the plan's, else the nearest that is not newer: pip then installs the
// release of requirements.txt over it.
std::string torch_image(const Version& torch) {
  std::vector<std::pair<Version, std::string>> images;
  for (const TorchImage& image : kTorchImages) {
    images.emplace_back(image.torch, std::string(image.tag));
  }
  for (const SoftwareSet& set : software_sets()) {
    if (!set.image.empty())
      images.emplace_back(Version{set.torch.major, set.torch.minor}, set.image);
  }
  std::sort(images.begin(), images.end());
  std::string tag = images.front().second;
  for (const auto& [release, name] : images) {
    if (release <= torch) tag = name;
  }
  return tag;
}

std::string host_name(const Cluster& cluster, std::int64_t index) {
  const auto i = static_cast<std::size_t>(index);
  return i < cluster.hosts.size() ? cluster.hosts[i] : fmt::format("node-{}", index + 1);
}

// The host without who logs in: what other processes connect to.
std::string address(const Cluster& cluster, std::int64_t index) {
  const std::string name = host_name(cluster, index);
  return std::string(without_user(name));
}

// For ssh_config.
std::string host_patterns(const Cluster& cluster) {
  if (cluster.hosts.empty()) return "node-*";
  std::string text;
  for (const std::string& host : cluster.hosts) {
    text += (text.empty() ? "" : " ") + std::string(without_user(host));
  }
  return text;
}

// Folders of the hosts that ds_config.json swaps to, for docker-compose.yml.
std::string nvme_volumes(const Plan& plan) {
  std::vector<std::string> paths;
  const auto add = [&](OffloadDevice device, Knob knob) {
    const std::optional<std::string> path = plan.ds_config.text(knob);
    // One that is relative lies in the kit's folder, which the container has.
    if (device != OffloadDevice::nvme || !path || !path->starts_with('/')) return;
    if (std::find(paths.begin(), paths.end(), *path) == paths.end()) paths.push_back(*path);
  };
  add(plan.engine.offload_optimizer.device, Knob::offload_optimizer_nvme_path);
  add(plan.engine.offload_parameter.device, Knob::offload_param_nvme_path);
  std::string text;
  for (const std::string& path : paths) {
    text += fmt::format(
        "      - type: bind\n        source: {0}\n        target: {0}\n"
        "        bind:\n          create_host_path: true\n",
        compose_string(path));
  }
  return text;
}

// Gathered batches and pinned queues of the data loader: what DeepSpeed's and NVIDIA's own
// containers are started with is 1 GiB a GPU and more.
std::string shared_memory(const Cluster& cluster) {
  return fmt::format("{}gb", std::max<std::int64_t>(8, 2 * cluster.gpus_per_node()));
}

}  // namespace

std::string script_of(const Plan& plan) {
  if (plan.trainer != nullptr) return "train_trl.py";
  if (plan.workload.pipeline_parallel > 1) return "train_pipeline.py";
  if (plan.model->shape.kind == ModelKind::encoder) return "train_bert.py";
  return plan.workload.frontend == Frontend::native ? "train_native.py" : "train.py";
}

std::string kit_path(const Plan& plan, std::string_view file) {
  const std::string_view started =
      starts_with_accelerate(plan) ? "accelerate.yaml" : "ds_config.json";
  const bool on_top = file == "PLAN.md" || file == "run.sh" || file == started;
  return (on_top ? "" : "kit/") + std::string(file);
}

Phrase engine_text(const Plan& plan) {
  switch (plan.workload.engine) {
    case TrainingEngine::fsdp: {
      const FsdpConfig& fsdp = plan.fsdp;
      const bool hybrid = fsdp.shard_ranks > 1 && fsdp.shard_ranks < fsdp.ranks;
      const Phrase sharding = fsdp.sharding == Sharding::no_shard ? "no sharding"
                              : fsdp.sharding == Sharding::full
                                  ? (hybrid ? "full sharding within nodes" : "full sharding")
                                  : "gradients and optimizer sharded";
      return phrase("FSDP{}, {}", fsdp.version, sharding);
    }
    case TrainingEngine::ddp:
      return "DDP";
    default:
      return phrase("ZeRO-{}", plan.engine.stage);
  }
}

namespace {

// DeepSpeed's runner hands the folder and the arguments to a shell on every host as they are
// (launcher/multinode_runner.py PDSHRunner.get_cmd): what that shell would split or execute is
// refused here. It puts arguments with spaces in double quotes itself.
constexpr std::string_view kFolderCheck = R"(    if [[ $PWD == *[!A-Za-z0-9_@%+=:,./-]* ]]; then
      printf 'run.sh: the deepspeed launcher hands this folder unquoted to shells: %q\n' "$PWD" >&2
      echo "run.sh: rename it, or start ./run.sh torchrun on each host" >&2
      exit 2
    fi
    for argument in "$script" "$@"; do
      if [[ $argument == *[!A-Za-z0-9_@%+=:,./\ -]* ]]; then
        printf 'run.sh: the deepspeed launcher hands this unquoted to shells: %q\n' "$argument" >&2
        echo "run.sh: ./run.sh torchrun, started on each host, takes it" >&2
        exit 2
      fi
    done
)";

std::string_view yaml(bool value) { return value ? "true" : "false"; }

void add_hosts(const Plan& plan, KitValues& values) {
  const Cluster& cluster = plan.cluster;
  const bool several = cluster.nodes > 1;
  const std::string head = sh_word(address(cluster, 0));
  values["NODES"] = several ? phrase("{} hosts", cluster.nodes) : Phrase("one host");
  values["NODE_COUNT"] = std::to_string(cluster.nodes);
  values["GPUS_PER_NODE"] = std::to_string(cluster.gpus_per_node());
  values["WORLD"] = std::to_string(cluster.total_gpus());
  values["CORES"] = std::to_string(std::max<std::int64_t>(1, cluster.node.cpu_cores.value));
  values["TORCHRUN_HINT"] =
      several ? fmt::format(" with NODE_RANK=0 to {} and MASTER_ADDR={}", cluster.nodes - 1, head)
              : "";
  values["TORCHRUN_HOSTS"] =
      several ? fmt::format(
                    "--nnodes={} --node_rank=\"${{NODE_RANK:?the number of this host, from 0}}\" "
                    "--master_addr=\"$MASTER_ADDR\" --master_port=\"${{MASTER_PORT:-29500}}\"",
                    cluster.nodes)
              : "--standalone";
  values["DEEPSPEED_HOSTS"] =
      several ? "--hostfile=kit/hostfile " : fmt::format("--num_gpus={} ", cluster.gpus_per_node());
  values["FIRST_HOST"] = head;
  values["CONTAINER_NAME"] = yaml_string(address(cluster, 0));
  values["OTHER_HOST"] = sh_word(host_name(cluster, several ? 1 : 0));
  values["HOST_PATTERNS"] = sh_quoted(host_patterns(cluster));
  values["FOLDER_CHECK"] = several ? std::string(kFolderCheck) : "";
  values["MASTER_ADDRESS"] =
      several ? fmt::format("    MASTER_ADDR=${{MASTER_ADDR:-{}}}\n", head) : "";
  values["ACCELERATE_HOSTS"] = several ? fmt::format(
                                             "  deepspeed_multinode_launcher: standard\n"
                                             "main_process_ip: {}\nmain_process_port: 29500\n",
                                             yaml_string(address(cluster, 0)))
                                       : "";
}

// accelerate's names, and what of FSDP a plan fixes (docs/model.md: whole blocks, backward
// prefetch, limited all-gathers).
void add_accelerate(const Plan& plan, KitValues& values) {
  const bool several = plan.cluster.nodes > 1;
  const std::string head = sh_word(address(plan.cluster, 0));
  values["ACCELERATE_HOSTS"] = several
                                   ? fmt::format("main_process_ip: {}\nmain_process_port: 29500\n",
                                                 yaml_string(address(plan.cluster, 0)))
                                   : "";
  values["MIXED_PRECISION"] =
      mixes_precision(plan) ? std::string(name(kPrecisionNames, plan.workload.precision)) : "'no'";
  values["RANK_HINT"] =
      several ? fmt::format(" on every host, with NODE_RANK=0 to {}", plan.cluster.nodes - 1) : "";
  values["ACCELERATE_ARGUMENTS"] =
      several ? fmt::format(
                    "--machine_rank \"${{NODE_RANK:?the number of this host, from 0}}\" "
                    "--main_process_ip \"${{MASTER_ADDR:-{}}}\" "
                    "--main_process_port \"${{MASTER_PORT:-29500}}\" ",
                    head)
              : "";
  if (plan.workload.engine != TrainingEngine::fsdp) {
    values["DISTRIBUTED_TYPE"] = plan.cluster.total_gpus() > 1 ? "MULTI_GPU" : "'NO'";
    values["FSDP"] = "";
    return;
  }
  const FsdpConfig& fsdp = plan.fsdp;
  const bool hybrid = fsdp.shard_ranks > 1 && fsdp.shard_ranks < fsdp.ranks;
  const std::string sharding = fsdp.sharding == Sharding::no_shard ? "NO_SHARD"
                               : fsdp.sharding == Sharding::full
                                   ? (hybrid ? "HYBRID_SHARD" : "FULL_SHARD")
                                   : (hybrid ? "HYBRID_SHARD_ZERO2" : "SHARD_GRAD_OP");
  values["DISTRIBUTED_TYPE"] = "FSDP";
  if (fsdp.version == 2) {
    values["FSDP"] = fmt::format(
        "fsdp_config:\n"
        "  fsdp_version: 2\n"
        "  fsdp_reshard_after_forward: {}\n"
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
        "  fsdp_offload_params: {}\n"
        "  fsdp_cpu_ram_efficient_loading: {}\n"
        "  fsdp_state_dict_type: SHARDED_STATE_DICT\n",
        yaml(fsdp.sharding == Sharding::full),
        yaml(fsdp.offload),
        yaml(plan.workload.loading == Loading::usual));
    return;
  }
  values["FSDP"] = fmt::format(
      "fsdp_config:\n"
      "  fsdp_version: 1\n"
      "  fsdp_sharding_strategy: {}\n"
      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
      "  fsdp_backward_prefetch: BACKWARD_PRE\n"
      "  fsdp_forward_prefetch: false\n"
      "  fsdp_offload_params: {}\n"
      "  fsdp_use_orig_params: {}\n"
      "  fsdp_cpu_ram_efficient_loading: {}\n"
      "  fsdp_sync_module_states: true\n"
      "  fsdp_state_dict_type: SHARDED_STATE_DICT\n",
      sharding,
      yaml(fsdp.offload),
      yaml(fsdp.original_parameters),
      yaml(plan.workload.loading == Loading::usual));
}

}  // namespace

bool mixes_precision(const Plan& plan) {
  if (plan.workload.precision == Precision::fp32) return false;
  if (plan.workload.lora.autocast) return true;
  if (plan.workload.engine == TrainingEngine::fsdp) return plan.fsdp.storage_dtype == DType::fp32;
  if (plan.workload.engine == TrainingEngine::ddp) return plan.ddp.weight_dtype == DType::fp32;
  return true;
}

std::string first_address(const Cluster& cluster) { return address(cluster, 0); }

std::string threads_setting(const Plan& plan) {
  std::int64_t count = plan.workload.omp_num_threads;
  if (count == 0 && plan.workload.engine == TrainingEngine::deepspeed) {
    const std::int64_t cores = plan.cluster.node.cpu_cores.value;
    count = std::max<std::int64_t>(1, cores / plan.cluster.gpus_per_node());
  }
  return count > 0 ? fmt::format("OMP_NUM_THREADS={}", count) : "";
}

std::string requirements_text(const Plan& plan) { return pinned_packages(plan, "\n") + "\n"; }

std::string llamafactory_line(const Cluster& cluster, const std::string& file) {
  const std::string hosts =
      cluster.nodes > 1 ? fmt::format("NNODES={} NODE_RANK=0 MASTER_ADDR={} MASTER_PORT=29500 ",
                                      cluster.nodes,
                                      sh_word(address(cluster, 0)))
                        : "";
  return "FORCE_TORCHRUN=1 " + hosts + "llamafactory-cli train " + sh_word(file);
}

std::string hostfile_text(const Cluster& cluster) {
  std::string text;
  for (std::int64_t i = 0; i < cluster.nodes; ++i) {
    text += fmt::format("{} slots={}\n", host_name(cluster, i), cluster.gpus_per_node());
  }
  return text;
}

std::string environment_text(const Plan& plan) {
  const Cluster& cluster = plan.cluster;
  const bool several = cluster.nodes > 1;
  const LinkKind network = cluster.inter_node.kind;
  std::string text = threads_setting(plan);
  text += text.empty() ? "NCCL_DEBUG=WARN\n" : "\nNCCL_DEBUG=WARN\n";
  if (plan.workload.expandable_segments) {
    text += "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n";
  }
  // NCCL looks for InfiniBand and for peer-to-peer copies itself: only what the user said that
  // there is none of is switched off.
  const bool stated =
      !cluster.network_assumed && cluster.inter_node.bandwidth.confidence == Confidence::stated;
  if (several && stated && (network == LinkKind::tcp || network == LinkKind::vxlan)) {
    text += "NCCL_IB_DISABLE=1\n";
  }
  if (several) {
    text += network == LinkKind::vxlan ? "NCCL_SOCKET_IFNAME=eth0\n"
                                       : "NCCL_SOCKET_IFNAME=^lo,docker0\n";
  }
  return text;
}

KitValues kit_values(const Plan& plan) {
  KitValues values;
  add_hosts(plan, values);
  values["ZERO3"] = yaml(plan.engine.stage == 3 && plan.workload.loading != Loading::every_rank);
  values["DS_CONFIG"] = "deepspeed_config_file: ds_config.json\n";
  if (starts_with_accelerate(plan)) add_accelerate(plan, values);
  values["SCRIPT"] = script_of(plan);
  values["TORCH_IMAGE"] = torch_image(plan.software.torch);
  values["NVME_VOLUMES"] = nvme_volumes(plan);
  values["SHM"] = shared_memory(plan.cluster);
  const double gigabits = plan.cluster.inter_node.bandwidth.value.value() * 8.0 / 1e9;
  values["OVERLAY_SPEED"] =
      plan.cluster.inter_node.kind == LinkKind::vxlan
          ? phrase("the plan counts on {}", fmt::format("{:.0f} Gb/s", gigabits))
          : phrase("the plan counts on {} at {}, which an overlay does not reach",
                   name(kLinkKindNames, plan.cluster.inter_node.kind),
                   fmt::format("{:.0f} Gb/s", gigabits));
  return values;
}

}  // namespace zeroplan::tuner
