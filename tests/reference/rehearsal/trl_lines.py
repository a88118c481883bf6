#!/usr/bin/env python3
"""Configurations of TRL's trainers, as lines for scripts/rehearse_matrix.py: trl_lines.py > LINES.jsonl

DPO, KTO, GRPO (which generates itself) and GKD of TRL 1.16.0, PPO of 1.10.0 and 0.17.0 on four layers of 1,024 and on Qwen2.5-0.5B, under DeepSpeed's stages and DDP, full and with
adapters, with and without checkpoints; the reference as TRL makes it (train_trl.py). A few of each release that makes
log-probabilities in another way.
"""
import json

import adapters_lines
import matrix_lines

NEWEST = "t211", "1.16.0"
PPO = ("t211", "1.10.0"), ("t26", "0.17.0")  # which TRL 1.13 took away
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
        lora.pop("dtype")  # what the releases of peft and TRL make of them
        if workload["engine"] == "ddp":
            lora["autocast"] = True
    prompt = workload["sequence_length"] // 4
    settings = {"prompt_length": prompt, **(said or {})}
    workload["trainer"] = {trainer: {key: value for key, value in settings.items() if value is not None}}
    made["scenario"]["software"] = {**made["scenario"]["software"], "trl": trl}
    off = {"precompute_reference": "precompute"}
    marks = [trainer, *(mark for key, mark in off.items() if key in settings), settings.get("beta") and "beta", made["id"], releases != NEWEST and "trl" + trl]
    made["id"] = "-".join(filter(None, marks))
    made["group"] = "rehearsal/%s/%s" % (trainer, made["group"].split("/")[-1])
    return made


def rollout(releases, name="", said=None, sequence=512, **more):
    """PPO with two epochs, and so much that there are two rollouts: the first's logits are there in the second."""
    settings = {"prompt_length": None, "completion_length": 48, "rollout_rows": 8, "epochs": 2, "mini_batches": 1, **(said or {})}
    made = line(releases, "ppo", name, said=settings, sequence=sequence, **{"batch": 4, "micro_batches": 2, **more})
    made["scenario"].get("ds_config", {}).pop("optimizer", None)  # PPOTrainer's own, beside which accelerate takes none
    lora = made["scenario"]["workload"]["method"]
    if lora != "full" and made["scenario"]["workload"]["engine"] == "deepspeed":
        lora["lora"].pop("dtype", None)
    if settings["mini_batches"] > 1:
        made["id"] += "-minis%d" % settings["mini_batches"]
    made["program"] = {"steps": 3}
    return made


def lines_of_ppo():
    newest, before = PPO
    for stage in (0, 1, 2, 3):
        yield rollout(newest, stage=stage, ranks=2)
    yield rollout(newest, engine="ddp", ranks=1)
    for stage in (0, 2):  # at 3 DeepSpeed 0.19.6 stops: fp32 adapters beside a bf16 value model
        yield rollout(newest, stage=stage, ranks=2, lora=16)
    yield rollout(newest, engine="ddp", ranks=1, lora=16)
    yield rollout(newest, stage=2, offload="off", ranks=2)
    yield rollout(newest, stage=3, offload="offall", ranks=2)
    yield rollout(newest, stage=2, ranks=2, said={"rollout_rows": 4, "mini_batches": 2})
    for stage in (2, 3):
        yield rollout(newest, "qwen2.5-0.5b", stage=stage, ranks=4)
    for stage in (2, 3):
        yield rollout(before, stage=stage, ranks=2)
    yield rollout(before, engine="ddp", ranks=1)


TEACHER = {**adapters_lines.MODEL, "hidden_size": 1536, "intermediate_size": 4096, "num_hidden_layers": 6}
QWEN_1_5B = matrix_lines.model("qwen2.5-1.5b")


def distilled(name="", teacher=TEACHER, said=None, mark="", **more):
    """GKD. `teacher`: a config, whose vocabulary is the student's."""
    said = {"beta": 0.5, "lmbda": 0.0, **(said or {})}
    if said["lmbda"] > 0:  # a rehearsal takes a second for ten tokens
        said.update(completion_length=96, prompt_length=1024 - 96)
    made = line(NEWEST, "gkd", name, said=said, **{"batch": 2, "ranks": 2, **more})
    workload = made["scenario"]["workload"]
    workload["teacher"] = teacher
    settings = workload["trainer"]["gkd"]
    marks = settings["lmbda"] > 0 and "lmbda%g" % settings["lmbda"], settings["beta"] != 0.5 and "beta%g" % settings["beta"], mark
    made["id"] = "-".join(filter(None, [made["id"].replace("gkd-beta-", "gkd-"), *marks]))
    return made


def lines_of_gkd():
    """With what the data says and with what the student generates (lmbda 1)."""
    for stage in (0, 2, 3):
        yield distilled(stage=stage)
        yield distilled(stage=stage, said={"lmbda": 1.0})
        yield distilled(stage=stage, lora=16)
    for stage in (2, 3):
        yield distilled(stage=stage, checkpointing="ckn")
        yield distilled(stage=stage, sequence=2048, batch=1)
        yield distilled("qwen2.5-0.5b", QWEN_1_5B, stage=stage, ranks=4, batch=1)
    yield distilled(stage=3, lora=16, checkpointing="ckr")
    yield distilled(stage=3, checkpointing="ckn", said={"lmbda": 1.0})
    yield distilled(stage=3, offload="offall")
    yield distilled(stage=3, micro_batches=2, said={"lmbda": 1.0})
    yield distilled(engine="ddp", ranks=1)
    yield distilled(engine="ddp", checkpointing="ckn")
    yield distilled(engine="ddp", ranks=1, lora=16)
    yield distilled(engine="ddp", ranks=1, said={"lmbda": 1.0})
    for beta in (0.0, 1.0):
        yield distilled(stage=2, said={"beta": beta})
    yield distilled(stage=2, micro_batches=2)
    yield distilled(stage=2, sequence=512, batch=4)
    smaller = {**adapters_lines.MODEL, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 2, "num_key_value_heads": 8}
    yield distilled(stage=2, teacher=smaller, mark="small-teacher")
    yield distilled(stage=3, teacher=smaller, mark="small-teacher")


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
    for row in (*lines(), *lines_of_ppo(), *lines_of_gkd()):
        print(json.dumps(row))
