#!/usr/bin/env python3
"""The configurations of the matrix, as lines that scripts/rehearse_matrix.py runs: matrix_lines.py > LINES.jsonl

For each set of versions: every family under every engine and stage; one change at a time of each knob under each
stage; and combinations at random (always the same). In an order by the sums of their names, so that a part of the
matrix is a sample of all of it.
"""
import hashlib
import json
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "..", "..", "..", "configs", "models")
SOFTWARE = {
    "t211": {"torch": "2.11.0", "transformers": "5.17.0", "deepspeed": "0.19.6"},
    "t26": {"torch": "2.6.0", "transformers": "4.50.3", "deepspeed": "0.16.4"},
    "t22": {"torch": "2.2.0", "transformers": "4.40.2", "deepspeed": "0.14.2"},
}
FAMILIES = ("llama-3.2-1b", "tinyllama-1.1b", "qwen2.5-0.5b", "gemma-2b", "gpt2-large", "pythia-410m", "opt-1.3b",
            "bloom-560m", "phi-1.5", "phi-3-mini", "qwen3-0.6b", "mistral-7b-v0.1", "llama-3-8b")
SINCE = {"qwen3-0.6b": ("t211",), "phi-3-mini": ("t211", "t26")}  # which transformers know the class
LARGE = {"mistral-7b-v0.1", "llama-3-8b", "phi-3-mini"}  # not under stages 0 and 1 on 80 GB
TARGETS = {"gpt2-large": ["c_attn"], "pythia-410m": ["query_key_value"], "bloom-560m": ["query_key_value"],
           "phi-3-mini": ["qkv_proj"]}
CPU = {"device": "cpu", "pin_memory": True}
OFFLOADS = {"": {}, "off": {"offload_optimizer": CPU}, "offall": {"offload_optimizer": CPU, "offload_param": CPU}}
# One change of the defaults each: by the stages that have it.
KNOBS = {
    "rb5e7": ((1, 2, 3), {"reduce_bucket_size": 50_000_000}),
    "rb1e9": ((1, 2), {"reduce_bucket_size": 1_000_000_000}),
    "ag5e7": ((1, 2), {"allgather_bucket_size": 50_000_000}),
    "ov": ((1, 2), {"overlap_comm": True}),
    "noov": ((3,), {"overlap_comm": False}),
    "nocg": ((2, 3), {"contiguous_gradients": False}),
    "rr": ((2,), {"round_robin_gradients": True}),
    "live1e8": ((3,), {"stage3_max_live_parameters": 100_000_000, "stage3_max_reuse_distance": 100_000_000}),
    "pf1e7": ((3,), {"stage3_prefetch_bucket_size": 10_000_000}),
    "pers0": ((3,), {"stage3_param_persistence_threshold": 0}),
    "pers1e7": ((3,), {"stage3_param_persistence_threshold": 10_000_000}),
    "sub1e8": ((3,), {"sub_group_size": 100_000_000}),
}


def model(name):
    with open(os.path.join(MODELS, name + ".json")) as file:
        config = json.load(file)["config"]
    config.pop("torch_dtype", None)
    return config


