#!/usr/bin/env python3
"""Classes recorded for all their configs (data/families) against the same classes traced: recorded_classes.py ZEROPLAN PYTHON [TYPE ...]

PYTHON has the transformers that they were recorded with. Each class at its default config with few layers and at one with other sizes, with each attention but flash-attn's:
what `simulate` says of the config without a Python and of the document that `trace` writes of it must be the same.
"""
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "data" / "families"
sys.path.insert(0, str(ROOT / "rehearsal" / "python"))
from zeroplan_trace.config_keys import LAYERS, POSITIONS, RELEASED, is_stack, nested, repeated  # noqa: E402

WIDTHS = ("embedding_size", "intermediate_size", "moe_intermediate_size", "hidden_size", "d_model", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim")
SAME = ("gpu", "step", "parameters", "host", "fit_probability")
ASKED = ["8xA100-80G", "--mbs", "1", "--stage", "3"]
CONFIG = """
import json, sys
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
(kind, _, name), changes, path = sys.argv[1].partition("+"), json.loads(sys.argv[2]), sys.argv[3]
config = CONFIG_MAPPING[kind](**changes).to_dict()
config.update(model_type=kind)
if name:
    config["architectures"] = [name]
with open(path, "w") as file:
    json.dump(config, file, default=str)
"""


def run(words, **environment):
    return subprocess.run(words, capture_output=True, text=True, env=dict(os.environ, **environment))


def answer(zeroplan, model, attention, tokens):
    done = run([zeroplan, "simulate", model, *ASKED, "--seq", str(tokens), "--attention", attention, "--json"], ZEROPLAN_PYTHON="/nonexistent")
    try:
        said = json.loads(done.stdout)
    except ValueError:
        return done.stderr[-300:]
    return {key: said[key] for key in SAME} if "gpu" in said else str(said)[:300]


def differ_in_times(one, other):
    """Whether all but times is the same, and those within 0.2 %: without a cache a class looks whether its sequences are packed."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(differ_in_times(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(differ_in_times, one, other))
    return math.isclose(one, other, rel_tol=2e-3) if isinstance(one, float) and isinstance(other, float) else one == other


def layers_of(config, most):
    """So many layers; of a second stack one fewer."""
    keys = [key for key in LAYERS if key in config][:1] + [key for key in config if is_stack(key, "")]
    return {key: most - i for i, key in enumerate(keys)}


def changes_of(config, usual):
    """A few layers; and more of them, wider. `usual`: where the recorded class has a null the config must say it."""
    said = {"head_dim": 128} if usual.get("head_dim", 0) is None else {}
    windows = [value for key, value in config.items() if "window" in key and value]
    said.update({key: 2 * config[key] for key in POSITIONS if config.get(key) in windows})  # so that sequences may be longer than windows
    said.update({key: 16 for key, value in usual.items() if value is None and "experts" in key})
    odd = [key for key, value in config.items() if key.endswith("moe_intermediate_size") and value and value % 16]
    said.update({key: config[key] // 16 * 16 for key in odd})  # grouped products want rows of whole 16 bytes
    counted = {**usual, **config}  # the length of a list is no key of the config
    yield {**said, **layers_of(counted, 8)}
    config = dict(config, **said)
    wider = {key: 2 * config[key] for key in WIDTHS if config.get(key)}
    yield {**said, **wider, **layers_of(counted, 12), "vocab_size": 200000}


def changes_of_parts(config, usual, text, width):
    """The same of the model of text in a config of several, beside towers of five layers."""
    part, inner = text[:-1], {key[len(text):]: value for key, value in usual.items() if key.startswith(text)}
    towers = {}
    for key in usual:
        name, _, own = key.partition(".")
        if own in (*LAYERS, "depth") and name != part:
            towers[name] = {own: 5, "model_type": config[name]["model_type"]}
    for changes in changes_of(config[part], inner):
        wide = "vocab_size" in changes
        more = {"vocab_size": 300000} if wide else {}  # the marks of images stay within it
        if wide and width:  # heads of one width
            more["num_attention_heads"] = 2 * config[part]["num_attention_heads"]
        yield {part: dict(changes, model_type=config[part]["model_type"], **more), **(towers if wide else {})}


def merged(config, more):
    """`more` in `config`, part by part."""
    parts = {key: merged(config[key], value) for key, value in more.items() if isinstance(value, dict) and isinstance(config.get(key), dict)}
    return {**config, **more, **parts}


def said_by(way, layers):
    """What RELEASED says, as a config of so many layers says it."""
    return nested({key: repeated(value, layers) if isinstance(value, tuple) else value for key, value in way.items()})


def compare_way(zeroplan, python, kind, way, folder):
    path, graph = str(folder / "config.json"), folder / "graph.json"
    types = {key: value for key, value in way.items() if key.endswith("model_type")}
    first = run([python, "-c", CONFIG, kind, json.dumps(said_by(types, 0)), path], CUDA_VISIBLE_DEVICES="")
    if first.returncode != 0:
        return "no config: %s" % first.stderr[-200:]
    family = json.loads((FOLDER / (kind + ".json")).read_text())
    documents = [row for row in family["documents"] if types.items() <= family["parts"][row["fixed"]].items()]
    if not documents:
        return "not recorded"
    usual, text = family["parts"][documents[0]["defaults"]], documents[0].get("text")
    config = merged(json.loads(Path(path).read_text()), said_by({key: value for key, value in way.items() if not isinstance(value, tuple)}, 0))
    attentions = {document["graph"].get("attention", family["attention"]) for document in documents} - {"flash_attention_2"}  # which is not traced
    every = changes_of_parts(config, usual, text, documents[0].get("width")) if text else changes_of(config, usual)
    for changes, attention in itertools.product(every, sorted(attentions)):
        part = changes[text[:-1]] if text else changes
        layers = max(part[key] for key in layers_of(part, 0))
        run([python, "-c", CONFIG, kind, json.dumps(merged(said_by(way, layers), changes)), path], CUDA_VISIBLE_DEVICES="")
        traced = run([zeroplan, "trace", path, "--python", python, "--attention", attention, "-o", str(graph)])
        if traced.returncode != 0 and "vocab_size" in str(changes):  # the class has no wider model
            continue
        if traced.returncode != 0:
            return "%s: is not traced: %s" % (changes, traced.stderr[-200:])
        said = json.loads(Path(path).read_text())
        positions = next((said[key] for key in POSITIONS if said.get(key)), 2048)  # of encoders few, and learned
        expected, got = (answer(zeroplan, model, attention, 2048 if positions >= 2048 else min(256, positions)) for model in (str(graph), path))
        if isinstance(expected, str) and "vocab_size" not in str(changes):
            return "%s: no answer: %s" % (changes, expected)
        if expected != got and differ_in_times(expected, got):
            return "%s %s: memory the same, times within 0.2 %%" % (attention, changes)
        if expected != got:
            return "%s %s: traced %s, recorded %s" % (attention, changes, str(expected)[:300], str(got)[:300])
    return "the same"


def compare(zeroplan, python, kind, folder):
    for way in RELEASED.get(kind.partition("+")[0], ({},)):
        said = compare_way(zeroplan, python, kind, way, folder)
        if said != "the same":
            return "%s: %s" % (way, said)
    return said


def main():
    zeroplan, python, *kinds = sys.argv[1:]
    failures = 0
    for kind in kinds or sorted(path.stem for path in FOLDER.glob("*.json")):
        with tempfile.TemporaryDirectory() as folder:
            said = compare(str(Path(zeroplan).resolve()), python, kind, Path(folder))
        failures += said != "the same"
        print(f"{kind:24} {said}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
