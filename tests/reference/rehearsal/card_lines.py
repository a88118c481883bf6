#!/usr/bin/env python3
"""Configurations for a card that is there, as lines for scripts/rehearse_matrix.py --real-gpu: card_lines.py memory|time|ahead GPU > LINES.jsonl

The newest set of versions. `memory`: each mechanism once, on one rank and as a rank of several, small enough that three
run beside each other on 80 GB. `time`: steps to be timed, alone: of one rank, and of ranks as people published them.
`ahead`: reserved memory where the host runs ahead of the GPU, alone too: long steps of several ranks.
"""
import json
import sys

import four_bit_lines
import matrix_lines
import trl_lines

VERSION = "t211"
GRPO = {"prompt_length": None, "completion_length": 128, "completions": 4, "beta": 0.0}


def line(name, steps=0, compiled=False, gpu="", **said):
    made = matrix_lines.line(name, VERSION, gpu=gpu, **said)
    if steps:
        made.setdefault("program", {})["steps"] = steps
    if compiled:
        made["scenario"]["workload"]["compile"] = True
        made["id"] += "-compiled"
    return made


def memory(gpu):
    one = "tinyllama-1.1b"
    alone = dict(ranks=1, gpu=gpu)
    yield line(one, engine="ddp", batch=2, **alone)
    yield line(one, engine="ddp", checkpointing="ckn", batch=4, **alone)
    yield line(one, engine="ddp", lora=8, **alone)
    yield line(one, engine="ddp", trainer=True, **alone)
    for stage in (1, 2, 3):
        yield line(one, stage=stage, checkpointing="ckr" if stage > 1 else "", **alone)
    yield line(one, stage=3, ranks=8, batch=2, checkpointing="ckn", gpu=gpu)
    yield line(one, stage=2, ranks=8, checkpointing="ckr", gpu=gpu)
    yield line(one, stage=1, ranks=8, gpu=gpu)
    yield line(one, engine="fsdp", stage=3, checkpointing="ckn", ranks=8, gpu=gpu)
    yield line(one, engine="fsdp", stage=3, fsdp=2, checkpointing="ckn", ranks=8, gpu=gpu)
    yield line(one, engine="fsdp", stage=3, **alone)
    yield line(one, engine="fsdp", stage=3, fsdp=2, **alone)
    yield four_bit_lines.line(VERSION, engine="ddp", ranks=1, gpu=gpu)
    yield four_bit_lines.line(VERSION, stage=3, ranks=2, gpu=gpu)
    yield trl_lines.line(trl_lines.NEWEST, "dpo", engine="ddp", batch=2, **alone)
    yield trl_lines.line(trl_lines.NEWEST, "dpo", stage=3, ranks=2, batch=2, gpu=gpu)
    yield trl_lines.line(trl_lines.NEWEST, "grpo", engine="ddp", batch=8, sequence=384, said=GRPO, **alone)
    yield line(one, stage=2, trainer=True, micro_batches=2, checkpointing="ckr", **alone)
    yield line(one, stage=3, trainer=True, batch=2, checkpointing="ckn", ranks=8, gpu=gpu)
    yield line(one, stage=3, lora=16, ranks=8, gpu=gpu)
    yield line(one, stage=2, ranks=8, knobs=("ov",), gpu=gpu)
    yield line(one, engine="ddp", ranks=8, gpu=gpu)
    yield line("llama-3-8b", stage=3, ranks=8, sequence=4096, checkpointing="ckn", gpu=gpu)
    for stage, offload in ((2, "off"), (3, "off"), (3, "offall")):
        yield line(one, stage=stage, offload=offload, checkpointing="ckr", **alone)
    yield line(one, stage=3, offload="offall", checkpointing="ckr", ranks=8, gpu=gpu)
    yield line(one, engine="ddp", batch=2, compiled=True, **alone)


def time(gpu):
    one, alone = "tinyllama-1.1b", dict(ranks=1, gpu=gpu, steps=12)
    yield line("mistral-7b-v0.1", stage=3, ranks=8, sequence=2048, batch=16, checkpointing="ckn", trainer=True, gpu=gpu, steps=7)
    yield line(one, engine="fsdp", stage=3, fsdp=2, ranks=8, sequence=4096, batch=4, checkpointing="ckn", gpu=gpu, steps=8)
    yield line("llama-3.1-70b", stage=3, ranks=32, sequence=4096, batch=1, checkpointing="ckn", gpu=gpu, steps=6)
    yield line("qwen2.5-0.5b", stage=3, ranks=8, gpu=gpu, steps=12)
    yield line(one, stage=3, ranks=8, sequence=2048, batch=2, checkpointing="ckn", gpu=gpu, steps=12)
    yield line(one, stage=2, ranks=8, sequence=2048, batch=2, gpu=gpu, steps=12)
    for stage in (1, 2, 3):
        yield line(one, stage=stage, sequence=2048, batch=2, **alone)
    yield line(one, engine="ddp", sequence=2048, batch=2, **alone)
    for stage, offload in ((2, "off"), (3, "off"), (3, "offall")):
        yield line(one, stage=stage, offload=offload, sequence=2048, batch=2, checkpointing="ckn", **{**alone, "steps": 6})
    yield line("llama-3-8b", stage=3, ranks=8, sequence=4096, batch=2, checkpointing="ckn", gpu=gpu, steps=8)


def ahead(gpu):
    seven, eight = "mistral-7b-v0.1", "llama-3-8b"
    of_eight = dict(stage=3, ranks=8, gpu=gpu, steps=6)
    yield line(seven, sequence=2048, batch=4, checkpointing="ckn", **of_eight)
    yield line(eight, sequence=4096, batch=2, checkpointing="ckn", **of_eight)
    yield line(eight, sequence=4096, batch=4, checkpointing="ckr", **of_eight)
    yield line(seven, sequence=1024, batch=2, **of_eight)
    for knob in ("pf1e7", "live1e8", "noov"):
        yield line(eight, sequence=4096, batch=2, checkpointing="ckn", knobs=(knob,), **of_eight)
    for version in (1, 2):
        yield line(eight, sequence=4096, batch=2, checkpointing="ckn", engine="fsdp", fsdp=version, **of_eight)
    yield line(eight, sequence=2048, batch=4, checkpointing="ckn", lora=16, **of_eight)
    yield line("tinyllama-1.1b", sequence=2048, batch=8, **of_eight)
    yield line(eight, sequence=4096, batch=2, checkpointing="ckn", offload="off", **of_eight)
    yield line(eight, sequence=4096, batch=2, checkpointing="ckn", offload="offall", **of_eight)


if __name__ == "__main__":
    for row in {"memory": memory, "time": time, "ahead": ahead}[sys.argv[1]](sys.argv[2]):
        print(json.dumps(row))