def cluster(gpu, ranks):
    node = min(ranks, 8)
    return "%dx%dx%s" % (ranks // node, node, gpu)


def line(name, version, engine="deepspeed", stage=0, offload="", ranks=8, gpu="A100-80G-SXM", sequence=1024, batch=1,
         micro_batches=1, checkpointing="", attention="sdpa", precision="bf16", lora=0, trainer=False, knobs=(),
         fsdp=1, keeps_outputs=False):
    zero = {"stage": stage, **OFFLOADS[offload]}
    for knob in knobs:
        zero.update(KNOBS[knob][1])
    ds = {"zero_optimization": zero}
    if precision != "fp32":
        ds[precision] = {"enabled": True}
    if engine == "deepspeed":
        auto = "auto" if trainer else None
        ds.update({"train_micro_batch_size_per_gpu": auto or batch, "gradient_accumulation_steps": auto or micro_batches,
                   "gradient_clipping": auto or 1.0,
                   "optimizer": {"type": "AdamW", "params": {"lr": auto or 1e-05}}})
    if engine == "fsdp":
        ds["communication_data_type"] = precision
    workload = {
        "sequence_length": sequence, "micro_batch_size": batch, "gradient_accumulation_steps": micro_batches,
        "precision": precision, "optimizer": "adamw", "attention": attention,
        "activation_checkpointing": "full" if checkpointing else "none", "engine": engine,
        "frontend": "hf-trainer" if trainer else "native",
        **({} if trainer else {"outputs_kept" if keeps_outputs else "outputs_held": True}),
        # train.py then takes back what peft from 0.12 on makes of adapters beside 16 bits.
        "method": {"lora": {"rank": lora, "targets": TARGETS.get(name, ["q_proj", "v_proj"]), "dtype": precision}}
        if lora else "full",
        "implementation": "hf", "fused_loss": False, "tiled_mlp": False, "compile": False, "activation_offload": "none",
    }
    if checkpointing:
        workload["checkpoint_reentrant"] = checkpointing == "ckr"
    kind = {"deepspeed": "z%d" % stage, "ddp": "ddp", "fsdp": "fsdp2" if fsdp == 2 else "fsdp"}[engine]
    if engine == "fsdp" and stage == 2:
        kind += "-grad"
    parts = [name, kind, offload, "w%d" % ranks, "s%d" % sequence, "m%d" % batch, micro_batches > 1 and "g%d" % micro_batches,
             checkpointing, attention == "eager" and "eager", precision != "bf16" and precision, lora and "lora%d" % lora,
             trainer and "trainer", keeps_outputs and "kept", *knobs, not gpu.startswith("A100-80G") and gpu, version]
    made = {"id": "-".join(filter(None, parts)), "source": "rehearsal", "tier": "A",
            "group": "rehearsal/%s/%s" % (name, kind + (offload and "-" + offload)),
            "scenario": {"model": model(name), "cluster": cluster(gpu, ranks), "workload": workload,
                         "software": SOFTWARE[version], "ds_config": ds}}
    if fsdp == 2:
        workload["fsdp_version"] = 2
        made["program"] = {"fsdp": 2}
    return made


def engines(name, version):
    """A family under everything."""
    large, old = name in LARGE, version == "t22"
    for stage in (2, 3) if large else (0, 1, 2, 3):
        yield dict(stage=stage, checkpointing="ckr" if large else "")
        if not large:
            yield dict(stage=stage, batch=2, checkpointing="ckn")
    for stage, offload in ((2, "off"), (3, "off"), (3, "offall")):
        yield dict(stage=stage, offload=offload, checkpointing="ckr", ranks=4)
    yield dict(stage=3, lora=16, checkpointing="ckr", ranks=2)
    yield dict(stage=2, lora=16, batch=2)
    yield dict(stage=3, trainer=True, checkpointing="ckn", batch=2)
    yield dict(stage=2, trainer=True, checkpointing="ckr")
    if not large:
        yield dict(engine="ddp")
        yield dict(engine="ddp", ranks=1, batch=2, checkpointing="ckn")
    yield dict(engine="ddp", ranks=1, lora=8, checkpointing="ckr")
    yield dict(engine="fsdp", stage=3, checkpointing="ckn", ranks=4)
    if not old and version == "t211":
        yield dict(engine="fsdp", stage=3, fsdp=2, ranks=8, checkpointing="ckn")


def changes():
    """One change at a time."""
    for knob, (stages, _) in KNOBS.items():
        for stage in stages:
            yield dict(stage=stage, knobs=(knob,), checkpointing="ckr")
    for stage in (1, 2, 3):
        for ranks in (1, 2, 16, 64):
            yield dict(stage=stage, ranks=ranks, checkpointing="ckr")
        for sequence, batch in ((512, 8), (2048, 2), (4096, 1), (8192, 1)):
            yield dict(stage=stage, sequence=sequence, batch=batch, checkpointing="ckr")
        yield dict(stage=stage, attention="eager")
        yield dict(stage=stage, precision="fp16", checkpointing="ckn")
        yield dict(stage=stage, precision="fp32", checkpointing="ckn")
        yield dict(stage=stage, micro_batches=4)
        yield dict(stage=stage, gpu="H100-80G-SXM", sequence=2048)
        yield dict(stage=stage, gpu="A100-40G-SXM", sequence=2048)
    yield dict(engine="fsdp", stage=2, batch=2)


def with_outputs_kept():
    """Loops whose variable has the outputs until the next forward pass has ended."""
    for stage in (0, 1, 2, 3):
        yield dict(stage=stage, batch=2)
        yield dict(stage=stage, batch=3, micro_batches=3, checkpointing="ckn")
    for stage, offload in ((2, "off"), (3, "offall")):
        yield dict(stage=stage, offload=offload, batch=4, checkpointing="ckr", ranks=4)
    yield dict(stage=2, lora=16, batch=2)
    yield dict(stage=1, precision="fp16", batch=2, attention="eager")
    for ranks in (1, 4):
        yield dict(engine="ddp", ranks=ranks, batch=2, micro_batches=2)
    for fsdp in (1, 2):
        yield dict(engine="fsdp", stage=3, fsdp=fsdp, ranks=4, batch=2, checkpointing="ckn")


def at_random(dice):
    """A combination."""
    stage = dice.choice((1, 2, 2, 3, 3, 3))
    known = [knob for knob, (stages, _) in KNOBS.items() if stage in stages]
    return dict(
        stage=stage, offload=dice.choice(("", "", "off", "offall") if stage == 3 else ("", "", "off") if stage == 2 else ("",)),
        ranks=dice.choice((2, 4, 8, 16, 32)), sequence=dice.choice((512, 1024, 2048, 4096)), batch=dice.choice((1, 2, 3)),
        micro_batches=dice.choice((1, 1, 2)), checkpointing=dice.choice(("", "ckr", "ckn")),
        attention=dice.choice(("sdpa", "sdpa", "eager")), knobs=tuple(sorted(dice.sample(known, dice.randint(0, 2)))),
        gpu=dice.choice(("A100-80G-SXM", "H100-80G-SXM", "A100-40G-SXM")))


def matrix():
    dice = random.Random(20)
    for version in SOFTWARE:
        for name in FAMILIES:
            if version in SINCE.get(name, SOFTWARE):
                for said in engines(name, version):
                    yield line(name, version, **said)
        for name in ("tinyllama-1.1b", "pythia-410m"):
            for said in changes():
                if said.get("sequence", 0) <= 2048 or name.startswith("tiny"):
                    yield line(name, version, **said)
        for name in ("tinyllama-1.1b", "qwen2.5-0.5b") if version == "t211" else ():
            for said in with_outputs_kept():
                yield line(name, version, keeps_outputs=True, **said)
        for _ in range(60):
            name = dice.choice([n for n in FAMILIES if n not in LARGE and version in SINCE.get(n, SOFTWARE)])
            said = at_random(dice)
            most = next((model(name)[k] for k in ("max_position_embeddings", "n_positions") if k in model(name)), 4096)
            yield line(name, version, **{**said, "sequence": min(said["sequence"], most)})


def main():
    lines = {made["id"]: made for made in matrix()}
    for name in sorted(lines, key=lambda name: hashlib.sha256(name.encode()).hexdigest()):
        print(json.dumps(lines[name]))


if __name__ == "__main__":
    main()
