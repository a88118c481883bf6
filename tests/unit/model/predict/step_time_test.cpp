// The parts of a step's time: the clocks of a micro-step, and [T1] to [T4] with traffic made up for
// the case.
#include "model/predict/step_time.hpp"

#include "model/cost/copies.hpp"
#include "model/cost/cpu_optimizer.hpp"
#include "model/cost/nvme.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/model_flops.hpp"
#include "model/predict/step_clock.hpp"
#include "model/predict/step_tail.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

constexpr const char* kModel = R"({"model_type":"llama","architectures":["LlamaForCausalLM"],
  "hidden_size":1024,"intermediate_size":2816,"num_hidden_layers":4,"num_attention_heads":16,
  "num_key_value_heads":16,"vocab_size":8000,"max_position_embeddings":4096,
  "tie_word_embeddings":false,"rms_norm_eps":1e-6})";

Plan plan_of(const std::string& zero,
             const std::string& cluster = "1x8xA100-80G-SXM",
             const std::string& workload = "") {
  const std::string text =
      std::string(R"({"model":)") + kModel + R"(,"cluster":")" + cluster +
      R"(","workload":{"frontend":"native","sequence_length":2048,"micro_batch_size":4)" +
      workload + R"(},"ds_config":{"bf16":{"enabled":true},"zero_optimization":{)" + zero + "}}}";
  return resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
}

struct Case {
  explicit Case(const std::string& zero,
                const std::string& cluster = "1x8xA100-80G-SXM",
                const std::string& workload = "")
      : plan(plan_of(zero, cluster, workload)),
        work(step_work(plan)),
        traffic(step_traffic(plan, work)) {}
  StepTime time() const { return step_time(plan, work.graph, traffic); }
  Plan plan;
  StepWork work;
  StepTraffic traffic;
};

StepTask task(StepTaskKind kind, bool ahead = false) {
  StepTask t;
  t.kind = kind;
  t.ahead = ahead;
  return t;
}
constexpr StepTaskKind kCompute = StepTaskKind::compute;
constexpr StepTaskKind kGather = StepTaskKind::gather;
constexpr StepTaskKind kReduce = StepTaskKind::reduce;

double played(const std::vector<StepTask>& tasks,
              const std::vector<TaskSeconds>& seconds,
              bool overlaps) {
  return play_micro_step(tasks, seconds, std::vector<bool>(tasks.size(), false), overlaps).total();
}
TaskSeconds gpu(double seconds) { return {seconds, 0.0, 0.0, 0.0}; }
TaskSeconds stream(double seconds) { return {0.0, 0.0, 0.0, seconds}; }

}  // namespace

TEST_CASE("a pass waits for its own gather, and runs beside the one for the next") {
  const std::vector<StepTask> tasks = {
      task(kGather), task(kGather, true), task(kCompute), task(kCompute)};
  CHECK(played(tasks, {stream(2), stream(3), gpu(4), gpu(1)}, true) == Approx(2 + 4 + 1));
  CHECK(played(tasks, {stream(2), stream(7), gpu(4), gpu(1)}, true) == Approx(2 + 7 + 1));
}

TEST_CASE("without overlap everything stands in line") {
  const std::vector<StepTask> tasks = {
      task(kGather), task(kCompute), task(kReduce), task(kCompute)};
  CHECK(played(tasks, {stream(2), gpu(4), stream(3), gpu(1)}, false) == Approx(10));
}

TEST_CASE("reductions run behind what follows; the last one is exposed") {
  const std::vector<StepTask> tasks = {
      task(kCompute), task(kReduce), task(kCompute), task(kReduce)};
  CHECK(played(tasks, {gpu(4), stream(3), gpu(4), stream(3)}, true) == Approx(4 + 4 + 3));
  CHECK(played(tasks, {gpu(4), stream(9), gpu(4), stream(3)}, true) == Approx(4 + 9 + 3));
}

TEST_CASE("a host slower than the GPU decides, and what blocks adds to both") {
  const std::vector<StepTask> tasks = {task(kCompute), task(kReduce), task(kCompute)};
  CHECK(played(tasks, {{1, 5, 0, 0}, {0, 1, 0, 0}, {1, 5, 0, 0}}, true) == Approx(11));
  CHECK(played(tasks, {{5, 1, 0, 0}, {0, 1, 1, 0}, {5, 1, 0, 0}}, true) == Approx(11));
}

