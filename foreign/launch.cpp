#include "foreign/launch.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/diagnostic.hpp"
#include "foreign/openrlhf.hpp"
#include "foreign/processes.hpp"
#include "foreign/shell.hpp"

namespace zeroplan::foreign {
namespace {

// "--nproc-per-node" -> "nproc_per_node"
std::string plain_name(std::string_view flag) {
  flag.remove_prefix(std::min(flag.find_first_not_of('-'), flag.size()));
  std::string name(flag);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string base_name(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

// "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", by its new name, too.
bool expands_segments(std::string_view assignment) {
  const bool settings = assignment.starts_with("PYTORCH_CUDA_ALLOC_CONF=") ||
                        assignment.starts_with("PYTORCH_ALLOC_CONF=");
  return settings && (assignment.find("expandable_segments:True") != std::string_view::npos ||
                      assignment.find("expandable_segments:true") != std::string_view::npos);
}

std::int64_t commas_of(std::string_view text) {
  return static_cast<std::int64_t>(std::count(text.begin(), text.end(), ',')) + 1;
}

bool is_assignment(const Word& word) {
  return word.text.find('=') != std::string::npos && !word.text.starts_with('-');
}

// Variables that NCCL, CUDA and torch read change the run, but for logging and the list of GPUs.
bool changes_the_runtime(std::string_view name) {
  const auto begins = [&](std::string_view start) { return name.starts_with(start); };
  return (begins("NCCL_") || begins("TORCH_") || begins("PYTORCH_") || begins("CUDA_")) &&
         name != "CUDA_VISIBLE_DEVICES" && name != "CUDA_HOME" &&
         name.find("DEBUG") == std::string_view::npos;
}

// Which network NCCL takes between hosts, whose speed the cluster says.
bool is_about_the_network(std::string_view name) {
  return name.starts_with("NCCL_IB_") || name.starts_with("NCCL_SOCKET_") || name == "NCCL_NET" ||
         name == "NCCL_CROSS_NIC";
}

// A variable of the environment, "NPROC_PER_NODE=8".
void read_variable(const Word& word, const std::string& file, Part& part) {
  const std::size_t equals = word.text.find('=');
  const std::string name = word.text.substr(0, equals);
  const Json value(word.text.substr(equals + 1));
  bool counts = true;
  if (name == "CUDA_VISIBLE_DEVICES" && part.processes.per_node == 0 && word.whole) {
    part.processes.per_node = commas_of(value.as_string());
  } else if (name == "NPROC_PER_NODE") {
    part.processes.per_node = count_of(value);
  } else if (name == "NNODES") {
    part.processes.nodes = count_of(value);
  } else if (name == kThreads) {
    part.processes.threads = count_of(value);
  } else if (expands_segments(word.text)) {
    part.processes.expandable_segments = true;
  } else if (is_about_the_network(name)) {
    part.network.push_back({name, value, file, word.line});
    return;
  } else if (changes_the_runtime(name)) {
    return leave_unread(word.text, file, word.line, part);
  } else {
    counts = false;
  }
  (counts ? part.counted : part.unused).push_back({name, value, file, word.line});
}

// --- launchers

struct Launcher {
  std::string_view name;
  Tool tool;
  // Switches without a value among its own options; every other option takes one.
  std::string_view switches;
};
constexpr std::array kLaunchers = {
    Launcher{"deepspeed",
             Tool::trainer,
             " no_python module no_local_rank no_ssh no_ssh_check force_multi save_pid "
             "enable_each_rank_log bind_cores_to_rank elastic_training "},
    Launcher{"torchrun", Tool::trainer, " standalone no_python m module run_path "},
    Launcher{"accelerate",
             Tool::trainer,
             " multi_gpu use_deepspeed use_fsdp quiet cpu m module no_python debug "
             "same_network tpu mps rdzv_conf_static "},
};

// Walks over one command.
class CommandReader {
 public:
  CommandReader(const Command& command, const std::string& file, const Part& job)
      : words_(command.words), file_(file), part_(job) {}

  // Whether the command starts a training; then part() is what it says.
  bool read() {
    read_environment();
    skip_wrappers();
    if (at_ >= words_.size()) return false;
    std::string program = base_name(words_[at_].text);
    if (is_python(program)) {
      if (!skip_python_module()) {
        ++at_;
        return read_script_and_arguments();
      }
      program = base_name(words_[at_].text);
    }
    ++at_;
    if (program == "llamafactory-cli") return read_tool(Tool::llama_factory);
    if (program == "axolotl" || program == "axolotl.cli.train") return read_tool(Tool::axolotl);
    if (program == "trl") return read_trl();
    if (program == "swift") return read_swift();
    if (program == "xtuner") refuse_xtuner();
    for (const Launcher& launcher : kLaunchers) {
      if (launcher.name != program) continue;
      if (program == "accelerate" && take_word() != "launch") return false;
      read_launcher(launcher);
      set_threads(launcher.name);
      return read_script_and_arguments();
    }
    return false;
  }

  Part part() { return std::move(part_); }

 private:
  static bool is_python(std::string_view program) { return program.starts_with("python"); }

  std::string take_word() { return at_ < words_.size() ? words_[at_++].text : ""; }

  // "CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=8 ..."
  void read_environment() {
    for (; at_ < words_.size() && is_assignment(words_[at_]); ++at_) {
      read_variable(words_[at_], file_, part_);
    }
  }

  // Programs that start another one, with their options.
  void skip_wrappers() {
    constexpr std::string_view kWrappers = "srun|nohup|exec|time|env|uv|run|poetry|singularity";
    while (at_ < words_.size()) {
      const std::string program = base_name(words_[at_].text);
      if (program == "ray" && skip_ray()) continue;
      if (!is_named_in(kWrappers, program)) return;
      ++at_;
      const std::size_t begin = at_;
      const bool slurm = program == "srun";
      while (at_ < words_.size() &&
             (is_flag(words_[at_]) || (slurm ? is_value_of_srun(at_) : is_value_of_flag(at_)))) {
        ++at_;
      }
      const std::vector<Word> options(words_.begin() + static_cast<std::ptrdiff_t>(begin),
                                      words_.begin() + static_cast<std::ptrdiff_t>(at_));
      if (slurm) read_job(job_settings(options, file_), part_);
      read_environment();
    }
  }

  // `ray job submit --address=... -- COMMAND`.
  bool skip_ray() {
    const auto from = words_.begin() + static_cast<std::ptrdiff_t>(at_);
    const auto dashes =
        std::find_if(from, words_.end(), [](const Word& word) { return word.text == "--"; });
    if (dashes == words_.end()) return false;
    at_ = static_cast<std::size_t>(dashes - words_.begin()) + 1;
    read_environment();
    return true;
  }

  // "-p main": a word behind an option of srun is its value, unless it starts something.
  bool is_value_of_srun(std::size_t at) const {
    constexpr std::string_view kPrograms =
        "torchrun|accelerate|deepspeed|llamafactory-cli|axolotl|trl|swift|xtuner|bash|sh|env|"
        "singularity|apptainer";
    const std::string_view word = words_[at].text;
    const std::string program = base_name(word);
    const bool starts = is_python(program) || word.find('=') != std::string_view::npos ||
                        is_named_in(kPrograms, program);
    return is_flag(words_[at - 1]) && words_[at - 1].text.find('=') == std::string::npos && !starts;
  }

  // "-N 2" before a program: a number, or a word behind a flag of one letter.
  bool is_value_of_flag(std::size_t at) const {
    return at > 0 && is_flag(words_[at - 1]) &&
           words_[at - 1].text.find('=') == std::string::npos &&
           count_of(Json(words_[at].text)) > 0;
  }

  // "python -m torch.distributed.run": stands then at the module as if it were the program.
  bool skip_python_module() {
    struct Module {
      std::string_view module, program;
    };
    constexpr std::array kModules = {Module{"torch.distributed.run", "torchrun"},
                                     Module{"torch.distributed.launch", "torchrun"},
                                     Module{"accelerate.commands.launch", "accelerate"},
                                     Module{"deepspeed.launcher.runner", "deepspeed"},
                                     Module{"axolotl.cli.train", "axolotl"},
                                     Module{"llamafactory.cli", "llamafactory-cli"},
                                     Module{"swift.cli.main", "swift"}};
    for (std::size_t i = at_ + 1; i + 1 < words_.size() && is_flag(words_[i]); ++i) {
      if (words_[i].text != "-m") continue;
      for (const Module& known : kModules) {
        if (words_[i + 1].text != known.module) continue;
        at_ = i + 1;
        words_[at_].text = known.program;
        // `accelerate launch` and `axolotl train` have a word that the module has not.
        if (known.program == "accelerate")
          words_.insert(words_.begin() + static_cast<std::ptrdiff_t>(at_) + 1,
                        {"launch", words_[at_].line, true});
        if (known.program == "axolotl")
          words_.insert(words_.begin() + static_cast<std::ptrdiff_t>(at_) + 1,
                        {"train", words_[at_].line, true});
        return true;
      }
      return false;
    }
    return false;
  }

  void read_launcher(const Launcher& launcher) {
    while (at_ < words_.size() && is_flag(words_[at_])) {
      const Word& word = words_[at_++];
      std::string name = plain_name(word.text.substr(0, word.text.find('=')));
      if (launcher.switches.find(" " + name + " ") != std::string_view::npos) {
        if (name == "m" || name == "module") return;
        if (name == "use_fsdp") {
          keep("use_fsdp", Json(true), word);
        } else {
          list(false, name, word, Json(true));
        }
        continue;
      }
      const std::size_t equals = word.text.find('=');
      Word value = word;
      if (equals != std::string::npos) {
        value.text = word.text.substr(equals + 1);
      } else if (at_ < words_.size()) {
        value = words_[at_++];
      }
      launcher_option(name, value);
    }
  }

  // torchrun gives several processes a node one thread each where the environment says nothing
  // (torch/distributed/run.py config_from_args), and accelerate starts DeepSpeed's processes by it,
  // whatever --num_cpu_threads_per_process says (commands/launch.py deepspeed_launcher); deepspeed
  // leaves it alone.
  void set_threads(std::string_view launcher) {
    Processes& processes = part_.processes;
    if (launcher == "deepspeed" || processes.threads > 0) return;
    const std::int64_t nodes = std::max<std::int64_t>(processes.nodes, 1);
    if (processes.per_node < 2 && processes.all <= nodes) return;
    processes.threads = 1;
    processes.threads_launcher = launcher;
  }

  void launcher_option(const std::string& name, const Word& value) {
    const Json text(value.text);
    Processes& processes = part_.processes;
    bool counts = true;
    if (name == "nproc_per_node" || name == "num_gpus") {
      unresolved(name, value);
      processes.per_node = count_of(text);
      if (processes.nodes == 0) processes.nodes = 1;
    } else if (name == "nnodes" || name == "num_nodes" || name == "num_machines") {
      unresolved(name, value);
      processes.nodes = count_of(text);
    } else if (name == "num_processes") {
      unresolved(name, value);
      processes.all = count_of(text);
    } else if (name == "include" && value.text.find(':') != std::string::npos &&
               value.text.find('@') == std::string::npos) {
      processes.per_node = commas_of(value.text);
      processes.nodes = 1;
    } else if (name == "config_file") {
      part_.files.push_back({name, text, file_, value.line});
      return;  // its lines are listed under its own name
    } else if (is_named_in(kOfDsConfig, name) || name == "deepspeed_config_file" ||
               name == "mixed_precision" || name == "zero3_init_flag" ||
               name == "fsdp_cpu_ram_efficient_loading") {
      return keep("accelerate." + name, text, value);
    } else {
      counts = false;
    }
    list(counts, name, value, text);
  }

  // What says how many processes start, and what of the launcher is not used.
  void list(bool counts, const std::string& name, const Word& at, const Json& value) {
    (counts ? part_.counted : part_.unused).push_back({name, value, file_, at.line});
  }

  void unresolved(const std::string& name, const Word& value) {
    if (!value.whole) not_whole(name, value);
  }

  void not_whole(const std::string& name, const Word& value) {
    leave_unread(name + " " + value.text, file_, value.line, part_);
  }

  void keep(const std::string& name, Json value, const Word& at) {
    part_.settings.push_back({name, std::move(value), file_, at.line});
  }

  // The script's name, then its arguments; of a module the same.
  bool read_script_and_arguments() {
    if (at_ >= words_.size()) return false;
    if (words_[at_].text == "-m") ++at_;
    if (at_ >= words_.size()) return false;
    const std::string script = base_name(words_[at_].text);
    if (script == "train.py" && words_[at_].text.find("llamafactory") != std::string::npos) {
      part_.tool = Tool::llama_factory;
    }
    const std::string openrlhf = command_of_openrlhf(words_[at_].text);
    if (words_[at_].text == "verl.trainer.main_ppo") part_.tool = Tool::verl;
    if (openrlhf.empty()) {
      keep("script", Json(words_[at_].text), words_[at_]);
    } else {
      part_.tool = Tool::openrlhf;
      keep("openrlhf", Json(openrlhf), words_[at_]);
    }
    ++at_;
    read_arguments();
    if (has_own_arguments(part_.tool)) take_ray_options(part_);
    // python prepare.py starts no training.
    return part_.settings.size() > 1 || !part_.files.empty();
  }

  bool read_tool(Tool tool) {
    const std::string action = take_word();
    if (action != "train" && !action.ends_with(".yaml") && !action.ends_with(".yml")) return false;
    part_.tool = tool;
    if (action != "train") --at_;
    read_arguments();
    take_launcher_options();
    return true;
  }

  bool read_trl() {
    if (at_ >= words_.size()) return false;
    keep("trl", Json(words_[at_].text), words_[at_]);
    ++at_;
    read_arguments();
    take_launcher_options();
    return true;
  }

  // `swift sft --model ...`, `swift rlhf --rlhf_type dpo`, with NPROC_PER_NODE in front.
  bool read_swift() {
    if (at_ >= words_.size()) return false;
    const std::string action = words_[at_].text;
    if (action != "sft" && action != "pt" && action != "rlhf") return false;
    part_.tool = Tool::swift;
    keep("swift", Json(action), words_[at_]);
    ++at_;
    read_arguments();
    set_threads("torchrun");
    return true;
  }

  [[noreturn]] void refuse_xtuner() {
    throw InputError({file_,
                      "line " + std::to_string(words_[at_ - 1].line),
                      "a training whose settings stand in YAML, JSON or arguments",
                      "xtuner, whose recipes are Python",
                      "say its numbers as flags, or rehearse it: zeroplan rehearse --gpu NAME -- "
                      "COMMAND"});
  }

  // `trl sft --num_processes 8`, `axolotl train a.yaml --launcher torchrun -- --nproc_per_node=8`:
  // options that the tool hands on to the launcher.
  void take_launcher_options() {
    constexpr std::string_view kNames =
        "num_processes|num_machines|nproc_per_node|nnodes|accelerate_config|launcher";
    std::string_view launcher = part_.tool == Tool::axolotl ? "accelerate" : "";
    std::erase_if(part_.settings, [&](const Setting& setting) {
      if (!is_named_in(kNames, setting.name)) return false;
      const Word value{text_of(setting.value), setting.line, true};
      if (setting.name == "launcher") {
        // Slurm starts the processes itself, and sets no threads for them.
        launcher = value.text == "torchrun" ? "torchrun"
                   : value.text == "slurm"  ? ""
                                            : "accelerate";
        list(false, setting.name, value, setting.value);
      } else {
        launcher_option(setting.name == "accelerate_config" ? "config_file" : setting.name, value);
      }
      return true;
    });
    if (part_.settings.size() > 1 && part_.settings.front().name == "trl") launcher = "accelerate";
    if (!launcher.empty()) set_threads(launcher);
  }

  void read_arguments() {
    while (at_ < words_.size()) {
      const Word word = words_[at_++];
      if (!is_flag(word)) {
        const bool document = word.text.ends_with(".yaml") || word.text.ends_with(".yml") ||
                              word.text.ends_with(".json");
        // `llamafactory-cli train a.yaml learning_rate=1e-5`, Hydra's "+data.seed=1".
        const std::size_t said = word.text.find('=');
        const bool overrides = part_.tool == Tool::llama_factory || part_.tool == Tool::verl;
        const std::size_t name = std::min(word.text.find_first_not_of('+'), said);
        if (overrides && said != std::string::npos && word.whole) {
          keep(word.text.substr(name, said - name), Json(word.text.substr(said + 1)), word);
        } else if (document) {
          part_.files.push_back({"file", Json(word.text), file_, word.line});
        } else {
          list(false, word.text, word, "");
        }
        continue;
      }
      const std::size_t equals = word.text.find('=');
      const std::string name = plain_name(word.text.substr(0, equals));
      Word value{"true", word.line, true};
      std::vector<std::string> several;
      if (equals != std::string::npos) {
        value = {word.text.substr(equals + 1), word.line, word.whole};
      } else if (at_ < words_.size() && !is_flag(words_[at_])) {
        value = words_[at_++];
        several = {value.text};
        while (at_ < words_.size() && !is_flag(words_[at_])) {
          several.push_back(words_[at_++].text);
          value.text += " " + several.back();
        }
      }
      if (!value.whole) {
        not_whole(name, {value.text, word.line, false});
        continue;
      }
      if (name == "config" && (value.text.ends_with(".yaml") || value.text.ends_with(".yml"))) {
        part_.files.push_back({"file", Json(value.text), file_, word.line});
      } else {
        keep(name, Json(value.text), word);
        if (several.size() > 1) part_.settings.back().words = std::move(several);
      }
    }
  }

  std::vector<Word> words_;
  const std::string& file_;
  Part part_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<Part> read_launches(std::string_view text, const std::string& file) {
  // The job's lines come first, for what they say of the environment.
  Part job;
  read_job(job_settings(read_script(text, {}, file).sbatch, file), job);
  const Script script = read_script(text, environment_of(job.processes), file);
  std::vector<Part> parts;
  for (const Command& command : script.commands) {
    const bool exports = command.words.front().text == "export";
    const std::size_t unused = job.unused.size();
    for (const Word& word : command.words) {
      if (exports && is_assignment(word)) read_variable(word, file, job);
    }
    job.unused.resize(unused);  // what else is exported is for other lines of the script
    CommandReader reader(command, file, job);
    if (reader.read()) parts.push_back(reader.part());
  }
  return parts;
}

}  // namespace zeroplan::foreign
