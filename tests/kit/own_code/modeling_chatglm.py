"""Stands for the file of this name in ChatGLM2's repository: its modules' names, hidden states with the sequence first, what
its layers are given (by place) and give back, layers that are fetched by number. Its arithmetic is simpler."""

import torch
import torch.nn.functional as functional
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_chatglm import ChatGLMConfig


class SelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.num_attention_heads
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, hidden_states, rotary_pos_emb):
        length, batch, width = hidden_states.shape
        parts = self.query_key_value(hidden_states).unflatten(-1, (3, self.heads, width // self.heads)).permute(2, 1, 3, 0, 4)
        query, key, value = parts * torch.cat([rotary_pos_emb, rotary_pos_emb], dim=-1)[None, None, None]
        out = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.dense(out.permute(2, 0, 1, 3).reshape(length, batch, width))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense_h_to_4h = nn.Linear(config.hidden_size, 2 * config.ffn_hidden_size, bias=False)
        self.dense_4h_to_h = nn.Linear(config.ffn_hidden_size, config.hidden_size, bias=False)

    def forward(self, values):
        gate, up = self.dense_h_to_4h(values).chunk(2, dim=-1)
        return self.dense_4h_to_h(functional.silu(gate) * up)


class GLMBlock(nn.Module):
    def __init__(self, config, layer_number):
        super().__init__()
        self.layer_number = layer_number
        self.input_layernorm = nn.RMSNorm(config.hidden_size)
        self.self_attention = SelfAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size)
        self.mlp = MLP(config)

    def forward(self, hidden_states, attention_mask, rotary_pos_emb, kv_cache=None, use_cache=True):
        hidden_states = hidden_states + self.self_attention(self.input_layernorm(hidden_states), rotary_pos_emb)
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states)), None


class GLMTransformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_layers = config.num_layers
        self.layers = nn.ModuleList([GLMBlock(config, i + 1) for i in range(config.num_layers)])
        self.final_layernorm = nn.RMSNorm(config.hidden_size)

    def forward(self, hidden_states, attention_mask, rotary_pos_emb, kv_caches=None, use_cache=True):
        for index in range(self.num_layers):
            hidden_states, _ = self.layers[index](hidden_states, attention_mask, rotary_pos_emb, kv_cache=None, use_cache=use_cache)
        return self.final_layernorm(hidden_states)


class Embedding(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.padded_vocab_size, config.hidden_size)

    def forward(self, input_ids):
        return self.word_embeddings(input_ids).transpose(0, 1).contiguous()


class RotaryEmbedding(nn.Module):
    def __init__(self, dimensions):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / (10000 ** (torch.arange(0, dimensions, 2).float() / dimensions)), persistent=False)

    def forward(self, length, dtype):
        return torch.outer(torch.arange(length, device=self.inv_freq.device).float(), self.inv_freq).cos().to(dtype)


class ChatGLMPreTrainedModel(PreTrainedModel):
    config_class = ChatGLMConfig
    base_model_prefix = "transformer"
    _no_split_modules = ["GLMBlock"]

    def _init_weights(self, module):
        return


class ChatGLMModel(ChatGLMPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embedding = Embedding(config)
        self.rotary_pos_emb = RotaryEmbedding(config.hidden_size // config.num_attention_heads)
        self.encoder = GLMTransformer(config)
        self.output_layer = nn.Linear(config.hidden_size, config.padded_vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.embedding.word_embeddings

    def forward(self, input_ids, use_cache=None, **others):
        hidden = self.embedding(input_ids)
        table = self.rotary_pos_emb(input_ids.shape[1], hidden.dtype)
        return BaseModelOutputWithPast(last_hidden_state=self.encoder(hidden, None, table, kv_caches=None, use_cache=use_cache))


class ChatGLMForConditionalGeneration(ChatGLMPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.transformer = ChatGLMModel(config)
        self.post_init()

    def get_input_embeddings(self):
        return self.transformer.embedding.word_embeddings

    def forward(self, input_ids=None, labels=None, **others):
        hidden = self.transformer(input_ids=input_ids)[0]
        logits = self.transformer.output_layer(hidden).transpose(0, 1).float()
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return CausalLMOutputWithPast(loss=loss, logits=logits)
