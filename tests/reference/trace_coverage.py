#!/usr/bin/env python3
"""Which classes a Python's transformers has for causal language models, images and text, masked words, sequences to sequences and speech that
zeroplan plans, by their default configs.

trace_coverage.py ZEROPLAN PYTHON FOLDER [--recorded] [--only TEXT] [--seconds 100]

Writes FOLDER/TYPE.CLASS.json, a config, and FOLDER/outcomes.jsonl, a line a class: planned, or what the program says. A line that is
there already is left out. Half an hour for 160 classes on two cores; defaults that are no model (null sizes) count as refused.

--recorded asks without a Python, so that what was recorded answers alone, and writes docs/coverage.md: a row a type and task, with the reason from
coverage_reasons.json where a class is not planned. Each class by its defaults, and where those are not planned as RELEASED or SAID has it.
"""
import argparse
import collections
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "rehearsal" / "python"))
from zeroplan_trace.config_keys import LAYERS, POSITIONS, RELEASED, nested, repeated  # noqa: E402

REASONS = Path(__file__).with_name("coverage_reasons.json")
TABLE = ROOT / "docs" / "coverage.md"
# What checkpoints say and the class's default config leaves out, of types that were recorded at any value of it.
SAID = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "glm4_moe": {"head_dim": 128},
    "trocr": {"cross_attention_hidden_size": 768},
}
TASKS = {
    "causal language models": "MODEL_FOR_CAUSAL_LM",
    "images and text": "MODEL_FOR_IMAGE_TEXT_TO_TEXT",
    "masked words": "MODEL_FOR_MASKED_LM",
    "sequence to sequence": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM",
    "speech to text": "MODEL_FOR_SPEECH_SEQ_2_SEQ",
}
CONFIGS = '''
import json, sys
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

folder, tasks, released = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
rows = []
for task, mapping in tasks.items():
    for kind, name in getattr(modeling_auto, mapping + "_MAPPING_NAMES").items():
        name = name if isinstance(name, str) else name[0]
        row = {"task": task, "type": kind, "class": name, "transformers": transformers.__version__}
        rows.append(row)
        for way, said in (("", {}), (".released", released.get(kind))):
            if said is None:
                continue
            try:
                config = CONFIG_MAPPING[kind](**said).to_dict()
                config.update(model_type=kind, architectures=[name])
                with open("%s/%s.%s%s.json" % (folder, kind, name, way), "w") as file:
                    json.dump(config, file, default=str)
            except Exception as error:
                row.setdefault("error", "no default config: " + " ".join(str(error).split())[:200])
with open(folder + "/classes.json", "w") as file:
    json.dump(rows, file)
'''


def layers_said(way):
    """What released checkpoints of a type say, with lists of eight layers."""
    counts = {key.rpartition(".")[0] + "." * ("." in key) + LAYERS[0]: 8 for key, value in way.items() if isinstance(value, tuple)}
    return nested({**counts, **{key: repeated(value, 8) if isinstance(value, tuple) else value for key, value in way.items()}})


def positions(config):
    said = [part.get(key) for part in (config, config.get("text_config") or {}) for key in (*POSITIONS, "max_seq_len", "seq_length")]
    return min([2048, *(value for value in said if isinstance(value, int) and value > 0)])


def outcome(zeroplan, path, environment, seconds):
    with open(path) as file:
        sequence = positions(json.load(file)) // 2
    command = [zeroplan, "simulate", path, "8xH100-80G", "--stage", "3", "--mbs", "1", "--seq", str(sequence), "--ckpt"]
    for checkpoints in ("full", "none"):
        try:
            done = subprocess.run([*command, checkpoints], capture_output=True, text=True, env=environment, timeout=seconds)
        except subprocess.TimeoutExpired:
            return "over %d s" % seconds
        if "has no gradient checkpointing" not in done.stderr:
            break
    if done.returncode in (0, 3):
        return "planned"
    lines = [line for line in done.stderr.splitlines() if line.startswith("error")]
    return lines[0][:300] if lines else "exit %d" % done.returncode


