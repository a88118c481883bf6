#include "runtime/profile/machine_profile.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/diagnostic.hpp"
#include "base/parallel_for.hpp"
#include "model/cost/profile.hpp"
#include "runtime/device/device.hpp"
#include "runtime/profile/cpu_values.hpp"

namespace zeroplan::runtime {
namespace {

std::int64_t system_number(int name) {
  const long value = sysconf(name);
  return value > 0 ? value : 0;
}

std::string after_colon(const std::string& line) {
  const std::size_t colon = line.find(": ");
  return colon == std::string::npos ? "" : line.substr(colon + 2);
}

double clock_now() { return machine_facts().megahertz; }

// What the rows say in the model's terms.
class Values {
 public:
  Values(const std::vector<ProfileRow>& rows,
         const MachineFacts& facts,
         const std::string& folder,
         ValueList& list)
      : rows_(rows), facts_(facts), list_(list) {
    machine();
    adam();
    if (!folder.empty()) drive(folder);
  }

 private:
  void machine() {
    if (facts_.memory_bytes > 0) {
      list_.figure("host_memory_bytes",
                   static_cast<double>(facts_.memory_bytes),
                   0.0,
                   "read: /proc/meminfo, MemTotal");
    }
    list_.figure("cpu_cores", static_cast<double>(facts_.cores), 0.0, "read: /proc/cpuinfo");
    list_.figure("cpu_sockets", static_cast<double>(facts_.sockets), 0.0, "read: /proc/cpuinfo");
    if (const ProfileRow* triad = best(rows_, "host_memory_triad")) {
      list_.figure("host_memory_bandwidth",
                   triad->spread.median,
                   triad->spread.relative_sd(),
                   "measured: STREAM triad, " + setting(*triad, "threads")->dump() +
                       " threads, what the program reads and writes");
    }
  }

  // [T14] with what was measured: the model then gives the measured rate.
  void adam() {
    const ProfileRow* const fastest = best(rows_, "cpu_adam");
    if (fastest == nullptr) return;
    const std::string who = "measured: AdamW of the embedded runtime, ";
    for (const ProfileRow& row : rows_) {
      if (row.what != "cpu_adam" || *setting(row, "threads") != Json(1)) continue;
      list_.coefficient(Coefficient::cpu_adam_parameters_per_second_per_core,
                        row.spread.median,
                        row.spread.relative_sd(),
                        who + "one thread");
    }
    const std::string all = who + setting(*fastest, "threads")->dump() + " threads";
    list_.coefficient(Coefficient::cpu_adam_process_rate,
                      fastest->spread.median,
                      fastest->spread.relative_sd(),
                      all);
    const ProfileRow* const triad = best(rows_, "host_memory_triad");
    if (triad == nullptr) return;
    passes(*triad);
    const double bytes = info(Coefficient::cpu_adam_bytes_per_parameter).value;
    list_.coefficient(
        Coefficient::cpu_adam_dram_efficiency,
        std::min(1.0, fastest->spread.median * bytes / triad->spread.median),
        std::hypot(fastest->spread.relative_sd(), triad->spread.relative_sd()),
        all + ", " + std::to_string(std::lround(bytes)) + " bytes a parameter over STREAM's triad");
  }

  // [T21]: the figure of the memory's rate is the triad of all threads itself.
  void passes(const ProfileRow& fastest) {
    for (const ProfileRow& row : rows_) {
      if (row.what != "host_memory_triad" || *setting(row, "threads") != Json(1)) continue;
      list_.coefficient(Coefficient::host_pass_rate_per_core,
                        row.spread.median,
                        row.spread.relative_sd(),
                        "measured: STREAM triad, one thread");
    }
    list_.coefficient(Coefficient::host_pass_dram_efficiency,
                      1.0,
                      fastest.spread.relative_sd(),
                      "measured: STREAM triad, whose rate host_memory_bandwidth is");
  }

