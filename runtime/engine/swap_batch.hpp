// Transfers that belong together, waited for as one and recorded as one span.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine/timeline.hpp"
#include "runtime/swap/swap_file.hpp"

namespace zeroplan::runtime {

class SwapBatch {
 public:
  // Timeline: where waits are recorded; may be null.
  SwapBatch() = default;
  SwapBatch(SwapFile& file, Timeline* timeline, bool write)
      : file_(&file), timeline_(timeline), write_(write) {}

  void read(Bytes offset, std::byte* to, Bytes bytes) {
    tickets_.emplace_back();  // room for it before it is started: then it is waited for
    tickets_.back() = file_->read(offset, to, bytes);
  }
  void write(Bytes offset, const std::byte* from, Bytes bytes) {
    tickets_.emplace_back();
    tickets_.back() = file_->write(offset, from, bytes);
  }
  bool empty() const { return tickets_.empty(); }

  // Throws SwapError. Empty afterwards.
  void wait(std::string_view about = "");

 private:
  SwapFile* file_ = nullptr;
  Timeline* timeline_ = nullptr;
  bool write_ = false;
  std::vector<SwapFile::Ticket> tickets_;
};

}  // namespace zeroplan::runtime
