#!/usr/bin/env python3
"""Random command lines and mutated documents against zeroplan: nothing may crash, hang or exit 1.

usage: scripts/fuzz_cli.py build/dev/bin/zeroplan [--seconds 60] [--seed 1] [--limit 2.0]

Every finding prints its exit code, time and command; the documents it used stay in the folder named
at the end. Meant for a build with AddressSanitizer and UndefinedBehaviorSanitizer (preset dev).
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

NUMBERS = [0, -0.0, 1, -1, 2, 3, 7, 1024, 2**20, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 10**30, 1e308,
           -1e308, 0.5, 1e-320]
ATOMS = NUMBERS + [None, True, False, "", "auto", "x" * 300, "none", "cpu", "nvme", "\u0000", "1e9", [], {}, [1, [2]],
                   {"a": {"b": 1}}]
MODELS = ["7B", "10B", "1T", "100M", "llama-2-7b", "gpt2", "bert-large", "opt-125m", "mixtral-8x7b", "bloom-560m",
          "qwen2.5-7b", "nothing", "{}"]
CLUSTERS = ["8xH100", "2x4xA800-80G", "1xRTX4090-24G", "4xV100-16G", "cpu", "8xcpu", "100000xH100", "0xH100",
            "12x8xA10-24G", "3xP100", "x"]
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
          "intermediate_size": 11008, "num_hidden_layers": 4, "num_attention_heads": 32, "num_key_value_heads": 8,
          "vocab_size": 32000, "max_position_embeddings": 4096, "tie_word_embeddings": False}
DS_CONFIG = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
             "gradient_clipping": 1.0, "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto", "loss_scale": 0},
             "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95]}},
             "zero_optimization": {"stage": 3, "overlap_comm": True, "reduce_bucket_size": 5e8,
                                   "stage3_prefetch_bucket_size": "auto", "stage3_max_live_parameters": 1e9,
                                   "stage3_max_reuse_distance": 1e9, "stage3_param_persistence_threshold": "auto",
                                   "sub_group_size": 1e9, "allgather_bucket_size": 5e8, "round_robin_gradients": True,
                                   "offload_optimizer": {"device": "cpu", "pin_memory": True, "buffer_count": 4,
                                                         "nvme_path": "/nvme", "ratio": 1.0},
                                   "offload_param": {"device": "none", "buffer_size": 1e8, "buffer_count": 5,
                                                     "max_in_cpu": 1e9}},
             "aio": {"block_size": 1048576, "queue_depth": 8}}
CLUSTER = {"nodes": 2, "gpus_per_node": 4, "gpu": {"name": "A100-80G", "memory_bytes": 80e9, "peak_flops": 312e12},
           "intra_node": {"link": "nvlink", "bandwidth": 3e11, "latency": 1e-6},
           "inter_node": {"link": "ib", "bandwidth": 2.5e10, "latency": 2e-6}, "host_memory_bytes": 1e12,
           "host_memory_bandwidth": 2e11, "cpu_cores": 64, "pcie_bandwidth": 2e10,
           "nvme": {"read_bandwidth": 5e9, "write_bandwidth": 3e9, "capacity_bytes": 3e12}}
WORKLOAD = {"sequence_length": 2048, "micro_batch_size": 1, "gradient_accumulation_steps": 1, "method": "full",
            "precision": "bf16", "optimizer": "adamw", "attention": "sdpa", "activation_checkpointing": "none",
            "checkpoint_reentrant": True, "frontend": "native", "fused_loss": False, "tiled_mlp": False,
            "dataset": {"samples": 20000, "epochs": 3, "mean_tokens": 512, "padding": "longest"}}
FLAGS = {"--seq": ["1", "128", "2048", "16777216", "-1", "0", "1e3", "x"],
         "--mbs": ["1", "2", "1048576", "0"], "--gas": ["1", "1048576"], "--ckpt": ["none", "full", "selective", "x"],
         "--precision": ["bf16", "fp16", "fp32"], "--optimizer": ["adamw", "adam", "lion", "adafactor", "sgd", "adamw8bit"],
         "--attention": ["eager", "sdpa", "flash"], "--frontend": ["hf-trainer", "native"], "--fused-loss": [None, "true"],
         "--deepspeed": ["0.12", "0.14.4", "0.16", "0.19.6", "99", "x"], "--transformers": ["4.40", "5.1"],
         "--confidence": ["0.5", "0.9999", "1", "nan"], "--host-memory": ["64G", "1", "1e18T", "100MiB"],
         "--network": ["10", "1e9", "0", "1e-9"], "--cpu-cores": ["1", "0", "4096"], "--json": [None], "--lang": ["zh", "fr"],
         "--method": ["full", "lora", '{"lora":{"rank":8}}'], "--dataset": ['{"samples":1e308}', "{}", "x"],
         "--tensor-parallel": ["2", "100000"], "--checkpoint-reentrant": ["false"], "--activation-offload": ["cpu"],
         "--id": ["a", "\x1b[2J"], "--torch": ["2.6", "0"], "--engine": ["deepspeed", "ddp"], "--compile": ["false"]}


def mutated(rng, value, depth=0):
    """The value with one to three places changed."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.randint(0, 3)):
        place = value
        while isinstance(place, dict) and place:
            key = rng.choice(list(place))
            if isinstance(place[key], dict) and place[key] and rng.random() < 0.7:
                place = place[key]
                continue
            action = rng.random()
            if action < 0.6:
                old = place[key]
                numeric = isinstance(old, (int, float)) and not isinstance(old, bool)
                place[key] = rng.choice(NUMBERS if numeric and rng.random() < 0.8 else ATOMS)
            elif action < 0.8:
                del place[key]
            else:
                place[key + rng.choice(["x", "/", "~", "\n"])] = rng.choice(ATOMS)
            break
    return value


