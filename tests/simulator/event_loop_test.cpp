// The event loop on small programs whose times are known by hand.
#include "simulator/event_loop.hpp"

#include <vector>

#include "simulator/program_writer.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

constexpr simulator::StreamId kCompute = simulator::kComputeStream;

// A program under construction, times in milliseconds.
struct Script {
  simulator::Program program;
  simulator::ProgramWriter writer{program};

  Script() { writer.add_stream("compute"); }

  simulator::TaskIndex task(simulator::TaskKind kind,
                            double dispatch_ms,
                            double duration_ms,
                            simulator::Demands demands = {}) {
    return writer.add_task(
        {"task", kind, Seconds::of(dispatch_ms * 1e-3), Seconds::of(duration_ms * 1e-3), demands});
  }
  simulator::TaskIndex kernel(double dispatch_ms, double duration_ms) {
    return task(simulator::TaskKind::kernel, dispatch_ms, duration_ms);
  }
  void allocate(simulator::SlotIndex slot, Bytes bytes, simulator::StreamId stream = kCompute) {
    writer.allocate(slot, bytes, MemoryCategory::activations, stream);
  }
};

double run_ms(const Script& script, const simulator::AllocatorOptions& options = {}) {
  simulator::EventLoop loop(script.program, options);
  REQUIRE(loop.play({0, script.program.code.size()}));
  loop.drain();
  return (loop.time().end - loop.time().begin) * 1e3;
}

simulator::Demands demand(simulator::SharedResource resource, float share) {
  simulator::Demands demands{};
  demands[static_cast<std::size_t>(resource)] = share;
  return demands;
}

double idle_ms(const simulator::EventLoop& loop, simulator::IdleCause cause) {
  return loop.time().idle[static_cast<std::size_t>(cause)] * 1e3;
}

}  // namespace

TEST_CASE("long kernels hide their dispatch, short ones wait for it") {
  Script slow;
  const simulator::TaskIndex long_kernel = slow.kernel(1.0, 3.0);
  for (int i = 0; i < 10; ++i) slow.writer.issue(long_kernel, kCompute);
  CHECK(run_ms(slow) == Approx(1.0 + 10 * 3.0));

  Script fast;
  const simulator::TaskIndex short_kernel = fast.kernel(2.0, 0.5);
  for (int i = 0; i < 10; ++i) fast.writer.issue(short_kernel, kCompute);
  simulator::EventLoop loop(fast.program, {});
  REQUIRE(loop.play({0, fast.program.code.size()}));
  loop.drain();
  CHECK(loop.time().end * 1e3 == Approx(10 * 2.0 + 0.5));
  CHECK(idle_ms(loop, simulator::IdleCause::dispatch) == Approx(10 * 2.0 - 9 * 0.5));
  CHECK(loop.time().compute_busy * 1e3 == Approx(5.0));
}

TEST_CASE("a task without a kernel costs the host alone") {
  Script script;
  script.writer.issue(script.kernel(1.5, 0.0), kCompute);
  CHECK(run_ms(script) == Approx(1.5));
}

TEST_CASE("streams overlap where they share nothing") {
  Script script;
  const simulator::StreamId side = script.writer.add_stream("side");
  script.writer.issue(script.kernel(0.0, 4.0), kCompute);
  script.writer.issue(script.task(simulator::TaskKind::collective, 0.0, 3.0), side);
  CHECK(run_ms(script) == Approx(4.0));
}

TEST_CASE("what two tasks ask of a resource beyond all of it slows both down") {
  Script script;
  const simulator::StreamId side = script.writer.add_stream("side");
  const simulator::Demands most = demand(simulator::SharedResource::multiprocessors, 1.0F);
  const simulator::Demands some = demand(simulator::SharedResource::multiprocessors, 0.25F);
  script.writer.issue(script.task(simulator::TaskKind::kernel, 0.0, 4.0, most), kCompute);
  script.writer.issue(script.task(simulator::TaskKind::collective, 0.0, 2.0, some), side);
  // Both at 1 / 1.25 until the collective ends at 2.5 ms; the kernel has 2 ms left then.
  CHECK(run_ms(script) == Approx(2.5 + 2.0));
}

