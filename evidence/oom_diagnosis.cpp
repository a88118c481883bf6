#include "evidence/oom_diagnosis.hpp"

#include <algorithm>
#include <cstdio>

namespace zeroplan::evidence {
namespace {

// A CUDA context without libraries' workspaces is a few hundred MiB, by GPU and driver.
constexpr Bytes kContextAtMost = Bytes::mib(700);
// What context, NCCL and libraries of one process take at most; more belongs to somebody else.
constexpr Bytes kOutsideTorchAtMost = Bytes::gib(3);

std::optional<Bytes> value(const std::optional<PrintedSize>& size) {
  if (!size) return std::nullopt;
  return size->bytes;
}

// Reserved by PyTorch and not allocated, in either form of the message.
std::optional<Bytes> unallocated(const OomEvent& event) {
  if (event.reserved_unallocated) return event.reserved_unallocated->bytes;
  if (!event.reserved || !event.allocated) return std::nullopt;
  if (event.reserved->bytes < event.allocated->bytes) return std::nullopt;
  return event.reserved->bytes - event.allocated->bytes;
}

void note_too_small_gpu(const OomEvent& event, std::vector<OomCause>& causes) {
  if (!event.tried || !event.capacity || event.tried->bytes <= event.capacity->bytes) return;
  causes.push_back({"larger-than-card",
                    phrase("the one request of {} is larger than the GPU ({})",
                           printed(event.tried->bytes),
                           printed(event.capacity->bytes)),
                    "make this tensor smaller or split it; nothing else helps"});
}

void note_limit(const OomEvent& event, std::vector<OomCause>& causes) {
  if (!event.limit) return;
  causes.push_back({"process-limit",
                    Phrase("torch.cuda.set_per_process_memory_fraction allows ") +
                        printed(event.limit->bytes) + " of " +
                        (event.capacity ? printed(event.capacity->bytes) : "the GPU"),
                    "raise or drop the limit"});
}

void note_free_memory(const OomEvent& event, std::vector<OomCause>& causes) {
  if (!event.tried || !event.free || event.free->bytes <= event.tried->bytes) return;
  if (event.limit || !(event.tried->bytes > Bytes::zero())) return;
  causes.push_back({"free-memory-left",
                    phrase("{} are free and {} were asked for: the GPU is not full",
                           printed(event.free->bytes),
                           printed(event.tried->bytes)),
                    "look for what else limits the process: another process that took the memory "
                    "at that moment, "
                    "page-locked memory under WSL, ulimit or a container's limit"});
}

void note_fragmentation(const OomEvent& event, std::vector<OomCause>& causes) {
  const std::optional<Bytes> spare = unallocated(event);
  if (!spare || !event.tried || *spare < event.tried->bytes) return;
  causes.push_back({"fragmentation",
                    phrase("{} are reserved by PyTorch and not allocated, {} were asked for: no "
                           "free piece was large enough",
                           printed(*spare),
                           printed(event.tried->bytes)),
                    event.expandable_segments
                        ? "expandable_segments is on already: a smaller peak, fewer different "
                          "lengths (pad to a multiple of 64), torch.cuda.empty_cache() between "
                          "training and evaluation"
                        : "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (torch 2.1 and "
                          "newer; max_split_size_mb before)"});
}

void note_others(const OomEvent& event, std::vector<OomCause>& causes) {
  const std::optional<Bytes> others = memory_of_others(event);
  constexpr Bytes kNoticeable = Bytes::mib(64);
  if (!others || *others < kNoticeable) return;
  Phrase who;
  bool contexts = !event.other_processes.empty();
  for (const OomProcess& process : event.other_processes) {
    const Phrase one = phrase(
        "process {} has {}", process.pid, process.memory ? printed(process.memory->bytes) : "some");
    who = who.empty() ? one : phrase("{}, {}", who, one);
    contexts = contexts && process.memory && process.memory->bytes <= kContextAtMost;
  }
  if (who.empty()) who = phrase("{} belong to nobody the message names", printed(*others));
  if (contexts) {
    causes.push_back(
        {"contexts-of-other-ranks",
         phrase("{}: as much as a CUDA context takes, so other ranks opened one here", who),
         "call torch.cuda.set_device(local_rank) before anything touches the GPU, or "
         "give each rank its own CUDA_VISIBLE_DEVICES"});
    return;
  }
  causes.push_back({"other-processes",
                    who,
                    "look with nvidia-smi for runs that never ended; several ranks share the GPU "
                    "where each does not set its device"});
}

void note_rest(const OomEvent& event, std::vector<OomCause>& causes) {
  // Spare memory that is little beside what tensors hold is no cause by itself.
  constexpr std::int64_t kLittle = 10;
  const std::optional<Bytes> spare = unallocated(event);
  const bool explained = !causes.empty();
  const bool little = spare && event.allocated && *spare * kLittle < event.allocated->bytes;
  const bool only_fragments = explained && causes.front().code == "fragmentation" && little;
  if ((explained && !only_fragments) || event.kind != OomKind::gpu_allocator || !event.allocated)
    return;
  if (event.capacity && event.tried && event.allocated->bytes * 2 < event.capacity->bytes &&
      event.tried->bytes * 4 > event.capacity->bytes) {
    causes.insert(
        causes.begin(),
        {"one-allocation",
         phrase("one tensor of {} was asked for, and tensors hold no more than {} of {}",
                printed(event.tried->bytes),
                printed(event.allocated->bytes),
                printed(event.capacity->bytes)),
         "make that tensor smaller: scores of eager attention or of a huge image (--attention, "
         "fewer pixels), logits of long rows (a fused loss), a smaller micro-batch"});
    return;
  }
  causes.insert(
      causes.begin(),
      {"card-full",
       event.capacity ? phrase("{} are allocated by tensors of {}: the GPU is full",
                               printed(event.allocated->bytes),
                               printed(event.capacity->bytes))
                      : phrase("{} are allocated by tensors: the GPU is full",
                               printed(event.allocated->bytes)),
       "lower the peak: a smaller micro-batch, shorter sequences, checkpointing, a higher "
       "ZeRO stage or offload; --model and --cluster say which is enough"});
}

void note_kind(const OomEvent& event, std::vector<OomCause>& causes) {
  switch (event.kind) {
    case OomKind::gpu_allocator:
      return;
    case OomKind::gpu_driver:
      causes.push_back(
          {"driver",
           "CUDA itself found no memory: a context, a kernel's module or an allocation "
           "outside PyTorch",
           "leave the driver room: smaller peaks, or fewer processes on the GPU"});
      return;
    case OomKind::gpu_library:
      causes.push_back(
          {"library",
           "cuBLAS or cuDNN found no memory for its own workspace: PyTorch holds it all",
           "leave the libraries about 1 GiB: torch.cuda.set_per_process_memory_fraction, "
           "or smaller peaks"});
      return;
    case OomKind::nccl:
      causes.push_back({"nccl",
                        "NCCL found no memory for its buffers, which lie outside PyTorch's",
                        "leave NCCL room, or lower NCCL_BUFFSIZE"});
      return;
    case OomKind::host_allocator:
      causes.push_back(
          {"host-memory",
           "the host ran out of memory, not the GPU",
           "offload less, load on rank 0 alone (zero.Init), or take a node with more"});
      return;
    case OomKind::host_pinned:
      causes.push_back(
          {"pinned-memory",
           "the host had no page-locked (pinned) memory left for CUDA; the GPU's memory is not "
           "what ran out",
           "pin_memory false in offload_optimizer and offload_param (dataloader_pin_memory for the "
           "data loader), ulimit -l unlimited (docker --ulimit memlock=-1), or a node with more "
           "host memory"});
      return;
    case OomKind::host_killed: {
      std::string text =
          "a process was killed (SIGKILL), nearly always by the kernel or a cgroup "
          "for lack of host memory";
      if (event.host_resident)
        text.append(phrase("; it held {}", printed(event.host_resident->bytes)));
      causes.push_back(
          {"host-killed",
           text,
           "dmesg tells; offload less, load on rank 0 alone, or take a node with more"});
      return;
    }
    case OomKind::shared_memory:
      causes.push_back({"shared-memory",
                        "SIGBUS: /dev/shm is too small (64 MiB in a container by default)",
                        "start the container with --shm-size=16g or --ipc=host"});
      return;
  }
}

}  // namespace

std::string printed(Bytes bytes) {
  const bool large = bytes >= Bytes::gib(1);
  const double number =
      static_cast<double>(bytes.count()) / static_cast<double>(large ? 1 << 30 : 1 << 20);
  char text[40];
  std::snprintf(text, sizeof text, "%.2f %s", number, large ? "GiB" : "MiB");
  return text;
}

std::optional<Bytes> memory_of_others(const OomEvent& event) {
  if (!event.other_processes.empty()) {
    Bytes total;
    for (const OomProcess& process : event.other_processes) {
      if (process.memory) total += process.memory->bytes;
    }
    return total;
  }
  if (!event.capacity || !event.free || event.capacity->bytes < event.free->bytes) return {};
  const Bytes used = event.capacity->bytes - event.free->bytes;
  if (const auto own = value(event.process)) return *own < used ? used - *own : Bytes::zero();
  // Older messages leave out context and libraries: only what passes them is somebody else's.
  const std::optional<PrintedSize> reserved = total_reserved(event);
  if (!reserved || event.limit) return std::nullopt;
  const Bytes own = reserved->bytes + kOutsideTorchAtMost;
  return own < used ? used - reserved->bytes : Bytes::zero();
}

std::vector<OomCause> diagnose(const OomEvent& event) {
  std::vector<OomCause> causes;
  note_kind(event, causes);
  note_too_small_gpu(event, causes);
  note_limit(event, causes);
  note_free_memory(event, causes);
  note_fragmentation(event, causes);
  note_others(event, causes);
  note_rest(event, causes);
  return causes;
}

}  // namespace zeroplan::evidence
