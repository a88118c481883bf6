#!/usr/bin/env python3
"""Ordinary settings together: check_matrix.py PROGRAM [--full] [--seed N] [--only WORD] [--minutes M]

Trainers x methods x engines x offloads x machines x models and what goes with them. Two settings that work alone
may have nobody who tried them together. `simulate` (lines of `simulate --batch`) gets every pair of settings, each
on one of some small models, and random choices of all of them on MODELS and MACHINES; `fit`, `tune`, `report --no-search`,
`fit --clusters` and `--compare-versions` get random choices. An answer has finite numbers that add up, or is an error
that names file, what was expected and what came. Nobody ends by a signal, calls itself a defect, leaves a row out
because of one, or takes longer than a question may.

The sample of ./check is drawn anew every day (days since 1970); a failure names its seed.
"""

import argparse
import concurrent.futures
import itertools
import json
import random
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from check_odd_values import Sweep  # noqa: E402

MODELS = ["gpt2", "llama-3.2-1b", "qwen2.5-7b", "llama-3.1-70b", "qwen3-30b-a3b", "mixtral-8x7b", "gemma-2-2b",
          "qwen3.5-0.8b", "t5-base", "bert-base-uncased", "bloom-560m", "gpt-oss-20b"]
ALL_KINDS = [*MODELS, "opt-125m", "distilbert-base-uncased", "roberta-base", "chatglm3-6b", "glm-10b", "glm-4-9b-0414",
             "falcon-7b", "mpt-7b", "phi-2", "pythia-160m", "gpt-j-6b", "starcoder-15b", "internlm2-1.8b", "internlm-7b",
             "baichuan2-7b", "deepseek-v2-lite", "llama-4-scout", "qwen3-next-80b-a3b", "command-r7b", "granite-3.1-2b",
             "olmo-1b", "smollm3-3b", "phi-3-mini", "gemma-3-1b", "qwen1.5-moe-a2.7b", "7B", "0.3B"]
SMALL = ["gpt2", "llama-3.2-1b", "qwen2.5-0.5b", "bloom-560m", "qwen1.5-moe-a2.7b"]
MACHINES = ["1xT4-16G", "2xT4-16G", "1xRTX-4090", "2xRTX-3090", "4xRTX-4090", "8xRTX-3090", "1xA10-24G", "4xL20-48G",
            "8xL40S-48G", "1xA100-40G", "3xA100-80G", "8xA100-80G", "4xV100-32G", "2x4xA800-80G", "2x8xA100-80G",
            "1xH100-80G", "8xH100-80G", "8x8xH100-80G", "8xH200-141G", "8xB200-180G"]
RELEASES = [("0.12.6", "2.1", "4.36"), ("0.14.2", "2.2", "4.40"), ("0.16.4", "2.6", "4.48"), ("0.16.4", "2.6", "4.52"),
            ("0.18.0", "2.8", "4.56"), ("0.19.6", "2.11", "5.17")]
