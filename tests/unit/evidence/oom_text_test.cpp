#include "evidence/oom_text.hpp"

#include <string>

#include "evidence/log_text.hpp"
#include "tests/catch.hpp"

namespace {

using zeroplan::Bytes;
using zeroplan::evidence::OomEvent;
using zeroplan::evidence::OomKind;
using zeroplan::evidence::PrintedSize;
using zeroplan::evidence::read_oom_text;

OomEvent only_event(const std::string& text) {
  const std::vector<OomEvent> events = read_oom_text(text);
  INFO(text);
  REQUIRE(events.size() == 1);
  return events.front();
}

PrintedSize printed(double number, std::int64_t unit) {
  const auto width = static_cast<double>(unit);
  return {Bytes::nearest(number * width), Bytes::nearest(0.005 * width)};
}
PrintedSize mib(double number) { return printed(number, 1 << 20); }
PrintedSize gib(double number) { return printed(number, 1 << 30); }

const std::string kTorch26 =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 1 has a total "
    "capacity of 47.43 GiB of which 101.25 MiB is free. Process 7001 has 12.50 GiB memory in use. "
    "Process 7002 has 388.00 MiB memory in use. Including non-PyTorch memory, this process has "
    "34.40 GiB memory in use. Of the allocated memory 33.61 GiB is allocated by PyTorch, with "
    "24.00 "
    "MiB allocated in private pools (e.g., CUDA Graphs), and 297.12 MiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";

}  // namespace

TEST_CASE("an error of torch 1.x states capacity, allocated, free and all that is reserved") {
  const OomEvent event = only_event(
      "RuntimeError: CUDA out of memory. Tried to allocate 1.25 GiB (GPU 5; 31.75 GiB total "
      "capacity; 28.02 GiB already allocated; 771.50 MiB free; 29.80 GiB reserved in total by "
      "PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid "
      "fragmentation.\n");
  CHECK(event.kind == OomKind::gpu_allocator);
  CHECK(event.gpu == 5);
  CHECK(event.tried == gib(1.25));
  CHECK(event.capacity == gib(31.75));
  CHECK(event.allocated == gib(28.02));
  CHECK(event.free == mib(771.5));
  CHECK(event.reserved == gib(29.8));
  CHECK(zeroplan::evidence::total_reserved(event) == gib(29.8));
  CHECK_FALSE(event.rank);
  CHECK_FALSE(event.limit);
}

TEST_CASE("torch 1.3 called the reserved memory cached") {
  const OomEvent event = only_event(
      "RuntimeError: CUDA out of memory. Tried to allocate 16.50 MiB (GPU 0; 10.76 GiB total "
      "capacity; 9.31 GiB already allocated; 8.56 MiB free; 431.02 MiB cached)");
  CHECK(event.reserved == mib(431.02));
  CHECK(event.free == mib(8.56));
}

TEST_CASE("a limit of set_per_process_memory_fraction is read in both forms") {
  const OomEvent old = only_event(
      "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 39.59 GiB total capacity; 17.10 GiB "
      "already allocated; 20.00 GiB free; 19.79 GiB allowed; 18.20 GiB reserved in total by "
      "PyTorch)");
  CHECK(old.limit == gib(19.79));
  CHECK(old.reserved == gib(18.2));
  const OomEvent event = only_event(
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 90.00 MiB. GPU 0 has a total "
      "capacity of 79.19 GiB of which 60.07 GiB is free. 15.84 GiB allowed; Of the allocated "
      "memory "
      "15.02 GiB is allocated by PyTorch, and 760.10 MiB is reserved by PyTorch but unallocated.");
  CHECK(event.limit == gib(15.84));
  CHECK(event.free == gib(60.07));
  CHECK(event.reserved_unallocated == mib(760.1));
  const OomEvent rejected = only_event(
      "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
      "per_process_memory_fraction limit. Requested size: 3.00 GiB");
  CHECK(rejected.tried == gib(3.0));
}

