// What CPU ranks take for kernels, streams and collectives, and that a simulated step is their sum.
#include "model/cost/cpu_rank.hpp"

#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;
using namespace zeroplan::literals;

namespace {

using C = Coefficient;

Node node_of(std::int64_t cores, std::int64_t ranks) {
  Node node;
  node.cpu_cores.value = cores;
  node.gpus_per_node = ranks;
  return node;
}

CpuRankTimes times(std::int64_t cores, std::int64_t ranks) {
  return {node_of(cores, ranks), Coefficients()};
}

KernelCall linear(Kernel kernel, std::int64_t tokens, std::int64_t out, std::int64_t in) {
  KernelCall call;
  call.kernel = kernel;
  call.operands.resize(kernel == Kernel::linear_forward ? 4 : 3);
  call.rows = tokens;
  call.columns = out;
  call.inner = in;
  return call;
}

KernelCall attention(Kernel kernel, std::int64_t sequence, bool causal) {
  KernelCall call;
  call.kernel = kernel;
  call.operands.resize(kernel == Kernel::attention_forward ? 5 : 10);
  call.batch = 1;
  call.rows = call.sequence = sequence;
  call.heads = call.kv_heads = 8;
  call.head_dim = 64;
  call.causal = causal;
  return call;
}

KernelCall rows_call(Kernel kernel, std::size_t operands, std::int64_t rows, std::int64_t columns) {
  KernelCall call;
  call.kernel = kernel;
  call.operands.resize(operands);
  call.rows = rows;
  call.columns = columns;
  return call;
}

double micros(const KernelCall& call, DType dtype = DType::fp32) {
  return 1e6 * times(1, 1).kernel(call, dtype).seconds();
}

Plan embedded_plan(const std::string& zero, std::int64_t ranks, const std::string& precision) {
  const std::string text =
      R"({"model": {"model_type": "llama", "architectures": ["LlamaForCausalLM"],
          "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 352, "vocab_size": 1000, "max_position_embeddings": 256},
          "cluster": {"nodes": 1, "gpu": "cpu", "cpu_cores": 2, "gpus_per_node": )" +
      std::to_string(ranks) + R"(}, "workload": {"engine": "embedded", "precision": ")" +
      precision + R"(", "sequence_length": 128, "micro_batch_size": 1},
          "ds_config": {"zero_optimization": )" +
      zero + "}}";
  return resolve(parse_scenario(parse_json(text, "test")));
}

double step_seconds(const Plan& plan) { return simulator::simulate(plan).step.total.seconds(); }

}  // namespace

TEST_CASE("the hardware threads are divided over the ranks, and shared where these are more") {
  CHECK(cpu_share(node_of(8, 1)).threads == 8.0);
  CHECK(cpu_share(node_of(8, 3)).threads == 2.0);
  CHECK(cpu_share(node_of(8, 3)).slowdown == 1.0);
  const CpuShare crowded = cpu_share(node_of(2, 4));
  CHECK(crowded.threads == 1.0);
  CHECK(crowded.slowdown == 2.0);
  CHECK(crowded.busy == 2.0);
}

// Xeon at 2.6 GHz, one thread, best of repeated calls: the machine of kMeasuredCpu.
TEST_CASE("kernels take what was measured, within a sixth") {
  const auto close = [](double measured) { return Approx(measured).epsilon(1.0 / 6.0); };
  CHECK(micros(linear(Kernel::linear_forward, 512, 512, 512)) == close(10268));
  CHECK(micros(linear(Kernel::linear_backward_input, 512, 512, 512)) == close(8117));
  CHECK(micros(linear(Kernel::linear_backward_weight, 512, 512, 512)) == close(10500));
  CHECK(micros(linear(Kernel::linear_forward, 512, 1376, 512), DType::bf16) == close(27372));
  CHECK(micros(linear(Kernel::linear_forward, 64, 128, 128)) == close(95.2));
  CHECK(micros(attention(Kernel::attention_forward, 512, true)) == close(13612));
  CHECK(micros(attention(Kernel::attention_backward, 512, true)) == close(41958));
  CHECK(micros(attention(Kernel::attention_backward, 512, false)) == close(74542));
  CHECK(micros(rows_call(Kernel::rms_norm_forward, 4, 512, 512)) == close(169.9));
  CHECK(micros(rows_call(Kernel::layer_norm_backward, 8, 512, 512)) == close(442.2));
  CHECK(micros(rows_call(Kernel::swiglu_backward, 5, 512, 512)) == close(793.5));
  CHECK(micros(rows_call(Kernel::gelu_forward, 2, 512, 512)) == close(1479.7));
  CHECK(micros(rows_call(Kernel::cross_entropy_forward, 4, 512, 8000)) == close(13947));
}

