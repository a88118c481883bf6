// Kernel calls by CUDA graphs where they repeat: one launch for many. For sources of runtime/cuda
// alone.
//
// Calls are held until something else is to be ordered (CudaDevice says when), or kMostCalls are
// there: a segment. One that comes for the first time is launched call by call, which also lets
// cuBLASLt and cuDNN choose and load what they need; the second time it is captured, from then on
// it is replayed. A segment is known by its calls and the addresses of their operands: what differs
// in anything is another one, so nothing depends on addresses that come again; speed does.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/cuda/cuda_device.hpp"
#include "runtime/kernels/kernels.hpp"

namespace zeroplan::runtime::cuda {

// The environment's word: on or off, which is what nothing said means. Throws InputError.
inline constexpr std::string_view kGraphsVariable = "ZEROPLAN_CUDA_GRAPHS";
bool graphs_asked();

class GraphedKernels final : public Kernels, private HeldCalls {
 public:
  // A segment of fewer is launched call by call. Nobody has measured from where on a graph pays.
  static constexpr std::size_t kLeastCalls = 3;
  // More go in several segments: the host makes the next while the GPU has the one before.
  static constexpr std::size_t kMostCalls = 64;
  // Known segments; beyond that the one that was not used for longest goes, and its graph with it.
  // A step with more of them finds none again, and captures none.
  static constexpr std::size_t kMostSegments = 2048;

  // kernels: on the device's compute queue. The device must outlive this.
  GraphedKernels(CudaDevice& device,
                 std::unique_ptr<Kernels> kernels,
                 std::size_t most_segments = kMostSegments);
  GraphedKernels(const GraphedKernels&) = delete;
  GraphedKernels& operator=(const GraphedKernels&) = delete;
  // What is held then is not launched: who needed it has asked the device for it.
  ~GraphedKernels() override;

  // What is wrong with a call may be thrown by the device's next work.
  void run(const KernelCall& call, std::span<const Operand> operands) override;
  Bytes workspace_bytes() const override { return kernels_->workspace_bytes(); }
  // Graphs have the address of the one before: they go.
  void use_workspace(std::byte* memory) override;

 private:
  struct Call {
    KernelCall call;
    std::vector<Operand> operands;
  };
  struct Segment {
    std::vector<Call> calls;
    std::size_t hash = 0;
    cudaGraphExec_t graph = nullptr;
    bool refused = false;  // CUDA captures it not
  };
  using Segments = std::list<Segment>;

  // --- HeldCalls
  void order() override;
  GraphUse use() const override { return use_; }

  void order_segment(std::span<const Call> calls);
  void launch(std::span<const Call> calls);
  void replay(const Segment& segment);
  void capture(Segment& segment);
  // Null where CUDA refuses, and `why`: nothing was done then.
  cudaGraphExec_t captured(std::span<const Call> calls, std::string& why);
  Segment* find(std::span<const Call> calls, std::size_t hash);
  void keep(std::span<const Call> calls, std::size_t hash);
  void drop_oldest();

  CudaDevice& device_;
  std::unique_ptr<Kernels> kernels_;
  const std::size_t most_segments_;
  std::vector<Call> calls_;  // the first held_ are held; the others keep their memory
  std::size_t held_ = 0;
  Segments segments_;  // the one that was used last first
  std::unordered_multimap<std::size_t, Segments::iterator> known_;  // by hash
  GraphUse use_{.on = true};
  bool said_ = false;
};

}  // namespace zeroplan::runtime::cuda
