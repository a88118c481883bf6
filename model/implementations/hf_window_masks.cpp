#include "model/implementations/hf_window_masks.hpp"

#include <algorithm>

namespace zeroplan::hf {

namespace {

// Before 4.53 these classes made a causal mask for sdpa too, and each sliding layer its own of it.
bool masks_in_layers(const Context& c) {
  const std::string_view type = c.model.model_type;
  return !made_by_masking_utils(c) &&
         (type == "gemma2" || type == "gemma3_text" || type == "cohere2");
}

bool has_layers(const Context& c, bool sliding) {
  const std::vector<LayerAttention>& layers = c.shape().layer_attention;
  if (layers.empty()) return !sliding;
  return std::any_of(layers.begin(), layers.end(), [&](const LayerAttention& layer) {
    return layer.sliding == sliding;
  });
}

bool needs_causal(const Context& c) {
  if (c.attention == Attention::flash) return false;
  return needs_mask(c) || masks_in_layers(c);
}

bool needs_window(const Context& c) {
  if (c.attention == Attention::flash) return false;
  return needs_mask(c) || c.sequence >= c.shape().sliding_window;
}

Shape window_mask_shape(const Context& c) { return Shape{c.batch, 1, c.sequence, c.sequence}; }

// torch.where(torch.tril(torch.ones_like(mask, dtype=bool), -window), min, mask)
Tensor cut_to_window(Tape& t, const Context& c, const Tensor& causal) {
  Tensor beyond = t.empty(window_mask_shape(c), DType::boolean);
  t.launch({.name = "ones_like", .kind = OpKind::fill, .traffic = beyond.bytes()});
  {
    const Tensor ones = beyond;
    beyond = t.empty(window_mask_shape(c), DType::boolean);
    t.launch({.name = "tril", .traffic = beyond.bytes() * 2});
  }
  const Tensor cut = t.empty(window_mask_shape(c), causal.dtype());
  t.launch({.name = "where", .traffic = cut.bytes() * 2 + beyond.bytes()});
  return cut;
}

}  // namespace

LayerKinds layer_kinds(const TransformerShape& shape) {
  LayerKinds kinds;
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    const LayerAttention kind = shape.layer_attention.empty()
                                    ? LayerAttention{}
                                    : shape.layer_attention[static_cast<std::size_t>(i)];
    const auto known = std::find(kinds.of.begin(), kinds.of.end(), kind);
    kinds.layers.push_back(static_cast<std::size_t>(known - kinds.of.begin()));
    if (known == kinds.of.end()) kinds.of.push_back(kind);
  }
  return kinds;
}

void share_window_masks(Tape& t, const Context& c) {
  const bool causal = needs_causal(c) && (has_layers(c, false) || masks_in_layers(c));
  const bool window = has_layers(c, true) && needs_window(c) && !masks_in_layers(c);
  if (!made_by_masking_utils(c)) {
    if (causal) share_mask(t, c);
    if (window) {
      const Tensor made = make_mask(t, c);
      t.share(static_cast<std::int32_t>(Slot::window_mask), made);
    }
    return;
  }
  if (causal) {
    const Tensor made = make_mask(t, c);
    t.share(static_cast<std::int32_t>(Slot::mask), made);
  }
  if (window) {
    const Tensor made = make_mask(t, c);
    t.share(static_cast<std::int32_t>(Slot::window_mask), made);
  }
}

Tensor layer_mask(Tape& t, const Context& c, const LayerAttention& layer) {
  const bool in_layers = masks_in_layers(c);
  if (layer.sliding && !in_layers) {
    if (!needs_window(c)) return {};
    return t.shared(
        static_cast<std::int32_t>(Slot::window_mask), window_mask_shape(c), mask_dtype(c));
  }
  if (!needs_causal(c)) return {};
  const Tensor causal =
      t.shared(static_cast<std::int32_t>(Slot::mask), window_mask_shape(c), mask_dtype(c));
  return layer.sliding ? cut_to_window(t, c, causal) : causal;
}

}  // namespace zeroplan::hf
