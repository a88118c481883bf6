#include "foreign/processes.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "model/hardware/known_hardware.hpp"

namespace zeroplan::foreign {
namespace {

// "gpu:a100:8", "a100:8", "8".
void read_gpus(std::string_view text, Processes& processes) {
  if (text.starts_with("gpu:")) text.remove_prefix(4);
  const std::size_t colon = text.rfind(':');
  if (colon != std::string_view::npos) processes.gpu = std::string(text.substr(0, colon));
  processes.per_node =
      count_of(Json(colon == std::string_view::npos ? text : text.substr(colon + 1)));
}

// Bytes of "60G" eight times; 0 where that is no amount. Slurm's units are powers of 1024, M where
// none is said.
std::int64_t slurm_memory(const std::string& text, std::int64_t times) {
  const std::size_t unit = std::min(text.find_first_of("MGT"), text.size());
  const char letter = unit == text.size() ? 'M' : text[unit];
  const int bits = letter == 'M' ? 20 : letter == 'G' ? 30 : 40;
  constexpr std::int64_t kMost = 1'000'000'000'000'000'000;
  const std::int64_t most = kMost >> bits;  // of these units
  const std::int64_t count = count_of(Json(text.substr(0, unit)));
  if (times <= 0 || count > most / times) return 0;
  return (count * times) << bits;
}

}  // namespace

std::vector<Setting> job_settings(const std::vector<Word>& words, const std::string& file) {
  std::vector<Setting> settings;
  const auto add = [&](const std::string& flag, const std::string& value, int line) {
    settings.push_back({flag, Json(value), file, line});
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i].text;
    const int line = words[i].line;
    if (!is_flag(words[i])) continue;
    const std::size_t equals = word.find('=');
    const bool one_letter = word[1] != '-';
    if (equals != std::string::npos) {
      add(word.substr(0, equals), word.substr(equals + 1), line);
    } else if (one_letter && word.size() > 2) {
      add(word.substr(0, 2), word.substr(2), line);
    } else if (i + 1 < words.size() && !is_flag(words[i + 1])) {
      add(word, words[i + 1].text, line);
    } else {
      add(word, "", line);
    }
  }
  return settings;
}

void leave_unread(const std::string& what, const std::string& file, int line, Part& part) {
  part.unread.emplace_back(file + ":" + std::to_string(line) + ": " + what);
}

void read_job(const std::vector<Setting>& settings, Part& part) {
  Processes& processes = part.processes;
  std::int64_t tasks = 0;
  const Setting* of_gpu = nullptr;  // host memory
  for (const Setting& setting : settings) {
    const std::string& flag = setting.name;
    const std::string value = text_of(setting.value);
    bool counts = true;
    if (flag == "--nodes" || flag == "-N") {
      processes.nodes = count_of(Json(value));
    } else if (flag == "--gpus-per-node" || flag == "--gpus-per-task" ||
               (flag == "--gres" && value.starts_with("gpu"))) {
      read_gpus(value, processes);
    } else if (flag == "--gpus" || flag == "-G") {
      Processes all;
      read_gpus(value, all);
      processes.all = all.per_node;
      if (!all.gpu.empty()) processes.gpu = all.gpu;
    } else if (flag == "--ntasks-per-node") {
      tasks = count_of(Json(value));
    } else if (flag == "--mem" && slurm_memory(value, 1) > 0) {
      processes.host_memory = slurm_memory(value, 1);
    } else if (flag == "--mem-per-gpu") {
      of_gpu = &setting;
      continue;
    } else if (flag.starts_with("--mem") && value != "0") {
      leave_unread(flag + " " + value, setting.file, setting.line, part);
      continue;
    } else {
      counts = false;
    }
    (counts ? part.counted : part.unused).push_back(setting);
  }
  if (processes.per_node == 0 && tasks > 1) processes.per_node = tasks;
  if (processes.per_node > 0 && processes.nodes == 0) processes.nodes = 1;
  if (of_gpu == nullptr) return;
  const std::int64_t gpus = processes.per_node > 0
                                ? processes.per_node
                                : processes.all / std::max<std::int64_t>(processes.nodes, 1);
  const std::string value = text_of(of_gpu->value);
  const std::int64_t memory = slurm_memory(value, gpus);
  if (memory == 0) {
    return leave_unread(of_gpu->name + " " + value, of_gpu->file, of_gpu->line, part);
  }
  processes.host_memory = memory;
  part.counted.push_back(*of_gpu);
}

