#!/usr/bin/env python3
"""Records what transformers' own classes keep alive in training: tests/reference/activations.json.

A row is a class with a config, an attention implementation, a checkpointing and a shape; what is
counted stands in activation_recorder.py, which rows there are in activation_cases.py. One run
records one version of transformers; its rows replace those of the same version and device.

Needs torch and transformers (peft for the LoRA rows: without it they are left out, with a line).
  record_activations.py                      # record, write the table
  record_activations.py --check [--small]    # record again and compare: exit 3 on a difference
  record_activations.py --explain ROW        # what the bytes of a row are
  record_activations.py --device cuda        # the same on a GPU, kernels' own memory included
"""

import argparse
import gc
import json
import os
import sys

import torch
import transformers

import activation_cases
import activation_kernels
import activation_recorder

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "activations.json")
DIFFERENT = 3  # exit status; 1 is Python's own, for a program that broke
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
NUMBERS = ("saved_bytes", "after_forward_bytes", "forward_peak_bytes", "peak_bytes")


def series():
    return tuple(int(part) for part in transformers.__version__.split(".")[:2])


def supported(row):
    """None, or why this version has no such row."""
    if row["model"] == "mixtral" and series() >= (5, 0):
        return "experts are one fused parameter in transformers 5"
    if "lora" in row:
        try:
            import peft  # noqa: F401
        except Exception as error:  # an incompatible version raises more than ImportError
            return "peft: %s" % error
    return None


def build(row, device):
    config = dict(activation_cases.MODELS[row["model"]])
    cls = getattr(transformers, config["architectures"][0])
    settings = cls.config_class(**{k: v for k, v in config.items() if k != "model_type"})
    settings._attn_implementation = row["attention"]
    # With checkpointing the classes switch the cache off themselves, some of them too late.
    settings.use_cache = row.get("use_cache", True) and row["checkpointing"] == "none"
    with torch.device(device):
        model = cls(settings)
        model.tie_weights()  # transformers 5 leaves it to the loading of weights
        if "lora" in row:
            import peft
            model = peft.get_peft_model(model, peft.LoraConfig(
                r=row["lora"]["rank"], target_modules=row["lora"]["targets"], lora_dropout=0.0))
    model = model.to(DTYPES[row.get("dtype", "bf16")]).train()
    if "trained" in row:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(any(name.endswith(part) for part in row["trained"]))
    if row["checkpointing"] != "none":
        model.gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": row["checkpointing"] == "reentrant"})
        if "lora" in row:
            model.enable_input_require_grads()
    return model


def make_batch(row, device):
    """What a data collator hands over: a mask always, all ones unless the row is padded."""
    shape = (row["batch"], row["sequence"])
    names = ("input_ids", "labels", "attention_mask")
    batch = {name: torch.ones(shape, dtype=torch.int64, device=device) for name in names}
    if row.get("mask") == "padded" and device != "meta":
        batch["attention_mask"][0, -1] = 0
    return batch


