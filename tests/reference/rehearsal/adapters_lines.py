#!/usr/bin/env python3
"""Configurations of adapters as peft leaves them, as lines for scripts/rehearse_matrix.py: adapters_lines.py > LINES.jsonl

Four layers of 1,024 under DDP on one GPU and two, FSDP1, FSDP2 and DeepSpeed's stages, in a loop of one's own without
autocast and by the Trainer: adapters in the dtype that the release of peft (0.21.2, 0.15.1, 0.10.0) gives
them ("program": {"adapters": "peft"}).
"""
import json

import matrix_lines

MODEL = {"model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4,
         "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096,
         "tie_word_embeddings": False}
FEW = ["q_proj", "v_proj"]
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def line(version, mark="", targets=ALL, dropout=0.0, autocast=None, **more):
    more = {"sequence": 1024, "batch": 2, "lora": 16, **more}
    made = matrix_lines.line("tinyllama-1.1b", version, **more)
    workload = made["scenario"]["workload"]
    made["scenario"]["model"] = dict(MODEL)
    lora = workload["method"]["lora"]
    lora["targets"] = targets
    lora.pop("dtype")  # what the release of peft makes of them
    if dropout:
        lora["dropout"] = dropout
    if autocast is not None:
        lora["autocast"] = autocast
    made.setdefault("program", {})["adapters"] = "peft"
    marks = ["few" if targets == FEW else "all", "drop" if dropout else "",
             {None: "", True: "autocast", False: "noautocast"}[autocast], mark]
    made["id"] = "-".join(["adapters", made["id"].replace("tinyllama-1.1b-", ""), *filter(None, marks)])
    made["group"] = "rehearsal/adapters/" + made["group"].split("/")[-1]
    return made


def lines():
    for version in matrix_lines.SOFTWARE:
        for targets in (FEW, ALL):
            yield line(version, engine="ddp", ranks=1, targets=targets)
            yield line(version, engine="ddp", ranks=1, targets=targets, checkpointing="ckn", dropout=0.1)
            yield line(version, engine="ddp", ranks=2, targets=targets, batch=3)
        yield line(version, engine="ddp", ranks=1, checkpointing="ckr")
        yield line(version, engine="ddp", ranks=1, trainer=True, autocast=True)
        yield line(version, engine="ddp", ranks=1, trainer=True, autocast=True, checkpointing="ckn", dropout=0.05)
        yield line(version, engine="ddp", ranks=1, trainer=True, autocast=False)
        yield line(version, engine="ddp", ranks=2, trainer=True, autocast=True)
        for autocast in (False, True) if version != "t22" else ():  # accelerate 0.30.1 has not what peft 0.10.0 asks it for
            yield line(version, engine="fsdp", stage=3, ranks=2, autocast=autocast)
            yield line(version, engine="fsdp", stage=3, ranks=4, autocast=autocast, checkpointing="ckn", dropout=0.1)
            if version == "t211":
                yield line(version, engine="fsdp", stage=3, ranks=2, fsdp=2, autocast=autocast)
        for stage in (0, 1, 2, 3):
            yield line(version, stage=stage, ranks=2)
        yield line(version, stage=2, ranks=2, trainer=True)
        yield line(version, stage=3, ranks=2, trainer=True, checkpointing="ckn", dropout=0.1)


if __name__ == "__main__":
    for row in lines():
        print(json.dumps(row))
