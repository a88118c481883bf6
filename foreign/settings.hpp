// What a file that starts a training somewhere else says, one setting a line, before anybody knows
// what it means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.hpp"
#include "base/json.hpp"
#include "base/phrase.hpp"
#include "base/written_names.hpp"
#include "foreign/setting_values.hpp"

namespace zeroplan::foreign {

// "per_device_train_batch_size: 4", "--lora_r 8". Names have underscores; a value of a command line
// is a text, of a document what it is there.
struct Setting {
  std::string name;
  Json value;
  std::string file;
  int line = 0;
  std::vector<std::string> words = {};  // of a command line's value that is several
};

inline constexpr std::string_view kThreads = "OMP_NUM_THREADS";

// How many processes start, as far as the file says; 0 where it does not.
struct Processes {
  std::int64_t nodes = 0;
  std::int64_t per_node = 0;
  std::int64_t all = 0;
  std::string gpu;               // "a100" of --gres=gpu:a100:8
  std::int64_t threads = 0;      // OMP_NUM_THREADS of each, as the script or its launcher sets it
  std::string threads_launcher;  // whose own number that is; empty: the script's
  bool expandable_segments = false;  // of PYTORCH_CUDA_ALLOC_CONF
  std::int64_t host_memory = 0;      // bytes of a node: what Slurm lets a job have
};

// The tools whose files and commands are known.
enum class Tool { trainer, llama_factory, axolotl, accelerate, swift, openrlhf, verl };
inline constexpr EnumNames<Tool, 7> kToolNames{
    {"trainer", "llama-factory", "axolotl", "accelerate", "swift", "openrlhf", "verl"}};
// Their arguments are all in rows of their own: what others have is unknown to them.
inline constexpr bool has_own_arguments(Tool tool) {
  return tool == Tool::openrlhf || tool == Tool::verl;
}

// Settings of one tool, and other files that it reads.
struct Part {
  Tool tool = Tool::trainer;
  std::vector<Setting> settings;
  std::vector<Setting> files;  // value: a path as it is written
  Processes processes;
  std::vector<Setting> counted;  // what `processes` was made of
  std::vector<Setting> network;  // variables of NCCL about the network between hosts
  std::vector<Setting> unused;   // of the launcher and the job: where and under which name it runs
  std::vector<Phrase> unread;    // what could not be followed
};

// `names` are separated by '|'.
inline bool is_named_in(std::string_view names, std::string_view name) {
  return !first_name(names, [&](std::string_view one) { return one == name; }).empty();
}

// The keys of accelerate's section that its ds_config is made of.
inline constexpr std::string_view kOfDsConfig =
    "zero_stage|offload_optimizer_device|offload_param_device|offload_optimizer_nvme_path|"
    "offload_param_nvme_path|zero3_save_16bit_model|gradient_clipping|gradient_accumulation_steps";

// What a program that starts trainings has at most of each: files that people write are far
// smaller, and what comes behind the readers takes time and memory by it.
inline constexpr std::int64_t kMostText = 1 << 20;
inline constexpr std::size_t kMostSettings = 4096;

}  // namespace zeroplan::foreign
