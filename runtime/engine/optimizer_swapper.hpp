// The optimizer's states of stage 3 on a drive: which tensors of which sub-group are where in the
// swap file, and the pool of pinned buffers that they pass through. The sizes are the policy's
// (model/engine/swapping.hpp), when what is moved says the step (ActionKind::swap_in, swap_out).
//
// A sub-group has four tensors: master weights, two moments, and the gradient, which backward
// writes. A gradient is written in pieces, the part of each parameter that swapped_gradient()
// names; what remains of them stays on the device. In its file and in its buffer the pieces stand
// one behind the other and the remainders behind all of them, so that every transfer is aligned:
// where an element of the sub-group stands in the gradient say its stretches.
//
// Reads are one sub-group ahead where pipeline_read says so. Writes are waited for when they are
// begun, or when the next are: as the step's action says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "model/engine/engine_config.hpp"
#include "runtime/device/device.hpp"
#include "runtime/engine/swap_batch.hpp"

namespace zeroplan::runtime {

class OptimizerSwapper {
 public:
  enum Tensor : std::size_t { master, first_moment, second_moment, gradient };
  static constexpr std::size_t kTensors = 4;

  struct Pool {
    std::byte* data = nullptr;  // pinned
    Bytes buffer;               // of one
    int buffers = 0;
  };
  // One parameter's part of a sub-group.
  struct Part {
    std::int32_t parameter = -1;
    Elements offset;  // in the sub-group
    Elements elements;
  };
  // [offset, offset + elements) of a sub-group is at `gradient` of its gradient.
  struct Stretch {
    Elements offset, gradient, elements;
  };
  // A sub-group in memory.
  struct Loaded {
    float* master = nullptr;
    float* first_moment = nullptr;
    float* second_moment = nullptr;
    const float* gradient = nullptr;
  };

  // kept: on the device, for the remainders of gradients of all sub-groups; it is set before every
  // backward that has any.
  OptimizerSwapper(SwapFile& file,
                   Device& device,
                   Timeline* timeline,
                   const Pool& pool,
                   const EngineConfig& config);

  void add_group(int group, Elements elements, const std::vector<Part>& parts);
  bool swaps(int group) const { return find(group) != nullptr; }
  const std::vector<Stretch>& stretches(int group) const { return find(group)->stretches; }

  // Makes room in the file; from then on the tensor is there, zero.
  void reserve(int group, Tensor tensor);
  // Before the first step: zeros to be filled for a tensor of the sub-group, in a buffer of the
  // pool until they are written.
  float* borrow(int group);
  void write_now(int group, Tensor tensor);  // what was borrowed
  // Place of a tensor in the file.
  Bytes offset(int group, Tensor tensor) const { return find(group)->offsets[tensor]; }

  // Backward: the gradient of a parameter, on the device in fp32, `real` elements of its part.
  void put_gradient(
      int group, std::int32_t parameter, const std::byte* from, Elements real, std::byte* kept);

  // What was put goes to the drive. Precondition of put_gradient(): it fits beside what was put
  // since the last call, which the policy sees to (GradientBatches).
  void send_gradients();

  // The step. kept: as put_gradient() got it. waits: until what is written is on the drive.
  Loaded swap_in(int group, const std::byte* kept);
  void swap_out(int group, bool waits);
  // Returns when the drive has everything.
  void finish();

 private:
  struct Piece {
    std::int32_t parameter = -1;
    Elements elements;  // of the part
    Elements written;   // of them
    Elements at;        // in the gradient's file
    Elements kept_at;   // among the remainders of all sub-groups
  };
  struct Group {
    int group = -1;
    Elements elements;
    std::array<Bytes, kTensors> offsets{};
    std::vector<Piece> pieces;
    std::vector<Stretch> stretches;
    Elements written;  // of the gradient
    Elements kept_at;  // of its remainders
    // In memory.
    std::array<int, kTensors> buffers{-1, -1, -1, -1};
    SwapBatch reads;
  };
  struct Write {
    SwapBatch batch;
    std::vector<int> buffers;
  };

  const Group* find(int group) const;
  Group* find(int group);
  std::byte* data(int buffer) const { return pool_.data + pool_.buffer.count() * buffer; }
  Bytes whole(Elements elements) const;
  int take();
  void begin_read(Group& group);
  void finish_write();

  SwapFile& file_;
  Device& device_;
  Timeline* timeline_;
  Pool pool_;
  EngineConfig config_;
  std::vector<Group> groups_;  // in the order of the steps
  Elements kept_;              // remainders of all sub-groups
  std::vector<int> free_;
  std::deque<Write> writing_;
  // Gradients on their way: pieces in one buffer, not yet given to the drive.
  struct Staged {
    Bytes offset;
    std::byte* data;
    Bytes bytes;
  };
  std::vector<Staged> staged_;
  int stage_ = -1;
  Bytes staged_bytes_;
};

}  // namespace zeroplan::runtime
