#!/usr/bin/env python3
"""Documents and flags with odd values: check_odd_values.py PROGRAM [--full] [--only WORD]

Every key that the program reads is given every value of ODD: ds_config, config.json, workload, cluster and
profile by lines of `simulate --batch`; measurements by `validate` and `calibrate`; ds_configs also by `lint`,
recordings by `doctor`, flags by the commands that have them. The answer has finite numbers, or is an error that
names file, what was expected and what came; it takes at most two seconds of CPU, ends by no signal and is no
defect.
"""

import argparse
import concurrent.futures
import copy
import json
import math
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

INPUT = Path(__file__).resolve().parent.parent / "golden" / "input"
ODD = [4611686018427387904, 9223372036854775807, 2**63, -9223372036854775808, -1, 0, 1, 3, 2**31, 2**32, 1e308,
       -1e308, 1e-300, 1e300, 1e18, 0.5, "nan", "inf", "-1", "", "1e400", "auto", True, None, [], {}, [1], {"a": 1}]
FEW = [4611686018427387904, 9223372036854775807, -1, 0, 3, 2**32, 1e308, 1e-300, "nan", "auto", True, None, []]
CONFIGS = {
    "llama": json.loads((INPUT / "tiny_llama.json").read_text()),
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 2, "n_head": 4,
             "n_positions": 64, "n_inner": 256, "vocab_size": 256},
    "qwen3_moe": {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64,
                  "intermediate_size": 128, "moe_intermediate_size": 32, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_experts": 4,
                  "num_experts_per_tok": 2, "decoder_sparse_step": 1, "vocab_size": 256,
                  "max_position_embeddings": 64},
    "gemma2": {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "hidden_size": 64,
               "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
               "head_dim": 16, "vocab_size": 256, "max_position_embeddings": 64, "sliding_window": 32},
    "t5": {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 64, "d_ff": 128,
           "d_kv": 16, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "vocab_size": 256},
    "bloom": {"model_type": "bloom", "architectures": ["BloomForCausalLM"], "hidden_size": 64, "n_layer": 2,
              "n_head": 4, "vocab_size": 256},
    "bert": {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 64, "intermediate_size": 128,
             "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256, "max_position_embeddings": 64,
             "type_vocab_size": 2},
    "deepseek_v3": {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 64,
                    "intermediate_size": 128, "moe_intermediate_size": 32, "num_hidden_layers": 2,
                    "num_attention_heads": 4, "num_key_value_heads": 4, "n_routed_experts": 4, "n_shared_experts": 1,
                    "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
                    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
                    "v_head_dim": 16, "vocab_size": 256, "max_position_embeddings": 64},
}
CLUSTER = {"nodes": 2, "gpus_per_node": 2,
           "gpu": {"name": "A100-80G", "memory_bytes": 85899345920, "memory_bandwidth": 2e12, "peak_flops": 312e12,
                   "compute_capability": 8.0},
           "intra_node": {"link": "nvlink", "bandwidth": 3e11, "latency": 2e-6},
           "inter_node": {"link": "ib", "bandwidth": 2.5e10, "latency": 5e-6},
           "host_memory_bytes": 1099511627776, "host_memory_bandwidth": 2e11, "cpu_cores": 64, "pcie_bandwidth": 2.5e10,
           "nvme": {"read_bandwidth": 6e9, "write_bandwidth": 4e9, "capacity_bytes": 4000000000000}}
WORKLOAD = {"sequence_length": 64, "micro_batch_size": 1, "gradient_accumulation_steps": 1, "method": "full",
            "precision": "bf16", "optimizer": "adamw", "attention": "sdpa", "activation_checkpointing": "none",
            "engine": "deepspeed", "frontend": "native", "pipeline_parallel": 1, "tensor_parallel": 1,
            "sequence_parallel": 1, "dataset": {"samples": 100, "epochs": 1, "mean_tokens": 32, "padding": "longest"}}
OFFLOADS = {"stage 2": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
            "stage 3": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/x"},
                        "offload_param": {"device": "nvme", "nvme_path": "/x"}}}
WORKLOADS_FLAGS = ["--seq", "--mbs", "--gas", "--host-memory", "--cpu-cores", "--network", "--pipeline-parallel",
                   "--tensor-parallel", "--sequence-parallel", "--confidence"]
