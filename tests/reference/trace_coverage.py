#!/usr/bin/env python3
"""Which classes for causal language models a Python's transformers has that zeroplan plans, by their default configs.

trace_coverage.py ZEROPLAN PYTHON FOLDER [--only TEXT] [--seconds 100]

Writes FOLDER/TYPE.json, a config, and FOLDER/outcomes.jsonl, a line a class: planned, or what the program says. A line that is
there already is left out. Half an hour for 160 classes on two cores; defaults that are no model (null sizes) count as refused.
"""
import argparse
import collections
import json
import os
import subprocess
import time

CONFIGS = '''
import json, sys
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as names
for kind, name in names.items():
    try:
        config = CONFIG_MAPPING[kind]().to_dict()
        config.update(model_type=kind, architectures=[name if isinstance(name, str) else name[0]])
        text = json.dumps(config)
    except Exception as error:
        print(kind, "has no default config:", error, file=sys.stderr)
        continue
    with open(sys.argv[1] + "/" + kind + ".json", "w") as file:
        file.write(text)
'''


def positions(config):
    said = [config.get(key) for key in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")]
    return min([2048, *(value for value in said if isinstance(value, int) and value > 0)])


def outcome(zeroplan, path, environment, seconds):
    with open(path) as file:
        sequence = positions(json.load(file)) // 2
    command = [zeroplan, "simulate", path, "8xH100-80G", "--stage", "3", "--mbs", "1", "--ckpt", "full", "--seq", str(sequence)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=seconds)
    except subprocess.TimeoutExpired:
        return "over %d s" % seconds
    if done.returncode in (0, 3):
        return "planned"
    lines = [line for line in done.stderr.splitlines() if line.startswith("error")]
    return lines[0][:300] if lines else "exit %d" % done.returncode


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("zeroplan")
    parser.add_argument("python")
    parser.add_argument("folder")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=int, default=100)
    said = parser.parse_args()
    os.makedirs(said.folder, exist_ok=True)
    environment = {**os.environ, "ZEROPLAN_PYTHON": said.python}
    # A torch for CUDA whose libraries are missing is imported with the emulated ones.
    subprocess.run([said.zeroplan, "rehearse", "--gpu", "A100-80G", "--steps", "0", "--", said.python, "-c", CONFIGS, said.folder],
                   stdout=subprocess.DEVNULL, check=False)
    kept = os.path.join(said.folder, "outcomes.jsonl")
    known = {}
    if os.path.exists(kept):
        with open(kept) as file:
            known = {row["type"]: row["outcome"] for row in map(json.loads, file)}
    for name in sorted(os.listdir(said.folder)):
        kind = name[:-len(".json")]
        if not name.endswith(".json") or kind in known or said.only not in kind:
            continue
        began = time.time()
        known[kind] = outcome(said.zeroplan, os.path.join(said.folder, name), environment, said.seconds)
        with open(kept, "a") as file:
            file.write(json.dumps({"type": kind, "outcome": known[kind], "seconds": round(time.time() - began, 1)}) + "\n")
    for what, count in collections.Counter(known.values()).most_common():
        print("%4d  %s" % (count, what))


if __name__ == "__main__":
    main()
