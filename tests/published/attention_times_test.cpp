// Fused attention by kernel against the charts of FlashAttention-2 and -3.
#include "model/cost/attention.hpp"
#include "model/hardware/known_hardware.hpp"
#include "tests/published/published_data.hpp"
#include "tests/published/timing_errors.hpp"

using namespace zeroplan;
using namespace zeroplan::testing;

namespace {

struct Point {
  AttentionCall call;
  double microseconds;
};

// The charts count 4 B H S^2 d, causal half of it, 3.5 times with the backward pass.
Point point_of(const Json& row, bool with_backward) {
  const auto size = [&](std::size_t i) {
    return static_cast<std::int64_t>(row.items()[i].as_number());
  };
  Point point;
  AttentionCall& call = point.call;
  call.batch = size(0);
  call.queries = call.keys = size(1);
  call.heads = call.kv_heads = size(2);
  call.head_dim = size(3);
  call.causal = size(4) > 0;
  const double flops = 4.0 * static_cast<double>(call.batch) * static_cast<double>(call.heads) *
                       static_cast<double>(call.queries) * static_cast<double>(call.keys) *
                       static_cast<double>(call.head_dim) * (call.causal ? 0.5 : 1.0) *
                       (with_backward ? 3.5 : 1.0);
  point.microseconds = flops / (row.items()[5].as_number() * 1e6);
  return point;
}

}  // namespace

TEST_CASE("fused attention: errors per GPU and kernel stay within the recorded bounds") {
  const Json table = published("attention_times.json");
  for (const Json& group : table.find("groups")->items()) {
    const auto kernel = find(kAttentionKernelNames, text(group, "kernel"));
    REQUIRE(kernel.has_value());
    if (*kernel == AttentionKernel::math) continue;  // tests/published/eager_attention_test.cpp
    const std::string& key = text(group, "gpu");
    const Gpu gpu = gpu_of_key(key);
    const Coefficients coefficients(key);
    const bool with_backward = text(group, "pass") == "fwd+bwd";
    TimingErrors errors;
    for (const Json& row : group.find("rows")->items()) {
      Point point = point_of(row, with_backward);
      Seconds time = attention_time(point.call, *kernel, gpu, coefficients);
      point.call.backward = true;
      if (with_backward) time += attention_time(point.call, *kernel, gpu, coefficients);
      errors.add(time, point.microseconds);
    }
    check_errors(key + " " + text(group, "label") + " " + text(group, "pass"),
                 errors,
                 number(group, "median"),
                 number(group, "p95"));
  }
}
