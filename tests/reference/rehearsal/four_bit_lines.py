#!/usr/bin/env python3
"""Configurations of QLoRA, as lines for scripts/rehearse_matrix.py: four_bit_lines.py > LINES.jsonl

The model of adapters_lines.py with its linear layers in four bits (bitsandbytes, from a checkpoint) on one GPU, under
DDP, FSDP1, FSDP2 and DeepSpeed's stages 0 to 3, in a loop of one's own and by the Trainer; deeper ones at stage 3. Python needs
bitsandbytes.
"""
import json

import adapters_lines
import matrix_lines


def line(version, quant="nf4", double=False, storage=None, upcast=None, **more):
    made = adapters_lines.line(version, **more)
    workload = made["scenario"]["workload"]
    settings = workload["method"].pop("lora")
    settings.update(quant=quant, double_quant=double)
    if upcast:
        settings["upcast"] = upcast
    workload["method"] = {"qlora": settings}
    if storage:
        made["program"]["quant_storage"] = storage
    marks = ["dq" if double else "", storage and "in-" + storage, upcast and "upcast-" + upcast]
    made["id"] = "-".join(filter(None, ["four-bit", made["id"].replace("adapters-", "").replace("-lora16", ""), *marks]))
    made["group"] = made["group"].replace("adapters", "four-bit")
    return made


def deep(version, **more):
    """24 layers at stage 3, of which next to nothing may stay gathered: what else keeps weights is seen."""
    made = line(version, stage=3, ranks=2, batch=1, **more)
    made["scenario"]["model"].update(num_hidden_layers=24, vocab_size=4096)
    made["scenario"]["ds_config"]["zero_optimization"].update(
        {"stage3_max_live_parameters": 1_000_000, "stage3_max_reuse_distance": 1_000_000})
    made["id"] += "-deep"
    return made


def sharded(version, **more):
    """FSDP, whose four-bit weights are stored as bf16 and lie on the GPU before they are sharded."""
    made = line(version, engine="fsdp", stage=3, ranks=2, double=True, storage="bf16", **more)
    made["scenario"]["workload"]["load_device"] = "gpu"
    return made


def widened(version, **more):
    """The Trainer with mixed precision, with norms or all that is not in four bits in fp32."""
    return line(version, engine="ddp", ranks=1, double=True, trainer=True, autocast=True, **more)


def lines():
    for version in matrix_lines.SOFTWARE:
        yield line(version, engine="ddp", ranks=1)
        yield line(version, engine="ddp", ranks=1, double=True, checkpointing="ckn", dropout=0.05, trainer=True, autocast=True)
        for stage in (0, 1, 2, 3):
            yield line(version, stage=stage, ranks=2)
        yield line(version, stage=3, ranks=2, storage="bf16")
        for stage in (1, 2, 3):
            yield line(version, stage=stage, ranks=2, double=True, trainer=True, checkpointing="ckr",
                       storage="bf16" if stage == 3 else None)
        yield line(version, stage=3, ranks=2, double=True, trainer=True, checkpointing="ckr")
        if version == "t211":
            for checkpointing in ("", "ckn", "ckr"):
                for fsdp in (1, 2):
                    yield sharded(version, fsdp=fsdp, checkpointing=checkpointing)
            yield sharded(version, checkpointing="ckn", micro_batches=3)
        yield widened(version, checkpointing="ckr")
        yield widened(version, checkpointing="ckr", dropout=0.05, upcast="norms")
        yield widened(version, checkpointing="ckr", dropout=0.05, upcast="all")
        yield widened(version, upcast="norms")
        yield widened(version, checkpointing="ckn", upcast="all")
        for trainer in (False, True):
            for checkpointing in ("", "ckr", "ckn"):
                yield deep(version, trainer=trainer, checkpointing=checkpointing)


if __name__ == "__main__":
    for row in lines():
        print(json.dumps(row))
