// Which shapes, and how much of everything. The widths are hidden and feed-forward size of
// Qwen2.5-0.5B, 1.5B, 3B and Llama-2-7B, 13B, 70B (their config.json).
#include <array>

#include "runtime/profile/gpu_profile.hpp"

namespace zeroplan::runtime {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// The attention's output, both ways of the feed-forward layer.
std::array<std::array<std::int64_t, 2>, 3> layers_of(const GpuScale::Width& width) {
  return {{{width.hidden, width.hidden},
           {width.feed_forward, width.hidden},
           {width.hidden, width.feed_forward}}};
}

GpuCase product(
    Kernel kernel, std::int64_t tokens, std::int64_t out, std::int64_t in, DType dtype) {
  GpuCase result;
  result.call = linear_call(kernel, tokens, out, in);
  result.dtype = dtype;
  result.flops = product_flops(tokens, out, in);
  result.shape = {tokens, out, in};
  return result;
}

DType half_of(bool has_bf16) { return has_bf16 ? DType::bf16 : DType::fp16; }

GpuScale full_scale() {
  GpuScale scale;
  scale.isolated = {.discard = 2,
                    .least = 7,
                    .most = 20,
                    .long_enough = Seconds::of(0.05),
                    .patience = Seconds::of(1.0)};
  scale.pause = Seconds::of(2e-3);
  scale.sustained = Seconds::of(5.0);
  scale.cover = 256 * kMiB;
  scale.widths = {
      {896, 4864}, {1536, 8960}, {2048, 11008}, {4096, 11008}, {5120, 13824}, {8192, 28672}};
  scale.other_widths = {{1536, 8960}, {4096, 11008}};
  scale.tokens = {1024, 4096, 8192};
  scale.sustained_widths = {{2048, 11008}, {4096, 11008}, {8192, 28672}};
  scale.sequences = {1024, 4096};
  scale.head_dims = {64, 128};
  scale.attention_tokens = 8192;
  scale.heads = 16;
  scale.memory_rows = 16384;
  scale.memory_columns = 4096;
  scale.adam_parameters = 100'000'000;
  scale.launches = 200;
  scale.largest_copy = 256 * kMiB;
  scale.largest_allocation = 1024 * kMiB;
  scale.largest_message = 256 * kMiB;
  scale.collectives = 20;
  return scale;
}

}  // namespace

GpuScale gpu_scale(bool quick, bool tiny) {
  GpuScale scale = full_scale();
  if (quick) {
    scale.isolated.discard = 1;
    scale.isolated.least = 3;
    scale.isolated.most = 7;
    scale.isolated.long_enough = Seconds::of(0.02);
    scale.sustained = Seconds::of(0.3);
    scale.widths = {{1536, 8960}, {4096, 11008}};
    scale.other_widths = {{1536, 8960}};
    scale.tokens = {1024, 4096};
    scale.sustained_widths = {{4096, 11008}};
    scale.sequences = {2048};
    scale.head_dims = {128};
    scale.memory_rows = 8192;
    scale.adam_parameters = 20'000'000;
    scale.largest_copy = 64 * kMiB;
    scale.largest_allocation = 256 * kMiB;
    scale.largest_message = 64 * kMiB;
    scale.collectives = 10;
  }
  if (tiny) {
    scale.isolated = {.discard = 1, .least = 3, .most = 3, .long_enough = Seconds::zero()};
    scale.pause = scale.sustained = Seconds::zero();
    scale.cover = 0;
    scale.widths = scale.other_widths = scale.sustained_widths = {{32, 48}};
    scale.tokens = {8, 16};
    scale.sequences = {16};
    scale.head_dims = {16};
    scale.attention_tokens = 32;
    scale.heads = 2;
    scale.memory_rows = 16;
    scale.memory_columns = 32;
    scale.adam_parameters = 256;
    scale.launches = 4;
    scale.largest_copy = scale.largest_allocation = scale.largest_message = 1 << 16;
    scale.collectives = 2;
  }
  return scale;
}

