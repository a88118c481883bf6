// Built without liburing.
#include "runtime/swap/block_io.hpp"

namespace zeroplan::runtime {

std::unique_ptr<BlockIo> uring_io(BlockQueue&, const IoOptions&) { return nullptr; }

}  // namespace zeroplan::runtime
