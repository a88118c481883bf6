"""Fused attention as CUDA's F.scaled_dot_product_attention chooses it, callable on meta tensors.

On meta the function takes its math backend. These are the choices of a GPU of compute capability
8.0 and later (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, attention.cpp); the kernels'
meta functions give the shapes and strides that CUDA gives.
"""

import functools
import inspect
import math
import re
import sys

import torch

aten = torch.ops.aten


def backend(query, key, mask, enable_gqa):
    half = query.dtype in (torch.bfloat16, torch.float16)
    equal_heads = query.size(1) == key.size(1)
    if half and mask is None and query.size(3) <= 256 and (equal_heads or enable_gqa):
        return "flash"
    return "efficient" if equal_heads else "math"


def padded(tensor):
    """pad_last_dim<8>: the flash kernel wants head sizes in multiples of eight."""
    missing = -tensor.size(-1) % 8
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor


def aligned_bias(mask, query, key):
    """convert_boolean_attn_mask and preprocess_mask: a float mask, rows aligned, expanded."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(),
                                                                      -math.inf)
    if any(stride % 8 for stride in mask.stride()[:-1]) or mask.stride(-1) != 1:
        size = mask.size(-1)
        mask = torch.nn.functional.pad(mask, (0, -size % 8))[..., :size]
    return mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))


def math_attention(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa):
    """_scaled_dot_product_attention_math, whose own code leaves the in-place sum out under a
    dispatch mode (areAnyTensorSubclassLike)."""
    origin = query.dtype
    inner = torch.float32 if origin in (torch.bfloat16, torch.float16) else origin
    query_acc, key_acc, value_acc = query.to(inner), key.to(inner), value.to(inner)
    factor = math.sqrt(scale if scale is not None else 1.0 / math.sqrt(query.size(-1)))
    scaled = query_acc * factor
    if is_causal:
        mask = torch.ones(query.size(2), key.size(2), dtype=torch.bool, device=query.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=inner).masked_fill_(mask.logical_not(), -math.inf)
    keys, values = key_acc, value_acc
    if enable_gqa:
        keys = keys.repeat_interleave(query.size(1) // keys.size(1), 1)
        values = values.repeat_interleave(query.size(1) // values.size(1), 1)
    scores = torch.matmul(scaled, keys.transpose(-2, -1) * factor)
    if mask is not None:
        scores.add_(mask)
    scores = aten._safe_softmax(scores, -1)
    scores = dropout(scores, dropout_p)
    out = torch.matmul(scores, values)
    probabilities = scores.detach().to(origin)  # the second result, dropped by the caller
    return out.to(origin), probabilities


@functools.lru_cache(None)
def copies_with_mask(module):
    """Whether a modeling file makes q, k and v contiguous on CUDA where there is a mask. Some only
    do so for torch before 2.2 (require_contiguous_qkv)."""
    source = inspect.getsource(sys.modules[module])
    asks = re.search(r'device\.type == "cuda"\s+and', source) is not None
    return asks and "require_contiguous_qkv" not in source


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False,
                                 scale=None, enable_gqa=False):
    if attn_mask is not None and copies_with_mask(sys._getframe(1).f_globals["__name__"]):
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    chosen = backend(query, key, attn_mask, enable_gqa)
    if chosen == "flash":
        factor = scale if scale is not None else 1.0 / math.sqrt(query.size(-1))
        size = query.size(-1)
        out = aten._scaled_dot_product_flash_attention(
            padded(query), padded(key), padded(value), dropout_p, is_causal, False,
            scale=factor)[0]
        return out if out.size(-1) == size else out[..., :size]
    if chosen == "efficient":
        bias = None if attn_mask is None else aligned_bias(attn_mask, query, key)
        needs = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, needs, dropout_p, is_causal, scale=scale)[0]
    return math_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)[0]


def dropout(x, p=0.5, training=True, inplace=False):
    """CUDA's dropout saves a boolean mask; the CPU's and meta's own path saves another tensor."""
    if p == 0.0 or not training:
        return x
    return torch.native_dropout(x, p, True)[0]


def knowing_meta(function):
    """Classes switch autocast off around their rotary tables; it does not know meta."""
    def asked(device_type, *args, **kwargs):
        return function("cpu" if device_type == "meta" else device_type, *args, **kwargs)
    return asked


def install():
    torch.autocast = knowing_meta(torch.autocast)
    torch.is_autocast_enabled = knowing_meta(torch.is_autocast_enabled)
    torch.nn.functional.scaled_dot_product_attention = scaled_dot_product_attention
    torch.nn.functional.dropout = dropout
