// Where the program is built without CUPTI.
#include "runtime/cuda/activity.hpp"

namespace zeroplan::runtime::cuda {

bool built_with_cupti() { return false; }

std::unique_ptr<DeviceRecorder> activity_recorder() { return nullptr; }

}  // namespace zeroplan::runtime::cuda