def outcome_of(row, said, environment):
    """What the program says of a class: of its defaults, or of what released checkpoints have in their place."""
    heard = row.get("error")
    for way in ("", ".released"):
        path = os.path.join(said.folder, "%s.%s%s.json" % (row["type"], row["class"], way))
        if os.path.exists(path):
            told = outcome(said.zeroplan, path, environment, said.seconds)
            if told == "planned":
                return told
            heard = heard or told
    return heard


def share(rows):
    planned = sum(row["how"] != "" for row in rows)
    return "%d of %d, %.0f %%" % (planned, len(rows), 100 * planned / len(rows))


def table(classes, outcomes):
    """docs/coverage.md."""
    reasons = json.loads(REASONS.read_text())
    recorded = {path.stem for path in (ROOT / "data" / "families").glob("*.json")}
    rows = []
    for row in classes:
        kinds = {row["type"], "%s+%s" % (row["type"], row["class"])}
        planned = outcomes[row["type"], row["class"]] == "planned"
        how = "" if not planned else "recorded" if kinds & recorded else "by hand"
        why = next((reasons[key] for key in (row["class"], row["type"]) if key in reasons), "not recorded yet")
        rows.append({**row, "how": how, "said": how or why})
    lines = ["# Classes that are planned without a Python", "",
             "Every class that transformers %s offers for these tasks, by its defaults: planned from a description by hand ([families.md](families.md)), from a"
             % classes[0]["transformers"],
             "recording of the class ([trace.md](trace.md)), or not, and why. Written by `tests/reference/trace_coverage.py ZEROPLAN PYTHON FOLDER --recorded`, which asks",
             "the program for each. A class that is not planned here is asked itself where a Python has it.", "", "| task | planned |", "|---|---|"]
    lines += ["| %s | %s |" % (task, share([row for row in rows if row["task"] == task])) for task in TASKS]
    lines += ["| all | %s |" % share(rows)]
    for task in TASKS:
        lines += ["", "## %s" % task.capitalize(), "", "| model_type | class | planned |", "|---|---|---|"]
        lines += ["| %s | %s | %s |" % (row["type"], row["class"], row["said"]) for row in rows if row["task"] == task]
    return "\n".join(lines) + "\n"


def configs(said):
    """The classes of the Python, whose configs are written to the folder."""
    released = {**SAID, **{kind: layers_said(ways[0]) for kind, ways in RELEASED.items()}}
    # A torch for CUDA whose libraries are missing is imported with the emulated ones.
    subprocess.run([said.zeroplan, "rehearse", "--gpu", "A100-80G", "--steps", "0", "--", said.python, "-c", CONFIGS, said.folder,
                    json.dumps(TASKS), json.dumps(released)], stdout=subprocess.DEVNULL, check=False)
    with open(os.path.join(said.folder, "classes.json")) as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("zeroplan")
    parser.add_argument("python")
    parser.add_argument("folder")
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=int, default=100)
    said = parser.parse_args()
    os.makedirs(said.folder, exist_ok=True)
    environment = {**os.environ, "ZEROPLAN_PYTHON": "/nonexistent" if said.recorded else said.python}
    classes = configs(said)
    kept = os.path.join(said.folder, "outcomes.jsonl")
    known = {}
    if os.path.exists(kept):
        with open(kept) as file:
            known = {(row["type"], row["class"]): row["outcome"] for row in map(json.loads, file)}
    for row in classes:
        key = row["type"], row["class"]
        if key in known or said.only not in row["type"]:
            continue
        began = time.time()
        known[key] = outcome_of(row, said, environment)
        with open(kept, "a") as file:
            file.write(json.dumps({"type": row["type"], "class": row["class"], "outcome": known[key], "seconds": round(time.time() - began, 1)}) + "\n")
    for what, count in collections.Counter(known.values()).most_common():
        print("%4d  %s" % (count, what))
    if said.recorded:
        TABLE.write_text(table(classes, known))


if __name__ == "__main__":
    main()
