#!/usr/bin/env python3
"""Configurations of TRL's trainers, as lines for scripts/rehearse_matrix.py: trl_lines.py > LINES.jsonl

DPO, KTO and GRPO (which generates itself) of TRL 1.16.0 on four layers of 1,024 and on Qwen2.5-0.5B, under DeepSpeed's stages and DDP, full and with
adapters, with and without checkpoints; the reference as TRL makes it (train_trl.py). A few of each release that makes
log-probabilities in another way.
"""
import json

import adapters_lines
import matrix_lines

NEWEST = "t211", "1.16.0"
OTHERS = (("t211", "1.14.0"), ("t211", "1.10.0"))


def line(releases, trainer, name="", said=None, **more):
    (version, trl), small = releases, not name
    made = matrix_lines.line(name or "tinyllama-1.1b", version, trainer=True, **more)
    workload = made["scenario"]["workload"]
    if small:
        made["scenario"]["model"] = dict(adapters_lines.MODEL)
        made["id"] = made["id"].replace("tinyllama-1.1b-", "")
    lora = workload["method"]["lora"] if workload["method"] != "full" else None
    if lora:
        lora["targets"] = adapters_lines.ALL
        lora.pop("dtype")  # what the release of peft makes of them
        if workload["engine"] == "ddp":
            lora["autocast"] = True
        elif made["scenario"]["ds_config"]["zero_optimization"]["stage"] == 3:
            lora["dtype"] = "bf16"  # TRL's autocast_adapter_dtype=False
    prompt = workload["sequence_length"] // 4
    settings = {"prompt_length": prompt, **(said or {})}
    workload["trainer"] = {trainer: {key: value for key, value in settings.items() if value is not None}}
    made["scenario"]["software"] = {**made["scenario"]["software"], "trl": trl}
    off = {"precompute_reference": "precompute"}
    marks = [trainer, *(mark for key, mark in off.items() if key in settings), settings.get("beta") and "beta", made["id"], releases != NEWEST and "trl" + trl]
    made["id"] = "-".join(filter(None, marks))
    made["group"] = "rehearsal/%s/%s" % (trainer, made["group"].split("/")[-1])
    return made


def lines():
    for stage in (0, 1, 2, 3):
        yield line(NEWEST, "dpo", stage=stage, ranks=2, batch=2)
    yield line(NEWEST, "dpo", engine="ddp", ranks=1, batch=2)
    yield line(NEWEST, "dpo", engine="ddp", ranks=2, batch=2, checkpointing="ckn")
    for stage in (2, 3):
        yield line(NEWEST, "dpo", stage=stage, ranks=2, batch=2, checkpointing="ckn")
        yield line(NEWEST, "dpo", stage=stage, ranks=2, batch=2, lora=16)
        yield line(NEWEST, "kto", stage=stage, ranks=2, batch=4)
        yield line(NEWEST, "dpo", "qwen2.5-0.5b", stage=stage, ranks=4)
    yield line(NEWEST, "dpo", stage=3, ranks=2, batch=2, lora=16, checkpointing="ckr")
    yield line(NEWEST, "dpo", engine="ddp", ranks=1, batch=2, lora=16)
    yield line(NEWEST, "kto", engine="ddp", ranks=1, batch=4)
    yield line(NEWEST, "kto", stage=2, ranks=2, batch=4, lora=16)
    yield line(NEWEST, "dpo", stage=2, ranks=2, batch=2, said={"precompute_reference": True})
    yield line(NEWEST, "dpo", "qwen2.5-0.5b", stage=3, offload="offall", ranks=4)
    # References that are offloaded and sharded, in both ways of waiting for a gather's input.
    for releases in (NEWEST, OTHERS[0]):
        yield line(releases, "dpo", stage=3, offload="offall", ranks=2, batch=2, checkpointing="ckn")
    yield line(NEWEST, "dpo", stage=3, offload="offall", ranks=2)
    yield line(NEWEST, "kto", stage=3, offload="offall", ranks=8, batch=4)
    yield line(NEWEST, "dpo", "qwen2.5-0.5b", stage=3, offload="offall", ranks=8, batch=2, checkpointing="ckn")
    yield line(NEWEST, "dpo", stage=2, ranks=2, micro_batches=2)
    grpo = {"prompt_length": None, "completion_length": 128, "completions": 4, "beta": 0.0}
    for stage in (2, 3):
        yield line(NEWEST, "grpo", stage=stage, ranks=2, batch=8, sequence=384, said=grpo)
    yield line(NEWEST, "grpo", stage=2, ranks=2, batch=8, sequence=384, said={**grpo, "beta": 0.04})
    yield line(NEWEST, "grpo", stage=3, ranks=2, batch=8, sequence=384, said={**grpo, "beta": 0.04})
    yield line(NEWEST, "grpo", engine="ddp", ranks=1, batch=8, sequence=384, said=grpo)
    yield line(NEWEST, "grpo", stage=2, ranks=2, batch=4, micro_batches=4, sequence=384, lora=16, said=grpo)
    for releases in OTHERS:
        yield line(releases, "dpo", stage=2, ranks=2, batch=2)
        yield line(releases, "dpo", stage=3, ranks=2, batch=2, checkpointing="ckn")
        yield line(releases, "dpo", engine="ddp", ranks=1, batch=2)
        yield line(releases, "kto", stage=2, ranks=2, batch=4)


if __name__ == "__main__":
    for row in lines():
        print(json.dumps(row))
