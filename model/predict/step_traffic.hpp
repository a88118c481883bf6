// What the engine moves in one optimizer step and when: the sizes of its own buckets and fetches
// (model/engine), message by message, so that no formula of a volume is written twice.
#pragma once

#include <optional>
#include <vector>

#include "model/cost/collective.hpp"
#include "model/engine/engine_action.hpp"
#include "model/predict/step_work.hpp"

namespace zeroplan {

// Collectives of one kind, size and group; `bytes` is the full tensor.
struct Message {
  Collective kind = Collective::all_gather;
  Bytes bytes;
  CollectiveGroup group;
};

enum class StepTaskKind {
  compute,  // pass `pass` of micro_batch(graph)
  gather,   // a collective that a pass waits for: the next one, or with `ahead` a later one
  reduce,   // a collective of gradients that are complete
};

struct StepTask {
  StepTaskKind kind = StepTaskKind::compute;
  std::int32_t pass = -1;
  std::int32_t message = -1;  // index into StepTraffic::messages
  bool ahead = false;
  bool takes_ahead = true;        // compute: waits for what was gathered ahead before the last one
  std::int32_t module_hooks = 0;  // compute: that run Python while the pass is issued
  std::int32_t gradient_hooks = 0;  // the same
  // Bytes that kernels stream around the collective: beside the computation, and in its way; with a
  // computation: besides it.
  Bytes copied_beside;
  Bytes copied_before;
  Bytes from_host;  // copied to the GPU before a gather: offloaded weights
};

// Equal micro-steps of a window: tasks in the order in which the host issues them.
struct MicroStep {
  std::vector<StepTask> tasks;
  std::int64_t count = 1;
};

struct MessageCount {
  std::int32_t message = -1;
  std::int64_t count = 0;
};

// Equal updates by Muon.
struct MuonUpdates {
  MuonMatrices matrices;
  DType gradient = DType::bf16;
  std::int64_t count = 0;
};

// Volumes are sums over the step, per rank; message sizes are full tensors.
struct StepTraffic {
  Bytes all_reduce;
  Bytes reduce_scatter;
  Bytes all_gather_forward;
  Bytes all_gather_backward;
  Bytes all_gather_step;
  std::int64_t collectives = 0;
  std::int64_t host_events = 0;  // stage-3 gathers and reductions, for the host's time
  Bytes device_to_host;          // all of it; of these pageable:
  Bytes device_to_host_pageable;
  Bytes host_to_device;           // from pinned memory
  Bytes host_to_device_pageable;  // synchronous
  Elements cpu_optimizer;         // parameters updated by the CPU
  Bytes host_pages;               // of these passes, mapped anew
  Bytes host_passes;              // read and written by the CPU beside that: scaling, casts, scans
  Elements gpu_optimizer;
  // Muon's on the rank with the most of them.
  std::vector<MuonUpdates> muon_updates;
  Elements muon_additions;        // parameters whose update is added to them
  std::int64_t waited_scans = 0;  // overflow scans of the step whose answer the host waits for
  Bytes nvme_read;
  Bytes nvme_write;
  Bytes nvme_weights;  // of nvme_read, for gathers: read beside the computation
  // Of nvme_write: gradients, beside the backward pass, of these what the host waits for; weights,
  // behind the update of each sub-group. The rest of both are the optimizer's states.
  Bytes nvme_gradients;
  Bytes nvme_gradients_waited;
  Bytes nvme_weights_written;
  std::int64_t nvme_groups = 0;  // sub-groups whose states are read and written

  std::vector<Message> messages;    // distinct
  std::vector<MicroStep> windows;   // their counts sum to the accumulation steps
  std::vector<MessageCount> after;  // collectives of the optimizer step
  bool overlaps = false;            // collectives run beside computation

  // The index of a message, added where it is new.
  std::int32_t message(const Message& message);
};

StepTraffic step_traffic(const Plan& plan, const StepWork& work);

// torch_traffic.cpp
StepTraffic fsdp_traffic(const Plan& plan, const StepWork& work);
StepTraffic ddp_traffic(const Plan& plan, const StepWork& work);

}  // namespace zeroplan
