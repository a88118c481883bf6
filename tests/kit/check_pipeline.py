#!/usr/bin/env python3
"""Kits of pipelines train what was planned: check_pipeline.py PROGRAM PYTHON [KIND...]

train_pipeline.py of a kit runs under real DeepSpeed on two CPU ranks of one stage each (or four: two of each).
Against the same model in one piece, from the same weights, on the same samples:
- the loss of every step is the same: forward, backward, tied weights, the optimizer's step;
- the loss falls; the stages have the layers of PLAN.md; layers are checkpointed where they were planned to be;
- what --save wrote loads with from_pretrained(), and has the loss of the next step.
Python and its packages are imported once; every rank is a fork. Exit 77 (skipped) without a Python with torch.
"""

import contextlib
import json
import os
import re
import runpy
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from small_models import BAICHUAN, CHATGLM, LLAMA, write_own_code

FIVE = {**LLAMA, "num_hidden_layers": 5}
BLOOM = {"model_type": "bloom", "architectures": ["BloomForCausalLM"], "hidden_size": 64, "n_layer": 4, "n_head": 4, "vocab_size": 256}
BIGCODE = {
    "model_type": "gpt_bigcode",
    "architectures": ["GPTBigCodeForCausalLM"],
    "n_embd": 64,
    "n_layer": 4,
    "n_head": 4,
    "n_positions": 512,
    "vocab_size": 256,
    "attn_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
}
# Name, model, ranks, flags of fit. Two stages where the flags say nothing.
KINDS = [
    ("llama", FIVE, 2, "--precision fp32 --ckpt full"),
    ("llama-reentrant", FIVE, 2, "--precision fp32 --ckpt full --checkpoint-reentrant true --attention eager"),
    ("llama-zero-0", FIVE, 2, "--precision fp32"),
    ("llama-replicas", FIVE, 4, "--precision fp32"),
    ("llama-ends", {**FIVE, "num_hidden_layers": 4}, 3, "--precision fp32 --pipeline-parallel 3"),
    ("llama-bf16", FIVE, 4, "--precision bf16"),
    ("qwen2", {**FIVE, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True}, 2, "--precision fp32"),
    ("mistral", {**FIVE, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 16}, 2, "--precision fp32"),
    ("bloom", BLOOM, 2, "--precision fp32 --ckpt full"),
    ("gpt_bigcode", BIGCODE, 4, "--precision fp32"),
    ("baichuan", BAICHUAN, 2, "--precision fp32"),
    ("chatglm", CHATGLM, 2, "--precision fp32 --ckpt full"),
]
LEARNING_RATE = 3e-3
OPTIMIZER = {"type": "AdamW", "params": {"lr": LEARNING_RATE, "weight_decay": 0.0, "torch_adam": True}}
STEPS, ACCUMULATION = 4, 3
failures = []


def check(good, text):
    if not good:
        failures.append(text)
        print(f"FAILED: {text}", file=sys.stderr, flush=True)


