// A device without a GPU that behaves like one where it matters: its memory cannot be touched
// outside of its own calls (the process would die of SIGSEGV), queues are followed with vector
// clocks, and an access that nothing orders behind the one before throws. What runs under it makes
// no use of device memory behind the device's back, and says between its queues what it must.
#pragma once

#include <memory>

#include "runtime/train/trainer.hpp"

namespace zeroplan::runtime::test {

// Of one rank; kernels run on the compute queue, collectives on device memory on a queue of their
// own.
RankHardware guarded_hardware(Communicator& host_group, std::unique_ptr<Kernels> kernels);

}  // namespace zeroplan::runtime::test
