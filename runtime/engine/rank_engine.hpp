// One rank of the embedded engine: DeepSpeed's ZeRO stages 0 to 3 carried out on real memory.
//
// The policies are model/engine's, the same objects that the simulator plays in time
// (simulator/engines/deepspeed_writer.hpp has the same shape); here they move data:
//   graph passes -> storages, kernel calls, module hooks, finished gradients   (graph_runner.hpp)
//     hooks      -> FetchCoordinator -> FetchLog      -> gathers, waits, releases (rank_fetch.cpp),
//                                                        hpZ's copies
//                                                        (rank_secondary_partitions.cpp)
//     gradients  -> GradientReducer  -> EngineActions -> buckets, collectives (rank_gradients.cpp,
//                                                        gradient_bucket.hpp),
//                                                        the host (rank_offload.cpp),
//                                                        drives (rank_swap.cpp)
//   optimizer_step -> EngineActions  -> norms, updates, gathers               (rank_step.cpp)
// What an engine buffer is for is in engine_buffers(); it is made and freed when its lifetime says.
//
// A rank is used by one thread. Collectives are called in the same order by all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/engine/buffers.hpp"
#include "model/engine/fetch_coordinator.hpp"
#include "model/engine/gradient_buckets.hpp"
#include "model/step/module_walk.hpp"
#include "runtime/collectives/communicator.hpp"
#include "runtime/device/device.hpp"
#include "runtime/engine/gradient_bucket.hpp"
#include "runtime/engine/graph_runner.hpp"
#include "runtime/engine/loss_scaler.hpp"
#include "runtime/engine/optimizer_swapper.hpp"
#include "runtime/engine/parameter_swapper.hpp"
#include "runtime/engine/phase_clock.hpp"
#include "runtime/engine/rank_groups.hpp"
#include "runtime/engine/timeline.hpp"
#include "runtime/engine/transients.hpp"
#include "runtime/kernels/thread_pool.hpp"
#include "runtime/optimizer/adamw.hpp"

namespace zeroplan::runtime {

// Fills values with elements [first, first + size) of a parameter, or of one of its moments.
using ValueReader =
    std::function<void(std::int32_t parameter, Elements first, std::span<float> values)>;

// Where a run goes on: what its optimizer had.
struct ResumedState {
  std::int64_t updates = 0;
  std::optional<LossScalerState> loss_scaler;  // where it was dynamic
  ValueReader first_moment, second_moment;
};

// Where offload to NVMe goes, and how.
struct SwapSetup {
  std::string optimizer_folder;  // offload_optimizer.nvme_path
  std::string parameter_folder;  // offload_param.nvme_path
  IoOptions io;
  SwapEngine engine = SwapEngine::automatic;
};

// Throws InputError where `config` swaps to a folder that is not named or cannot be written to.
void require_swap_folders(const EngineConfig& config, const SwapSetup& swap);

struct EngineSetup {
  const Model* model = nullptr;
  const ModelGraph* graph = nullptr;
  std::vector<EngineParameter> parameters;  // of model->parameters, one by one
  EngineConfig config;                      // of this rank; made by make_embedded()
  AdamWOptions adamw;
  LossScaling loss_scaling;
  ValueReader weights;  // at the start; none: initial_weights() of the seed
  std::uint64_t seed = 0;
  std::optional<ResumedState> resumed;
  Timeline* timeline = nullptr;  // where what happens is recorded
  SwapSetup swap;
  int threads = 1;  // of the host, that draw weights
};

// Values in memory, or in the swap file of the optimizer's states, in fp32 there; or nowhere.
struct StateValues {
  const std::byte* data = nullptr;
  DType dtype = DType::fp32;
  std::optional<Bytes> swapped;  // offset in the file

  bool there() const { return data != nullptr || swapped.has_value(); }
};

// A stretch of one parameter whose optimizer state is on this rank, wherever that is: read with
// RankEngine::read(). Moments are nowhere before the first step.
struct StateSlice {
  std::int32_t parameter = -1;
  Elements first;  // within the parameter
  Elements elements;
  StateValues master, first_moment, second_moment;
};

struct StepOutcome {
  double loss = 0.0;           // mean over the micro-batches of the step, on this rank
  double gradient_norm = 0.0;  // of the averaged gradient, before clipping
  bool skipped = false;        // gradients overflowed
};

class RankEngine {
 public:
  // Makes weights and resident buffers. All must outlive the engine; throws InputError for what the
  // runtime does not carry out (not_embedded).
  // The memory is the device's, and the kernels run on its compute queue.
  RankEngine(const EngineSetup& setup,
             Communicator& group,
             Device& device,
             Kernels& kernels,
             Memory& memory);

  // One optimizer step over gradient_accumulation_steps micro-batches.
  StepOutcome step(std::span<const MicroBatch> batches);