TEST_CASE("torch 2.1 wrote capacty; in a container the process that names itself is this one") {
  const OomEvent event = only_event(
      "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 172.00 MiB. GPU 0 has a "
      "total capacty of 23.65 GiB of which 88.06 MiB is free. Process 4242 has 402.00 MiB memory "
      "in "
      "use. Process 4243 has 22.90 GiB memory in use. Of the allocated memory 22.01 GiB is "
      "allocated "
      "by PyTorch, and 3.40 MiB is reserved by PyTorch but unallocated.");
  CHECK(event.capacity == gib(23.65));
  REQUIRE(event.other_processes.size() == 1);
  CHECK(event.other_processes[0].pid == 4242);
  CHECK(event.process == gib(22.9));
  CHECK(event.pid == 4243);
}

TEST_CASE("a process is taken for this one only where context and reserved memory make its sum") {
  const auto event = [](const std::string& processes) {
    return only_event(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 39.39 GiB of which 1.19 GiB is free. " +
        processes +
        "Of the allocated memory 35.41 GiB is allocated by PyTorch, and 1.32 GiB is reserved by "
        "PyTorch but unallocated.");
  };
  const OomEvent own = event("Process 3191 has 38.19 GiB memory in use. ");
  CHECK(own.process == gib(38.19));
  CHECK(own.other_processes.empty());
  // As much as PyTorch holds without any context, and far more than it can hold.
  CHECK_FALSE(event("Process 3191 has 36.73 GiB memory in use. ").process);
  CHECK_FALSE(event("Process 3191 has 39.80 GiB memory in use. ").process);
  const OomEvent two = event(
      "Process 7 has 0 bytes memory in use. Process 8 has 39.70 GiB memory in use. Process 9 has "
      "37.30 GiB memory in use. ");
  CHECK(two.pid == 9);
  CHECK(two.other_processes.size() == 2);
}

TEST_CASE("torch 2.6 states this process, private pools and what is reserved but unallocated") {
  const OomEvent event = only_event(kTorch26);
  CHECK(event.gpu == 1);
  CHECK(event.tried == mib(224));
  CHECK(event.free == mib(101.25));
  CHECK(event.process == gib(34.4));
  CHECK(event.allocated == gib(33.61));
  CHECK(event.private_pools == mib(24));
  CHECK(event.reserved_unallocated == mib(297.12));
  REQUIRE(event.other_processes.size() == 2);
  const auto reserved = zeroplan::evidence::total_reserved(event);
  REQUIRE(reserved);
  CHECK(reserved->bytes == gib(33.61).bytes + mib(24).bytes + mib(297.12).bytes);
}

TEST_CASE("a size that no memory has is unknown, and what follows is read") {
  const OomEvent negative = only_event(
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.98 GiB. GPU 0 has a total "
      "capacity of 31.84 GiB of which 0 bytes is free. Including non-PyTorch memory, this process "
      "has 17179869184.00 GiB memory in use. Of the allocated memory 6.74 GiB is allocated by "
      "PyTorch, and 7.02 GiB is reserved by PyTorch but unallocated.");
  CHECK(negative.free == PrintedSize{});
  CHECK_FALSE(negative.process);
  CHECK(negative.allocated == gib(6.74));
  const OomEvent huge = only_event(
      "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.");
  CHECK_FALSE(huge.tried);
}

TEST_CASE("other devices and a missing index are read") {
  CHECK(only_event("HIP out of memory. Tried to allocate 76.00 MiB. GPU 3 has a total capacity of "
                   "191.98 GiB of which 20.00 MiB is free.")
            .gpu == 3);
  CHECK(only_event("RuntimeError: NPU out of memory. Tried to allocate 2.50 GiB (NPU 2; 61.00 GiB "
                   "total capacity; 50.00 GiB already allocated)")
            .capacity == gib(61));
  const OomEvent event = only_event(
      "CUDA out of memory. Tried to allocate 20.00 MiB. GPU  has a total capacity of 44.34 GiB of "
      "which 10.81 MiB is free.");
  CHECK_FALSE(event.gpu);
  CHECK(event.capacity == gib(44.34));
}

