// How much of the host's memory is left for this process: asked before training, because the kernel
// gives more than there is and kills whom it likes later.
#pragma once

#include <string>

#include "base/units.hpp"

namespace zeroplan::runtime {

// What the kernel calls available (MemAvailable of /proc/meminfo), at most what the limits of the
// process's control groups leave, where the page cache counts as free. Infinite where nobody says.
// `root`: the folder with proc and sys, for tests.
// Source: Linux, Documentation/filesystems/proc.rst and admin-guide/cgroup-v1, cgroup-v2.
Bytes available_host_memory(const std::string& root = "");

}  // namespace zeroplan::runtime