std::map<std::string, std::string> environment_of(const Processes& processes) {
  std::map<std::string, std::string> known;
  const auto say = [&](std::initializer_list<const char*> names, std::int64_t count) {
    if (count <= 0) return;
    for (const char* name : names) known[name] = std::to_string(count);
  };
  say({"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}, processes.nodes);
  say({"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"}, processes.per_node);
  return known;
}

void take_ray_options(Part& part) {
  constexpr std::string_view kNodes = "actor.num_nodes|actor_num_nodes|trainer.nnodes";
  constexpr std::string_view kGpus =
      "actor.num_gpus_per_node|actor_num_gpus_per_node|trainer.n_gpus_per_node";
  std::erase_if(part.settings, [&](const Setting& setting) {
    const bool nodes = is_named_in(kNodes, setting.name);
    if (!nodes && !is_named_in(kGpus, setting.name)) return false;
    (nodes ? part.processes.nodes : part.processes.per_node) = count_of(setting.value);
    part.counted.push_back(setting);
    return true;
  });
}

void add_processes(const Part& part, Meaning& meaning) {
  const auto add = [](const std::vector<Setting>& settings, bool counts, auto& lines) {
    for (const Setting& one : settings) {
      const char* as = !counts                           ? ""
                       : one.name.starts_with("--mem")   ? "--host-memory"
                       : one.name == kThreads            ? "--omp-num-threads"
                       : one.name.starts_with("PYTORCH") ? "--expandable-segments"
                                                         : "CLUSTER";
      lines.push_back({one.file, one.line, one.name + ": " + text_of(one.value), as});
    }
  };
  add(part.counted, true, meaning.read);
  add(part.unused, false, meaning.unused);
  const bool one_host = part.processes.nodes == 1;
  if (one_host) add(part.network, false, meaning.unused);
  for (const Setting& one : part.network) {
    if (one_host) break;
    meaning.assumed.push_back(
        phrase("{}={}: between hosts the network is as fast as the cluster says, whatever NCCL is "
               "told to take (--network)",
               one.name,
               text_of(one.value)));
  }
  Processes& all = meaning.processes;
  const Processes& said = part.processes;
  if (all.nodes == 0) all.nodes = said.nodes;
  if (all.per_node == 0) all.per_node = said.per_node;
  if (all.all == 0) all.all = said.all;
  if (all.gpu.empty()) all.gpu = said.gpu;
  if (all.threads == 0) {
    all.threads = said.threads;
    all.threads_launcher = said.threads_launcher;
  }
  all.expandable_segments = all.expandable_segments || said.expandable_segments;
  if (all.host_memory == 0) all.host_memory = said.host_memory;
}

std::string cluster_of(const Processes& processes) {
  std::int64_t nodes = std::max<std::int64_t>(processes.nodes, 1);
  std::int64_t per_node = processes.per_node;
  if (processes.all > 0 && (per_node == 0 || nodes * per_node != processes.all)) {
    if (processes.all % nodes != 0) nodes = 1;
    per_node = processes.all / nodes;
  }
  if (per_node == 0) return "";
  return std::to_string(nodes) + "x" + std::to_string(per_node) +
         (processes.gpu.empty() ? "" : "x" + processes.gpu);
}

std::optional<std::string> cluster_with(Processes started, const ExplicitValue* said) {
  if (said == nullptr || !said->value.is_string() || !find_gpu(said->value.as_string(), 1)) {
    return std::nullopt;
  }
  started.gpu = said->value.as_string();
  const std::string cluster = cluster_of(started);
  return cluster.empty() ? std::nullopt : std::optional(cluster);
}

}  // namespace zeroplan::foreign