FLAGS = {
    "fit {model} 2xA100-80G": WORKLOADS_FLAGS,
    "simulate --model {model} --cluster 2xA100-80G": [*WORKLOADS_FLAGS, "--jobs"],
    "tune {model} 2xA100-80G --time-limit 1": [*WORKLOADS_FLAGS, "--gap", "--price", "--min-throughput", "--max-gpu-memory",
                                               "--max-host-memory", "--reserve", "--jobs"],
    "tune {model} 2xA100-80G": ["--time-limit"],
    "lint {ds}": ["--gpus"],
    "validate {measurements}": ["--jobs", "--worst"],
}
BAD = re.compile(r"(?<![\w\"'])-?(?:nan|inf|infinity)(?![\w\"'])", re.IGNORECASE)


def leaves(value, path=()):
    """Paths of all members, of those that hold others too."""
    for key, member in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from leaves(member, (*path, key))


def changed(document, path, value):
    document = copy.deepcopy(document)
    at = document
    for key in path[:-1]:
        if isinstance(at, dict) and not isinstance(at.get(key), (dict, list)):
            at[key] = {}
        at = at[key]
    at[path[-1]] = value
    return document


def not_finite(value):
    if isinstance(value, float):
        return not math.isfinite(value)
    return any(map(not_finite, value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()))


