"""Small models with the module structure of a decoder-only transformer."""

import re

import torch
import torch.utils.checkpoint
from torch import nn


class RmsNorm(nn.Module):
    """x / rms(x) * weight."""

    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return x * scale.to(x.dtype) * self.weight


class Attention(nn.Module):
    """Grouped-query attention without a mask."""

    def __init__(self, shape):
        super().__init__()
        hidden, bias = shape["h"], shape.get("bias", False)
        self.heads, self.kv_heads = shape["nh"], shape["kv"]
        kv_width = self.kv_heads * (hidden // self.heads)
        self.q_proj = nn.Linear(hidden, hidden, bias=bias)
        self.k_proj = nn.Linear(hidden, kv_width, bias=bias)
        self.v_proj = nn.Linear(hidden, kv_width, bias=bias)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x):
        batch, length, hidden = x.shape
        width = hidden // self.heads
        repeats = self.heads // self.kv_heads

        def split(projected, heads):
            return projected.view(batch, length, heads, width).transpose(1, 2)

        query = split(self.q_proj(x), self.heads)
        key = split(self.k_proj(x), self.kv_heads).repeat_interleave(repeats, 1)
        value = split(self.v_proj(x), self.kv_heads).repeat_interleave(repeats, 1)
        scores = torch.softmax(query @ key.transpose(-1, -2) / width**0.5, -1)
        return self.o_proj((scores @ value).transpose(1, 2).reshape(batch, length, hidden))


class Mlp(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, shape):
        super().__init__()
        hidden, inner = shape["h"], shape["f"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """A pre-norm transformer layer; `variant` changes how its modules are called."""

    def __init__(self, shape):
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = Mlp(shape)
        self.input_layernorm = RmsNorm(shape["h"])
        self.post_attention_layernorm = RmsNorm(shape["h"])
        self.variant = shape.get("variant", "")
        if "dropout" in self.variant:
            self.dropout = nn.Dropout(0.0)

    def forward(self, x):
        normed = self.input_layernorm(x)
        keyword = "keyword" in self.variant
        attention = self.self_attn(x=normed) if keyword else self.self_attn(normed)
        inner = x if "parallel" in self.variant else x + attention
        output = self.mlp(self.post_attention_layernorm(inner))
        if "dropout" in self.variant:
            output = self.dropout(output)
        return x + attention + output if "parallel" in self.variant else inner + output


class Decoder(nn.Module):
    """Token ids in, the mean of the logits out."""

    def __init__(self, shape, recompute):
        super().__init__()
        self.recompute = recompute
        self.embed_tokens = nn.Embedding(shape["V"], shape["h"])
        self.layers = nn.ModuleList([Layer(shape) for _ in range(shape["L"])])
        self.norm = RmsNorm(shape["h"])
        self.lm_head = nn.Linear(shape["h"], shape["V"], bias=False)
        if shape.get("tied"):
            self.lm_head.weight = self.embed_tokens.weight
        self.order = list(range(shape["L"]))  # layers in the order in which forward calls them

    def _call(self, layer, x):
        if not self.recompute:
            return layer(x)
        reentrant = self.recompute == "reentrant"
        return torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=reentrant)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for index in self.order:
            x = self._call(self.layers[index], x)
        return self.lm_head(self.norm(x)).float().mean()


def freeze(model, pattern):
    """Takes the parameters whose names match out of the training."""
    for name, parameter in model.named_parameters():
        if pattern and re.search(pattern, name):
            parameter.requires_grad_(False)


def optimizer_groups(model, count):
    """Parameter groups as trainers make them: all; matrices and vectors; or by layer besides."""
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    if count == 1:
        return [{"params": [p for _, p in named]}]
    decayed = [(n, p) for n, p in named if len(getattr(p, "ds_shape", p.shape)) > 1]
    plain = [p for n, p in named if len(getattr(p, "ds_shape", p.shape)) <= 1]
    if count == 2:
        return [{"params": [p for _, p in decayed], "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    attention = [p for n, p in decayed if "attn" in n]
    others = [p for n, p in decayed if "attn" not in n]
    return [{"params": attention, "lr": 1e-5}, {"params": others}, {"params": plain, "weight_decay": 0.0}]
