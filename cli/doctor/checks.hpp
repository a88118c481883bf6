// What is wrong with a machine, each with the reason and the command that repairs it. Sources stand
// at the checks: launch and build code of DeepSpeed and PyTorch, and the issues people reported.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "cli/doctor/machine.hpp"
#include "model/hardware/hardware.hpp"
#include "model/knobs/finding.hpp"

namespace zeroplan::cli {

// What a plan needs of the machine.
struct PlanNeeds {
  std::int64_t gpus = 1;  // of this host
  std::string gpu_name;
  std::int64_t nodes = 1;
  Bytes host_memory;    // of this host, at the peak
  Bytes pinned_memory;  // of it
  bool bf16 = false;
  bool cpu_optimizer = false;
  Bytes nvme;  // of this host
  BytesPerSecond nvme_read = BytesPerSecond::zero();
};

struct DoctorFinding {
  Severity severity = Severity::warning;
  std::string code;  // "extension-lock"
  Phrase message;    // what was found
  Phrase reason;     // what it does to a run
  Phrase fix;        // a command where there is one
};

// Errors first. Without a plan what needs one is left out.
std::vector<DoctorFinding> examine(const MachineState& machine,
                                   const std::optional<PlanNeeds>& needs);

}  // namespace zeroplan::cli