def answers_for(row):
    config = activation_cases.MODELS[row["model"]]
    experts = config.get("num_local_experts", 0)
    per_expert = 0
    if experts:
        tokens = row["batch"] * row["sequence"] * config["num_experts_per_tok"]
        per_expert = -(-tokens // experts)
    return activation_recorder.MetaAnswers(row.get("mask") != "padded", experts, per_expert)


def run_row(row, device, explain=False):
    torch.manual_seed(0)
    model = build(row, device)
    batch = make_batch(row, device)

    def call():
        outputs = model(**batch)
        return outputs.loss, outputs

    answers = answers_for(row) if device == "meta" else None
    return activation_recorder.record(model, batch, call, device, answers,
                                      row.get("outputs") == "held", explain)


def record_rows(device, small, wanted):
    recorded = []
    for row in activation_cases.rows():
        name = activation_cases.row_id(row)
        if small and not activation_cases.is_small(row):
            continue
        if wanted and wanted not in name:
            continue
        reason = supported(row)
        if reason:
            print("left out %s: %s" % (name, reason), file=sys.stderr)
            continue
        try:
            recorded.append({"id": name, **row, **run_row(row, device)})
        except (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError) as error:
            print("left out %s: %s" % (name, str(error).split("\n")[0]), file=sys.stderr)
    return recorded


def read_table():
    if not os.path.exists(TABLE):
        return {"models": {}, "cuda_only": {}, "recordings": []}
    with open(TABLE, encoding="utf-8") as file:
        return json.load(file)


def recording_key(recording):
    version = [int(p) for p in recording["transformers"].split(".")[:3]]
    return recording["device"], version


def write_table(device, rows, part):
    """Replaces the rows of this version and device: all of them, or those of the same ids."""
    table = read_table()
    table["models"] = activation_cases.MODELS
    table["cuda_only"] = activation_recorder.RULES
    version = transformers.__version__
    kept = [r for r in table["recordings"]
            if (r["transformers"], r["device"]) != (version, device)]
    if part:
        fresh = {row["id"]: row for row in rows}
        known = [row for r in table["recordings"]
                 if (r["transformers"], r["device"]) == (version, device) for row in r["rows"]]
        rows = [fresh.pop(row["id"], row) for row in known] + list(fresh.values())
    kept.append({"transformers": version, "torch": torch.__version__.split("+")[0],
                 "device": device, "rows": rows})
    table["recordings"] = sorted(kept, key=recording_key)
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write(text_of(table))
    print("%d rows of transformers %s" % (len(rows), version))


def text_of(table):
    """One line a model and a row."""
    def lines(items):
        return ",\n".join(items)
    models = lines('"%s": %s' % (k, json.dumps(v)) for k, v in table["models"].items())
    rules = lines('"%s": %s' % (k, json.dumps(v)) for k, v in table["cuda_only"].items())
    recordings = lines(
        '{"transformers": "%s", "torch": "%s", "device": "%s", "rows": [\n%s\n]}' % (
            r["transformers"], r["torch"], r["device"], lines(json.dumps(x) for x in r["rows"]))
        for r in table["recordings"])
    return '{"models": {\n%s\n},\n"cuda_only": {\n%s\n},\n"recordings": [\n%s\n]}\n' % (
        models, rules, recordings)


def compare(device, rows):
    version = transformers.__version__
    golden = {row["id"]: row for r in read_table()["recordings"]
              if (r["transformers"], r["device"]) == (version, device) for row in r["rows"]}
    if not golden:
        print("the table has no rows of transformers %s on %s" % (version, device))
        return DIFFERENT
    different = 0
    for row in rows:
        expected = golden.get(row["id"])
        for key in NUMBERS + ("cuda_only",):
            if expected is None or expected[key] != row[key]:
                different += 1
                print("%s %s: %s in the table, %s now" % (
                    row["id"], key, expected and expected[key], row[key]))
    print("%d rows of transformers %s compared, %d numbers differ" % (
        len(rows), version, different))
    return DIFFERENT if different else 0


def explain(name, device):
    for row in activation_cases.rows():
        if activation_cases.row_id(row) != name:
            continue
        numbers = run_row(row, device, True)
        for key, value in numbers.items():
            if isinstance(value, list) and value and isinstance(value[0], tuple):
                print(key)
                for item in value:
                    print("   ", *item)
            else:
                print(key, value)
        return 0
    sys.exit("no such row: " + name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("meta", "cuda"), default="meta")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", default="", help="part of a row's id")
    parser.add_argument("--write", action="store_true", help="with --only: replace these rows")
    parser.add_argument("--explain", metavar="ROW")
    options = parser.parse_args()
    gc.freeze()  # what the libraries hold is not searched again for every row
    gc.disable()  # so that a tensor in a reference cycle does not die at some moment of its own
    if options.device == "meta":
        activation_kernels.install()
    if options.explain:
        return explain(options.explain, options.device)
    rows = record_rows(options.device, options.small, options.only)
    if options.check:
        return compare(options.device, rows)
    if (options.only or options.small) and not options.write:
        for row in rows:
            print(row["id"], *["%s %s" % (k, row[k]) for k in NUMBERS], row["cuda_only"])
        return 0
    write_table(options.device, rows, bool(options.only or options.small))
    return 0


if __name__ == "__main__":
    sys.exit(main())
