// `zeroplan profile`: what this machine reaches, measured, as a profile for --profile
// (model/cost/profile.hpp) with the tables behind it.
//
// Every row is a median with quartiles, warm-up discarded. `isolated`: alone after a pause;
// `sustained`: the last half of a loop without pauses. The CPU's part: memory, the embedded
// runtime's kernels and AdamW by threads, its in-process collectives, copies, a drive. The GPU's
// part, where one is measured: gpu_profile.hpp; else the document says why not.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "runtime/profile/gpu_profile.hpp"
#include "runtime/profile/profile_row.hpp"
#include "runtime/profile/profile_scale.hpp"

namespace zeroplan::runtime {

struct MachineOptions {
  bool quick = false;     // under a minute
  std::string nvme_path;  // a folder on the drive to measure; empty: none
  std::string name;       // of the profile; empty: the processor's
  std::string date;       // "2026-11-22"
  std::function<void(const std::string&)> progress;  // what is measured next; may be empty
  // For tests: sizes and times far too small to mean anything.
  bool tiny = false;
  // Measures the GPUs; empty: none, for this reason.
  std::function<GpuFindings(const GpuScale&)> gpus;
  std::string no_gpu;
};

// What the machine says of itself (/proc, sysconf).
struct MachineFacts {
  std::string cpu;
  std::int64_t cores = 1;    // physical, or logical where nobody says
  std::int64_t logical = 1;  // that this process may use
  std::int64_t sockets = 1;
  std::int64_t memory_bytes = 0;
  std::int64_t last_cache_bytes = 0;
  double megahertz = 0.0;  // now; 0 where nobody says
};
MachineFacts machine_facts();

// Throws InputError where nvme_path is no folder that can be written to.
Json measure_machine(const MachineOptions& options);

ProfileScale scale_of(const MachineOptions& options, const MachineFacts& facts);

// The parts, each a list of rows.
std::vector<ProfileRow> measure_host_memory(const ProfileScale& scale);
std::vector<ProfileRow> measure_cpu_adam(const ProfileScale& scale);
std::vector<ProfileRow> measure_kernels(const ProfileScale& scale);
std::vector<ProfileRow> measure_collectives(const ProfileScale& scale);
// Casts, new memory, AdamW in caches.
std::vector<ProfileRow> measure_engine_work(const ProfileScale& scale);
std::vector<ProfileRow> measure_drive(const ProfileScale& scale, const std::string& folder);

}  // namespace zeroplan::runtime
