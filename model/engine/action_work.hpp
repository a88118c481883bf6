// What one EngineAction moves and computes, without time: the price list of the policies. The
// simulator makes tasks of it, the analytic estimate and the search's lower bounds sums.
//
// Left out: what a collective sends, which its group decides (EngineCollective), and what the
// embedded runtime does in one pass where DeepSpeed takes two.
#pragma once

#include <cstdint>

#include "base/units.hpp"
#include "model/engine/engine_action.hpp"
#include "model/engine/engine_config.hpp"

namespace zeroplan {

enum class WorkKind {
  none,
  kernels,        // on the GPU, one after the other on the action's stream
  gpu_update,     // the optimizer's
  muon_update,    // orthogonalises `matrices`
  muon_addition,  // weight decay, and the update added to the weights
  cpu_update,
  host_pass,  // of the CPU's threads over host memory, other than the update
  copy_to_host,
  copy_to_device,
  nvme_read,
  nvme_write
};

struct ActionWork {
  WorkKind kind = WorkKind::none;
  const char* name = "";     // of the kernels, or of the pass on the host
  Bytes bytes;               // kernels, host_pass: read and written in all; the others: moved
  std::int64_t kernels = 0;  // how many
  Elements cast;             // kernels, host_pass: change between fp32 and the model's type
  Elements updated;          // by the optimizer
  MuonMatrices matrices;
  Bytes new_pages;            // host_pass: memory that the process touches for the first time
  bool copies_alone = false;  // the node's other ranks do not copy meanwhile
};

// Sources: those of the files that write the actions. Checked by tests/engine/action_work_test.cpp.
ActionWork action_work(const EngineConfig& config, const EngineAction& action);

// Bytes that one action makes on the GPU while it runs: the fp64 copy of a norm, copies and masks
// of an overflow scan, the optimizer's own temporaries, the cast of an offloaded gradient.
Bytes action_temporaries(const EngineConfig& config, const EngineAction& action);

}  // namespace zeroplan
