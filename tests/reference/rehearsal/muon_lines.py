#!/usr/bin/env python3
"""Configurations of DeepSpeed's Muon, as lines for scripts/rehearse_matrix.py: muon_lines.py > LINES.jsonl

Few layers of Qwen3 (tied embeddings), LLaMA (a head of its own) and GPT-2 (an embedding of positions that Muon
updates, too) at stages 1 and 2, and at stage 3, where zero.Init leaves all to Adam. With ns_method standard the garbage
of torch.compile's graph break keeps the first step's gradients until Python collects it, in these short runs to their end.
"""
import json

import matrix_lines

MODELS = {
    "qwen3": {"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 4,
              "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
              "max_position_embeddings": 4096, "tie_word_embeddings": True},
    "llama": {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 6,
              "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096,
              "tie_word_embeddings": False},
    "gpt2": {"model_type": "gpt2", "n_embd": 1024, "n_layer": 6, "n_head": 16, "vocab_size": 50257, "n_positions": 1024},
}


def line(model, **more):
    made = matrix_lines.line("tinyllama-1.1b", "t211",
                             **{"ranks": 2, "gpu": "A100-40G-SXM", "sequence": 1024, "batch": 2, **more})
    scenario = made["scenario"]
    scenario["model"] = dict(MODELS[model])
    scenario["workload"]["optimizer"] = "muon"
    zero = scenario["ds_config"]["zero_optimization"]
    if zero["stage"] == 3:
        zero["reduce_scatter"] = False
    scenario["ds_config"]["optimizer"]["type"] = "Muon"
    name = made["id"].replace("tinyllama-1.1b-", "").replace("-A100-40G-SXM", "")
    made["id"] = "-".join(["muon", model, name])
    made["group"] = "rehearsal/muon/" + made["group"].split("/")[-1]
    return made


def lines():
    for model in MODELS:
        for stage in (1, 2):
            yield line(model, stage=stage)
            yield line(model, stage=stage, checkpointing="ckn")
            yield line(model, stage=stage, checkpointing="ckn", micro_batches=4)
        yield line(model, stage=3, checkpointing="ckn")
    for stage in (1, 2):
        yield line("llama", stage=stage, ranks=1, checkpointing="ckn")
        yield line("llama", stage=stage, ranks=8, checkpointing="ckr", micro_batches=2)
        yield line("qwen3", stage=stage, ranks=64, checkpointing="ckn")
        yield line("llama", stage=stage, knobs=("ov",), checkpointing="ckn")
        yield line("llama", stage=stage, knobs=("rb5e7",), checkpointing="ckn")
        yield line("llama", stage=stage, precision="fp16", checkpointing="ckn")
        yield line("llama", stage=stage, trainer=True, checkpointing="ckn")
        yield line("llama", stage=stage, lora=16)
    yield line("llama", stage=2, knobs=("rr",), checkpointing="ckn")
    yield line("llama", stage=1, precision="fp32", checkpointing="ckn")
    yield line("llama", stage=3, trainer=True, checkpointing="ckn", micro_batches=2)


if __name__ == "__main__":
    for row in lines():
        print(json.dumps(row))
