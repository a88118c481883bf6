#!/usr/bin/env python3
"""Configurations of the families of hf_hybrid.cpp and hf_llama4.cpp, as lines for scripts/rehearse_matrix.py:
families_hybrid_lines.py > LINES.jsonl

Qwen3.5, dense and with experts, Qwen3-Next and Llama 4 with a few layers of released widths and odd sizes, under stages
0, 2 and 3, with and without checkpoints; sequences that fill chunks and such that do not. Those with `fla` in their names
are for a Python that has flash-linear-attention 0.6, the others for one that has not.
"""
import json

import matrix_lines

NAMES = {"qwen3.5-0.8b": {"num_hidden_layers": 4}, "qwen3.5-4b": {"num_hidden_layers": 4},
         "qwen3.5-35b-a3b": {"num_hidden_layers": 4, "num_experts": 16},
         "qwen3-next-80b-a3b": {"num_hidden_layers": 4, "num_experts": 16},
         "llama-4-scout": {"num_hidden_layers": 4, "num_local_experts": 4, "intermediate_size": 2048},
         "llama-4-maverick": {"num_hidden_layers": 4, "num_local_experts": 4, "intermediate_size": 2048}}


def line(name, more_of_model=None, **more):
    made = matrix_lines.line(name, "t211", **more)
    config = made["scenario"]["model"]
    changes = {**NAMES[name], **(more_of_model or {})}
    config.update(changes)
    marks = ["%s%s" % ("".join(word[0] for word in key.split("_")), value) for key, value in changes.items()]
    made["id"] = made["id"].replace(name, "-".join([name, *marks]), 1)
    return made


def lines():
    odd = {"vocab_size": 50001}
    yield matrix_lines.line("qwen3.5-0.8b", "t211", stage=2)
    for name in NAMES:
        yield line(name, odd, stage=2, sequence=1024)
        yield line(name, odd, stage=3, sequence=777, batch=2, ranks=4, checkpointing="ckn")
    for name in ("qwen3.5-0.8b", "llama-4-scout"):
        yield line(name, odd, stage=0, ranks=2, sequence=512, batch=2, checkpointing="ckr")
        yield line(name, odd, stage=3, ranks=2, batch=1, attention="eager")
        yield line(name, odd, stage=2, trainer=True, batch=2, checkpointing="ckn")
        yield line(name, odd, stage=3, lora=8, ranks=2, checkpointing="ckr")
    for chunk in (512, 1024, 1025):
        yield line("llama-4-scout", {**odd, "attention_chunk_size": chunk}, stage=2, sequence=1024, batch=2)


def by_kernels(made):
    if made["scenario"]["model"]["model_type"] == "llama4_text":
        return
    made["id"] = made["id"].replace("-t211", "-fla-t211")
    made["group"] += "-fla"
    made["scenario"]["workload"]["linear_attention"] = "fla"
    yield made


if __name__ == "__main__":
    for row in lines():
        print(json.dumps(row))
    for row in lines():
        for made in by_kernels(row):
            print(json.dumps(made))
