#!/usr/bin/env python3
"""Records what Hugging Face transformers builds, for tests/reference/parameter_counts.json.

Two kinds of cases:
  presets    every configs/models/*.json that transformers itself has a class for: the number of
             parameters (tied weights once) of the full size, on the meta device.
  layouts    small configs of every planned family and head: named_parameters() with shapes and
             named_modules() with class names, in order.

Both are recorded with 4.51, and once more with 5.17 for the model types that layout_configs_5.json
has: they came later, or hold their experts in stacked parameters (parameter_counts_5.json).

Needs torch and transformers (no GPU, no weights). Run from anywhere:
  python3 tests/reference/count_parameters.py            # rewrites parameter_counts.json
  python3 tests/reference/count_parameters.py --five     # rewrites parameter_counts_5.json
  python3 tests/reference/count_parameters.py --corpus DIR   # prints counts of DIR/*.json
"""

import glob
import json
import os
import sys

import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def build(config):
    """The model of a config on the meta device, by architectures[0]."""
    config = dict(config)
    model_type = config.pop("model_type")
    architecture = (config.get("architectures") or [""])[0]
    cls = getattr(transformers, architecture)
    settings = transformers.AutoConfig.for_model(model_type, **config)
    with torch.device("meta"):
        return cls(settings)


def parameters(model):
    return [[name, list(p.shape)] for name, p in model.named_parameters()]


def modules(model):
    return [[name, type(module).__name__] for name, module in model.named_modules()]


def total(model):
    return sum(p.numel() for p in model.parameters())


def read_configs(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return json.load(file)


def record(layouts, types=None):
    """`types`: of the presets only these model types."""
    result = {
        "transformers": transformers.__version__,
        "presets": [],
        "layouts": [],
    }
    for path in sorted(glob.glob(os.path.join(ROOT, "configs", "models", "*.json"))):
        with open(path, encoding="utf-8") as file:
            preset = json.load(file)
        if types is not None and preset["config"]["model_type"] not in types:
            continue
        try:
            model = build(preset["config"])
        except (KeyError, ValueError, AttributeError):
            continue  # its class is in the model's own repository
        result["presets"].append({"name": preset["name"], "parameters": total(model)})
    for config in layouts:
        model = build(config)
        result["layouts"].append(
            {
                "config": config,
                "parameters": parameters(model),
                "modules": modules(model),
                "total": total(model),
            }
        )
    return result


def write(result, path):
    lines = ["{", f'"transformers": {json.dumps(result["transformers"])},', '"presets": [']
    lines.append(",\n".join(json.dumps(row) for row in result["presets"]))
    lines.append('],\n"layouts": [')
    lines.append(",\n".join(json.dumps(row) for row in result["layouts"]))
    lines.append("]\n}\n")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


def print_corpus(folder):
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        config.pop("quantization_config", None)
        config.pop("auto_map", None)
        try:
            print(os.path.basename(path), total(build(config)))
        except Exception as error:  # any class may reject an old or foreign config
            print(os.path.basename(path), type(error).__name__, str(error)[:100])


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--corpus":
        print_corpus(sys.argv[2])
    elif sys.argv[1:] == ["--five"]:
        configs = read_configs("layout_configs_5.json")
        types = {config["model_type"] for config in configs}
        write(record(configs, types), os.path.join(HERE, "parameter_counts_5.json"))
    else:
        write(record(read_configs("layout_configs.json")), os.path.join(HERE, "parameter_counts.json"))
