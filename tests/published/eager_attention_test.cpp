// Eager attention has no formula of its own: its time is that of the operations it is made of.
// Here they are set beside the charts that show PyTorch's products and softmax.
#include "model/cost/kernel_time.hpp"
#include "model/hardware/known_hardware.hpp"
#include "model/implementations/implementations.hpp"
#include "tests/published/published_data.hpp"
#include "tests/published/timing_errors.hpp"
#include "tests/support/small_models.hpp"

using namespace zeroplan;
using namespace zeroplan::testing;

namespace {

struct Scores {
  std::int64_t matrices = 0, tokens = 0, head_dim = 0;
  bool masked = false;

  Bytes passes(double bytes_a_score) const {
    return Bytes::nearest(bytes_a_score * static_cast<double>(matrices) *
                          static_cast<double>(tokens) * static_cast<double>(tokens));
  }
};

// baddbmm, [add mask], softmax, bmm; backward: bmm, bmm, softmax backward, bmm, bmm. 16 bits.
Seconds chain(const KernelTimes& times, const Scores& s, bool with_backward) {
  const MatrixProduct scores{s.matrices, s.tokens, s.tokens, s.head_dim, DType::fp16};
  const MatrixProduct values{s.matrices, s.tokens, s.head_dim, s.tokens, DType::fp16};
  const MatmulTimes& product = times.matmul();
  Seconds total = product.sustained(scores) + times.streaming(OpKind::softmax, s.passes(4)) +
                  product.sustained(values);
  if (s.masked) total += times.streaming(OpKind::pointwise, s.passes(4));
  if (!with_backward) return total;
  return total + product.sustained(scores) + product.sustained(values) * 3.0 +
         times.streaming(OpKind::softmax, s.passes(6));
}

}  // namespace

TEST_CASE(
    "eager attention as its operations: errors per GPU and pass stay within the recorded bounds") {
  const Json table = published("attention_times.json");
  for (const Json& group : table.find("groups")->items()) {
    if (text(group, "kernel") != "math") continue;
    const std::string& key = text(group, "gpu");
    const KernelTimes times(gpu_of_key(key), Coefficients(key), {});
    const bool with_backward = text(group, "pass") == "fwd+bwd";
    TimingErrors plain, masked;
    for (const Json& row : group.find("rows")->items()) {
      const auto size = [&](std::size_t i) {
        return static_cast<std::int64_t>(row.items()[i].as_number());
      };
      const Scores scores{size(0) * size(2), size(1), size(3), size(4) > 0};
      const double flops = 4.0 * static_cast<double>(scores.matrices) *
                           static_cast<double>(size(1)) * static_cast<double>(size(1)) *
                           static_cast<double>(size(3)) * (scores.masked ? 0.5 : 1.0) *
                           (with_backward ? 3.5 : 1.0);
      (scores.masked ? masked : plain)
          .add(chain(times, scores, with_backward), flops / (row.items()[5].as_number() * 1e6));
    }
    const std::string name = key + " eager " + text(group, "pass");
    check_errors(name, plain, number(group, "median"), number(group, "p95"));
    // The chart's mask takes 10 bytes a score where reading and writing make 4: a broadcast
    // addition is slow, and its script builds the mask anew.
    check_errors(name + " masked", masked, number(group, "masked_median"), number(group, "p95"));
  }
}

TEST_CASE(
    "a Hugging Face layer's eager attention takes what the chart's passes and its casts take") {
  // Forward, bytes a score: 18.7 measured with a mask, and about 10 for the casts around an fp32
  // softmax.
  LlamaSizes sizes;
  sizes.hidden = 4096;
  sizes.heads = sizes.kv_heads = 32;
  GraphOptions options;
  options.sequence_length = 4096;
  options.attention = Attention::eager;
  const char* key = "a100_sxm_80gb";
  const Gpu gpu = gpu_of_key(key);
  const KernelTimes times(gpu, Coefficients(key), {});
  const ModelGraph graph = build_graph(llama(sizes), options);
  const Block& layer = graph.blocks[1];
  const double scores = 32.0 * 4096.0 * 4096.0;
  Seconds ours;
  for (const Event& event : layer.of(Pass::forward)) {
    if (event.kind != EventKind::operation) continue;
    const Operation& operation = layer.operations[static_cast<std::size_t>(event.index)];
    if (static_cast<double>(operation.traffic.count()) < 2.0 * scores) continue;
    ours += times.of(layer, operation).seconds;
  }
  const double products = 4.0 * 128.0 * scores / (312e12 * 0.6);
  const double passes = 28.7 * scores / (2039e9 * 0.85);
  INFO("ours " << ours.seconds() << " s, chart " << products + passes << " s");
  CHECK(ours.seconds() / (products + passes) == Approx(1.0).epsilon(0.25));
}