  void drive(const std::string& folder) {
    const auto rate = [&](const char* what, const char* figure) {
      const ProfileRow* const row = best(rows_, what);
      if (row == nullptr) return;
      const bool direct = *setting(*row, "direct") == Json(true);
      list_.figure(figure,
                   row->spread.median,
                   row->spread.relative_sd(),
                   fmt::format("measured: blocks of {} bytes, {} requests in flight by {}, {}",
                               setting(*row, "block_bytes")->dump(),
                               setting(*row, "requests")->dump(),
                               setting(*row, "engine")->as_string(),
                               direct ? "O_DIRECT" : "through the page cache"));
    };
    rate("drive_read", "nvme_read_bandwidth");
    rate("drive_write", "nvme_write_bandwidth");
    struct statvfs state {};
    if (statvfs(folder.c_str(), &state) == 0) {
      list_.figure("nvme_capacity_bytes",
                   static_cast<double>(state.f_bavail) * static_cast<double>(state.f_frsize),
                   0.0,
                   "read: what is free in the folder");
    }
    list_.coefficient(Coefficient::nvme_efficiency,
                      1.0,
                      0.05,
                      "derived: the rates above are reached, not promised");
  }

  const std::vector<ProfileRow>& rows_;
  const MachineFacts& facts_;
  ValueList& list_;
};

std::vector<std::int64_t> thread_counts(std::int64_t most) {
  std::set<std::int64_t> counts = {most};
  for (std::int64_t n = 1; n < most; n *= 2) counts.insert(n);
  return {counts.begin(), counts.end()};
}

Json facts_json(const MachineFacts& facts, Json gpus) {
  return Json::object({{"cpu", facts.cpu},
                       {"cores", facts.cores},
                       {"threads", facts.logical},
                       {"sockets", facts.sockets},
                       {"memory_bytes", facts.memory_bytes},
                       {"last_cache_bytes", facts.last_cache_bytes},
                       {"gpus", std::move(gpus)}});
}

// What is said of the GPUs; their rows go to `tables`, what they mean to `list`.
Json measure_gpu_part(const MachineOptions& options,
                      const std::vector<ProfileRow>& rows,
                      Json& tables,
                      ValueList& list) {
  std::string why = options.no_gpu;
  if (options.gpus) {
    try {
      const GpuFindings found = options.gpus(gpu_scale(options.quick, options.tiny));
      for (const ProfileRow& row : found.rows) tables.push_back(row_json(row, 0.0));
      const ProfileRow* const triad = best(rows, "host_memory_triad");
      gpu_values(found, triad != nullptr ? triad->spread.median : 0.0, list);
      return to_json(found.facts);
    } catch (const std::exception& problem) {  // what the CPU gave is not lost
      why = problem.what();
    }
  }
  list.note("no GPU was measured (" + why + "): coefficients of GPUs stay the built-in ones");
  return "not measured";
}

}  // namespace

MachineFacts machine_facts() {
  MachineFacts facts;
  facts.logical = machine_threads();
  std::ifstream cpus("/proc/cpuinfo");
  std::set<std::string> cores, sockets;
  std::string socket;
  for (std::string line; std::getline(cpus, line);) {
    const std::string value = after_colon(line);
    if (line.starts_with("model name")) facts.cpu = value;
    if (line.starts_with("physical id")) sockets.insert(socket = value);
    if (line.starts_with("core id")) cores.insert(socket + "/" + value);
    if (line.starts_with("cpu MHz")) {
      facts.megahertz = std::max(facts.megahertz, std::strtod(value.c_str(), nullptr));
    }
  }
  facts.cores = cores.empty() ? facts.logical : static_cast<std::int64_t>(cores.size());
  facts.sockets = std::max<std::int64_t>(1, static_cast<std::int64_t>(sockets.size()));
  facts.memory_bytes = system_number(_SC_PHYS_PAGES) * system_number(_SC_PAGESIZE);
  facts.last_cache_bytes = system_number(_SC_LEVEL3_CACHE_SIZE);
  return facts;
}

ProfileScale scale_of(const MachineOptions& options, const MachineFacts& facts) {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  ProfileScale scale;
  scale.threads = thread_counts(facts.logical);
  // Each array four times the last cache (STREAM's rule; quick: one, so that three of them are
  // larger), all of them at most a quarter of memory.
  const std::int64_t least = options.quick ? 64 * kMiB : 256 * kMiB;
  const std::int64_t room = facts.memory_bytes > 0 ? facts.memory_bytes / 12 : least;
  const std::int64_t caches = options.quick ? 1 : 4;
  scale.memory_bytes = std::min(std::max(least, caches * facts.last_cache_bytes), room);
  scale.parameters = scale.memory_bytes / 4;  // each of four arrays as large as STREAM's
  scale.file_bytes = options.quick ? 128 * kMiB : 1024 * kMiB;
  scale.largest_message = options.quick ? 16 * kMiB : 256 * kMiB;
  scale.tokens = options.quick ? 128 : 256;
  scale.hidden = options.quick ? std::vector<std::int64_t>{768, 1536}
                               : std::vector<std::int64_t>{768, 2048, 4096};
  scale.repetition.long_enough = Seconds::of(options.quick ? 0.1 : 0.5);
  scale.repetition.discard = options.quick ? 1 : 2;
  scale.repetition.least = options.quick ? 3 : 7;
  scale.repetition.patience = Seconds::of(options.quick ? 1.0 : 5.0);
  scale.sustained = Seconds::of(options.quick ? 0.3 : 5.0);
  if (options.tiny) {
    scale.threads = {1, 2};
    scale.memory_bytes = kMiB;
    scale.parameters = kMiB / 4;
    scale.file_bytes = kMiB;
    scale.largest_message = kMiB / 16;
    scale.tokens = 16;
    scale.hidden = {32};
    scale.repetition.long_enough = scale.sustained = Seconds::zero();
  }
  return scale;
}

Json measure_machine(const MachineOptions& options) {
  const MachineFacts facts = machine_facts();
  const ProfileScale scale = scale_of(options, facts);
  Json tables = Json::array();
  std::vector<ProfileRow> rows;
  const auto part = [&](const char* what, const std::function<std::vector<ProfileRow>()>& measure) {
    if (options.progress) options.progress(what);
    std::vector<ProfileRow> found = measure();
    const double megahertz = clock_now();
    for (ProfileRow& row : found) {
      tables.push_back(row_json(row, megahertz));
      rows.push_back(std::move(row));
    }
  };
  if (!options.nvme_path.empty()) {
    part("the drive", [&] { return measure_drive(scale, options.nvme_path); });
  }
  part("host memory", [&] { return measure_host_memory(scale); });
  part("AdamW on the CPU", [&] { return measure_cpu_adam(scale); });
  part("kernels on the CPU", [&] { return measure_kernels(scale); });
  part("the engine on the CPU", [&] { return measure_engine_work(scale); });
  part("collectives between CPU ranks", [&] { return measure_collectives(scale); });

  ValueList list;
  Values(rows, facts, options.nvme_path, list);
  cpu_values(rows, facts.logical, list);
  Json gpus = measure_gpu_part(options, rows, tables, list);
  if (options.nvme_path.empty()) list.note("no drive was measured: --nvme-path FOLDER does");
  if (options.quick) list.note("--quick: fewer repetitions, smaller shapes");
  return Json::object(
      {{"schema", "zeroplan.profile/1"},
       {"name",
        options.name.empty() ? (facts.cpu.empty() ? "this machine" : facts.cpu) : options.name},
       {"date", options.date},
       {"provenance", options.quick ? "zeroplan profile --quick" : "zeroplan profile"},
       {"machine", facts_json(facts, std::move(gpus))},
       {"values", list.values},
       {"measurements", tables},
       {"notes", list.notes}});
}

}  // namespace zeroplan::runtime