TEST_CASE("a task that follows its like under sharing goes on at the same rate") {
  Script script;
  const simulator::StreamId side = script.writer.add_stream("side");
  const simulator::TaskIndex kernel = script.task(
      simulator::TaskKind::kernel, 0.0, 1.0, demand(simulator::SharedResource::gpu_memory, 1.0F));
  script.writer.issue(script.task(simulator::TaskKind::collective,
                                  0.0,
                                  4.0,
                                  demand(simulator::SharedResource::gpu_memory, 0.6F)),
                      side);
  for (int i = 0; i < 3; ++i) script.writer.issue(kernel, kCompute);
  // 3 ms of kernels at 1 / 1.6 take 4.8 ms; the collective has 1 ms left then, alone.
  CHECK(run_ms(script) == Approx(4.8 + 1.0));
}

TEST_CASE("a stream waits for what another one had queued, and not for what comes later") {
  Script script;
  const simulator::StreamId side = script.writer.add_stream("side");
  const simulator::TaskIndex collective = script.task(simulator::TaskKind::collective, 0.0, 5.0);
  const simulator::EventIndex done = script.writer.new_event();
  script.writer.issue(collective, side);
  script.writer.record_event(done, side);
  script.writer.issue(collective, side);
  script.writer.issue(script.kernel(0.0, 1.0), kCompute);
  script.writer.stream_wait(kCompute, done);
  script.writer.issue(script.kernel(0.0, 1.0), kCompute);
  simulator::EventLoop loop(script.program, {});
  REQUIRE(loop.play({0, script.program.code.size()}));
  loop.drain();
  CHECK(loop.time().end * 1e3 == Approx(10.0));
  CHECK(idle_ms(loop, simulator::IdleCause::communication) == Approx(4.0 + 4.0));
}

TEST_CASE("waits chain: the cause of idling is what the last stream in the chain does") {
  Script script;
  const simulator::StreamId middle = script.writer.add_stream("middle");
  const simulator::StreamId copies = script.writer.add_stream("copies");
  script.writer.issue(script.task(simulator::TaskKind::copy_to_device, 0.0, 2.0), copies);
  script.writer.wait_stream(middle, copies);
  script.writer.issue(script.task(simulator::TaskKind::collective, 0.0, 1.0), middle);
  script.writer.wait_stream(kCompute, middle);
  script.writer.issue(script.kernel(0.0, 1.0), kCompute);
  simulator::EventLoop loop(script.program, {});
  REQUIRE(loop.play({0, script.program.code.size()}));
  loop.drain();
  CHECK(loop.time().end * 1e3 == Approx(4.0));
  CHECK(idle_ms(loop, simulator::IdleCause::copies) == Approx(2.0));
  CHECK(idle_ms(loop, simulator::IdleCause::communication) == Approx(1.0));
}

TEST_CASE("the host blocks on an event, on a stream, on the device") {
  for (const int how : {0, 1, 2}) {
    Script script;
    const simulator::EventIndex event = script.writer.new_event();
    script.writer.issue(script.kernel(1.0, 6.0), kCompute);
    script.writer.record_event(event, kCompute);
    if (how == 0) script.writer.host_wait(event);
    if (how == 1) script.writer.host_wait_stream(kCompute);
    if (how == 2) script.writer.host_wait_device();
    script.writer.issue(script.kernel(2.0, 1.0), kCompute);
    CHECK(run_ms(script) == Approx(1.0 + 6.0 + 2.0 + 1.0));
  }
}

TEST_CASE("a throttle drops what is finished and blocks on the oldest of too many") {
  Script script;
  const simulator::StreamId side = script.writer.add_stream("side");
  const simulator::QueueIndex queue = script.writer.new_queue();
  const simulator::TaskIndex gather = script.task(simulator::TaskKind::collective, 1.0, 10.0);
  for (int i = 0; i < 5; ++i) {
    script.writer.throttle(queue, 2);
    script.writer.issue(gather, side);
    script.writer.queue_event(queue, side);
  }
  simulator::EventLoop loop(script.program, {});
  REQUIRE(loop.play({0, script.program.code.size()}));
  // Three in flight after the third issue; the fourth waits for the first, which ends at 11 ms.
  CHECK(loop.now().seconds() * 1e3 == Approx(21.0 + 1.0));
  loop.drain();
  CHECK(loop.time().end * 1e3 == Approx(1.0 + 50.0));
}

