#!/usr/bin/env python3
"""Configurations of DeepSpeed's AutoTP, as lines for scripts/rehearse_matrix.py: autotp_lines.py > LINES.jsonl

Few layers of each class whose tensor-parallel plan it reads, on 2 and 4 ranks of AutoTP with and without data-parallel
ones beside them, at the stages that it runs with.
"""
import json

import matrix_lines

COMMON = {"num_hidden_layers": 4, "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16,
          "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096}
MODELS = {
    "llama": {"tie_word_embeddings": False},
    "mistral": {"tie_word_embeddings": False, "sliding_window": None},
    "qwen2": {"tie_word_embeddings": False},
    "qwen3": {"tie_word_embeddings": True, "head_dim": 128},
    "gemma": {"head_dim": 128, "pad_token_id": 0},
    "gemma2": {"head_dim": 128, "pad_token_id": 0, "sliding_window": 4096},
    "gemma3_text": {"head_dim": 128, "pad_token_id": 0, "sliding_window": 512},
    "smollm3": {"tie_word_embeddings": True, "pad_token_id": 0},
    "olmo": {"tie_word_embeddings": False, "pad_token_id": 1},
    "granite": {"tie_word_embeddings": True},
    "starcoder2": {"tie_word_embeddings": True},
    "cohere": {"pad_token_id": 0},
    "cohere2": {"pad_token_id": 0, "sliding_window": 4096},
}


def line(model, tensor_ranks, **more):
    made = matrix_lines.line("tinyllama-1.1b", "t211",
                             **{"ranks": 4, "gpu": "A100-40G-SXM", "sequence": 1024, "batch": 2, **more})
    scenario = made["scenario"]
    scenario["model"] = {"model_type": model, **COMMON, **MODELS[model]}
    scenario["ds_config"]["tensor_parallel"] = {"autotp_size": tensor_ranks}
    name = made["id"].replace("tinyllama-1.1b-", "").replace("-A100-40G-SXM", "")
    made["id"] = "-".join(["autotp%d" % tensor_ranks, model, name])
    made["group"] = "rehearsal/autotp/" + made["group"].split("/")[-1]
    return made


def lines():
    for model in MODELS:
        yield line(model, 2, stage=1, checkpointing="ckn", trainer=True)
        yield line(model, 2, stage=2, batch=3, sequence=777, micro_batches=2, trainer=True)
    for stage in (0, 1, 2):
        for model in ("llama", "qwen3"):
            yield line(model, 4, stage=stage, ranks=8, checkpointing="ckn", trainer=True)
            yield line(model, 4, stage=stage, ranks=4, trainer=True)
            yield line(model, 2, stage=stage, checkpointing="ckr", micro_batches=4)
            yield line(model, 2, stage=stage, precision="fp16", trainer=True)
        yield line("llama", 8, stage=stage, ranks=64, checkpointing="ckn", trainer=True)
    for stage in (1, 2):
        yield line("llama", 2, stage=stage, offload="off", checkpointing="ckn", trainer=True)
        yield line("qwen2", 2, stage=stage, knobs=("ov",), trainer=True)


if __name__ == "__main__":
    for row in lines():
        print(json.dumps(row))
