#!/usr/bin/env python3
"""Configurations whose work is counted, as lines for scripts/rehearse_matrix.py --count-work: work_lines.py > LINES.jsonl

What a step launches repeats from layer to layer, so that models of three layers say all of it: each stage, offload,
engine, frontend, kind of checkpointing, dtype and attention, under each of the matrix's sets of versions.
"""
import json

from matrix_lines import SOFTWARE, line

LAYERS = 3


def configurations(version):
    tiny, new = "tinyllama-1.1b", version != "t22"
    for stage in (0, 1, 2, 3):
        yield tiny, dict(stage=stage, knobs=("rb5e7",) if stage else ())
        yield tiny, dict(stage=stage, micro_batches=4, checkpointing="ckr")
        yield tiny, dict(stage=stage, precision="fp16", checkpointing="ckn")
    yield tiny, dict(stage=0, ranks=1)
    yield tiny, dict(stage=2, precision="fp32", ranks=2)
    yield tiny, dict(stage=2, knobs=("ov",), micro_batches=2)
    yield tiny, dict(stage=3, knobs=("noov",), checkpointing="ckr")
    yield tiny, dict(stage=3, knobs=("pf1e7", "rb5e7"), checkpointing="ckn", ranks=16)
    yield tiny, dict(stage=3, knobs=("sub1e8",), ranks=2)
    for stage, offload in ((2, "off"), (3, "off"), (3, "offall")):
        yield tiny, dict(stage=stage, offload=offload, ranks=4)
        yield tiny, dict(stage=stage, offload=offload, checkpointing="ckr", micro_batches=2, ranks=2)
    yield tiny, dict(stage=3, offload="offall", knobs=("sub1e8",), checkpointing="ckn", ranks=2)
    yield tiny, dict(stage=2, offload="off", precision="fp16", ranks=2)
    for stage in (2, 3):
        yield tiny, dict(stage=stage, lora=16, checkpointing="ckr" if stage == 3 else "", ranks=2)
        yield tiny, dict(stage=stage, trainer=True, checkpointing="ckn", batch=2)
        yield tiny, dict(stage=stage, attention="eager")
        yield "qwen2.5-0.5b", dict(stage=stage, checkpointing="ckr")
        yield "gpt2-large", dict(stage=stage)
    yield "qwen2.5-0.5b", dict(stage=1, knobs=("rb5e7",))
    yield "pythia-410m", dict(stage=2, batch=2)
    yield "bloom-560m", dict(stage=3)
    yield tiny, dict(engine="ddp")
    yield tiny, dict(engine="ddp", micro_batches=2, checkpointing="ckn")
    yield tiny, dict(engine="ddp", ranks=1, lora=8, checkpointing="ckr")
    yield "gpt2-large", dict(engine="ddp", trainer=True)
    yield tiny, dict(engine="fsdp", stage=3, checkpointing="ckn", ranks=4)
    yield tiny, dict(engine="fsdp", stage=3, micro_batches=2)
    yield tiny, dict(engine="fsdp", stage=2, batch=2)
    if new:
        yield tiny, dict(engine="fsdp", stage=3, fsdp=2, checkpointing="ckn")
        yield tiny, dict(engine="fsdp", stage=3, fsdp=2)


def shortened(made):
    model = made["scenario"]["model"]
    for key in ("num_hidden_layers", "n_layer"):
        if key in model:
            model[key] = LAYERS
    for key in ("layer_types",):
        if key in model:
            model[key] = model[key][:LAYERS]
    if "max_window_layers" in model:
        model["max_window_layers"] = min(model["max_window_layers"], LAYERS)
    return made


def main():
    for version in SOFTWARE:
        for name, said in configurations(version):
            print(json.dumps(shortened(line(name, version, **said))))


if __name__ == "__main__":
    main()