  // How many ranks, from the first, have one copy of the optimizer's state between them; those
  // behind have copies of it. Stage 0: 1; MiCS: a shard.
  int state_ranks() const { return config_.stage == 0 ? 1 : partition_ranks(config_); }
  // What this rank has of the optimizer's state. Over state_ranks() each element stands in one
  // slice.
  std::vector<StateSlice> state() const;
  // Values of a slice as fp32, when the device is done with them.
  void read(const StateValues& from, std::span<float> to) const;
  std::int64_t updates() const { return updates_; }
  // Where the loss is scaled dynamically.
  std::optional<LossScalerState> loss_scaler() const {
    if (!scaler_.dynamic()) return std::nullopt;
    return scaler_.state();
  }

  const PhaseSeconds& seconds() const { return clock_.seconds(); }
  void forget_seconds() { clock_.forget(); }
  // Counts the time until now; what follows is another phase: saving.
  void begin_phase(Phase phase) { enter_phase(phase); }

 private:
  // What one optimizer_step action updates.
  struct Unit {
    std::byte* master = nullptr;                      // in config_.master_dtype, as its moments
    std::size_t first_moment = 0, second_moment = 0;  // indices of held_
    Elements elements;
    std::byte* weights = nullptr;  // in the model's dtype; null: master is the weight
    bool decays = true;
    // Which parameters' parts stand where in it.
    struct Part {
      std::int32_t parameter = -1;
      Elements first, offset, elements;
    };
    std::vector<Part> parts;
    std::size_t gradient = 0;  // offload: index of held_, its fp32 gradient
    bool swapped = false;      // it is in memory (loaded, master) while it is updated alone
    OptimizerSwapper::Loaded loaded;
    std::size_t staged = 0;  // offload, stages 1 and 2: its weights in the model's dtype
  };
  // A group's gradient as the update reads it.
  struct StepGradient {
    std::byte* data = nullptr;
    DType dtype = DType::fp32;
  };
  // Weights that a collective brings.
  struct Flat {
    Buffer buffer;
    Pending pending;
    std::vector<std::int32_t> parameters;
    Elements elements;
    int waiting = 0;      // parameters nobody has waited for
    int views = 0;        // parameters that are views of it
    bool second = false;  // of secondary partitions
  };
  struct Gathered {
    Buffer buffer;
    Pending pending;
    std::byte* data = nullptr;  // null: not here
    int flat = -1;              // what it comes from
    bool view = false;          // and is a view of
  };

  // rank_weights.cpp; buffers and passes: rank_engine.cpp
  void make_weights();
  void fill_weights(std::int32_t parameter, Elements first, std::byte* to, DType dtype, Elements n);
  void fill(const ValueReader& reader,
            std::int32_t parameter,
            Elements first,
            std::byte* to,
            DType dtype,
            Elements n,
            ThreadPool* threads = nullptr);
  void make_partitioned_weights();
  void make_units();
  void make_partition_units();
  void make_sub_group_units();
  void add_unit(std::byte* master, std::byte* weights, Elements elements, std::int32_t parameter);
  void add_part(std::int32_t parameter, Elements first, Elements offset, Elements elements);
  void fill_masters();
  void make_moments();
  void resume();
  bool offloads() const { return config_.offload_optimizer.device != OffloadDevice::none; }
  void allocate_buffers(BufferLifetime lifetime);
  void release_buffers(BufferLifetime lifetime);
  void begin_backward_buffers();
  void end_backward_buffers();
  Buffer allocate(const EngineBuffer& buffer);
  std::size_t find(BufferName name, int index = 0, std::string_view suffix = "") const;
  void micro_step(const MicroBatch& batch, int index);
  void run_pass(const PassStep& pass);
  Operand weights_of(std::int32_t parameter) const;
  void enter_phase(Phase phase);
  bool at_boundary() const { return micro_step_ == config_.gradient_accumulation_steps - 1; }
  Elements numel(std::int32_t p) const { return parameters_[static_cast<std::size_t>(p)].numel; }
  Elements part(std::int32_t p) const {
    return partitioned_numel(numel(p), partition_ranks(config_));
  }

  // rank_gradients.cpp
  void take_gradient(std::int32_t parameter, Buffer gradient);
  void accumulate(std::int32_t parameter);
  void join_bucket(const EngineAction& action);
  void finish_backward();
  void carry_out(const EngineActions& actions);
  void carry_out(const EngineActions& actions, const EngineAction& action);
  Queue reducing_queue() const;
  void begin_dense_reduction();
  void add_to_window();
  void keep_owned(std::int32_t parameter);
  void keep_partitions(std::span<const int> members, int window_step);
  void sum_replicas(const EngineAction& action);
  std::byte* kept_slice(std::size_t slice, bool later);

  // rank_offload.cpp
  void offload(const EngineAction& action);
  StepGradient offloaded_gradient(const EngineAction& action);
  std::byte* accumulator(std::int32_t parameter);