TEST_CASE("interleaved ranks, colours and Windows' line ends do not disturb the reading") {
  const std::string log =
      "[2024-05-01 10:00:00,001] [INFO] [launch.py:256:main] process 1 spawned\r\n"
      "\x1b[31m[rank1]:\x1b[0m Traceback (most recent call last):\r\n"
      "[rank0]: Traceback (most recent call last):\r\n"
      "[rank1]: \x1b[1mtorch.OutOfMemoryError\x1b[0m: CUDA out of memory. Tried to allocate 1.00 "
      "GiB.\x1b[K GPU 1 has a total capacity of 79.15 GiB of which 512.00 MiB is free.\r\n"
      "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has "
      "a "
      "total capacity of 79.15 GiB of which 1.50 GiB is free.\r\n";
  const std::vector<OomEvent> events = read_oom_text(log);
  REQUIRE(events.size() == 2);
  CHECK(events[0].rank == 1);
  CHECK(events[0].line == 4);
  CHECK(events[0].tried == gib(1));
  CHECK(events[0].free == mib(512));
  CHECK(events[1].rank == 0);
  CHECK(events[1].line == 5);
  CHECK(events[1].free == gib(1.5));
}

TEST_CASE("a message that is wrapped by hand between lines of other ranks stays one") {
  const OomEvent event = only_event(
      "3: torch.OutOfMemoryError: CUDA out of memory. Tried to\n"
      "1: step 12 loss 2.31\n"
      "3: allocate 6.00 GiB. GPU 3 has a total capacity of 39.39 GiB\n"
      "0: step 12 loss 2.30\n"
      "3: of which 5.00 GiB is free.\n");
  CHECK(event.rank == 3);
  CHECK(event.line == 1);
  CHECK(event.tried == gib(6));
  CHECK(event.free == gib(5));
  const OomEvent quoted = only_event(
      "> # torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 250.00 MiB. GPU 0 has a\n"
      "> # total capacity of 79.19 GiB of which 2.07 GiB is free. Including\n"
      "> # non-PyTorch memory, this process has 77.11 GiB memory in use.\n");
  CHECK(quoted.process == gib(77.11));
}

TEST_CASE("labels of launchers name the rank") {
  const std::string error = "CUDA out of memory. Tried to allocate 4.00 MiB.\n";
  CHECK(only_event("[rank12]: " + error).rank == 12);
  CHECK(only_event("[default3]:" + error).rank == 3);
  CHECK(only_event("[1,7]<stderr>:" + error).rank == 7);
  CHECK(only_event(" 5: " + error).rank == 5);
  CHECK(only_event("worker-2: [rank9]: " + error).rank == 9);
  CHECK(only_event("2024-05-01T10:00:00Z [rank4]: " + error).rank == 4);
  CHECK_FALSE(only_event("(RayTrainWorker pid=77, ip=10.0.0.1) " + error).rank);
  CHECK_FALSE(only_event("12:30:01 " + error).rank);
}

TEST_CASE("an error that the log tells twice is one event") {
  const OomEvent event = only_event(kTorch26 + "\n[rank1]: " + kTorch26 + "\n");
  CHECK(event.times == 2);
  CHECK(event.line == 1);
  CHECK(event.rank == 1);
  CHECK(read_oom_text("[rank0]: " + kTorch26 + "\n[rank1]: " + kTorch26 + "\n").size() == 2);
}

TEST_CASE("errors of the driver and its libraries state no sizes") {
  CHECK(only_event("RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be "
                   "asynchronously reported")
            .kind == OomKind::gpu_driver);
  CHECK(
      only_event("RuntimeError: cuda runtime error (2) : out of memory at /pytorch/a.cu:66").kind ==
      OomKind::gpu_driver);
  CHECK(only_event("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling "
                   "`cublasCreate(handle)`")
            .kind == OomKind::gpu_library);
  CHECK(only_event("Triton Error [CUDA]: out of memory").kind == OomKind::gpu_driver);
}

TEST_CASE("NCCL's buffers give the device, the process and the bytes") {
  const OomEvent event = only_event(
      "node7:3063028:3066152 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\n"
      "\n"
      "node7:3063028:3066152 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 "
      "bytes\n");
  CHECK(event.kind == OomKind::nccl);
  CHECK(event.gpu == 3);
  CHECK(event.pid == 3063028);
  CHECK(event.times == 2);
  CHECK(event.tried == PrintedSize{Bytes::of(6291456), Bytes::zero()});
  CHECK(only_event("ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nFailed to "
                   "CUDA calloc async 2432 bytes")
            .tried->bytes == Bytes::of(2432));
}

