"""Stands for the file of this name in Baichuan2's repository."""

from transformers import PretrainedConfig


class BaichuanConfig(PretrainedConfig):
    model_type = "baichuan"

    def __init__(self, vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, tie_word_embeddings=False, **others):
        self.vocab_size, self.hidden_size, self.intermediate_size = vocab_size, hidden_size, intermediate_size
        self.num_hidden_layers, self.num_attention_heads = num_hidden_layers, num_attention_heads
        super().__init__(tie_word_embeddings=tie_word_embeddings, **others)