def damaged(rng, text):
    """The text as bytes, sometimes cut, spliced or encoded otherwise."""
    data = text.encode("utf-8", "surrogatepass")
    if rng.random() > 0.15:
        return data
    at = rng.randrange(len(data) + 1)
    return rng.choice([data[:at], data[:at] + bytes([rng.randrange(256)]) + data[at:], b"\xef\xbb\xbf" + data,
                       data.replace(b",", b",\r\n"), text.encode("utf-16"), data + data, b"[" * 1000 + data,
                       data.replace(b'"', b"'"), b"", b"\0" + data])


def document(rng, folder, name, value):
    path = folder / name
    path.write_bytes(damaged(rng, json.dumps(mutated(rng, value))))
    return str(path)


def command(rng, folder):
    model = document(rng, folder, "config.json", CONFIG) if rng.random() < 0.3 else rng.choice(MODELS)
    cluster = rng.choice(CLUSTERS)
    if rng.random() < 0.3:
        cluster = document(rng, folder, "cluster.json", CLUSTER)
    words = [rng.choice(["fit", "simulate", "simulate", "scenario"])]
    flags = []
    for flag in rng.sample(list(FLAGS), rng.randint(0, 4)):
        value = rng.choice(FLAGS[flag])
        flags += [flag] if value is None else [flag, value]
    if rng.random() < 0.6:
        flags += ["--ds-config", document(rng, folder, "ds_config.json", DS_CONFIG)]
    if rng.random() < 0.5:
        scenario = {"id": "a", "model": model, "cluster": cluster, "workload": WORKLOAD, "ds_config": DS_CONFIG,
                    "software": {"deepspeed": "0.16.4", "torch": 2.6}}
        if rng.random() < 0.5:
            del scenario["ds_config"]
        if rng.random() < 0.3:
            scenario["cluster"] = mutated(rng, CLUSTER)
        if rng.random() < 0.3:
            scenario["model"] = mutated(rng, CONFIG)
        path = document(rng, folder, "scenario.json", scenario)
        if rng.random() < 0.2:
            return ["simulate", "--batch", path, "--jobs", "2"]
        return words + ["--scenario", path] + flags
    if rng.random() < 0.05:
        return rng.choice([["models", "--config", model], ["gpus"], ["knobs"], ["replay", cluster]]) + flags
    return words + [model, cluster] + flags


def problem(json_asked, run, seconds, limit):
    if run is None:
        return "hangs"
    if run.returncode not in (0, 2, 3, 4):
        return f"exit {run.returncode}"
    if seconds > limit:
        return f"{seconds:.1f} s"
    if run.returncode == 2 and not run.stderr.startswith(b"error: "):
        return "an error without its message"
    if json_asked:
        try:
            json.loads(run.stdout)
        except ValueError:
            return "no JSON"
    if any(word in run.stdout for word in (b": nan", b":nan", b": inf", b'seconds":null')):
        return "a number that is none"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=2.0)
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.program)
    keep = pathlib.Path(tempfile.mkdtemp(prefix="zeroplan_fuzz_"))
    end = time.monotonic() + arguments.seconds
    seed, findings, codes, seen = arguments.seed, 0, {}, set()
    while time.monotonic() < end:
        rng = random.Random(seed)
        folder = keep / str(seed)
        folder.mkdir()
        words = command(rng, folder)
        begin = time.monotonic()
        try:
            run = subprocess.run([program] + [w.replace("\0", "") for w in words], capture_output=True, timeout=10,
                                 stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            run = None
        what = problem("--json" in words, run, time.monotonic() - begin, arguments.limit)
        code = None if run is None else run.returncode
        codes[code] = codes.get(code, 0) + 1
        if what:
            text = b"" if run is None else run.stderr
            marks = [b for b in text.split(b"\n") if b"runtime error" in b or b"error:" in b or b"ERROR" in b][:1]
            kind = (what[:6], marks[0][:110] if marks else b"")
            if kind not in seen:
                seen.add(kind)
                findings += 1
                print(f"seed {seed}: {what}: {' '.join(words)}\n  {b' '.join(marks).decode(errors='replace')[:300]}", flush=True)
        else:
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        seed += 1
    print(f"{seed - arguments.seed} commands, exit codes {codes}, {findings} kinds of findings, kept in {keep}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