TEST_CASE("the host's allocators are told from the GPU's") {
  const OomEvent event = only_event(
      "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't "
      "allocate memory: you tried to allocate 26954174464 bytes. Error code 12 (Cannot allocate "
      "memory)");
  CHECK(event.kind == OomKind::host_allocator);
  CHECK(event.tried->bytes == Bytes::of(26954174464));
  CHECK(only_event("OSError: [Errno 12] Cannot allocate memory").kind == OomKind::host_allocator);
}

TEST_CASE("page-locked memory of the host is told from the GPU's, if only by the traceback") {
  CHECK(only_event("RuntimeError: CUDA error: cudaHostAlloc out of memory").kind ==
        OomKind::host_pinned);
  CHECK(only_event("NCCL WARN Failed to CUDA host alloc 4096 bytes").tried->bytes ==
        Bytes::of(4096));
  const std::string frame = "  File \"stage3.py\", line 700, in _create_fp16_partitions\n    ";
  CHECK(only_event(frame + "param.pin_memory()\n    ~~~~~^^^^^^\nRuntimeError: CUDA error: out of "
                           "memory\n")
            .kind == OomKind::host_pinned);
  CHECK(only_event(frame + "loader = DataLoader(data, pin_memory=True)\nRuntimeError: CUDA error: "
                           "out of memory\n")
            .kind == OomKind::gpu_driver);
}

TEST_CASE("a killed process is one event however many lines tell it") {
  const OomEvent event = only_event(
      "[2024-05-01 10:00:00,001] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 4711\n"
      "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 1 "
      "(pid: "
      "4711) of binary: /usr/bin/python\n"
      "  rank      : 1 (local_rank: 1)\n"
      "  exitcode  : -9 (pid: 4711)\n"
      "  traceback : Signal 9 (SIGKILL) received by PID 4711\n"
      "[2024-05-01 10:00:01,002] [ERROR] [launch.py:321:sigkill_handler] ['python', '-u', 'a.py'] "
      "exits with return code = -9\n");
  CHECK(event.kind == OomKind::host_killed);
  CHECK(event.rank == 1);
  CHECK(event.pid == 4711);
  CHECK(event.line == 2);
  CHECK(event.times == 4);
}

TEST_CASE("the kernel's log tells how large the killed process was") {
  const OomEvent event = only_event(
      "[337533.4] Memory cgroup out of memory: Killed process 23793 (python3) "
      "total-vm:900000000kB, "
      "anon-rss:786432000kB, file-rss:1268kB, shmem-rss:0kB");
  CHECK(event.pid == 23793);
  REQUIRE(event.host_resident);
  CHECK(event.host_resident->bytes == Bytes::gib(750));
}

TEST_CASE("exit code -7 is shared memory, and other codes are nothing") {
  CHECK(only_event("[launch.py:321:sigkill_handler] ['python'] exits with return code = -7").kind ==
        OomKind::shared_memory);
  CHECK(read_oom_text("exits with return code = 1\nexits with return code = -95\n").empty());
  CHECK(read_oom_text("").empty());
  CHECK(read_oom_text("Running out of memory is what this page is about").empty());
}

TEST_CASE("an event as JSON leaves out what is absent") {
  const OomEvent event = only_event("[rank1]: CUDA out of memory. Tried to allocate 2.00 KiB.");
  CHECK(zeroplan::evidence::to_json(event).dump() ==
        R"({"kind":"gpu_allocator","line":1,"rank":1,"tried_bytes":2048})");
}

TEST_CASE("escape sequences of every kind leave the text") {
  CHECK(zeroplan::evidence::without_escapes(
            "\x1b[1;31mred\x1b[0m \x1b]0;title\x07 a\x1b(B b\x1b") == "red  aB b");
  CHECK(zeroplan::evidence::without_escapes("\x1b[31") == "");
}