# What may be said, by the question that it answers.
AXES = {
    "trainer": ["sft", "dpo", "kto", "grpo", "ppo", {"dpo": {"precompute_reference": True}},
                {"kto": {"code": "llama-factory"}}, {"grpo": {"beta": 0.04}},
                {"grpo": {"generation": "colocated", "sleeps": True}}, {"gkd": {"lmbda": 0.0}}, "gkd"],
    "teacher": ["gpt2", "llama-3.2-1b"],
    "method": ["full", "lora", "qlora", {"lora": {"rank": 8, "targets": "all-linear"}}],
    "engine": ["deepspeed", "fsdp", "ddp", "embedded"],
    "zero": [{"stage": 0}, {"stage": 1}, {"stage": 2}, {"stage": 3},
             {"stage": 1, "offload_optimizer": {"device": "cpu"}},
             {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}},
             {"stage": 3, "offload_optimizer": {"device": "cpu"}},
             {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu", "pin_memory": True}},
             {"stage": 3, "offload_param": {"device": "cpu"}},
             {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/n"}},
             {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/n", "pipeline_read": True},
              "offload_param": {"device": "nvme", "nvme_path": "/n"}},
             {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/n"}},
             {"stage": 3, "zero_hpz_partition_size": 2}, {"stage": 2, "zero_hpz_partition_size": 2},
             {"stage": 3, "mics_shard_size": 2}, {"stage": 3, "zero_quantized_weights": True},
             {"stage": 3, "zero_quantized_gradients": True}, {"stage": 3, "stage3_prefetch_bucket_size": 0},
             {"stage": 3, "stage3_max_live_parameters": 0}, {"stage": 3, "overlap_comm": False},
             {"stage": 2, "contiguous_gradients": False}, {"stage": 1, "round_robin_gradients": True},
             {"stage": 2, "overlap_comm": True}, {"stage": 3, "sub_group_size": 1000000}],
    "gradient_accumulation_steps": [1, 2, 5, 6, 7, 8, 16, 33, 1000],
    "micro_batch_size": [1, 2, 3, 8],
    "sequence_length": [1, 64, 512, 2048],
    "activation_checkpointing": ["none", "full", "selective"],
    "checkpoint_reentrant": [True, False],
    "attention": ["eager", "sdpa", "flash"],
    "precision": ["bf16", "fp16", "fp32"],
    "optimizer": ["adamw", "adam", "lion", "adafactor", "sgd", "adamw8bit", "muon"],
    "optimizer_implementation": ["for-loop", "foreach", "fused"],
    "frontend": ["hf-trainer", "native"],
    "fused_loss": [True],
    "tiled_mlp": [True],
    "activation_offload": ["cpu"],
    "use_cache": [True],
    "outputs_held": [True],
    "outputs_kept": [True],
    "gradients_held": [True],
    "fsdp_version": [1, 2],
    "evaluation": ["loss", "logits", {"logits": {"batch_size": 1, "accumulation_steps": 2}}],
    "sequence_parallel": [2],
    "tensor_parallel": [2],
    "pipeline_parallel": [2],
    "implementation": ["litgpt", "composer", "fms", "megatron"],
    "dataset": [{"samples": 100, "mean_tokens": 30, "tokens_sd": 9}, {"samples": 100, "lengths": [1, 30, 64], "padding": "packed"},
                {"samples": 50, "mean_tokens": 40, "padding": "longest"}],
    "models": [[{"role": "teacher", "model": "gpt2"}], [{"role": "reward", "model": "gpt2", "placement": "sharded"}],
               [{"role": "reference", "placement": "cpu"}]],
    "software": [dict(zip(("deepspeed", "torch", "transformers"), releases)) for releases in RELEASES],
    "gpus": ["3xA100-80G", "1xA100-80G", "2x2xV100-32G"],
}
# Of a random question: what most people say, and now and then the rest.
OFTEN = ["trainer", "method", "engine", "zero", "gradient_accumulation_steps", "micro_batch_size", "activation_checkpointing"]


def scenario(model, gpus, settings):
    """What the settings, by axis, make of a question."""
    said = {"model": model, "cluster": settings.get("gpus", gpus), "workload": {"sequence_length": 64, "micro_batch_size": 1}}
    for axis, value in settings.items():
        if axis == "zero":
            said["ds_config"] = {"zero_optimization": value}
        elif axis == "software":
            said["software"] = value
        elif axis != "gpus":
            said["workload"][axis] = value
    if said["workload"].get("trainer") == "sft":
        del said["workload"]["trainer"]
    return said


def pairs():
    """Every value of every axis with every value of every other."""
    values = [(axis, value) for axis, all_values in AXES.items() for value in all_values]
    return [dict((a, b)) for a, b in itertools.combinations(values, 2) if a[0] != b[0]]


def drawn(random_, often=0.45, seldom=0.1):
    return {axis: random_.choice(values) for axis, values in AXES.items()
            if axis != "gpus" and random_.random() < (often if axis in OFTEN else seldom)}


def flags_of(settings):
    """Words of a command line, of axes that commands have flags for."""
    words = []
    for axis, value in settings.items():
        if axis in ("zero", "gpus", "software", "models"):
            continue
        said = value if isinstance(value, str) else json.dumps(value)
        flag = {"gradient_accumulation_steps": "gas", "micro_batch_size": "mbs", "sequence_length": "seq",
                "activation_checkpointing": "ckpt"}.get(axis, axis.replace("_", "-"))
        words += [f"--{flag}", said]
    return words


class Matrix(Sweep):
    answered = 0

    def judge(self, what, text):
        super().judge(what, text)
        try:
            answer = json.loads(text)
        except ValueError:
            return
        if "error" in answer:
            return
        self.answered += 1
        gpu, step = answer["gpu"], answer["step"]
        parts = sum(gpu["breakdown_at_peak"].values())
        if parts != gpu["peak_total_bytes"]:
            self.fail(f"{what}: {parts} bytes in parts, {gpu['peak_total_bytes']} in all")
        if answer["fits"] and gpu["peak_total_bytes"] > gpu["capacity_bytes"]:
            self.fail(f"{what}: fits {gpu['capacity_bytes']} bytes with {gpu['peak_total_bytes']}")
        phases = [step[f"{name}_seconds"] for name in ("forward", "backward", "optimizer")]
        if any(limit["resource"] == "nvme" for limit in answer["limits"]):
            return  # nobody knows how fast a drive is that there is not
        if None in phases:
            self.fail(f"{what}: no seconds: {json.dumps(step)[:300]}")
        elif abs(sum(phases) - step["seconds"]) > 1e-6 * step["seconds"]:
            self.fail(f"{what}: {sum(phases)} s in phases, {step['seconds']} in all")

    def lines(self, jobs):
        """(what, scenario) each, in batches, two at a time."""
        size = 400
        parts = [jobs[begin:begin + size] for begin in range(0, len(jobs), size)]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(self.batch, parts))

    def run(self, words, what, questions=1):
        done = super().run(words, what, questions)
        if words[:2] != ["simulate", "--batch"] and done.returncode in (0, 3):
            self.answered += 1
        if "expected a flag of zeroplan" in done.stderr:
            self.fail(f"{what}: a question that the command has no words for: {done.stderr[-300:]!r}")
        if "are left out of this answer" in done.stdout and "internal error" in done.stdout:
            self.fail(f"{what}: rows left out: {done.stdout[-500:]!r}")
        return done


def commands(random_, count):
    """(words, seconds) each."""
    for i in range(count):
        settings = drawn(random_, often=0.3, seldom=0.04)
        settings.pop("sequence_parallel", None)
        model, gpus = random_.choice(ALL_KINDS), random_.choice(MACHINES)
        words = flags_of(settings)
        kind = i % 10
        if kind < 5:
            # PPO of 48 layers of experts, where nothing fits: 40 remedies are tried, a simulation each takes a second.
            yield ["fit", model, gpus, *words, *(["--json"] if random_.random() < 0.5 else [])], 120
        elif kind < 7:
            yield ["tune", model, gpus, *words, "--time-limit", "4"], 60
        elif kind == 7:
            yield ["report", model, gpus, *words, "--no-search", "--json"], 120
        elif kind == 8:
            clusters = ",".join(random_.sample(MACHINES, 3))
            yield ["fit", model, "--clusters", clusters, "--tokens", "1B", *words], 120
        else:
            sets = ",".join("/".join(random_.choice(RELEASES)) for _ in range(2))
            # Before transformers 5 experts are modules, thousands of them: a simulation takes a second, a comparison 130.
            yield [random_.choice(("fit", "simulate")), model, gpus, *words, "--compare-versions", sets], 300


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--full", action="store_true", help="all pairs and thousands of questions: 20 minutes")
    parser.add_argument("--seed", type=int, default=int(time.time()) // 86400)
    parser.add_argument("--only", default="", help="parts whose name begins so")
    parser.add_argument("--minutes", type=float, default=20.0, help="no question begins later")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="zeroplan_matrix_"))
    matrix = Matrix(str(Path(options.program).resolve()), folder)
    random_ = random.Random(options.seed)
    every = [(json.dumps(settings), random_.choice(SMALL), settings) for settings in pairs()]
    random_.shuffle(every)
    some = every if options.full else every[:400]
    lines = [(f"{model} {what}", scenario(model, "2x2xA100-80G", settings)) for what, model, settings in some]
    random_lines = []
    for _ in range(4000 if options.full else 200):
        model, gpus, settings = random_.choice(ALL_KINDS), random_.choice(MACHINES), drawn(random_)
        random_lines.append((f"{model} {gpus} {json.dumps(settings)}", scenario(model, gpus, settings)))
    asked = list(commands(random_, 1000 if options.full else 15))
    end = time.time() + 60 * options.minutes
    left_out = 0

    def command(job):
        words, seconds = job
        if time.time() > end:
            return 1
        matrix.run(words, shlex.join(words), seconds / matrix.seconds)
        return 0

    try:
        for name, part in {"pairs": lambda: matrix.lines(lines), "random": lambda: matrix.lines(random_lines)}.items():
            if name.startswith(options.only):
                before, began = matrix.questions, time.time()
                part()
                print(f"{name:10} {matrix.questions - before:6} questions, {time.time() - began:4.0f} s", flush=True)
        if "commands".startswith(options.only):
            began = time.time()
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                left_out = sum(pool.map(command, asked))
            print(f"commands   {len(asked) - left_out:6} questions, {time.time() - began:4.0f} s, {left_out} for lack of time")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"seed {options.seed}: {matrix.answered} answered, {len(matrix.failures)} failures")
    return 1 if matrix.failures else 0


if __name__ == "__main__":
    sys.exit(main())
