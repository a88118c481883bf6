// The thread's last error, as cudaGetLastError() reports it.
#pragma once

namespace zeroplan::gpu {

int failed(int status);  // remembers and returns it

}  // namespace zeroplan::gpu
