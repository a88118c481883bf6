#include "tuner/kit/form_launch.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/quoting.hpp"
#include "foreign/command_settings.hpp"
#include "foreign/form_settings.hpp"
#include "model/plan/trainer.hpp"
#include "tuner/kit/kit_values.hpp"

namespace zeroplan::tuner {
namespace {

// What `trl sft`, `trl dpo` and the others start.
std::string trl_command(const Plan& plan) {
  return std::string(
      name(kTrainerKindNames, plan.trainer == nullptr ? TrainerKind::sft : plan.trainer->kind));
}

std::string trl_module(const Plan& plan) { return "trl.scripts." + trl_command(plan); }

bool several(const Plan& plan) { return plan.cluster.nodes > 1; }

std::string head_host(const Plan& plan) { return sh_word(first_address(plan.cluster)); }

std::string threads_before(const Plan& plan) {
  const std::string text = threads_setting(plan);
  return text.empty() ? "" : text + " ";
}

std::string torchrun_hosts(const Plan& plan) {
  if (!several(plan)) return "--standalone";
  return fmt::format("--nnodes={} --node_rank=\"$NODE_RANK\" --master_addr={} --master_port=29500",
                     plan.cluster.nodes,
                     head_host(plan));
}

std::string accelerate_hosts(const Plan& plan) {
  const std::int64_t all = plan.cluster.total_gpus();
  if (!several(plan)) return fmt::format("--num_processes {}", all);
  return fmt::format(
      "--num_processes {} --num_machines {} --machine_rank \"$NODE_RANK\" --main_process_ip {} "
      "--main_process_port 29500",
      all,
      plan.cluster.nodes,
      head_host(plan));
}

// The launcher leaves OMP_NUM_THREADS alone.
std::string deepspeed_line(const Plan& plan) {
  return fmt::format(
      "{}deepspeed {}--num_gpus={} --module",
      plan.workload.omp_num_threads > 0 ? threads_before(plan) : "",
      several(plan) ? fmt::format("--hostfile=hostfile --num_nodes={} ", plan.cluster.nodes) : "",
      plan.cluster.gpus_per_node());
}

std::string script_of_transformers(const Plan& plan) {
  return plan.model->shape.kind == ModelKind::encoder ? "run_mlm.py" : "run_clm.py";
}

}  // namespace

std::string start_line(const Plan& plan, foreign::Form form, const foreign::FormPlace& place) {
  const std::string file = sh_word(place.file);
  const std::string per_node = std::to_string(plan.cluster.gpus_per_node());
  switch (form) {
    case foreign::Form::llama_factory:
      return threads_before(plan) + llamafactory_line(plan.cluster, place.file);
    case foreign::Form::axolotl:
      return fmt::format("{}axolotl train {} --launcher torchrun -- {} --nproc_per_node={}",
                         threads_before(plan),
                         file,
                         torchrun_hosts(plan),
                         per_node);
    case foreign::Form::accelerate:
      return threads_before(plan) + "accelerate launch --config_file " + file +
             (several(plan) ? " --machine_rank \"$NODE_RANK\"" : "") + " " +
             (place.script.empty() ? script_of(plan) : place.script);
    case foreign::Form::trl:
      return fmt::format("{}trl {} --config {} {}",
                         threads_before(plan),
                         trl_command(plan),
                         file,
                         accelerate_hosts(plan));
    case foreign::Form::trainer:
      return fmt::format("{}torchrun {} --nproc_per_node={} {} {}",
                         threads_before(plan),
                         torchrun_hosts(plan),
                         per_node,
                         script_of_transformers(plan),
                         file);
    case foreign::Form::shell:
    case foreign::Form::openrlhf:
    case foreign::Form::verl:
      return "bash " + file;
    case foreign::Form::sbatch:
      return "sbatch " + file;
  }
  return "";
}

std::string shell_body(const Plan& plan, const foreign::FormPlace& place) {
  std::string launcher;
  if (plan.workload.engine == TrainingEngine::deepspeed) {
    launcher = deepspeed_line(plan);
  } else {
    launcher = fmt::format("{}torchrun {} --nproc_per_node={} -m",
                           threads_before(plan),
                           torchrun_hosts(plan),
                           plan.cluster.gpus_per_node());
  }
  return launcher + fmt::format(" {} \\\n  ", trl_module(plan)) +
         foreign::argument_words(settings_of(plan, foreign::Form::trl, place), " \\\n  ") + "\n";
}

std::string own_command(const Plan& plan, foreign::Form form, const foreign::FormPlace& place) {
  const std::string launcher =
      foreign::starts_by_ray(plan) ? threads_before(plan) + "python3 -m" : deepspeed_line(plan);
  return fmt::format("{} {} \\\n  {}\n",
                     launcher,
                     foreign::module_of_command(plan),
                     foreign::command_words(plan, form, place, " \\\n  "));
}

std::string sbatch_directives(const Plan& plan) {
  return fmt::format(
      "#SBATCH --job-name=zeroplan\n#SBATCH --nodes={}\n#SBATCH --ntasks-per-node=1\n"
      "#SBATCH --gpus-per-node={}\n#SBATCH --cpus-per-task={}\n#SBATCH --exclusive\n"
      "#SBATCH --output=%x-%j.log\n",
      plan.cluster.nodes,
      plan.cluster.gpus_per_node(),
      std::max<std::int64_t>(1, plan.cluster.node.cpu_cores.value));
}

std::string sbatch_body(const Plan& plan, const foreign::FormPlace& place) {
  std::string text = "# Account, partition and time limit are the site's.\n";
  const std::string said = threads_setting(plan);
  if (!said.empty()) text += "export " + said + "\n";
  text += "head=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n";
  text += fmt::format(
      "srun torchrun --nnodes={} --nproc_per_node={} --rdzv_id=\"$SLURM_JOB_ID\" "
      "--rdzv_backend=c10d --rdzv_endpoint=\"$head:29500\" -m {} \\\n  ",
      plan.cluster.nodes,
      plan.cluster.gpus_per_node(),
      trl_module(plan));
  return text + foreign::argument_words(settings_of(plan, foreign::Form::trl, place), " \\\n  ") +
         "\n";
}

}  // namespace zeroplan::tuner