TEST_CASE("a launch queue that is full blocks the host") {
  Script script;
  const simulator::TaskIndex kernel = script.kernel(0.0, 1.0);
  const auto launches = static_cast<int>(simulator::kLaunchQueue) + 10;
  for (int i = 0; i < launches; ++i) script.writer.issue(kernel, kCompute);
  simulator::EventLoop loop(script.program, {});
  REQUIRE(loop.play({0, script.program.code.size()}));
  // The one that runs has left the queue.
  CHECK(loop.now().seconds() * 1e3 == Approx(9.0));
}

TEST_CASE("a tensor used on another stream is reused only when that stream is done with it") {
  Script script;
  const simulator::StreamId side = script.writer.add_stream("side");
  const Bytes size = Bytes::mib(64);
  const simulator::SlotIndex first = script.writer.new_slot();
  const simulator::SlotIndex second = script.writer.new_slot();
  script.allocate(first, size);
  script.writer.issue(script.task(simulator::TaskKind::collective, 0.0, 5.0), side);
  script.writer.use_on_stream(first, side);
  script.writer.release(first);
  script.allocate(second, size);
  simulator::EventLoop loop(script.program, {});
  REQUIRE(loop.play({0, script.program.code.size()}));
  CHECK(loop.allocator().stats().peak_allocated() == size);
  CHECK(loop.allocator().stats().peak_reserved() == size * 2);
}

TEST_CASE("a full GPU makes the host wait for deferred frees before it gives up") {
  Script script;
  const simulator::StreamId side = script.writer.add_stream("side");
  const Bytes size = Bytes::mib(64);
  const simulator::SlotIndex first = script.writer.new_slot();
  const simulator::SlotIndex second = script.writer.new_slot();
  script.allocate(first, size);
  script.writer.issue(script.task(simulator::TaskKind::collective, 0.0, 5.0), side);
  script.writer.use_on_stream(first, side);
  script.writer.release(first);
  script.allocate(second, size);
  simulator::AllocatorOptions options;
  options.device_total = options.available = Bytes::mib(100);
  simulator::EventLoop loop(script.program, options);
  REQUIRE(loop.play({0, script.program.code.size()}));
  CHECK(loop.now().seconds() * 1e3 == Approx(5.0));
  CHECK(loop.allocator().stats().num_alloc_retries == 1);
  CHECK(loop.allocator().stats().peak_reserved() == size);
}

TEST_CASE("what does not fit ends the program, with the tensor's name") {
  Script script;
  const simulator::SlotIndex slot = script.writer.new_slot();
  script.writer.mark(Phase::backward);
  script.writer.set_label(script.writer.add_label("lm_head"));
  script.writer.allocate(slot, Bytes::gib(2), MemoryCategory::logits, kCompute);
  simulator::AllocatorOptions options;
  options.device_total = options.available = Bytes::gib(1);
  simulator::EventLoop loop(script.program, options);
  CHECK_FALSE(loop.play({0, script.program.code.size()}));
  CHECK(loop.out_of_memory().category == MemoryCategory::logits);
  CHECK(loop.out_of_memory().phase == Phase::backward);
  CHECK(script.program.labels[static_cast<std::size_t>(loop.out_of_memory().label)] == "lm_head");
  CHECK(loop.out_of_memory().numbers.requested == Bytes::gib(2));
}

TEST_CASE("phases are cut where the compute stream reaches their marks and add up to the step") {
  Script script;
  script.writer.mark(Phase::forward);
  script.writer.issue(script.kernel(0.1, 2.0), kCompute);
  script.writer.mark(Phase::backward);
  script.writer.issue(script.kernel(0.1, 4.0), kCompute);
  script.writer.mark(Phase::step);
  script.writer.issue(script.kernel(0.1, 1.0), kCompute);
  simulator::EventLoop loop(script.program, {});
  REQUIRE(loop.play({0, script.program.code.size()}));
  loop.drain();
  const simulator::TimeAccount& time = loop.time();
  CHECK(time.phase[static_cast<std::size_t>(Phase::forward)] * 1e3 == Approx(2.1));
  CHECK(time.phase[static_cast<std::size_t>(Phase::backward)] * 1e3 == Approx(4.0));
  CHECK(time.phase[static_cast<std::size_t>(Phase::step)] * 1e3 == Approx(1.0));
  double sum = 0.0;
  for (const double seconds : time.phase) sum += seconds;
  CHECK(sum == Approx(time.end - time.begin));
}

