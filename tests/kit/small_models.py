"""Models that the checks of kits start from."""

import shutil
from pathlib import Path

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 64,
}
BAICHUAN = {
    "model_type": "baichuan",
    "architectures": ["BaichuanForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 256,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
CHATGLM = {
    "model_type": "chatglm",
    "architectures": ["ChatGLMModel"],
    "num_layers": 4,
    "padded_vocab_size": 256,
    "hidden_size": 64,
    "ffn_hidden_size": 128,
    "kv_channels": 16,
    "num_attention_heads": 4,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "seq_length": 64,
    "add_qkv_bias": True,
    "tie_word_embeddings": False,
}


def write_own_code(folder, model):
    """Small classes with the names of those that the model's repository has (own_code/)."""
    for path in (Path(__file__).parent / "own_code").glob(f"*_{model['model_type']}.py"):
        shutil.copy(path, folder)