TEST_CASE("a step lies between its bounds") {
  for (const char* zero : {R"("stage":0)",
                           R"("stage":1)",
                           R"("stage":2,"overlap_comm":true)",
                           R"("stage":3)",
                           R"("stage":3,"offload_optimizer":{"device":"cpu"})"}) {
    for (const char* cluster : {"1x1xA100-80G-SXM", "1x8xA100-80G-SXM", "2x8xH100-80G-SXM"}) {
      INFO(zero << " on " << cluster);
      const StepTime step = Case(zero, cluster).time();
      CHECK(step.lower_bound <= step.total);
      CHECK(step.total <= step.upper_bound * 1.02);  // host work that blocks is in both
      CHECK(step.exposed_communication < step.total);
    }
  }
}

TEST_CASE("one GPU waits for no collective") {
  const StepTime step = Case(R"("stage":2)", "1x1xA100-80G-SXM").time();
  CHECK(step.exposed_communication.seconds() < 1e-3 * step.total.seconds());
}

TEST_CASE("the gather after the step is exposed: its messages one after the other") {
  const Case c(R"("stage":2,"overlap_comm":true)");
  StepTraffic without = c.traffic;
  without.after.clear();
  double messages = 0.0;
  for (const MessageCount& count : c.traffic.after) {
    const Message& m = c.traffic.messages[static_cast<std::size_t>(count.message)];
    messages +=
        collective_time(m.kind, m.bytes, m.group, c.plan.cluster, c.plan.coefficients).seconds() *
        static_cast<double>(count.count);
  }
  REQUIRE(messages > 0.0);
  CHECK((c.time().total - step_time(c.plan, c.work.graph, without).total).seconds() ==
        Approx(messages).epsilon(1e-6));
}