TEST_CASE("memory is counted by category at the highest moment of each phase") {
  Script script;
  const simulator::SlotIndex weights = script.writer.new_slot();
  const simulator::SlotIndex saved = script.writer.new_slot();
  const simulator::SlotIndex gradient = script.writer.new_slot();
  script.writer.allocate(weights, Bytes::mib(40), MemoryCategory::parameters, kCompute);
  script.writer.mark(Phase::forward);
  script.allocate(saved, Bytes::mib(30));
  script.writer.mark(Phase::backward);
  script.writer.allocate(gradient, Bytes::mib(20), MemoryCategory::gradients, kCompute);
  script.writer.release(saved);
  script.writer.release(gradient);
  simulator::EventLoop loop(script.program, {});
  REQUIRE(loop.play({0, script.program.code.size()}));
  const auto& backward = loop.memory().at_peak[static_cast<std::size_t>(Phase::backward)];
  CHECK(at(backward, MemoryCategory::parameters) == Bytes::mib(40));
  CHECK(at(backward, MemoryCategory::activations) == Bytes::mib(30));
  CHECK(at(backward, MemoryCategory::gradients) == Bytes::mib(20));
  CHECK(loop.memory().allocated == Bytes::mib(40));
  CHECK(loop.allocator().stats().allocated() == Bytes::mib(40));
}

TEST_CASE("memory that goes back to the driver and is taken again takes the host's time") {
  Script script;
  script.program.device_memory = {Seconds::of(1e-3), BytesPerSecond::of(1e11)};
  const simulator::SlotIndex slot = script.writer.new_slot();
  const simulator::TaskIndex kernel = script.kernel(0.0, 7.0);
  const auto hold_for_a_kernel = [&](std::int64_t mib) {
    script.allocate(slot, Bytes::mib(mib));
    script.writer.issue(kernel, kCompute);
    script.writer.release(slot);
  };
  hold_for_a_kernel(100);
  hold_for_a_kernel(100);
  CHECK(run_ms(script) == Approx(2 * 7.0));  // taken once, for the first time

  // A GPU with no room for both: the 100 MiB go back, which waits for the kernels and is a call,
  // and of the 120 MiB 100 are taken again, which is one too.
  hold_for_a_kernel(120);
  simulator::AllocatorOptions gpu;
  gpu.device_total = gpu.available = Bytes::mib(200);
  simulator::EventLoop loop(script.program, gpu);
  REQUIRE(loop.play({0, script.program.code.size()}));
  loop.drain();
  const double again_ms = 2.0 + 100.0 * 1024 * 1024 / 1e8;
  CHECK(loop.allocator().stats().num_alloc_retries == 1);
  CHECK(loop.time().end * 1e3 == Approx(3 * 7.0 + again_ms));
  CHECK(loop.time().device_memory * 1e3 == Approx(again_ms));
  CHECK(loop.time().device_calls == 2);
  CHECK(idle_ms(loop, simulator::IdleCause::dispatch) == Approx(again_ms));

  // With room there is nothing to pay.
  simulator::EventLoop roomy(script.program, {});
  REQUIRE(roomy.play({0, script.program.code.size()}));
  roomy.drain();
  CHECK(roomy.time().end * 1e3 == Approx(3 * 7.0));
  CHECK(roomy.time().device_calls == 0);
}

TEST_CASE("an emptied cache waits for the GPU and pays for what goes back") {
  Script script;
  script.program.device_memory = {Seconds::of(1e-3), BytesPerSecond::infinite()};
  const simulator::SlotIndex slot = script.writer.new_slot();
  script.allocate(slot, Bytes::mib(64));
  script.writer.issue(script.kernel(0.0, 5.0), kCompute);
  script.writer.release(slot);
  script.writer.empty_cache();
  script.writer.empty_cache();  // nothing is left that could go back
  CHECK(run_ms(script) == Approx(5.0 + 1.0));
}