  // rank_swap.cpp
  void open_swap_files();
  void make_swappers();
  std::byte* host_weights(std::int32_t parameter) const;
  void make_swapped_weights();
  void write_swapped(int group,
                     OptimizerSwapper::Tensor tensor,
                     const std::function<void(std::byte* to)>& fill_values);
  void swap_states(const EngineAction& action);
  std::byte* unswapped_gradients() const;
  void update_swapped(int group);
  void update_swapped_weights(const Unit& unit);
  void finish_swapping();
  void copy_own_part(std::int32_t parameter, DType dtype, std::byte* to);

  // rank_step.cpp
  bool overflowed();
  template <typename Body>
  void for_each_own_gradient(Body&& body);
  void update(const EngineAction& action);
  void take_norm(const EngineAction& action);
  void flatten_group(const EngineAction& action);
  void cast_group(const EngineAction& action);
  void fill_group(int group, std::byte* to, DType dtype);
  StepGradient step_source(int group);
  void step_collective(const EngineAction& action);
  void update_group(int group);
  void update_unit(const Unit& unit, const std::byte* gradient);
  bool rounds_weights(const Unit& unit) const;
  AdamWOptions options_of(const Unit& unit) const;
  double gradient_norm();
  double gradient_factor();

  // rank_fetch.cpp
  void module_step(const ModuleStep& step);
  void carry_out_fetches();
  void carry_out(const FetchEvent& event);
  void gather(const FetchEvent& event);
  void gather_flat(const FetchEvent& event, std::span<const ParameterIndex> parameters);
  // A weight's part on each rank of the group that a gather is of.
  Elements piece(std::int32_t p, bool second) const {
    return second ? part(p) * partition_ranks(config_) / secondary_partition_ranks(config_)
                  : part(p);
  }
  Elements real_piece(std::int32_t p, bool second, int rank) const;
  Communicator& group_of(bool second) { return second ? *groups_.second() : groups_.partition(); }
  void copy_own_piece(std::int32_t parameter, bool second, DType dtype, std::byte* to);
  void join_pieces(const FetchEvent& event);
  void wait_for(std::int32_t parameter);
  void release_weights(std::int32_t parameter);
  void drop_flat(Elements elements);

  // rank_secondary_partitions.cpp
  void make_secondary_partitions();
  void keep_secondary_partition(const FetchEvent& event);
  void drop_secondary_partitions();
  std::byte* secondary_partition(std::int32_t parameter) const;

  EngineSetup setup_;
  EngineConfig config_;
  std::vector<EngineParameter> parameters_;
  RankGroups groups_;
  Device& device_;
  Memory& memory_;
  GraphRunner runner_;
  GraphRunner::Hooks hooks_;

  std::vector<EngineBuffer> buffers_;
  std::vector<Buffer> held_;         // of buffers_, one by one
  Buffer registered_;                // buffers of the modules
  std::vector<std::byte*> weights_;  // by parameter; stage 3: this rank's partition
  FlatPartition partition_;          // stages 1, 2 and the fused wrapper of stage 0
  std::vector<Unit> units_;
  std::int64_t updates_ = 0;

  GradientReducer reducer_;
  EngineActions actions_;
  int micro_step_ = 0;
  bool buffers_ready_ = false;
  bool backward_began_ = false;
  Buffer at_hand_;               // the gradient that was just made
  std::vector<Buffer> waiting_;  // by parameter: .grad until the boundary
  Transients transients_;        // of the flush at hand, and of the step's group
  GradientBucket bucket_;
  std::vector<OwnedSlice> owned_;           // stages 1 and 2
  std::vector<Elements> kept_offset_;       // of owned_: where its parameter begins
  std::vector<Elements> partition_offset_;  // stage 3: by parameter, in the flat partitions

  // The step.
  std::vector<StepGradient> step_gradients_;  // by group
  double squares_ = 0.0;  // of the ranks; Scalar::group_squares: not yet summed over them
  int next_gather_ = 0;   // flat groups gathered in this step
  double loss_ = 0.0;     // of the micro-step at hand
  LossScaler scaler_;
  std::unique_ptr<ThreadPool> drawing_;  // while the engine is made

  // Stage 3.
  std::optional<FetchCoordinator> coordinator_;
  std::optional<ModuleWalk> walk_;
  FetchLog log_;
  std::vector<Gathered> gathered_;                 // by parameter
  std::vector<std::size_t> secondary_partitions_;  // hpZ: indices of held_, by parameter
  std::vector<Flat> flats_;

  // Offload to NVMe. A file goes before the memory it is read into and written from.
  std::unique_ptr<SwapFile> states_file_, weights_file_;
  std::optional<OptimizerSwapper> states_;
  std::optional<ParameterSwapper> swapped_weights_;

  PhaseClock clock_;
};

}  // namespace zeroplan::runtime