TEST_CASE("the CPU's Adam, pageable copies and NVMe stand behind the passes") {
  Case c(R"("stage":2,"offload_optimizer":{"device":"cpu"})");
  const StepTail tail = step_tail(c.plan, c.traffic, c.plan.coefficients, Seconds::of(1.0));
  const Node& node = c.plan.cluster.node;
  const HostLoad load{.ranks = 8};
  // Gradients are scaled (8 bytes) and weights cast (6) by the CPU, too.
  CHECK(c.traffic.host_passes == c.traffic.cpu_optimizer * DType::fp32 * 2 +
                                     c.traffic.cpu_optimizer * DType::fp32 +
                                     c.traffic.cpu_optimizer * DType::bf16);
  CHECK(tail.cpu ==
        cpu_adam_time({.parameters = c.traffic.cpu_optimizer}, node, load, c.plan.coefficients) +
            host_pass_time({.traffic = c.traffic.host_passes, .new_pages = {}},
                           node,
                           load,
                           c.plan.coefficients));
  CHECK(tail.gpu == Seconds::zero());
  CHECK(c.time().exposed_offload >= tail.cpu);
  c.traffic.nvme_read = Bytes::of(1'000'000'000);
  c.plan.cluster.node.nvme.reset();
  CHECK(c.time().total.is_infinite());
}

TEST_CASE("swapped sub-groups are read ahead and written behind where the pipeline says so") {
  // Four sub-groups of 2 s reading, 3 s of Adam and 4 s writing.
  SwappedUpdate update{
      .groups = 4, .read = Seconds::of(8), .update = Seconds::of(12), .write = Seconds::of(16)};
  CHECK(swapped_update_time(update).seconds() == Approx(4 * 9));
  update.read_ahead = true;
  CHECK(swapped_update_time(update).seconds() == Approx(2 + 4 * 7));
  update.write_behind = true;
  CHECK(swapped_update_time(update).seconds() == Approx(2 + 3 + 4 * 4));
  update.read_ahead = false;
  CHECK(swapped_update_time(update).seconds() == Approx(5 + 3 * 5 + 4));
  // One sub-group has none to overlap with.
  update.groups = 1;
  CHECK(swapped_update_time(update).seconds() == Approx(36));
}

TEST_CASE("a small model at a small batch is bound by the host that launches it") {
  Plan plan = plan_of(R"("stage":0)", "1x1xH100-80G-SXM");
  plan.workload.sequence_length = 64;
  plan.workload.micro_batch_size = 1;
  const StepWork work = step_work(plan);
  CHECK(step_time(plan, work.graph, step_traffic(plan, work)).bound == Bound::dispatch);
}

TEST_CASE("stage 3 runs Python for every module and every gradient, stage 2 for every gradient") {
  const auto hooks_of = [](const Case& c) {
    std::pair<std::int64_t, std::int64_t> sum;
    for (const StepTask& task : c.traffic.windows.front().tasks) {
      sum.first += task.module_hooks;
      sum.second += task.gradient_hooks;
    }
    return sum;
  };
  const auto gradients =
      static_cast<std::int64_t>(plan_of(R"("stage":3)").engine_parameters.size());
  const auto [modules3, gradients3] = hooks_of(Case(R"("stage":3)"));
  CHECK(modules3 > 4 * 4 * 11);  // four hooks, four layers, their own modules at least
  CHECK(gradients3 == gradients);
  const auto [modules2, gradients2] = hooks_of(Case(R"("stage":2)"));
  CHECK(modules2 == 0);
  CHECK(gradients2 == gradients);

  Case small(R"("stage":3)");
  small.plan.workload.sequence_length = 64;
  const auto seconds = [&] {
    const StepWork work = step_work(small.plan);
    return step_time(small.plan, work.graph, step_traffic(small.plan, work)).total.seconds();
  };
  const double with = seconds();
  small.plan.coefficients.set(Coefficient::host_module_hook_seconds, 0.0);
  const double hook = Coefficients()[Coefficient::host_module_hook_seconds];
  CHECK(with - seconds() > 0.8 * hook * static_cast<double>(modules3));
}

TEST_CASE("autocast casts the weights of products once a forward pass, and costs time") {
  const std::string ddp = R"(,"engine":"ddp")";
  Case autocast(R"("stage":0)", "1x8xA100-80G-SXM", ddp);
  REQUIRE(autocast.plan.ddp.weight_dtype == DType::fp32);
  Bytes casts;
  for (const StepTask& task : autocast.traffic.windows.front().tasks) {
    if (task.kind == kCompute) casts += task.copied_beside;
  }
  const Elements copied = autocast_copies(autocast.work.graph);
  CHECK(casts == copied.times_width(4 + 2));
  // The embedding and the norms are not cast.
  Elements all;
  for (const Parameter& parameter : autocast.plan.model->parameters) all += parameter.numel;
  CHECK(copied < all);
  CHECK(copied > Elements::zero());
  const double with = autocast.time().total.seconds();
  Plan half = autocast.plan;
  half.ddp.weight_dtype = DType::bf16;
  const StepWork work = step_work(half);
  CHECK(autocast_copies(work.graph) == Elements::zero());
  CHECK(with > 1.1 * step_time(half, work.graph, step_traffic(half, work)).total.seconds());
}

TEST_CASE("rates follow from the step's time") {
  const Case c(R"("stage":2)");
  const StepTime step = c.time();
  const double seconds = step.total.seconds();
  CHECK(step.tokens_per_second_per_gpu == Approx(4 * 2048 / seconds));
  CHECK(step.samples_per_second == Approx(8 * 4 / seconds));
  const double token = model_flops_per_token(*c.plan.model, 2048).value();
  CHECK(step.mfu == Approx(token * 4 * 2048 / seconds / 312e12).epsilon(1e-6));
}

TEST_CASE("the spread adds what every coefficient moves to the model's own") {
  const Case c(R"("stage":3)");
  const StepPrediction predicted = predict_step_time(c.plan, c.work.graph, c.traffic);
  const double own = c.plan.coefficients[Coefficient::step_time_model_sd];
  CHECK(predicted.relative_sd > own);
  CHECK(predicted.time.total == c.time().total);
  Plan sure = c.plan;
  for (const CoefficientInfo& row : coefficient_rows()) {
    sure.coefficients.set(row.id, sure.coefficients[row.id], 0.0);
  }
  CHECK(predict_step_time(sure, c.work.graph, c.traffic).relative_sd == Approx(own));
}

TEST_CASE("FSDP hides its gathers where a block computes longer, and DDP its buckets") {
  const std::string fsdp = R"(,"engine":"fsdp")";
  const StepTime full = Case(R"("stage":3)", "1x8xA100-80G-SXM", fsdp).time();
  CHECK(full.exposed_communication.seconds() < 0.2 * full.total.seconds());
  const Case slow(R"("stage":3)", "8x1xA100-80G-SXM", fsdp);
  CHECK(slow.time().total > full.total);
  const StepTime ddp = Case(R"("stage":0)", "1x8xA100-80G-SXM", R"(,"engine":"ddp")").time();
  CHECK(ddp.exposed_communication.seconds() < 0.2 * ddp.total.seconds());
}