TEST_CASE("a product is shared by its tiles: one tile is one thread's") {
  const KernelCall one = linear(Kernel::linear_forward, 128, 128, 512);
  CHECK(times(8, 1).kernel(one, DType::fp32) == times(1, 1).kernel(one, DType::fp32));
  const KernelCall many = linear(Kernel::linear_forward, 1024, 1024, 512);
  const double alone = times(1, 1).kernel(many, DType::fp32).seconds();
  CHECK(times(4, 1).kernel(many, DType::fp32).seconds() == Approx(alone / 4.0).epsilon(0.01));
  Coefficients stacked;
  stacked.set(C::cpu_thread_gain, 0.5);
  const CpuRankTimes slow(node_of(4, 1), stacked);
  CHECK(slow.kernel(many, DType::fp32).seconds() == Approx(alone / 2.5).epsilon(0.01));
}

TEST_CASE("a transposed matrix is slower to pack: GPT-2's weights are the other way round") {
  KernelCall conv1d = linear(Kernel::linear_forward, 256, 512, 512);
  CHECK(micros(conv1d) > 1.1 * micros(linear(Kernel::linear_backward_input, 256, 512, 512)));
  conv1d.transposed = true;
  CHECK(micros(conv1d) == Approx(micros(linear(Kernel::linear_backward_input, 256, 512, 512))));
}

TEST_CASE("ranks beyond the cores take turns") {
  const KernelCall call = linear(Kernel::linear_forward, 512, 512, 512);
  const double two = times(2, 2).kernel(call, DType::fp32).seconds();
  CHECK(times(2, 4).kernel(call, DType::fp32).seconds() == Approx(2.0 * two));
  CHECK(times(2, 1).kernel(call, DType::fp32).seconds() == Approx(two / 2.0).epsilon(0.01));
}

TEST_CASE("streams go at a core's rate out of caches and at the node's past them") {
  const Coefficients c;
  const CpuRankTimes two = times(2, 2);
  const Bytes small = 1_MiB;
  CHECK(two.stream(small).seconds() ==
        Approx(static_cast<double>(small.count()) / c[C::cpu_stream_rate]));
  const Bytes large = Bytes::mib(4096);
  CHECK(two.stream(large).seconds() ==
        Approx(2.0 * static_cast<double>(large.count()) / c[C::cpu_memory_rate]).epsilon(0.01));
  const Elements cast = Elements::of(1000);
  CHECK(two.stream(small, cast, DType::fp32) == two.stream(small));
  CHECK(two.stream(small, cast, DType::bf16).seconds() ==
        Approx(two.stream(small).seconds() + 1000.0 * c[C::cpu_cast_seconds]));
}

TEST_CASE("a rank's threads share a stream of many pieces, and not a small one") {
  const Coefficients c;
  const CpuRankTimes one = times(1, 1);
  const CpuRankTimes four = times(4, 1);
  const Bytes small = 100_KiB;
  CHECK(four.stream(small) == one.stream(small));
  // In caches: 8 MiB are 16 pieces.
  const double together = 1.0 + 3.0 * c[C::cpu_thread_gain];
  const Elements cast = Elements::of(1'000'000);
  CHECK(one.stream(8_MiB, cast, DType::bf16) / four.stream(8_MiB, cast, DType::bf16) ==
        Approx(together));
}