def with_libraries(program, python):
    """A torch for CUDA wants its libraries also where it computes on a CPU: a rehearsal has some."""
    if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
        return {}
    code = "import os; print('LIBRARIES ' + os.environ['PYTHONPATH'].split(':')[0])"
    done = subprocess.run([program, "rehearse", "--gpu", "A100-80G", "--steps", "0", "--", python, "-c", code], capture_output=True, text=True)
    found = re.search(r"LIBRARIES (.*)", done.stdout + done.stderr)
    if found is None:
        raise SystemExit(f"{python} does not import torch: {done.stderr[-600:]}")
    return {"LD_LIBRARY_PATH": str(Path(found[1]).parent.parent / "lib")}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def forked(log, work):
    """Runs work() in a child whose output goes to the file."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        with open(log, "w") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        work()
        status = 0
    except SystemExit as end:
        print(f"ended: {end}", flush=True)
        status = 0 if end.code in (None, 0) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(status)


def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Kit:
    def __init__(self, program, folder, kind):
        self.folder = folder
        self.name, self.model, self.ranks, flags = kind
        (folder / "config.json").write_text(json.dumps(self.model))
        # No clipping: DeepSpeed does it by a norm that differs from the whole model's, in fp32 at least.
        states = {"gradient_clipping": 0.0, "zero_optimization": {"stage": 0 if "zero-0" in self.name else 1}}
        (folder / "ds.json").write_text(json.dumps({"optimizer": OPTIMIZER, **states}))
        stages = "" if "--pipeline-parallel" in flags else "--pipeline-parallel 2"
        words = f"--frontend native {stages} --seq 32 --mbs 2 --gas {ACCUMULATION} --ds-config ds.json -o kit {flags}"
        done = subprocess.run([program, "fit", "config.json", f"1x{self.ranks}xA100-80G", *words.split()], cwd=folder, capture_output=True, text=True)
        check(done.returncode == 0, f"{self.name}: fit: {done.stderr}")
        self.kit = folder / "kit"
        self.rest = self.kit / "kit"
        self.plan = json.loads((self.rest / "scenario.json").read_text())
        self.samples = 2 * ACCUMULATION * self.ranks // self.plan["workload"]["pipeline_parallel"]
        (folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog, and the dog sleeps. " * 40)
        self.bounds = 2e-2 if self.plan["workload"]["precision"] == "bf16" else 5e-4

    def whole(self):
        """Losses of the model in one piece; its weights stand in the kit before."""
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.manual_seed(3)
        if self.own_code():
            write_own_code(self.rest / "model", self.model)
        code = {"trust_remote_code": True} if self.own_code() else {"attn_implementation": "eager"}
        config = AutoConfig.from_pretrained(self.rest / "model", **({"trust_remote_code": True} if self.own_code() else {}))
        model = AutoModelForCausalLM.from_config(config, **code).float().train()
        kept = {path: path.read_text() for path in (self.rest / "model").iterdir() if path.suffix in (".json", ".py")}
        model.save_pretrained(self.rest / "model", max_shard_size="100KB")
        for path, text in kept.items():
            path.write_text(text)
        losses = self.trained(model, STEPS + 1)
        (self.folder / "whole.json").write_text(json.dumps(losses))

    def own_code(self):
        return self.model["model_type"] in ("baichuan", "chatglm")

    def trained(self, model, steps, first=0):
        """As DeepSpeed's own torch Adam; the samples that all ranks have in a step."""
        import torch

        sys.path.insert(0, str(self.rest))
        from common import Sequences

        text = (self.folder / "text.txt").read_text()
        tokens = torch.tensor([byte % 256 for byte in text.encode()])
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
        data = Sequences(32, 1 << 30, 256, 1, tokens)
        count = self.samples
        losses = []
        for step in range(first, first + steps):
            ids = torch.stack([data[step * count + i]["input_ids"] for i in range(count)])
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    def saved(self):
        """The loss of what --save wrote, on the samples of the next step."""
        from transformers import AutoModelForCausalLM

        code = {"trust_remote_code": True} if self.own_code() else {"attn_implementation": "eager"}
        model = AutoModelForCausalLM.from_pretrained(self.kit / "out", **code).float().train()
        (self.folder / "saved.json").write_text(json.dumps(self.trained(model, 1, first=STEPS)))

    def rank(self, number, port):
        os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(self.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        os.chdir(self.kit)
        sys.path.insert(0, str(self.rest))
        sys.argv = ["train_pipeline.py", "--steps", str(STEPS), "--save", "--data", str(self.folder / "text.txt")]
        from deepspeed.accelerator import get_accelerator
        from deepspeed.comm import torch as backend
        from deepspeed.runtime.pipe import engine, module

        backend.build_shm_op = lambda: None  # compiles for minutes, and is for inference
        type(get_accelerator()).Stream = staticmethod(lambda **where: None)  # checkpointing copies on one
        built = module.PipelineModule._partition_layers

        def partition(self, method):
            built(self, method)
            print(f"PARTS {json.dumps([int(part) for part in self.parts])}", flush=True)

        module.PipelineModule._partition_layers = partition
        run = engine.PipelineEngine.train_batch

        def train_batch(self, *words, **named):
            loss = run(self, *words, **named)
            which = getattr(self.module.activation_checkpoint_func, "__name__", "")
            print("STEP " + json.dumps([loss.item(), self.module.is_checkpointable_results, which]), flush=True)
            return loss

        engine.PipelineEngine.train_batch = train_batch
        runpy.run_path("train_pipeline.py", run_name="__main__")

    def check_stages(self, parts):
        rows = re.findall(r"^\| (\d+) \| \d+ to \d+ \| (\d+) to (\d+) \|", (self.kit / "PLAN.md").read_text(), re.M)
        # Layer 0 of the list is the embedding.
        planned = [0, *(int(first) + 1 for _, first, _ in rows[1:]), int(rows[-1][2]) + 4]
        check(parts == planned, f"{self.name}: stages begin at {parts}, planned {planned}")

    def check_run(self):
        before = len(failures)
        check(ended(forked(self.folder / "whole.log", self.whole)) == 0, f"{self.name}: {(self.folder / 'whole.log').read_text()[-2000:]}")
        port = free_port()
        children = [forked(self.folder / f"rank{i}.log", lambda i=i: self.rank(i, port)) for i in range(self.ranks)]
        logs = [self.folder / f"rank{i}.log" for i in range(self.ranks)]
        for child, log in zip(children, logs):
            check(ended(child) == 0, f"{self.name}: {log.name}: {log.read_text()[-2000:]}")
        if len(failures) > before:
            return
        steps = [json.loads(line[5:]) for line in logs[0].read_text().splitlines() if line.startswith("STEP ")]
        losses, whole = [step[0] for step in steps], json.loads((self.folder / "whole.json").read_text())
        check(len(losses) == STEPS, f"{self.name}: {len(losses)} steps")
        for i, (loss, expected) in enumerate(zip(losses, whole)):
            check(abs(loss - expected) <= self.bounds * expected, f"{self.name}: step {i + 1}: loss {loss}, in one piece {expected}")
        check(losses[-1] < losses[0], f"{self.name}: the loss does not fall: {losses}")
        self.check_stages(json.loads(re.search(r"PARTS (.*)", logs[0].read_text())[1]))
        section = self.plan["ds_config"]["pipeline"]
        layers = int(re.search(r"^\| 0 \|.* to (\d+) \| embedding", (self.kit / "PLAN.md").read_text(), re.M)[1]) + 1
        if section["activation_checkpoint_interval"]:
            check(steps[0][1] == [False] + [True] * layers, f"{self.name}: checkpointed {steps[0][1]}")
            named = "checkpoint" if section["use_reentrant"] else "non_reentrant_checkpoint"
            check(steps[0][2] == named, f"{self.name}: checkpointed by {steps[0][2]}, planned {named}")
        else:
            check(steps[0][1] == [], f"{self.name}: checkpointed {steps[0][1]}")
        check(ended(forked(self.folder / "saved.log", self.saved)) == 0, f"{self.name}: {(self.folder / 'saved.log').read_text()[-2000:]}")
        if len(failures) > before:
            return
        loss = json.loads((self.folder / "saved.json").read_text())[0]
        check(abs(loss - whole[STEPS]) <= 4 * self.bounds * loss, f"{self.name}: saved weights have loss {loss}, in one piece {whole[STEPS]}")
        line = json.loads((self.kit / "measurements.jsonl").read_text())
        samples = self.samples
        rate = line["measured"]["samples_per_second"] * line["measured"]["step_seconds"]
        check(abs(rate - samples) < 1e-6 * samples, f"{self.name}: {rate} samples a step were recorded, {samples} were planned")


def main():
    if len(sys.argv) < 3 or not sys.argv[2]:
        print("skipped: no Python with torch, transformers and DeepSpeed is named", file=sys.stderr)
        return 77
    program, python, only = str(Path(sys.argv[1]).resolve()), sys.argv[2], sys.argv[3:]
    if os.environ.get("ZEROPLAN_PIPELINE_CHECK") != "1":
        libraries = with_libraries(program, python)
        own = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ZEROPLAN_PIPELINE_CHECK": "1", "PYTHONWARNINGS": "ignore"}
        os.execve(python, [python, *sys.argv], {**os.environ, **own, **libraries})
    import deepspeed.pipe  # noqa: F401
    import transformers.models.auto.modeling_auto  # noqa: F401

    for kind in KINDS:
        if only and kind[0] not in only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.environ["HF_MODULES_CACHE"] = folder + "/modules"
            Kit(program, Path(folder), kind).check_run()
            print(f"{kind[0]}: done", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
