// Weights of stage 3 on a drive: partitions that are read for every gather, through a pool of
// pinned buffers of which each takes a whole one, and written behind the update, through a staging
// buffer. Sizes are the policy's (model/engine/swapping.hpp).
//
// What is read ahead of its gather, and in which order, says the fetch coordinator; as many are on
// their way as there are buffers. A buffer is free again when the device has its partition, sooner
// than DeepSpeed's, so that a pool that is too small there does here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "runtime/device/device.hpp"
#include "runtime/engine/swap_batch.hpp"

namespace zeroplan::runtime {

class ParameterSwapper {
 public:
  struct Pool {
    std::byte* data = nullptr;  // pinned
    Bytes buffer;               // of one
    int buffers = 0;
    std::byte* staging = nullptr;  // pinned, for writing
    Bytes staging_bytes;
  };

  ParameterSwapper(SwapFile& file, Device& device, Timeline* timeline, const Pool& pool);

  // A partition of `bytes` that lives in the file from now on.
  void add(std::int32_t parameter, Bytes bytes);
  bool swaps(std::int32_t parameter) const { return places_.contains(parameter); }

  // Before the first use: zeros to be filled, and their way into the file.
  std::byte* borrow(std::int32_t parameter);
  void write_now(std::int32_t parameter);

  // These are wanted next, in this order.
  void want(std::span<const std::int32_t> parameters);
  // A partition, in memory until the device has done what was ordered before dropping it.
  const std::byte* bring(std::int32_t parameter);
  void drop(std::int32_t parameter);
  // What was read ahead and not brought is out of date: the update comes.
  void forget();

  // The update: where a partition's new values go; write() when they are ordered, for all since the
  // last.
  std::byte* stage(std::int32_t parameter);
  void write();
  // Returns when the drive has everything.
  void finish();

 private:
  struct Place {
    Bytes offset, bytes;
  };
  struct Read {
    std::int32_t parameter = -1;
    int buffer = -1;
    SwapBatch batch;
  };

  std::byte* data(int buffer) const { return pool_.data + pool_.buffer.count() * buffer; }
  Bytes whole(Bytes bytes, Bytes room) const;
  void read_what_fits();
  void reclaim();
  void read(std::int32_t parameter);
  void give_up_last();
  std::vector<Read>::iterator find(std::int32_t parameter);

  SwapFile& file_;
  Device& device_;
  Timeline* timeline_;
  Pool pool_;
  std::map<std::int32_t, Place> places_;
  std::vector<int> free_;
  std::vector<int> dropped_;  // free once the device is done
  std::deque<std::int32_t> wanted_;
  std::vector<Read> reading_;
  std::vector<std::int32_t> staged_;
  std::vector<std::byte*> staged_data_;
  Bytes staged_bytes_;
  SwapBatch writing_;
};

}  // namespace zeroplan::runtime