TEST_CASE("ranks share a collective's work, 16-bit sums convert, and one rank has none") {
  const CpuRankTimes two = times(2, 2);
  CHECK(two.collective(Collective::all_reduce, 1_MiB, DType::fp32, 1) == Seconds::zero());
  const Seconds gather = two.collective(Collective::all_gather, 1_MiB, DType::bf16, 2);
  const Seconds scatter = two.collective(Collective::reduce_scatter, 1_MiB, DType::fp32, 2);
  CHECK(scatter < two.collective(Collective::all_reduce, 1_MiB, DType::fp32, 2));
  CHECK(gather == two.collective(Collective::all_gather, 1_MiB, DType::fp32, 2));
  CHECK(two.collective(Collective::all_reduce, 1_MiB, DType::bf16, 2).seconds() >
        5.0 * two.collective(Collective::all_reduce, 1_MiB, DType::fp32, 2).seconds());
}

TEST_CASE("new memory costs from 32 MiB on") {
  CHECK(times(2, 1).first_touch(Bytes::mib(32)) == Seconds::zero());
  CHECK(times(2, 1).first_touch(Bytes::mib(64)).seconds() ==
        Approx(67108864.0 / Coefficients()[C::cpu_first_touch_rate]));
}

TEST_CASE("nothing on CPU ranks runs beside anything else, and a call is no launch") {
  const auto zero = [](const char* overlap) {
    return std::string(R"({"stage": 2, "reduce_bucket_size": 100000, "overlap_comm": )") + overlap +
           "}";
  };
  const Plan plan = embedded_plan(zero("true"), 2, "fp32");
  CHECK(step_seconds(plan) == Approx(step_seconds(embedded_plan(zero("false"), 2, "fp32"))));
  Plan launches = plan;
  launches.coefficients.set(C::host_launch_seconds, 1e-3);
  launches.coefficients.set(C::kernel_floor_seconds, 1e-3);
  launches.coefficients.set(C::matmul_fp32_efficiency, 0.01);
  CHECK(step_seconds(launches) == step_seconds(plan));
}

TEST_CASE("a bucket that is larger than what goes into it costs no pages") {
  for (const char* stage : {"1", "2"}) {
    const auto with = [&](const std::string& bucket) {
      return step_seconds(embedded_plan(
          std::string(R"({"stage": )") + stage + R"(, "reduce_bucket_size": )" + bucket + "}",
          1,
          "fp32"));
    };
    CHECK(with("500000000") < 1.2 * with("1000000"));
  }
}

TEST_CASE("what a CPU rank does moves its step, stage by stage") {
  const std::pair<C, const char*> parts[] = {{C::cpu_product_rate, "fp32"},
                                             {C::cpu_score_seconds, "fp32"},
                                             {C::cpu_rms_norm_backward_seconds, "fp32"},
                                             {C::cpu_swiglu_seconds, "fp32"},
                                             {C::cpu_softmax_seconds, "fp32"},
                                             {C::cpu_table_gradient_seconds, "fp32"},
                                             {C::cpu_rotary_pair_seconds, "fp32"},
                                             {C::cpu_stream_rate, "fp32"},
                                             {C::cpu_adamw_memory_rate, "fp32"},
                                             {C::cpu_collective_seconds, "fp32"},
                                             {C::cpu_bf16_seconds, "bf16"},
                                             {C::cpu_cast_seconds, "bf16"},
                                             {C::cpu_half_sum_seconds, "bf16"}};
  for (const auto& [id, precision] : parts) {
    for (int stage = 0; stage <= 3; ++stage) {
      INFO(info(id).name << " in stage " << stage);
      const Plan plan = embedded_plan(R"({"stage": )" + std::to_string(stage) + "}", 2, precision);
      Plan moved = plan;
      moved.coefficients.set(id, 2.0 * plan.coefficients[id]);
      CHECK(step_seconds(moved) != step_seconds(plan));
    }
  }
}
