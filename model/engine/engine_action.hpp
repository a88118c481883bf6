// What an engine does, as a list of actions without time: the common language of the policies.
//
// Gradient reduction and the optimizer step are written as sequences of EngineAction in the order
// in which DeepSpeed issues them. The simulator gives each one a duration, the runtime executes
// them, the replay command compares them with recordings. Sizes are elements plus a dtype.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.hpp"
#include "model/dtype.hpp"
#include "model/newton_schulz.hpp"

namespace zeroplan {

// Streams of one rank. Where overlap_comm is off, reduction and gathering share the compute stream.
enum class EngineStream { compute, reduce, gather };

enum class CollectiveKind {
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  barrier,
  all_to_all
};

enum class ReduceOperation { sum, maximum };

struct EngineCollective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int ranks = 1;  // size of the group
  int root = -1;  // of reduce and broadcast, within the group
  ReduceOperation operation = ReduceOperation::sum;
  bool asynchronous = false;  // the caller gets a handle and goes on
  bool in_place = false;      // output and input share one buffer (all_gather, reduce_scatter)
  bool across = false;        // of ranks with the same place in their shard (MiCS), not neighbours
};

enum class ActionKind {
  gradient_ready,  // the engine takes the gradient of `parameter`: from autograd's hook, or behind
                   // the pass in the order of its groups
  accumulate_gradient,     // joins what earlier micro-steps left of it. pieces: 0 where there is
                           // nothing; then it stays where autograd made it, or is cast to dtype
  insert_gradient,         // joins the bucket: copied into the buffer, whose numbers are of dtype.
                           // keeps_source: the sum, of another type, stays to the end of the window
  list_gradient,           // joins a bucket without a buffer: stays in its own storage
  keep_outside,            // the same, for it is larger than the bucket: the next flush takes it
  release_gradients,       // sums of accumulate_gradient go
  drop_gradients,          // members: gradients that joined a bucket in their own storage, which
                           // goes now; of each, once
  make_owned,              // stages 1, 2: what the rank keeps has its storage from here on, where
                           // no keep_owned has made it
  orthogonalize,           // Muon: the update of `parameter`, as a new tensor of its elements in
                           // dtype, of its gradient and momentum, both overwritten. matrices
  add_to_master_gradient,  // BF16_Optimizer: `parameter`'s gradient joins the fp32 sum
  flush,                   // a bucket is reduced: members, elements
  flatten,                 // `pieces` tensors copied into a new flat buffer of elements
  concatenate,             // the same by torch.cat
  cast,                    // a new buffer of elements in dtype (the source stays alive)
  divide,                  // in place by the number of ranks, before the sum
  collective,  // elements: of the tensor; all_gather: of the full output; reduce_scatter: input
  copy_back,   // the sum, from the flat copy (or cast) to where the gradients are; the copy goes
  keep_owned,  // stages 1, 2: reduced gradient of `parameter` kept by this rank (elements: all
               // of the parameter, copied to the owned-gradient buffer unless offloaded)
  keep_partitions,  // stage 3: reduced partitions of the members stored in or added to the flat
                    // gradient buffer; pieces: index of the micro-step (0 stores, later ones add)
  accumulate_on_host,  // stage 2 offload: host accumulator of `parameter` updated through the GPU;
                       // pieces as above
  gradient_to_master,  // offload: `parameter`'s owned gradient cast to dtype, copied into the
                       // optimizer's host gradient (NVMe: into the swapper's buffer, group: the
                       // sub-group)
  copy_to_host,        // elements of dtype over the bus, pinned or not
  copy_to_device,
  norm,              // sum of squares of elements, through a fp64 copy; the host waits for it
                     // where host_waits
  overflow_scan,     // inf/nan scan of elements
  scale,             // in-place multiply (unscale and clip) of elements
  optimizer_step,    // `group`: parameter group or sub-group; on_host: by the CPU optimizer;
                     // matrices: of Muon, whose update is the gradient
  update_weights,    // master -> model dtype copy of elements
  swap_in,           // NVMe read for `group`: elements in all, of pieces tensors and its gradient
  swap_out,          // NVMe write of elements in all: states of `group`, or with group -1 gradients
                     // of a full buffer. host_waits: until it is done, and all before it
  swap_out_weights,  // NVMe write of the sub-group's new weights, waited for
  wait_stream,       // `stream` waits for `other`
  host_wait_stream,  // the host blocks until `stream` is idle
  host_wait_device,  // torch.cuda.synchronize()
  record_event,      // on `stream`, appended to the queue of outstanding reduce events
  throttle,          // finished events leave the queue; where more than `pieces` remain, the host
                     // blocks on the oldest
  release_parameters  // stage 3: every gathered parameter is partitioned again
};

struct EngineAction {
  ActionKind kind = ActionKind::gradient_ready;
  EngineStream stream = EngineStream::compute;
  EngineStream other = EngineStream::compute;
  int parameter = -1;
  int group = -1;
  int pieces = 0;
  Elements elements;
  DType dtype = DType::fp32;
  bool on_host = false;
  bool pinned = false;
  bool host_waits = false;
  bool keeps_source = false;
  bool in_step = false;  // of the optimizer's step, not of a micro-step
  EngineCollective collective;
  MuonMatrices matrices;
  std::int64_t first_member = 0;  // members: [first_member, first_member + member_count)
  std::int64_t member_count = 0;
};

struct EngineActions {
  std::vector<EngineAction> actions;
  std::vector<int> members;  // parameter indices of all flushes, in bucket order

  std::span<const int> members_of(const EngineAction& action) const {
    return std::span<const int>(members).subspan(static_cast<std::size_t>(action.first_member),
                                                 static_cast<std::size_t>(action.member_count));
  }
  void clear() {
    actions.clear();
    members.clear();
  }
};

}  // namespace zeroplan
