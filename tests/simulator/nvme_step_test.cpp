// Steps that swap to NVMe: what is read and written is the analytic estimate's, and what runs
// beside what is what DeepSpeed's swappers allow.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "model/cost/nvme.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/step_traffic.hpp"
#include "model/step/step_graph.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/recording.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

struct Case {
  std::string cluster = "1x2xA100-80G-SXM";
  std::string states = "nvme", weights = "nvme";
  std::int64_t max_in_cpu = 0;
  std::int64_t sub_group = 3'000'000;
  int accumulation = 1;
  bool read_ahead = false, write_behind = false;
  std::string more;  // of zero_optimization

  Plan plan() const {
    const auto flag = [](bool value) { return value ? "true" : "false"; };
    std::string zero = R"("stage":3,"sub_group_size":)" + std::to_string(sub_group) + more;
    if (states != "none") {
      zero += R"(,"offload_optimizer":{"device":")" + states +
              R"(","nvme_path":"/n","buffer_count":12,"pipeline_read":)" + flag(read_ahead) +
              R"(,"pipeline_write":)" + flag(write_behind) + "}";
    }
    zero += R"(,"offload_param":{"device":")" + weights + R"(","nvme_path":"/n","max_in_cpu":)" +
            std::to_string(max_in_cpu) + "}";
    const std::string text =
        R"({"model":{"model_type":"llama","architectures":["LlamaForCausalLM"],
        "num_hidden_layers":4,"num_attention_heads":8,"num_key_value_heads":8,"vocab_size":2000,
        "intermediate_size":1500,"max_position_embeddings":4096,"tie_word_embeddings":false,
        "rms_norm_eps":1e-6,"hidden_size":1024},"cluster":")" +
        cluster + R"(","workload":{"frontend":"native","sequence_length":128,
        "gradient_accumulation_steps":)" +
        std::to_string(accumulation) + R"(},"ds_config":{"bf16":{"enabled":true},
        "aio":{"block_size":262144,"queue_depth":16,"thread_count":2},"zero_optimization":{)" +
        zero + "}}}";
    return resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
  }
};

// Seconds of the steady step's tasks of that name.
double seconds_of(const simulator::RankProgram& rank, std::string_view name) {
  double seconds = 0.0;
  const auto add = [&](const simulator::Section& section, std::int64_t times) {
    for (const simulator::Instruction& instruction : rank.program.of(section)) {
      if (instruction.opcode != simulator::Opcode::issue) continue;
      const simulator::Task& task = rank.program.tasks[static_cast<std::size_t>(instruction.index)];
      if (task.name == name) seconds += static_cast<double>(times) * task.duration.seconds();
    }
  };
  for (const simulator::RepeatedSection& part : rank.steady.micro_steps)
    add(part.section, part.times);
  add(rank.steady.optimizer, 1);
  return seconds;
}

// The cost is linear in the bytes, so that equal seconds are equal bytes.
double closed_form(const Plan& plan, Bytes read, Bytes write) {
  NvmeLoad load;
  load.read = read;
  load.write = write;
  load.ranks = plan.cluster.node.gpus_per_node;
  load.requests.block = plan.engine.aio_block_size;
  load.requests.threads = plan.engine.aio_parallelism;
  load.requests.queue_depth = plan.engine.aio_queue_depth;
  return nvme_time(load, plan.cluster.node, plan.coefficients).seconds();
}

struct Span {
  double begin = 0.0, end = 0.0;
};

// Of the simulated step: spans of the stream that bear that name.
std::vector<Span> spans_of(const simulator::SimulatedStep& simulated, std::string_view stream) {
  std::vector<Span> spans;
  for (const simulator::Timeline::Span& span : simulated.timeline.spans) {
    const auto index = static_cast<std::size_t>(span.stream);
    if (simulated.program.streams[index] == stream) spans.push_back({span.begin, span.end});
  }
  return spans;
}

// The states' transfers alone: gradients are written before the first read.
std::vector<Span> after(std::vector<Span> spans, double time) {
  std::erase_if(spans, [&](const Span& span) { return span.begin < time; });
  return spans;
}

}  // namespace

