// The stage-3 parameter coordinator: state of every parameter, the recorded trace of modules, and
// the rules of fetch, prefetch and release. Every call appends to a log what the engine does there.
// An event costs amortised constant time (a release that is decided for the first time a logarithm
// of the trace), and in a steady state nothing is allocated except by a log that still grows.
#pragma once

#include <cstdint>
#include <vector>

#include "model/engine/fetch_schedule.hpp"
#include "model/engine/fetch_swap.hpp"

namespace zeroplan {

class FetchCoordinator {
 public:
  // Preconditions: indices in range; the hpZ partition size divides the ranks.
  FetchCoordinator(const FetchModel& model, const EngineConfig& config);

  // The root's forward begins (also in evaluation): counters are reset, the trace of the first
  // pass becomes complete. Up to 0.14 that happens at the end of a backward. Source: PC:reset_step.
  void begin_micro_step(FetchLog& log);
  // Before and after a module's forward or backward. Source: PC:fetch_sub_module,
  // release_sub_module.
  void enter(ModuleIndex module, FetchPass pass, FetchLog& log);
  void exit(ModuleIndex module, FetchPass pass, FetchLog& log);
  // Forward entries from here on are recomputation: frozen parameters are attributed to the
  // innermost module in backward.
  void begin_backward(FetchLog& log);
  // Somebody else's doing: TRL, when it has generated (models/utils.py add_hooks). Source:
  // PC:_invalidate_trace.
  void invalidate(FetchLog& log);
  // The autograd pass is over. Source: PC:release_backward_leftovers.
  void end_backward(FetchLog& log);
  // Around the optimizer: release everything; gather persistent parameters again. The second half
  // does not run when the step is skipped for an overflow. Source: Z3:step, _post_step.
  void begin_optimizer_step(FetchLog& log);
  void end_optimizer_step(FetchLog& log);

  // A frozen weight that a recomputation fetches stays until the module that is in backward around
  // the recomputation has left it. Source: PC:update_recompute_parameters.
  static bool holds_recomputed_weights(const EngineConfig& config) {
    return rules_of(config).attributes_recomputation;
  }

  // What decides how a coordinator acts on a model's modules, in the order of the constructor: of
  // equal lists the logs are equal.
  static std::vector<std::int64_t> decided_by(const FetchModel& model, const EngineConfig& config);

  TraceMode trace_mode() const { return mode_; }
  // Elements gathered minus released since the micro-step began: what max_live is compared with.
  Elements counted_available() const { return Elements::of(available_); }
  // Elements of all parameters that are gathered or in flight.
  Elements live() const { return Elements::of(live_); }
  // Elements of the buffers behind them: padding, flat buckets and copies included.
  Elements allocated() const { return Elements::of(allocated_); }
  // Of the pool behind weights on NVMe, so far.
  const SwapPoolUse& swap_pool() const { return swapped_.use(); }

 private:
  enum class State : std::uint8_t { absent, in_flight, available };
  // Parameters of one gather call that share a handle.
  struct Bucket {
    ParameterIndex head = -1;   // of the list through next_in_bucket_, until complete
    std::int32_t waiting = 0;   // parameters still in the registry of those in flight
    std::int32_t views = 0;     // parameters that are views of the flat buffer (all-reduce)
    std::int64_t flat = 0;      // elements of the flat buffer; 0: each parameter has its own
    std::int64_t piece_of = 1;  // elements of a parameter come in pieces of ceil(numel/piece_of)
    bool copies = false;        // the first wait copies each parameter out of the flat buffer
    bool host_sync = false;     // one rank: waiting synchronises the stream instead
    bool sync_each = false;     // and does so for every parameter
    bool complete = false;
  };
  struct Slots {  // [begin, end) of slot_parameters_
    std::int32_t begin = 0;
    std::int32_t end = 0;
  };
  // One trace position list for a way of walking the modules (direct parameters or subtrees).
  struct Walk {
    std::vector<std::vector<ParameterIndex>> parameters;  // by module, without repeats
    std::vector<std::int64_t> distance;                   // by trace position: elements before it
    std::vector<std::int32_t> use_offsets;                // by parameter, into uses
    std::vector<std::int32_t> uses;                       // ascending trace positions

    void index(const std::vector<ModuleIndex>& order, const std::vector<std::int64_t>& numel);
    std::int32_t end_of_reuse(std::int32_t step, std::int64_t max_distance) const;
    bool used_within(ParameterIndex parameter, std::int32_t begin, std::int32_t end) const;
  };
  struct QueueEntry {
    ParameterIndex parameter;
    std::int32_t step;
  };
  struct Memo {
    ModuleIndex module;
    std::int32_t flags;  // into memo_flags_, one for each slot of the module
    std::int32_t next;   // of the same step, or -1
  };

  void build_slots(const FetchModel& model);
  void complete_trace();
  void check_trace(ModuleIndex module, FetchLog& log);
  void forget_trace(FetchLog& log);
  void drop_in_flight(FetchLog& log);

