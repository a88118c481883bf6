// The GPUs and machines that are known, by key, by the name that people write, and as the usual one
// of its kind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/phrase.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan {

// All GPUs and machines of the profiles, in their order. CPU ranks are not among them.
std::vector<Gpu> all_gpus();
std::vector<NodeProfile> all_nodes();

// The GPU and the machine of that key. Precondition: they exist.
Gpu gpu_of_key(std::string_view key);
NodeProfile node_of_key(std::string_view key);

// The machine a GPU is mostly found in, for a node of so many: among profiles with that GPU and as
// many of them the usual one, else Gpu::usual_node.
NodeProfile usual_node(const Gpu& gpu, std::int64_t gpus_per_node);

// GPUs of each node where so many are asked for and nobody said on how many nodes: all of them
// where a machine takes so many, else those of a usual node; 0 where these do not divide them.
std::int64_t usual_node_size(std::string_view gpu, std::int64_t gpus);

// What somebody said of a machine.
struct HostGiven {
  std::optional<Bytes> memory;
  std::optional<std::int64_t> cpu_cores;
};

// Where something was said, the machine with at least as many of the GPUs that is nearest to all of
// it, each within 10 %. A job on some of a machine's GPUs may have all of its host, where memory
// and cores both say so; one of them may be a share. Where there is none, or the usual machine's
// share of the GPUs is nearer, usual_node().
NodeProfile likely_node(const Gpu& gpu, std::int64_t gpus_per_node, const HostGiven& given);

// Of one message on such a link, without software above it.
Quantity<Seconds> usual_latency(LinkKind kind);

// What is taken for a CPU rank of the embedded runtime; its memory is set by the cluster.
Gpu cpu_rank();

// A GPU and, where the name left something open, what was taken for it.
struct GpuMatch {
  Gpu gpu;
  Phrase assumption;  // "A100 is taken as A100-80G-SXM: ..."; empty where nothing was open
};

// The GPU a name stands for, without regard to case, spaces, '-', '_', '.' and parentheses: keys,
// product names as nvidia-smi prints them, and family with size and form factor in any order
// (A800-80G-SXM, NVIDIA A800-SXM4-80GB, 4090, H100 NVL 96G). An open size is the family's most
// common one; an open form factor is SXM for 4, 8 and 16 GPUs a node and PCIe otherwise. `cpu` is a
// CPU rank. Absent for a name nobody knows.
std::optional<GpuMatch> find_gpu(std::string_view text, std::int64_t gpus_per_node);

// What to answer for a name that find_gpu() does not know: got and hint are filled, `expected` is
// "the name of a GPU".
Diagnostic unknown_gpu(std::string_view text, std::string file, std::string pointer);

}  // namespace zeroplan
