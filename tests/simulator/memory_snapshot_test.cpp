// What other programs open: the pickle for PyTorch's memory visualizer, the trace for Perfetto.
#include "simulator/memory_snapshot.hpp"

#include <map>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "simulator/pickle.hpp"
#include "simulator/program_writer.hpp"
#include "simulator/trace.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

// Two kernels and a collective beside them, with a tensor.
struct Example {
  simulator::Program program;
  simulator::TraceRecorder recorder;

  Example() {
    simulator::ProgramWriter writer(program);
    writer.add_stream("compute");
    const simulator::StreamId nccl = writer.add_stream("NCCL");
    const simulator::TaskIndex kernel = writer.add_task(
        {"mm", simulator::TaskKind::kernel, Seconds::micro(5), Seconds::micro(100), {}});
    const simulator::TaskIndex gather = writer.add_task({"all_gather",
                                                         simulator::TaskKind::collective,
                                                         Seconds::micro(5),
                                                         Seconds::micro(150),
                                                         {}});
    const simulator::SlotIndex slot = writer.new_slot();
    writer.set_label(writer.add_label("layers.0 \"quoted\""));
    writer.mark(Phase::forward);
    writer.allocate(slot, Bytes::mib(4), MemoryCategory::activations, simulator::kComputeStream);
    writer.issue(kernel, simulator::kComputeStream);
    writer.issue(gather, nccl);
    writer.issue(kernel, simulator::kComputeStream);
    writer.mark(Phase::backward);
    writer.release(slot);
  }
};

}  // namespace

TEST_CASE("a pickle is what Python's protocol 2 says") {
  simulator::PickleWriter out;
  out.begin_dict();
  out.entry("a", 7);
  out.text("b");
  out.begin_list();
  out.integer(-1);
  out.integer(std::int64_t{1} << 40);
  out.boolean(true);
  out.end_list();
  out.end_dict();
  // python3 -c 'import pickle; print(pickle.loads(...))': {"a": 7, "b": [-1, 1 << 40, True]}
  CHECK(out.finish() ==
        bytes({0x80, 2,   '}', '(', 'X', 1, 0,   0,   0,   'a', 'J',  7,    0,    0,
               0,    'X', 1,   0,   0,   0, 'b', ']', '(', 'J', 0xff, 0xff, 0xff, 0xff,
               0x8a, 8,   0,   0,   0,   0, 0,   1,   0,   0,   0x88, 'e',  'u',  '.'}));
}

TEST_CASE("a snapshot names every allocation by its category and what it was made for") {
  Example example;
  simulator::EventLoop loop(example.program, {});
  std::vector<simulator::AllocatorEvent> events;
  loop.record_allocator_events(&events);
  REQUIRE(loop.play({0, example.program.code.size()}));
  REQUIRE(events.size() >= 3);  // a segment, the tensor, its end
  const std::string pickle =
      simulator::memory_snapshot(example.program, events, loop.allocator().snapshot());
  CHECK(pickle.find("layers.0 \"quoted\"") != std::string::npos);
  CHECK(pickle.find("activations") != std::string::npos);
  CHECK(pickle.find("segment_alloc") != std::string::npos);
  CHECK(pickle.find("free_completed") != std::string::npos);
  CHECK(pickle.back() == '.');
}

TEST_CASE("a trace is JSON with a track a stream, on which nothing overlaps") {
  Example example;
  simulator::EventLoop loop(example.program, {});
  loop.observe(&example.recorder);
  REQUIRE(loop.play({0, example.program.code.size()}));
  loop.drain();
  const std::string text = simulator::chrome_trace(std::vector<simulator::TracedRank>{
      {"a \"title\"", &example.program, &example.recorder.timeline()}});
  const Json trace = parse_json(text, "trace").root;
  std::map<std::int64_t, double> busy_until;
  int spans = 0;
  int counters = 0;
  double collective = 0.0;
  for (const Json& event : trace.find("traceEvents")->items()) {
    const std::string kind = event.find("ph")->as_string();
    if (kind == "C") ++counters;
    if (kind != "X") continue;
    ++spans;
    const double begin = event.find("ts")->as_number();
    double& until = busy_until[event.find("tid")->as_integer()];
    CHECK(begin >= until - 1e-3);
    until = begin + event.find("dur")->as_number();
    if (event.find("name")->as_string() == "all_gather")
      collective = event.find("dur")->as_number();
  }
  CHECK(spans == 3 + 2);  // tasks and phases
  CHECK(counters >= 2);
  CHECK(collective == Approx(150.0));
}