std::vector<GpuCase> product_cases(const GpuScale& scale, bool has_bf16) {
  const DType half = half_of(has_bf16);
  const std::int64_t most = scale.tokens.back();
  const std::int64_t usual = scale.tokens[scale.tokens.size() - 2];
  std::vector<GpuCase> cases;
  for (const GpuScale::Width& width : scale.widths) {
    for (const auto& [out, in] : layers_of(width)) {
      for (const std::int64_t tokens : scale.tokens) {
        cases.push_back(product(Kernel::linear_forward, tokens, out, in, half));
      }
      cases.push_back(product(Kernel::linear_backward_input, usual, out, in, half));
      cases.push_back(product(Kernel::linear_backward_weight, usual, out, in, half));
    }
  }
  for (const GpuScale::Width& width : scale.other_widths) {
    for (const auto& [out, in] : layers_of(width)) {
      if (has_bf16) cases.push_back(product(Kernel::linear_forward, usual, out, in, DType::fp16));
      cases.push_back(product(Kernel::linear_forward, usual, out, in, DType::fp32));
      // TF32 came with bf16, compute capability 8.0.
      if (!has_bf16) continue;
      cases.push_back(product(Kernel::linear_forward, usual, out, in, DType::fp32));
      cases.back().tf32 = true;
    }
  }
  for (const GpuScale::Width& width : scale.sustained_widths) {
    cases.push_back(product(Kernel::linear_forward, most, width.feed_forward, width.hidden, half));
    cases.back().sustained = true;
  }
  return cases;
}

std::vector<GpuCase> attention_cases(const GpuScale& scale, bool has_bf16) {
  std::vector<GpuCase> cases;
  for (const std::int64_t head_dim : scale.head_dims) {
    for (const std::int64_t sequence : scale.sequences) {
      const std::int64_t batch = std::max<std::int64_t>(1, scale.attention_tokens / sequence);
      for (const Kernel kernel : {Kernel::attention_forward, Kernel::attention_backward}) {
        GpuCase attention;
        attention.call = attention_call(kernel, batch, sequence, scale.heads, head_dim);
        attention.dtype = half_of(has_bf16);
        attention.flops = attention_flops(attention.call);
        attention.shape = {batch, sequence, scale.heads, head_dim};
        cases.push_back(std::move(attention));
      }
    }
  }
  return cases;
}

std::vector<GpuCase> memory_cases(const GpuScale& scale, bool has_bf16) {
  std::vector<GpuCase> cases;
  for (const Kernel kernel : {Kernel::add,
                              Kernel::rms_norm_forward,
                              Kernel::rms_norm_backward,
                              Kernel::layer_norm_forward,
                              Kernel::layer_norm_backward,
                              Kernel::swiglu_forward,
                              Kernel::swiglu_backward,
                              Kernel::gelu_forward,
                              Kernel::gelu_backward}) {
    GpuCase streaming;
    streaming.call = rowwise_call(kernel, scale.memory_rows, scale.memory_columns);
    streaming.dtype = half_of(has_bf16);
    streaming.shape = {scale.memory_rows, scale.memory_columns};
    cases.push_back(std::move(streaming));
  }
  return cases;
}

Json to_json(const GpuFacts& facts) {
  const auto known = [](auto value) { return value > 0 ? Json(value) : Json(); };
  const auto said = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return Json::object(
      {{"name", facts.name},
       {"visible", facts.visible},
       {"memory_bytes", facts.memory.count()},
       {"free_bytes", facts.free_memory.count()},
       {"compute_capability", std::to_string(facts.major) + "." + std::to_string(facts.minor)},
       {"multiprocessors", known(facts.multiprocessors)},
       {"l2_bytes", known(facts.l2.count())},
       {"driver", said(facts.driver)},
       {"libraries", said(facts.libraries)},
       {"pcie_generation", known(facts.pcie_generation)},
       {"pcie_lanes", known(facts.pcie_lanes)},
       {"nvlinks", facts.nvlinks >= 0 ? Json(facts.nvlinks) : Json()},
       {"clock_limit_megahertz", known(facts.clock_limit_megahertz)},
       {"power_limit_watts", known(facts.power_limit_watts)}});
}

}  // namespace zeroplan::runtime
