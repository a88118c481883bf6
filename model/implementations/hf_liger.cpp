#include "model/implementations/hf_liger.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/written_names.hpp"

namespace zeroplan::hf {

namespace {

// ops/rms_norm.py rms_norm_backward adds up a row of fp32 weight gradients on each multiprocessor;
// GPUs have 72 to 148.
constexpr std::int64_t kPartialRows = 132;

}  // namespace

bool liger_patches(const Model& model) {
  constexpr std::array<std::string_view, 7> kPatched = {
      "llama", "mistral", "mixtral", "qwen2", "qwen3", "phi3", "gemma"};
  return std::find(kPatched.begin(), kPatched.end(), model.model_type) != kPatched.end();
}

bool liger_has_loss(const Model& model) {
  // MODEL_TYPE_TO_APPLY_LIGER_FN of liger_kernel 0.8.5, beside the types above.
  constexpr std::string_view kTypes =
      "deepseek_v2|deepseek_v3|deepseek_v4|gemma2|gemma3|gemma3_text|gemma4|gemma4_text|"
      "glm4|glm4v|glm4v_moe|gpt_oss|internvl|llama4|llama4_text|llava|granite|mllama|"
      "mllama_text_model|ministral|muse_glimmer|nemotron|olmo2|olmo3|pixtral|qwen3_moe|"
      "qwen2_vl|qwen2_vl_text|qwen2_5_vl|qwen2_5_vl_text|qwen3_next|qwen3_5|qwen3_5_text|"
      "qwen3_5_moe|qwen3_5_moe_text|qwen3_vl|qwen3_vl_text|qwen3_vl_moe|qwen3_vl_moe_text|"
      "smollm3|paligemma|falcon_h1|smolvlm|hunyuan_v1_dense|hunyuan_v1_moe|exaone4";
  const auto is_its = [&](std::string_view type) { return type == model.model_type; };
  return liger_patches(model) || !first_name(kTypes, is_its).empty();
}

bool has_liger_layers(const Context& c) { return c.options.fused_loss && liger_patches(c.model); }

Tensor liger_rms_norm(Tape& t, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  in = aten::contiguous(t, in);
  const Tensor weight = t.module_parameter("weight");
  const std::int64_t width = in.size(-1);
  const bool trains = t.trains({&in, &weight});
  Tensor out = t.empty(in.shape().as_contiguous(), in.dtype());
  const Tensor scales = t.empty(Shape{in.numel().count() / width}, DType::fp32);
  t.launch({.name = "liger_rms_norm", .kind = OpKind::norm, .traffic = in.bytes() + out.bytes()});
  if (!trains) return t.leave(scope, out);
  const Tensor saved = t.save(in);
  const Tensor saved_scales = t.save(scales);
  const Shape shape = weight.shape();
  t.record({&out}, {&in, &weight}, [saved, saved_scales, shape, width](Backward& b) {
    const Tensor partial = b.tape.empty(Shape{kPartialRows, width}, DType::fp32);
    b.tape.launch({.name = "liger_rms_norm_backward",
                   .kind = OpKind::norm,
                   .traffic = saved.bytes() + b.gradient().bytes() * 2});
    if (b.needs(1)) {
      Tensor gradient = b.tape.empty(shape, saved.dtype());
      b.tape.launch({.name = "sum", .kind = OpKind::reduction, .traffic = partial.bytes()});
      b.give(1, std::move(gradient));
    }
    if (b.needs(0)) b.give(0, b.gradient());
  });
  return t.leave(scope, out);
}

Tensor liger_gated_product(Tape& t, const Tensor& gate, const Tensor& up) {
  const Tensor a = aten::contiguous(t, gate);
  const Tensor b = aten::contiguous(t, up);
  const bool trains = t.trains({&a, &b});
  Tensor out = t.empty(a.shape().as_contiguous(), a.dtype());
  t.launch({.name = "liger_gated_product", .traffic = a.bytes() * 3});
  if (!trains) return out;
  const Tensor saved_a = t.save(a);
  const Tensor saved_b = t.save(b);
  t.record({&out}, {&a, &b}, [saved_a, saved_b](Backward& back) {
    back.tape.launch({.name = "liger_gated_product_backward", .traffic = saved_a.bytes() * 5});
    if (back.needs(0)) back.give(0, saved_a);
    if (back.needs(1)) back.give(1, saved_b);
  });
  return out;
}

void liger_rotary(Tape& t, Tensor& query, Tensor& key, const RotaryTables& tables) {
  const auto rows_first = [&t](const Tensor& x) {
    Tensor rows = aten::transpose(t, x, 1, 2);
    rows = aten::contiguous(t, rows);
    return aten::transpose(t, rows, 1, 2);
  };
  const Tensor q = rows_first(query);
  const Tensor k = rows_first(key);
  const Bytes traffic = (q.bytes() + k.bytes()) * 2;
  t.launch({.name = "liger_rope", .traffic = traffic});
  Tensor turned_q = q;
  Tensor turned_k = k;
  if (t.trains({&q, &k})) {
    const Tensor cos = t.save(tables.cos);
    const Tensor sin = t.save(tables.sin);
    t.record({&turned_q, &turned_k}, {&q, &k}, [cos, sin, rows_first, traffic](Backward& b) {
      Tensor dq = rows_first(b.gradient(0));
      Tensor dk = rows_first(b.gradient(1));
      b.tape.launch({.name = "liger_rope_backward", .traffic = traffic});
      if (b.needs(0)) b.give(0, std::move(dq));
      if (b.needs(1)) b.give(1, std::move(dk));
    });
  }
  query = std::move(turned_q);
  key = std::move(turned_k);
}

}  // namespace zeroplan::hf