class Sweep:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.failures, self.questions, self.number = [], 0, 0
        self.odd, self.seconds = ODD, 2.0

    def fail(self, text):
        self.failures.append(text[:700])
        print("  " + text[:700], flush=True)

    def file(self, text, suffix=".json"):
        self.number += 1
        path = self.folder / f"{self.number}{suffix}"
        path.write_text(text)
        return str(path)

    def run(self, words, what, questions=1):
        """Exit code, stdout, stderr of a command of at most self.seconds a question."""
        self.questions += questions
        most = math.ceil(self.seconds * questions) + 1

        def limit():
            resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))

        done = subprocess.run([self.program, *words], capture_output=True, text=True, errors="replace", cwd=self.folder,
                              stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C.UTF-8"}, preexec_fn=limit)
        said = done.stdout[-300:] + done.stderr[-600:]
        if done.returncode < 0:
            self.fail(f"{what}: signal {-done.returncode}{' (CPU time)' if done.returncode in (-24, -9) else ''}: {said!r}")
        elif done.returncode not in (0, 2, 3, 4) and "nothing found so far that fits" not in done.stdout:
            self.fail(f"{what}: exit {done.returncode}: {said!r}")
        if "defect of zeroplan" in done.stdout + done.stderr:
            self.fail(f"{what}: a defect: {said!r}")
        if done.returncode == 2 and not re.search(r"^error: .+: expected .+, got .+", done.stderr, re.MULTILINE | re.DOTALL):
            self.fail(f"{what}: no error as it should be: {said!r}")
        if done.returncode in (0, 3) and BAD.search(done.stdout.replace("inf and nan", "")) and "'nan'" not in what and "'inf'" not in what:
            self.fail(f"{what}: no number: {BAD.search(done.stdout)[0]!r} in {done.stdout[-400:]!r}")
        return done

    # --- lines of a batch

    def batch(self, lines):
        """(what, scenario) each: an answer or an error of its own for every line."""
        size = 400
        for begin in range(0, len(lines), size):
            part = lines[begin:begin + size]
            file = self.file("\n".join(json.dumps({"id": i, **s}) for i, (_, s) in enumerate(part)) + "\n", ".jsonl")
            done = self.run(["simulate", "--batch", file], f"batch from {part[0][0]!r}", len(part))
            answers = done.stdout.splitlines()
            if len(answers) < len(part):
                self.fail(f"{part[len(answers)][0]}: no answer: {json.dumps(part[len(answers)][1])}")
            for (what, _), answer in zip(part, answers):
                self.judge(what, answer)

    def judge(self, what, text):
        try:
            answer = json.loads(text)
        except ValueError as error:
            return self.fail(f"{what}: no JSON: {error}: {text[:200]!r}")
        if "error" in answer:
            missing = [key for key in ("file", "expected", "got") if not answer["error"].get(key)]
            if missing or "defect" in json.dumps(answer):
                self.fail(f"{what}: {text[:400]}")
        elif not_finite(answer) or re.search(r'"(seconds|step_seconds)":(null|0\.0|-)', json.dumps(answer.get("step"))):
            self.fail(f"{what}: no finite answer: {text[:400]}")

    def ds_configs(self, keys):
        for name, zero in OFFLOADS.items():
            base = {"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": True}, "zero_optimization": zero,
                    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
            for key in keys:
                for value in self.odd:
                    yield f"{name}, {key} = {value!r}", changed(base, key.split("."), value)

    def ds_config_lines(self, keys):
        return [(what, {"model": CONFIGS["llama"], "cluster": "2xA100-80G", "ds_config": config,
                        "workload": {"sequence_length": 64, "frontend": "native"}})
                for what, config in self.ds_configs(keys)]

    def model_lines(self):
        more = {"llama": ["num_local_experts", "sliding_window", "head_dim", "rope_theta", "tie_word_embeddings", "rope_scaling",
                          "layer_types", "torch_dtype", "attention_bias", "mlp_bias"]}
        for name, config in CONFIGS.items():
            for key in [*config, *more.get(name, [])]:
                for value in self.odd:
                    yield f"{name}, {key} = {value!r}", {"model": {**config, key: value}, "cluster": "2xA100-80G",
                                                         "workload": {"sequence_length": 64}}

    def cluster_lines(self):
        for path in leaves(CLUSTER):
            for value in self.odd:
                yield f"cluster /{'/'.join(path)} = {value!r}", {"model": CONFIGS["llama"], "cluster": changed(CLUSTER, path, value)}

    def workload_lines(self):
        more = [("method", "lora", "rank"), ("method", "qlora", "rank"), ("fused_loss",), ("tiled_mlp",), ("compile",),
                ("implementation",), ("checkpoint_reentrant",), ("activation_offload",)]
        for path in [*leaves(WORKLOAD), *more]:
            for value in self.odd:
                yield f"workload /{'/'.join(path)} = {value!r}", {"model": CONFIGS["llama"], "cluster": "2x2xA100-80G",
                                                                  "workload": changed(WORKLOAD, path, value)}

    def profile_lines(self):
        profile = json.loads((INPUT / "profile.json").read_text())
        for path in leaves(profile):
            for value in self.odd:
                file = self.file(json.dumps(changed(profile, path, value)))
                yield f"profile /{'/'.join(map(str, path))} = {value!r}", {"model": CONFIGS["llama"], "cluster": "RTX4090-24G",
                                                                           "profile": file}

    # --- commands

    def measurements(self, pool):
        scenario = {"model": CONFIGS["llama"], "cluster": "2xA100-80G", "workload": WORKLOAD,
                    "ds_config": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}}
        measured = {"peak_allocated_bytes": 2e9, "peak_reserved_bytes": 2e9, "peak_total_bytes": 3e9, "step_seconds": 0.01,
                    "tokens_per_second_per_gpu": 6400.0, "mfu": 0.1, "fits": True}
        base = {"id": "a", "source": "made for this test", "tier": "A", "scenario": scenario, "measured": measured,
                "uncertainty": {"step_seconds": 0.1}}
        paths = [p for p in leaves(base) if p[0] in ("measured", "uncertainty", "id", "source", "tier")]
        jobs = []
        for path in paths:
            lines = "\n".join(json.dumps(changed(base, path, value)) for value in self.odd)
            jobs.append((["validate", self.file(lines + "\n", ".jsonl")], f"validate /{'/'.join(path)}", len(self.odd)))
        list(pool.map(lambda job: self.run(*job), jobs))
        for path in paths:
            good = "\n".join(json.dumps({**base, "id": str(i)}) for i in range(3))
            lines = "\n".join(json.dumps(changed(base, path, value)) for value in self.odd)
            self.run(["calibrate", self.file(f"{good}\n{lines}\n", ".jsonl"), "-o", "profile_out.json"],
                     f"calibrate /{'/'.join(path)}", len(self.odd))
            out = self.folder / "profile_out.json"
            if out.exists() and not_finite(json.loads(out.read_text())):
                self.fail(f"calibrate /{'/'.join(path)}: writes no finite profile")

    def lint(self, keys, pool):
        def one(case):
            self.run(["lint", self.file(json.dumps(case[1])), "--gpus", "8"], f"lint {case[0]}")
        list(pool.map(one, [case for case in self.ds_configs(keys) if case[0].startswith("stage 3")]))

    def run_one_step(self, keys, pool):
        """The embedded runtime, which makes buffers, files and threads of these numbers."""
        def one(case):
            what, config = case
            text = json.dumps(config).replace('"/x"', json.dumps(str(self.folder)))
            self.run(["run", model, "--ds-config", self.file(text), "--steps", "1", "--seq", "16", "--device", "cpu",
                      "--frontend", "native", "--host-memory", "2GiB"], f"run {what}")
        model = self.file(json.dumps(CONFIGS["llama"]))
        list(pool.map(one, self.ds_configs(keys)))

    def doctor(self, pool):
        recording = json.loads((INPUT / "doctor" / "healthy.json").read_text())
        paths = list(leaves(recording))
        exits = [path for path in paths if path[-1] == "exit"]

        def one(case):
            path, value = case
            self.run(["doctor", "--recorded", self.file(json.dumps(changed(recording, path, value)))],
                     f"doctor /{path[-1]} of {path[-2:]} = {value!r}")
        list(pool.map(one, [(path, value) for path in (paths if self.odd is ODD else exits[:2]) for value in self.odd]))

    def flags(self, pool):
        model = self.file(json.dumps(CONFIGS["llama"]))
        ds = self.file(json.dumps({"zero_optimization": {"stage": 2}}))
        measurements = str(INPUT / "measurements.jsonl")
        texts = ["4611686018427387904", "9223372036854775807", "99999999999999999999", "-1", "0", "1", "1e308", "1e-300",
                 "nan", "inf", "-inf", "", "0x10", "1,5", "1e18G", "16777216", "-0"]
        jobs = []
        for command, flags in FLAGS.items():
            words = [w.format(model=model, ds=ds, measurements=measurements) for w in command.split()]
            jobs += [([*words, f"{flag}={text}"], f"{command.split()[0]} {flag}={text}", 2)
                     for flag in flags for text in (texts if self.odd is ODD else texts[:4] + texts[6:10])]
        list(pool.map(lambda job: self.run(*job), jobs))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--full", action="store_true", help="all keys and values: minutes")
    parser.add_argument("--only", default="", help="parts whose name begins so")
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU time of a question")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="zeroplan_odd_values_"))
    sweep = Sweep(str(Path(options.program).resolve()), folder)
    sweep.seconds = options.seconds
    if not options.full:
        sweep.odd = FEW
    knobs = json.loads(subprocess.run([sweep.program, "knobs", "--json"], capture_output=True, check=True).stdout)["knobs"]
    keys = [knob["key"] for knob in knobs if options.full or knob["modelled"]]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        batches = {"ds_config": lambda: sweep.ds_config_lines(keys), "config.json": sweep.model_lines,
                   "cluster": sweep.cluster_lines, "workload": sweep.workload_lines, "profile": sweep.profile_lines}
        parts = {name: (lambda make=make: sweep.batch(list(make()))) for name, make in batches.items()}
        parts |= {"measurements": lambda: sweep.measurements(pool), "doctor": lambda: sweep.doctor(pool),
                  "flags": lambda: sweep.flags(pool)}
        if options.full or options.only:
            parts["lint"] = lambda: sweep.lint(keys, pool)
            trains = [k["key"] for k in knobs if k["modelled"] or k["key"].startswith(("fp16", "aio", "bf16"))]
            parts["run"] = lambda: sweep.run_one_step(trains, pool)
        try:
            for name, part in parts.items():
                if not name.startswith(options.only):
                    continue
                questions, failures = sweep.questions, len(sweep.failures)
                part()
                print(f"{name:12} {sweep.questions - questions:6} questions, {len(sweep.failures) - failures} failures",
                      flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{sweep.questions} questions, {len(sweep.failures)} failures")
    return 1 if sweep.failures else 0


if __name__ == "__main__":
    sys.exit(main())