  // fetch_gather.cpp: collectives, buckets and waits.
  void fetch_own(ModuleIndex module, FetchPass pass, FetchLog& log);
  void prefetch(FetchPass pass, FetchLog& log);
  void read_ahead(FetchLog& log);
  void gather(FetchEventKind kind, FetchPass pass, FetchLog& log);
  void launch(bool secondary, FetchPass pass, FetchLog& log);
  void launch_each(bool secondary, std::int64_t group, FetchLog& log);
  void launch_together(Bucket& bucket, bool secondary, std::int64_t group, FetchLog& log);
  void launch_alone(Bucket& bucket, FetchLog& log);
  void wait(ParameterIndex parameter, bool recorded, FetchLog& log);
  void take_from_registry(ParameterIndex parameter, FetchStream stream, FetchLog& log);
  void finish_bucket(std::int32_t bucket, FetchLog& log);
  void release(ParameterIndex parameter, FetchLog& log);
  std::int32_t new_bucket();

  std::uint8_t* flags_to_release(ModuleIndex module);
  void decide_release(ModuleIndex module, std::uint8_t* flags) const;
  void hold(ModuleIndex module, ParameterIndex parameter);
  void release_recomputed(ModuleIndex module, FetchLog& log);
  std::int32_t slot_of(ModuleIndex module, ParameterIndex parameter) const;
  void enter_backward(ModuleIndex module);
  void leave_backward(ModuleIndex module);
  std::int64_t padded(ParameterIndex parameter) const {
    return round_up(numel_[static_cast<std::size_t>(parameter)], ranks_);
  }
  FetchStream gather_stream() const {
    return overlap_comm_ ? FetchStream::gather : FetchStream::compute;
  }

  // How releases differ (fetch_coordinator.cpp).
  struct Rules {
    bool resets_after_backward = false;
    bool resets_available = true;
    bool agrees_on_length = true;
    bool releases_leftovers = true;
    bool attributes_recomputation = true;
  };
  static Rules rules_of(const EngineConfig& config);
  bool has_no_hooks(ModuleIndex module) const {
    return !inside_leaf_.empty() && inside_leaf_[static_cast<std::size_t>(module)] != 0;
  }
  void reset_step(FetchLog& log);

  // The knobs that act here, from the EngineConfig.
  Rules rules_;
  std::int64_t prefetch_bucket_ = 0;
  std::int64_t max_live_ = 0;
  std::int64_t max_reuse_distance_ = 0;
  std::int64_t ranks_ = 1;
  std::int64_t secondary_ranks_ = 1;  // hpZ; 1: no second partition
  DType dtype_ = DType::bf16;
  bool overlap_comm_ = true;
  bool sequential_ = false;
  bool all_reduce_ = false;
  bool granular_ = false;  // leaf modules come from a granularity threshold

  // The model, flat. A slot is one parameter of one module.
  std::vector<std::int64_t> numel_;
  std::vector<std::uint8_t> persistent_;
  std::vector<std::uint8_t> frozen_;
  std::vector<ParameterIndex> persistent_list_;
  std::vector<std::uint8_t> leaf_;
  std::vector<std::uint8_t> inside_leaf_;  // no hooks; empty: there are no leaves
  bool host_parameters_ = false;           // offload_param
  std::vector<Slots> slots_;
  std::vector<ParameterIndex> slot_parameters_;

  // Parameters.
  std::vector<State> state_;
  std::vector<std::int32_t> holders_;      // active modules that use the parameter
  std::vector<std::uint8_t> slot_active_;  // the module of this slot is one of them
  std::vector<std::int32_t> bucket_of_;    // while in the registry, else -1
  std::vector<std::int32_t> view_of_;      // bucket whose flat buffer it is a view of, else -1
  std::vector<std::int64_t> own_buffer_;   // elements freed when it is released
  std::vector<std::uint8_t> has_secondary_;
  std::vector<Bucket> buckets_;
  std::vector<std::int32_t> free_buckets_;
  std::vector<ParameterIndex> next_in_bucket_;
  std::int64_t in_registry_ = 0;
  std::int64_t in_registry_numel_ = 0;
  SwappedWeights swapped_;
  std::int64_t live_ = 0;
  std::int64_t allocated_ = 0;
  std::int64_t available_ = 0;

  // The trace.
  TraceMode mode_ = TraceMode::invalid;
  std::int32_t step_ = 0;
  std::vector<ModuleIndex> order_;
  std::vector<QueueEntry> queue_;
  std::size_t queue_head_ = 0;
  std::vector<std::int32_t> fetched_for_;  // latest step a parameter was fetched for
  Walk direct_;
  Walk subtree_;                          // only filled when there are leaf modules
  std::vector<std::int32_t> memo_heads_;  // by step
  std::vector<Memo> memos_;
  std::vector<std::uint8_t> memo_flags_;

  // The backward pass.
  bool in_backward_ = false;
  std::vector<std::int32_t> backward_previous_;  // list of modules in backward, in order of entry
  std::vector<std::int32_t> backward_next_;
  std::vector<std::uint8_t> in_backward_list_;
  ModuleIndex innermost_ = -1;
  std::vector<std::vector<ParameterIndex>> recomputed_;  // frozen parameters a module holds

  // Scratch.
  std::vector<ParameterIndex> wanted_;  // parameters of the gather call being made
  std::vector<ParameterIndex> group_;   // those of one handle
  std::vector<std::uint8_t> marked_;
};

}  // namespace zeroplan
