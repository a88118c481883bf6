"""Stands for the file of this name in Baichuan2's repository: its modules' names, what its layers are given and give back,
a mask that only the whole model makes, and a head that scales its weight. Its arithmetic is simpler."""

import torch
import torch.nn.functional as functional
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_baichuan import BaichuanConfig


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.num_attention_heads
        self.W_pack = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, hidden_states, attention_mask):
        batch, length, width = hidden_states.shape
        parts = self.W_pack(hidden_states).unflatten(-1, (3, self.heads, width // self.heads)).permute(2, 0, 3, 1, 4)
        out = functional.scaled_dot_product_attention(*parts, attn_mask=attention_mask)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)

    def forward(self, values):
        return self.down_proj(functional.silu(self.gate_proj(values)) * self.up_proj(values))


class DecoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn, self.mlp = Attention(config), MLP(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size)

    def forward(self, hidden_states, attention_mask=None, position_ids=None, past_key_value=None, output_attentions=False, use_cache=False):
        hidden_states = hidden_states + self.self_attn(self.input_layernorm(hidden_states), attention_mask)
        return (hidden_states + self.mlp(self.post_attention_layernorm(hidden_states)),)


class NormHead(nn.Module):
    def __init__(self, hidden_size, vocab_size):
        super().__init__()
        self.weight = nn.Parameter(torch.empty((vocab_size, hidden_size)))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, hidden_states):
        return functional.linear(hidden_states, functional.normalize(self.weight))


class BaichuanPreTrainedModel(PreTrainedModel):
    config_class = BaichuanConfig
    base_model_prefix = "model"
    _no_split_modules = ["DecoderLayer"]

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.data.normal_(std=0.02)


class BaichuanModel(BaichuanPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([DecoderLayer(config) for _ in range(config.num_hidden_layers)])
        self.norm = nn.RMSNorm(config.hidden_size)
        self.post_init()

    def get_input_embeddings(self):
        return self.embed_tokens

    def forward(self, input_ids=None, use_cache=None, **others):
        batch, length = input_ids.shape
        hidden = self.embed_tokens(input_ids)
        # As the 13B's ALiBi: what is farther counts less. All of it stands in the mask.
        position = torch.arange(length, device=hidden.device)
        distance = position[None, :] - position[:, None]
        mask = torch.where(distance > 0, float("-inf"), 0.25 * distance).to(hidden.dtype).expand(batch, 1, length, length)
        for layer in self.layers:
            hidden = layer(hidden, attention_mask=mask, position_ids=position[None], past_key_value=None, output_attentions=False, use_cache=use_cache)[0]
        return BaseModelOutputWithPast(last_hidden_state=self.norm(hidden))


class BaichuanForCausalLM(BaichuanPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.model = BaichuanModel(config)
        self.lm_head = NormHead(config.hidden_size, config.vocab_size)
        self.post_init()

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def forward(self, input_ids=None, labels=None, **others):
        logits = self.lm_head(self.model(input_ids=input_ids)[0]).float()
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return CausalLMOutputWithPast(loss=loss, logits=logits)
