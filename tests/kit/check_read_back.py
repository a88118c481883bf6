#!/usr/bin/env python3
"""A kit runs its plan: check_read_back.py PROGRAM PYTHON [KIND...]

Kits of every kind are started as PLAN.md says, on rehearsed GPUs (docs/rehearsal.md) with the Python that is named.
What ran is read back into a scenario by `rehearse`: model, batch, precision, attention, checkpointing, adapters,
optimizer, engine, ds_config, releases. Predicted, it must give the plan's numbers. And the line for the Trainer goes through
transformers' own parser, accelerate.yaml through accelerate's.
Exit 77 (skipped) without a Python that has torch for CUDA, transformers, DeepSpeed and accelerate.
"""

import importlib.util
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from small_models import LLAMA

# Its states do not fit twice on 16 GB: ZeRO shards them.
WIDE = {**LLAMA, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "vocab_size": 32000}
LONG = {**LLAMA, "hidden_size": 512, "intermediate_size": 8192, "num_attention_heads": 8, "max_position_embeddings": 8192}
BERT = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 256,
    "max_position_embeddings": 512,
}
# A tile of TRL's logits has 32,768 words.
WORDY = {**LLAMA, "vocab_size": 32768, "max_position_embeddings": 512}
# Name, model, GPU, flags of fit, script.
KINDS = [
    ("full", LLAMA, "A100-80G", "--mbs 2 --gas 3", "train.py"),
    ("checkpoints", LLAMA, "A100-80G", "--ckpt full --checkpoint-reentrant true --attention eager", "train.py"),
    ("not-reentrant", LLAMA, "A100-80G", "--ckpt full --checkpoint-reentrant false", "train.py"),
    ("fp16", LLAMA, "A100-80G", "--precision fp16", "train.py"),
    ("fp32", LLAMA, "A100-80G", "--precision fp32", "train.py"),
    ("adapters", LLAMA, "A100-80G", "--method lora --ckpt full", "train.py"),
    ("all-linear", LLAMA, "A100-80G", "--method lora --lora-target all-linear", "train.py"),
    ("four-bits", LLAMA, "A100-80G", "--method qlora --engine ddp --ckpt full", "accelerate"),
    ("dpo", WORDY, "A100-80G", "--trainer dpo --mbs 2", "train_trl.py"),
    ("kto", WORDY, "A100-80G", "--trainer kto --mbs 2", "train_trl.py"),
    ("grpo", WORDY, "A100-80G", "--trainer grpo --mbs 8 --seq 320", "train_trl.py"),
    ("dpo-four-bits", WORDY, "A100-80G", "--trainer dpo --mbs 2 --method qlora --engine ddp", "train_trl.py"),
    ("eight-bit-states", LLAMA, "A100-80G", "--optimizer adamw8bit", "train.py"),
    ("adafactor", LLAMA, "A100-80G", "--optimizer adafactor", "train.py"),
    ("sharded", WIDE, "T4-16G", "--ckpt full", "train.py"),
    ("tiled", LONG, "A100-80G", "--seq 4096 --tiled-mlp true", "train.py"),
    ("native", LLAMA, "A100-80G", "--frontend native --ckpt full", "train_native.py"),
    ("native-eight-bits", LLAMA, "A100-80G", "--frontend native --optimizer adamw8bit", "train_native.py"),
    ("native-adafactor", LLAMA, "A100-80G", "--frontend native --optimizer adafactor", "train_native.py"),
    ("native-sharded", LLAMA, "A100-80G", "--frontend native --zero 3", "train_native.py"),
    ("encoder", BERT, "A100-80G", "--frontend native", "train_bert.py"),
    # Its words' embedding has a row for padding.
    ("encoder-sharded", {**BERT, "pad_token_id": 0}, "A100-80G", "--frontend native --zero 3", "train_bert.py"),
    ("fsdp", WIDE, "A10", "--engine fsdp --ckpt full", "accelerate"),
    ("fsdp-adapters", LLAMA, "A100-80G", "--engine fsdp --method lora", "accelerate"),
    ("four-bits-fsdp", LLAMA, "A100-80G", "--engine fsdp --stage 2 --method qlora", "accelerate"),
    ("ddp-adapters", LLAMA, "A100-80G", "--engine ddp --method lora", "accelerate"),
    ("ddp", LLAMA, "A100-80G", "--engine ddp", "accelerate"),
    ("eager", LLAMA, "A100-80G", "--attention eager", "train.py"),
    ("sdpa", LLAMA, "A100-80G", "--attention sdpa --method lora", "train.py"),
    ("flash", LLAMA, "A100-80G", "--attention flash", "flash-attn"),
    ("fused", LLAMA, "A100-80G", "--fused-loss true", "liger-kernel"),
]
MODULES = {"flash-attn": "flash_attn", "liger-kernel": "liger_kernel"}
# In place of Liger: notes how it is called, and patches nothing.
LIGER = """
import json, pathlib
MODEL_TYPE_TO_APPLY_LIGER_FN = {"llama": None}
def _apply_liger_kernel_to_instance(model, **settings):
    pathlib.Path("liger.json").write_text(json.dumps({"model": model.config.model_type, "settings": settings}))
"""
# What the script is told, from the line that PLAN.md has; under the Trainer these words are its parser's.
PARSE = """
import json, sys
from transformers import HfArgumentParser, TrainingArguments
parsed, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(sys.argv[1:] + ["--output_dir", "out"])
keys = ["per_device_train_batch_size", "gradient_accumulation_steps", "bf16", "fp16", "gradient_checkpointing",
        "gradient_checkpointing_kwargs", "use_liger_kernel"]
print("PARSED " + json.dumps({**{key: getattr(parsed, key) for key in keys}, "optim": str(parsed.optim)}))
"""
YAML = """
import json, sys
from accelerate.commands.config.config_args import load_config_from_file
config = load_config_from_file(sys.argv[1])
print("PARSED " + json.dumps({"processes": config.num_processes, "machines": config.num_machines,
                              "type": str(config.distributed_type.value), "mixed": config.mixed_precision,
                              "fsdp": config.fsdp_config, "deepspeed": config.deepspeed_config}))
"""
failures = []


