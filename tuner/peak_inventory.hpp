// Which tensors a simulated rank holds, by name: what stands behind a category of memory, and which
// allocation a size belongs to.
//
// A program is walked in the order in which the host issues it, as the allocator sees it: a tensor
// counts from its allocation to its release, whatever the streams have done by then. No clock is
// needed for that, so a walk costs little beside a simulation. Bytes are rounded as the allocator
// rounds requests; the simulation allocates up to a percent more, the rests of blocks that are not
// worth splitting.
// Checked by tests/unit/tuner/peak_inventory_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/phrase.hpp"
#include "model/engine/buffers.hpp"
#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"
#include "simulator/engines/rank_program.hpp"

namespace zeroplan::tuner {

// Tensors of one sort are told together: one in every layer, one for every parameter.
struct TensorSort {
  Phrase what;       // "fp32 master weights of this rank", "output of mm in LlamaDecoderLayer.mlp"
  std::string name;  // as the code calls it: "single_partition_of_fp32_groups"; or empty
  std::vector<std::string_view> knobs;  // pointers and flags that move it, the strongest first
  // The sum of many allocations where only the sum is known (loading, flattening): its size is not
  // the size of any one of them.
  bool is_sum = false;
};

struct HeldSort {
  MemoryCategory category = MemoryCategory::activations;
  TensorSort sort;
  std::string place;  // of one of them: "model.layers.0", "lm_head.weight"; or empty
  std::int64_t count = 0;
  Bytes bytes;  // of all
};

struct PeakInventory {
  Phase phase = Phase::forward;
  Bytes allocated;
  std::vector<HeldSort> held;  // largest first within a category, categories in their order
};

// An allocation of the program whose segment has the size that was asked for.
struct SizeMatch {
  MemoryCategory category = MemoryCategory::activations;
  TensorSort sort;
  std::string place;  // of the match nearest to what was allocated
  Phase phase = Phase::forward;
  Bytes bytes;             // of the tensor
  Bytes allocated_before;  // at the nearest one
  std::int64_t count = 0;  // allocations of this sort and size in the program
  double off = 0.0;        // of the size asked for: -0.003 is 0.3 % less; 0 within its rounding
};

// How far a size may be from what a message prints and still be told, as the nearest: other weights
// of the same family, other releases.
inline constexpr double kNearSize = 0.02;

struct SizeQuestion {
  Bytes size;      // of the segment, as PyTorch prints it
  Bytes rounding;  // give or take
  std::optional<Bytes> allocated;
};

// How far a segment's size is from the one asked for, as a share of it; 0 within its rounding.
// Small segments are shared by many sizes, so that near tells nothing: 1 or -1.
double size_off(Bytes segment, const SizeQuestion& question);

// The walk of one of a plan's ranks. Plan, graph and program must outlive it.
class PeakInventoryBuilder {
 public:
  PeakInventoryBuilder(const Plan& plan,
                       const ModelGraph& graph,
                       const simulator::RankProgram& rank);

  // What is held at the highest moment of the run, in the program's order.
  PeakInventory at_peak() const;

  // Allocations of that size, the ones that happen nearest to `allocated` first; where there is
  // none, those within kNearSize, the nearest first.
  std::vector<SizeMatch> matches(const SizeQuestion& question) const;

  // Of an instruction that allocates.
  TensorSort sort_of(std::size_t instruction) const;
  std::string place_of(std::size_t instruction) const;

 private:
  template <typename Visitor>
  void walk(Visitor&& visit) const;
  const simulator::SlotRange* range_of(simulator::SlotIndex slot) const;
  TensorSort buffer_sort(const EngineBuffer& buffer) const;
  TensorSort storage_sort(std::int32_t instance, std::int32_t storage) const;
  TensorSort purpose_sort(simulator::Purpose purpose) const;
  void add_knob(std::vector<std::string_view>& knobs, Knob knob) const;

  const Plan& plan_;
  const ModelGraph& graph_;
  const simulator::RankProgram& rank_;
  std::vector<EngineBuffer> buffers_;
};

}  // namespace zeroplan::tuner
