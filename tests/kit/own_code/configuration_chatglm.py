"""Stands for the file of this name in ChatGLM2's and ChatGLM3's repositories."""

from transformers import PretrainedConfig


class ChatGLMConfig(PretrainedConfig):
    model_type = "chatglm"

    def __init__(self, num_layers=4, padded_vocab_size=256, hidden_size=64, ffn_hidden_size=128, num_attention_heads=4, tie_word_embeddings=False, **others):
        self.num_layers, self.padded_vocab_size, self.vocab_size = num_layers, padded_vocab_size, padded_vocab_size
        self.hidden_size, self.ffn_hidden_size, self.num_attention_heads = hidden_size, ffn_hidden_size, num_attention_heads
        others.pop("vocab_size", None)
        super().__init__(tie_word_embeddings=tie_word_embeddings, **others)