def check(good, text):
    if not good:
        failures.append(text)
        print(f"FAILED: {text}", file=sys.stderr, flush=True)


def run(words, folder, **environment):
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


class Kit:
    def __init__(self, program, python, folder, kind):
        self.program, self.python, self.folder = program, python, folder
        self.name, model, self.gpu, flags, self.script = kind
        (folder / "config.json").write_text(json.dumps(model))
        code, _, err = run([program, "fit", "config.json", f"1x2x{self.gpu}", *(() if "--seq" in flags else ("--seq", "32")), *flags.split(), "-o", "kit"], folder)
        self.kit = folder / "kit"
        check(code == 0, f"{self.name}: fit: {err}")
        self.rest = self.kit / "kit"
        self.plan = json.loads((self.rest / "scenario.json").read_text())

    def started(self):
        return next(f"kit/{name}" for name in ("train_trl.py", "train.py") if (self.rest / name).exists())

    def rehearsed(self, words):
        """Under one rank of two on GPUs that are not there."""
        return run([self.program, "rehearse", "--gpu", self.gpu, "--ranks", "2", "--events", "done", "--json", *words], self.kit)

    def printed(self, code, *words):
        """What a snippet prints behind PARSED, with a GPU to look at."""
        done = run([self.program, "rehearse", "--gpu", self.gpu, "--ranks", "2", "--steps", "0", "--", self.python, "-c", code, *words], self.kit)
        found = [line for line in (done[1] + done[2]).splitlines() if line.startswith("PARSED ")]
        check(bool(found), f"{self.name}: {' '.join(words)[:200]}: {(done[1] + done[2])[-600:]}")
        return json.loads(found[-1][len("PARSED ") :]) if found else None

    def numbers(self, scenario):
        (self.folder / "scenario.json").write_text(json.dumps(scenario))
        code, out, err = run([self.program, "simulate", "--scenario", "scenario.json", "--json"], self.folder)
        check(code == 0, f"{self.name}: simulate: {err}")
        result = json.loads(out)
        return {
            "peak_allocated": result["gpu"]["peak_allocated_bytes"],
            "static_allocated": result["gpu"]["static_allocated_bytes"],
            "step_seconds": result["step"]["seconds"],
        }

    def check_run(self):
        """The script's behaviour, read back."""
        words = ["--", self.python, "kit/" + self.script, "--steps", "5"]
        if self.script == "accelerate":
            words = ["--", self.python, "-m", "accelerate.commands.launch", "--config_file", "accelerate.yaml", self.started(), "--steps", "5"]
        code, out, err = self.rehearsed(words)
        check(code == 0, f"{self.name}: rehearse: exit {code}: {err[-800:]}")
        if code != 0:
            return
        document = json.loads(out)
        ran = document["scenario"]
        check(ran is not None, f"{self.name}: no scenario in {out[:400]}")
        if ran is None:
            return
        # A class that was patched looks as ever: the bytes below tell whether it was.
        ran["workload"]["tiled_mlp"] = self.plan["workload"]["tiled_mlp"]
        planned, real = self.numbers(self.plan), self.numbers({**ran, "cluster": self.plan["cluster"]})
        peak, allocated = planned["peak_allocated"], document["peak_allocated_bytes"]
        check(abs(allocated - peak) <= 0.05 * peak + (8 << 20), f"{self.name}: {peak} bytes planned, {allocated} rehearsed")
        for key, value in planned.items():
            check(abs(real[key] - value) <= 1e-6 * value, f"{self.name}: {key} planned {value}, of what ran {real[key]}: {ran['workload']}")

    def check_package(self, package):
        """A plan that needs a package: it is listed, the script asks for it and for what was planned, and without it
        it does not train something else. What the package computes needs a GPU."""
        listed = [line.split("==")[0] for line in (self.rest / "requirements.txt").read_text().split()]
        check(package in listed, f"{self.name}: requirements.txt lacks {package}: {listed}")
        module = MODULES[package]
        start = ["--", self.python, "kit/train.py", "--steps", "2"]
        if run([self.python, "-c", f"import {module}"], self.kit)[0] != 0:
            code, out, err = self.rehearsed(start)
            check(code != 0 and (module in out + err or package in out + err), f"{self.name}: without {package}: {code}: {(out + err)[-600:]}")
        if module == "flash_attn":
            check('attn_implementation="flash_attention_2"' in (self.kit / "PLAN.md").read_text(), "flash: PLAN.md")
            return
        replacement = self.folder / "replacement" / module / "transformers"
        replacement.mkdir(parents=True)
        for file in (replacement.parent / "__init__.py", replacement / "__init__.py", replacement / "monkey_patch.py"):
            file.write_text(LIGER if file.parent == replacement else "")
        code, out, err = run(
            [self.program, "rehearse", "--gpu", self.gpu, "--ranks", "2", "--events", "done", "--json", *start],
            self.kit,
            PYTHONPATH=str(self.folder / "replacement"),
        )
        check(code == 0, f"{self.name}: with {package} in its place: {code}: {(out + err)[-600:]}")
        notes = self.kit / "liger.json"
        called = json.loads(notes.read_text()) if notes.exists() else None
        # As transformers' integrations/liger.py calls it for use_liger_kernel: nothing is switched off.
        check(called == {"model": "llama", "settings": {}}, f"{self.name}: Liger was called with {called}")

    def check_line(self):
        """PLAN.md's line for the Trainer."""
        lines = [line for line in (self.kit / "PLAN.md").read_text().splitlines() if line.startswith("With the Trainer: ")]
        workload = self.plan["workload"]
        check((workload["frontend"] == "native") == (not lines), f"{self.name}: {len(lines)} lines for the Trainer")
        if not lines:
            return
        parsed = self.printed(PARSE, *shlex.split(lines[0][len("With the Trainer: ") :]))
        if parsed is None:
            return
        checkpoints = workload["activation_checkpointing"] != "none"
        expected = {
            "per_device_train_batch_size": workload["micro_batch_size"],
            "gradient_accumulation_steps": workload["gradient_accumulation_steps"],
            "bf16": workload["precision"] == "bf16",
            "fp16": workload["precision"] == "fp16",
            "gradient_checkpointing": checkpoints,
            "gradient_checkpointing_kwargs": {"use_reentrant": workload["checkpoint_reentrant"]} if checkpoints else None,
            "use_liger_kernel": workload["fused_loss"],
        }
        for key, value in expected.items():
            check(parsed[key] == value, f"{self.name}: {key} {parsed[key]} of the line, planned {value}")

    def check_yaml(self):
        parsed = self.printed(YAML, "accelerate.yaml" if self.plan["workload"]["engine"] != "deepspeed" else "kit/accelerate.yaml")
        if parsed is None:
            return
        engine = {"deepspeed": "DEEPSPEED", "fsdp": "FSDP", "ddp": "MULTI_GPU"}[self.plan["workload"]["engine"]]
        check((parsed["processes"], parsed["machines"], parsed["type"]) == (2, 1, engine), f"{self.name}: accelerate.yaml {parsed}")


def main():
    if len(sys.argv) < 3 or not sys.argv[2]:
        print("skipped: no Python with torch for CUDA, transformers and DeepSpeed is named", file=sys.stderr)
        return 77
    program, python, only = str(Path(sys.argv[1]).resolve()), sys.argv[2], sys.argv[3:]
    for kind in KINDS:
        if only and kind[0] not in only:
            continue
        # Without Triton TRL scores tokens by PyTorch's operations, which take ten times the memory of the kernel.
        if kind[4] == "train_trl.py" and importlib.util.find_spec("triton") is None:
            print(f"{kind[0]}: skipped, no triton", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            kit = Kit(program, python, Path(folder), kind)
            if kind[4] in MODULES:
                kit.check_package(kind[4])
            else:
                kit.check_run()
            kit.check_line()
            if kind[4] in ("train.py", "accelerate"):
                kit.check_yaml()
            print(f"{kind[0]}: done", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
