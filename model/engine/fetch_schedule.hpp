// DeepSpeed's ZeRO stage-3 parameter fetching as plain data: which weights are gathered,
// prefetched, waited for and released at which module of a micro-step, and the collectives this
// costs.
//
// Flow: a FetchModel (modules, their parameters) and an EngineConfig go into a FetchCoordinator
// (fetch_coordinator.hpp), which is driven by module entries and exits (module_calls.hpp makes
// their order) and appends FetchEvents to a FetchLog. Analytic estimates fold the log
// (live_parameters.hpp), the simulator plays it, the runtime executes it. No time, no JSON, no
// strings here. Sizes are elements; numel is unpadded, buffers are padded to the number of ranks.
//
// Modelled: one dtype for all weights, partitions on NVMe (fetch_swap.hpp). Not modelled: MiCS'
// grouped collectives, quantised weights, the deferred waits that
// stage3_module_granularity_threshold brings.
//
// Source: DeepSpeed 0.19.6, deepspeed/runtime/zero: partitioned_param_coordinator.py (PC),
// partition_parameters.py (PP), parameter_offload.py (PO), stage3.py (Z3).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "model/dtype.hpp"
#include "model/engine/engine_config.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

using ParameterIndex = std::int32_t;
using ModuleIndex = std::int32_t;

struct FetchModule {
  std::vector<ParameterIndex> parameters;  // direct ones, and external ones it registered
  ModuleIndex parent = -1;                 // enclosing module; matters for leaf modules only
  // A "z3 leaf module": its whole subtree is fetched at once and its descendants have no hooks.
  bool leaf = false;
};

struct FetchModel {
  std::vector<FetchModule> modules;         // each behind the one around it
  std::vector<EngineParameter> parameters;  // in the order of named_parameters()
  // By parameter: stays gathered from one step to the next (mark_persistent). May be empty: none.
  std::vector<bool> persistent;
  // By parameter: its partition is read from NVMe before a gather. May be empty: none.
  std::vector<bool> on_drive;
};

// Of each module the leaf module around it, or it itself where it is one; -1: none. Empty where the
// model has no leaf modules.
std::vector<ModuleIndex> leaves_around(const FetchModel& model);

// Fills FetchModel::persistent by the two persistence thresholds of `config`: in order, skip what
// would pass the threshold of the model together with those already marked, keep what has at most
// the threshold of a parameter. Source: PO:mark_persistent_parameters.
void mark_persistent(FetchModel& model, const EngineConfig& config);

// FetchModel::on_drive: what offload_param.device nvme swaps and host memory does not keep
// (swapping.hpp). Empty for other devices.
std::vector<bool> weights_on_drive(const EngineConfig& config,
                                   std::span<const EngineParameter> parameters);

// Whether DeepSpeed 0.19 makes a leaf of a module of this class where ds_config has no leaf_module:
// the mixtures of experts of transformers. Source:
// leaf_module_config.py:DEFAULT_LEAF_MODULE_CLASSES.
bool is_leaf_by_default(std::string_view module_class);

// The same model as a family's builder made it; `parameters` belong to model.parameters one by one.
// Leaves are those of the release; a leaf_module of the file is not read.
FetchModel make_fetch_model(const Model& model,
                            std::vector<EngineParameter> parameters,
                            const EngineConfig& config);

enum class FetchPass : std::uint8_t { forward, backward };
enum class TraceMode : std::uint8_t { invalid, recording, complete };
enum class FetchStream : std::uint8_t { compute, gather };
enum class FetchCollective : std::uint8_t { all_gather, all_reduce, broadcast };

// What happens, in the order in which the host does it. The fields that an event uses are named;
// memory follows from five kinds alone: `collective`, `load` and `copy` allocate `elements`,
// `release` frees `buffer` and `bucket_done` frees `elements`.
enum class FetchEventKind : std::uint8_t {
  micro_step,     // step counters are reset; mode; elements: live then, buffer: allocated then
  agreement,      // blocking int64 broadcast that compares the trace over ranks; elements
  backward,       // the autograd pass begins
  invalidated,    // the module order differs from the trace, which is dropped
  enter,          // a module begins: subject, pass, step; elements: n_available
  exit,           // a module ends: subject, pass; elements: n_available
  fetch,          // parameters that the module needs now: first, count; elements: their numel
  prefetch,       // parameters for later modules: first, count; elements: their numel
  swap_in,        // the partitions of parameters are read from NVMe: first, count; asynchronous:
                  // ahead of their use
  swap_wait,      // host: every read from NVMe that is under way
  collective,     // launched: op, dtype, group, stream, asynchronous, in_place, first, count;
                  // elements: full output, which is the buffer allocated for it
  load,           // one rank, weights on the host: `subject` is copied to a buffer of `elements`
  throttle,       // host: drop finished fetch events, then with more than two left block on the
                  // oldest
  wait,           // host and gather stream: the handle of parameter `subject`
  copy,           // gather stream, after the first wait on a bucket of several parameters: the
                  // `count` pieces of `subject` are put together in a buffer of `elements`
  record,         // an event for `throttle` is recorded on `stream`
  compute_waits,  // the compute stream waits for the gather stream
  bucket_done,    // the flat buffer of a bucket is dropped: elements
  secondary,      // first release with a secondary partition: `elements` are copied and kept
  release,        // parameter `subject` is freed; elements: numel, buffer: elements freed with it
  leftovers,      // end of the backward pass: modules without a post-backward hook are drained
  release_all,    // the optimizer step begins: everything goes, persistent parameters too
  host_waits_stream,
  device_synchronize,
};

struct FetchEvent {
  FetchEventKind kind = FetchEventKind::enter;
  FetchPass pass = FetchPass::forward;
  TraceMode mode = TraceMode::invalid;
  FetchStream stream = FetchStream::compute;
  FetchCollective op = FetchCollective::all_gather;
  DType dtype = DType::bf16;
  bool asynchronous = false;
  bool in_place = false;      // the own slice already stands in the output buffer
  bool secondary = false;     // hpZ: a collective of the secondary partitions
  std::int32_t subject = -1;  // module or parameter
  std::int32_t step = 0;      // modules entered since the micro-step began
  std::int32_t first = 0;     // [first, first + count) of FetchLog::parameters
  std::int32_t count = 0;
  std::int32_t group = 0;  // ranks of the collective
  Elements elements;
  Elements buffer;
};

// A growing list of events; clear() keeps the capacity, so that a steady state allocates nothing.
struct FetchLog {
  std::vector<FetchEvent> events;
  std::vector<ParameterIndex> parameters;

  void clear() {
    events.clear();
    parameters.clear();
  }
  std::span<const ParameterIndex> parameters_of(const FetchEvent& event) const {
    return std::span(parameters)
        .subspan(static_cast<std::size_t>(event.first), static_cast<std::size_t>(event.count));
  }
};

}  // namespace zeroplan
