#!/usr/bin/env python3
"""Configurations of the families of hf_decoder.cpp, as lines for scripts/rehearse_matrix.py: families_dense_lines.py > LINES.jsonl

Each family in a released size and with a few layers and odd sizes, under stages 0, 2 and 3, with and without
checkpoints, in the versions that have it; then what is its own: windows, softcaps, eager attention.
"""
import json

import matrix_lines

# Name, layers that fit beside the whole vocabulary where the size does not, versions.
SIZES = (("gemma-2-2b", 0, ("t211", "t26")), ("gemma-3-1b", 0, ("t211", "t26")), ("gemma-3-270m", 0, ("t211", "t26")),
         ("smollm3-3b", 0, ("t211",)), ("olmo-1b", 0, ("t211", "t26", "t22")), ("olmo-2-1b", 0, ("t211", "t26")), ("granite-3.1-2b", 0, ("t211", "t26")),
         ("starcoder2-3b", 0, ("t211", "t26", "t22")), ("glm-4-9b-0414", 12, ("t211",)),
         ("command-r7b", 8, ("t211", "t26")), ("command-r", 2, ("t211", "t26", "t22")))
WINDOWS = {"gemma-2-2b": 4096, "gemma-3-1b": 512, "command-r7b": 4096, "starcoder2-3b": 4096}


def line(name, version, layers=0, odd=False, **more):
    made = matrix_lines.line(name, version, **more)
    config = made["scenario"]["model"]
    marks = []
    if layers:
        config["num_hidden_layers"] = layers
        marks.append("l%d" % layers)
    if odd:
        config["vocab_size"] = 50001
        config["pad_token_id"] = 0  # the class's own may be beyond that
        marks.append("v50001")
    made["id"] = made["id"].replace(name, "-".join([name, *marks]), 1)
    return made


def lines():
    for name, layers, versions in SIZES:
        for version in versions:
            yield line(name, version, layers, stage=2, batch=1)
            yield line(name, version, layers, stage=3, sequence=1023, batch=3, checkpointing="ckn")
            yield line(name, version, 4 if not layers else 3, True, stage=0, ranks=2, sequence=777, batch=3, checkpointing="ckr")
            yield line(name, version, 4 if not layers else 3, stage=2, trainer=True, batch=3)
            yield line(name, version, 4 if not layers else 3, True, stage=3, ranks=4, batch=3, attention="eager")
            yield line(name, version, 4 if not layers else 3, stage=3, lora=8, ranks=2, checkpointing="ckr")
            if name.startswith("olmo-1b"):
                clipped = line(name, version, 4, stage=2, batch=2)
                clipped["scenario"]["model"]["clip_qkv"] = 8.0
                clipped["id"] += "-clip"
                yield clipped
            if name in WINDOWS:
                window = WINDOWS[name]
                # Two sequences: 8192 whole numbers at most, whose sum a rehearsal knows.
                for sequence, batch in ((window - 8, 2), (window, 2), (window + 512, 1)):
                    yield line(name, version, 4, stage=2, sequence=sequence, batch=batch)
                yield line(name, version, 4, stage=3, sequence=window + 512, checkpointing="ckn")
                yield line(name, version, 4, stage=3, sequence=window + 512, checkpointing="ckr", attention="eager")


if __name__ == "__main__":
    for row in lines():
        print(json.dumps(row))