TEST_CASE("a simulated step reads and writes the analytic estimate's bytes") {
  const std::vector<Case> cases = {
      {},
      {.cluster = "1x1xA100-80G-SXM"},
      {.cluster = "2x2xA100-80G-SXM", .max_in_cpu = 4'000'000},
      {.max_in_cpu = 5'000'000, .read_ahead = true, .write_behind = true},
      {.weights = "cpu", .sub_group = 1'000'000'000},
      {.states = "none"},
      {.states = "cpu", .max_in_cpu = 3'000'000},
      {.accumulation = 3, .more = R"(,"stage3_max_reuse_distance":0)"},
      {.more = R"(,"stage3_param_persistence_threshold":3000000)"}};
  for (const Case& c : cases) {
    const Plan plan = c.plan();
    const StepWork work = step_work(plan);
    const StepTraffic traffic = step_traffic(plan, work);
    const simulator::RankProgram rank = simulator::write_rank_program(plan, work.graph);
    INFO("cluster " << c.cluster << ", states " << c.states << ", weights " << c.weights
                    << ", in cpu " << c.max_in_cpu << c.more);
    REQUIRE(traffic.nvme_write > Bytes::zero());
    CHECK(seconds_of(rank, "NVMe read") ==
          Approx(closed_form(plan, traffic.nvme_read, Bytes::zero())).epsilon(1e-9));
    CHECK(seconds_of(rank, "NVMe write") ==
          Approx(closed_form(plan, Bytes::zero(), traffic.nvme_write)).epsilon(1e-9));
  }
}

TEST_CASE("weights that fit into max_in_cpu are not swapped at all") {
  const Case c{.states = "cpu", .max_in_cpu = 1'000'000'000};
  const Plan plan = c.plan();
  const simulator::RankProgram rank = simulator::write_rank_program(plan, step_graph(plan));
  CHECK(seconds_of(rank, "NVMe read") == 0.0);
  CHECK(seconds_of(rank, "NVMe write") == 0.0);
  Case in_cpu = c;
  in_cpu.weights = "cpu";
  CHECK(simulator::simulate(plan).step.total == simulator::simulate(in_cpu.plan()).step.total);
}

TEST_CASE("the next sub-group is read beside the update only with pipeline_read") {
  for (const bool ahead : {false, true}) {
    const Case c{.weights = "none", .read_ahead = ahead};
    const Plan plan = c.plan();
    const simulator::SimulatedStep simulated =
        simulator::simulate_step(plan, simulator::simulate(plan));
    const std::vector<Span> reads = spans_of(simulated, "NVMe read");
    const std::vector<Span> updates = spans_of(simulated, "CPU");  // scale, Adam, cast of each
    REQUIRE(reads.size() > 3);
    REQUIRE(updates.size() == 3 * reads.size());
    for (std::size_t i = 0; i + 1 < reads.size(); ++i) {
      CAPTURE(ahead, i);
      CHECK(updates[3 * i].begin >= reads[i].end);
      // Begun when the one at hand is there, not before.
      CHECK(reads[i + 1].begin >= reads[i].end);
      CHECK((reads[i + 1].begin < updates[3 * i].begin + 1e-4) == ahead);
      CHECK((reads[i + 1].begin < updates[3 * i + 2].end) == ahead);
    }
  }
}

TEST_CASE("a sub-group is written beside the next one's only with pipeline_write") {
  for (const bool behind : {false, true}) {
    const Case c{.weights = "none", .write_behind = behind};
    const Plan plan = c.plan();
    const simulator::SimulatedStep simulated =
        simulator::simulate_step(plan, simulator::simulate(plan));
    const std::vector<Span> reads = spans_of(simulated, "NVMe read");
    const std::vector<Span> writes = after(spans_of(simulated, "NVMe write"), reads.front().begin);
    REQUIRE(reads.size() > 3);
    REQUIRE(writes.size() == reads.size());
    for (std::size_t i = 0; i + 1 < reads.size(); ++i) {
      CAPTURE(behind, i);
      CHECK((reads[i + 1].begin < writes[i].end) == behind);
      CHECK(writes[i + 1].begin >= writes[i].end);
    }
    // Gradients went before, and the last of them before the first read.
    const std::vector<Span> all = spans_of(simulated, "NVMe write");
    REQUIRE(all.size() > writes.size());
    CHECK(all[all.size() - writes.size() - 1].end <= reads.front().begin);
  }
}

TEST_CASE("new weights are on the drive before the sub-group's states are written") {
  const Case c{.write_behind = true};
  const Plan plan = c.plan();
  const simulator::SimulatedStep simulated =
      simulator::simulate_step(plan, simulator::simulate(plan));
  const std::vector<Span> reads = spans_of(simulated, "NVMe read");
  const std::vector<Span> states = after(spans_of(simulated, "NVMe write"), reads.front().begin);
  const std::vector<Span> weights = spans_of(simulated, "NVMe write weights");
  REQUIRE(states.size() == reads.size());
  REQUIRE(weights.size() == reads.size());
  for (std::size_t i = 0; i < weights.size(); ++i) CHECK(states[i].begin >= weights[i].end);
}
