#!/usr/bin/env python3
"""PyTorch beside the embedded runtime: trains the same shapes with random weights and writes measurements.

    gpu_pytorch.py --cluster "1x1xNVIDIA H100 80GB HBM3" --zeroplan build/cuda/bin/zeroplan -o pytorch.jsonl

Weights and gradients are bf16; --states fp32 keeps fp32 weights and moments beside them, as the runtime does
(DeepSpeed's bf16 optimizer), --states bf16 updates the weights themselves. transformers' own classes with sdpa,
AdamW(fused=True), eager and under torch.compile. The micro-batch is doubled until memory is full or tokens a
second fall, and where memory ended it half as much again is tried; at the best one 50 steps are timed after 10, each
between two synchronisations.

A point is a process of its own, with --fork one that begins with this one's imports: they take longer than a small
point's steps. What stands in the output, and in OUTPUT.sweep of the micro-batches tried, is
not done again: a call that was cut short is continued by the next. A point that failed for another reason than
memory is tried again by the next call, after the series that have not failed.
"""

import argparse
import json
import multiprocessing
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "configs" / "kit"))
from measure import run_for, terminated  # noqa: E402

NO_MEMORY = 4  # exit status of a point
FULL = "out of memory"
SWEEP_WARM_UP, SWEEP_STEPS = 3, 5
WORSE = 0.97  # of the best tokens a second: the sweep ends


def flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", required=True, help="measurement lines are added here")
    parser.add_argument("--cluster", required=True, help="the GPU, as zeroplan takes it")
    parser.add_argument("--zeroplan", help="the program: says the GPU's peak; no MFU without it")
    parser.add_argument("--models", default="qwen2.5-0.5b,qwen2.5-1.5b,qwen2.5-3b",
                        help="of configs/models, or paths to a config.json")
    parser.add_argument("--modes", default="eager,compile")
    parser.add_argument("--sequences", default="1024,4096")
    parser.add_argument("--states", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--first", type=int, default=1, help="micro-batch that the sweep begins with")
    parser.add_argument("--largest", type=int, default=128, help="micro-batch that the sweep tries")
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--point-minutes", type=float, default=8, help="a process that takes longer is ended")
    parser.add_argument("--fork", action="store_true", help="import torch once, for all points")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    return parser.parse_args()


def config_of(model):
    """The Hugging Face config and what zeroplan calls the model."""
    path = ROOT / "configs" / "models" / f"{model}.json"
    if path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))["config"], model
    config = json.loads(Path(model).read_text(encoding="utf-8"))
    return config, config


# --- one point, in a process of its own


class Adam:
    """AdamW on the bf16 weights, or on fp32 ones that the bf16 weights are copied from."""

    def __init__(self, torch, parameters, states, device):
        self.torch, self.model = torch, parameters
        self.masters = [p.detach().float() for p in parameters] if states == "fp32" else parameters
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-5, fused=device != "cpu")

    def step(self):
        if self.masters is not self.model:
            for master, parameter in zip(self.masters, self.model):
                master.grad = parameter.grad.float()
                parameter.grad = None
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.masters is not self.model:
            with self.torch.no_grad():
                self.torch._foreach_copy_(self.model, self.masters)


def train(point):
    """Seconds of the kept steps, and peaks."""
    import torch
    import transformers

    device = point["device"]
    on_gpu = device.startswith("cuda")
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None
    torch.manual_seed(1)
    config = config_of(point["model"])[0]
    # The argument's name changed between releases, the config's member is read by all.
    settings = transformers.AutoConfig.for_model(**{**config, "torch_dtype": "bfloat16"})
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(settings, attn_implementation="sdpa")
    model = model.to(device=device, dtype=torch.bfloat16).train()
    if on_gpu:
        torch.cuda.empty_cache()  # of the fp32 weights: reserved_bytes would begin with them
        torch.cuda.reset_peak_memory_stats()
    model.config.use_cache = False
    optimizer = Adam(torch, [p for p in model.parameters() if p.requires_grad], point["states"], device)
    forward = torch.compile(model) if point["mode"] == "compile" else model
    shape = (point["micro_batch"], point["sequence"])
    ids = torch.randint(0, settings.vocab_size, shape, device=device)
    seconds, losses = [], []
    for step in range(point["warm_up"] + point["steps"]):
        synchronize()
        began = time.perf_counter()
        loss = forward(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        synchronize()
        if step >= point["warm_up"]:
            seconds.append(time.perf_counter() - began)
        losses.append(loss.detach())
    result = {"seconds": seconds, "losses": [float(losses[0]), float(losses[-1])],
              "parameters": sum(p.numel() for p in model.parameters()),
              "software": {"torch": torch.__version__.split("+")[0],
                           "transformers": transformers.__version__.split("+")[0]}}
    if on_gpu:
        free, total = torch.cuda.mem_get_info()
        result["memory"] = {"peak_allocated_bytes": torch.cuda.max_memory_allocated(),
                            "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
                            "peak_total_bytes": total - free}
    return result


def run_point(point):
    try:
        print("RESULT " + json.dumps(train(point)))
        return 0
    except RuntimeError as error:  # torch.cuda.OutOfMemoryError among them
        if "out of memory" not in str(error):
            raise
        print(str(error).splitlines()[0], file=sys.stderr)
        return NO_MEMORY


# --- the list of points


class Lines:
    """A file of JSON lines that grows."""

    def __init__(self, path):
        self.path = Path(path)
        text = self.path.read_text(encoding="utf-8") if self.path.is_file() else ""
        self.lines = [json.loads(line) for line in text.splitlines() if line.strip()]

    def add(self, line):
        self.lines.append(line)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class Table(Lines):
    """The measurements, and which series have one."""

    def best(self, series):
        """The micro-batch of a series that is done, or None."""
        found = [line for line in self.lines if line.get("group") == series and line["measured"].get("step_seconds")]
        return found[-1]["scenario"]["workload"]["micro_batch_size"] if found else None


class Sweep(Lines):
    """Tokens a second by series and micro-batch, 0 where it did not run, with the reason."""

    def tried(self, series, size):
        """The last answer, which is a rate or that memory is full; None without one."""
        found = [line for line in self.lines if line["series"] == series and line["micro_batch"] == size
                 and (line["tokens_per_second"] or line["reason"] == FULL)]
        return found[-1] if found else None

    def broken(self, series):
        """Whether its last point failed for another reason."""
        found = [line for line in self.lines if line["series"] == series]
        return bool(found) and not found[-1]["tokens_per_second"] and found[-1]["reason"] != FULL


def start(arguments, point):
    """(result, why not): the result of the point's process, or None and the reason."""
    with tempfile.TemporaryFile("w+", errors="replace") as printed, tempfile.TemporaryFile("w+", errors="replace") as errors:
        if arguments.fork:
            status = forked(point, printed, errors, 60 * arguments.point_minutes)
        else:
            command = [sys.executable, __file__, "--output", arguments.output, "--cluster", arguments.cluster]
            command += ["--point", json.dumps(point)]
            try:
                status = subprocess.run(command, stdout=printed, stderr=errors, check=False,
                                        timeout=60 * arguments.point_minutes).returncode
            except subprocess.TimeoutExpired:
                status = None
        printed.seek(0)
        errors.seek(0)
        lines = [line for line in errors.read().splitlines() if line.strip()]
        if status is None:
            return None, f"no end after {arguments.point_minutes:g} minutes"
        if status == NO_MEMORY:
            return None, FULL
        for line in printed:
            if line.startswith("RESULT "):
                return json.loads(line[len("RESULT "):]), ""
    return None, lines[-1] if lines else f"exit status {status}"


def forked(point, printed, errors, seconds):
    """Exit status, None where it did not end. The parent must not have begun with CUDA."""

    def child():
        os.setsid()  # torch.compile has workers
        os.dup2(printed.fileno(), 1)
        os.dup2(errors.fileno(), 2)
        sys.exit(run_point(point))

    process = multiprocessing.get_context("fork").Process(target=child)
    return None if run_for(process, seconds) else process.exitcode


def tokens_per_second(point, result):
    return point["micro_batch"] * point["sequence"] / statistics.median(result["seconds"])


def try_size(arguments, sweep, series, point, size):
    known = sweep.tried(series, size)
    if known is None:
        tried = {**point, "micro_batch": size, "warm_up": min(SWEEP_WARM_UP, arguments.warm_up),
                 "steps": min(SWEEP_STEPS, arguments.steps)}
        result, reason = start(arguments, tried)
        rate = tokens_per_second(tried, result) if result else 0.0
        known = {"series": series, "micro_batch": size, "tokens_per_second": rate, "reason": reason}
        sweep.add(known)
        print(f"  micro-batch {size}: " + (f"{rate:.0f} tokens/s" if rate else reason), flush=True)
    return known["tokens_per_second"], known["reason"]


def best_size(arguments, sweep, series, point, first):
    """The micro-batch with the most tokens a second or None, and why the last one did not run."""
    best, most, reason = None, 0.0, ""
    size = first
    while size <= arguments.largest:
        rate, reason = try_size(arguments, sweep, series, point, size)
        if rate > most:
            best, most = size, rate
        if rate < WORSE * most or rate == 0.0:
            break
        size *= 2
    if reason == FULL and best is not None and best > 1:
        rate, between = try_size(arguments, sweep, series, point, best + best // 2)
        if rate > most:
            best = best + best // 2
        if between != FULL:
            reason = between
    return best, reason


def relative_sd(seconds):
    """Of the median, as for a normal sample, over it."""
    low, median, high = statistics.quantiles(seconds, n=4)
    return min(1.0, (high - low) / 1.349 * 1.2533 / len(seconds) ** 0.5 / median)


def flops_per_token(config, parameters, sequence):
    """6 N + 12 L h s (Chowdhery et al. 2022, appendix B), as zeroplan counts."""
    return 6.0 * parameters + 12.0 * config["num_hidden_layers"] * config["hidden_size"] * sequence


def peak_flops(arguments):
    """The GPU's dense bf16 peak as zeroplan has it, or None."""
    if not arguments.zeroplan:
        return None
    command = [arguments.zeroplan, "simulate", "qwen2.5-0.5b", arguments.cluster, "--precision", "bf16", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        step = json.loads(done.stdout)["step"]
        return 1e12 * step["model_tflops_per_gpu"] / step["mfu"]
    except (KeyError, ValueError, TypeError, ZeroDivisionError):
        return None


def line_of(arguments, series, point, result, peak):
    config, name = config_of(point["model"])
    median = statistics.median(result["seconds"])
    rate = tokens_per_second(point, result)
    flops = rate * flops_per_token(config, result["parameters"], point["sequence"])
    half = point["states"] == "bf16"
    measured = {"fits": True, "step_seconds": median, "samples_per_second": point["micro_batch"] / median,
                "tokens_per_second_per_gpu": rate, "model_tflops_per_gpu": flops / 1e12, **result.get("memory", {})}
    if peak:
        measured["mfu"] = flops / peak
    workload = {"sequence_length": point["sequence"], "micro_batch_size": point["micro_batch"],
                "gradient_accumulation_steps": 1, "precision": "bf16", "optimizer": "adamw", "attention": "sdpa",
                "activation_checkpointing": "none", "frontend": "native", "compile": point["mode"] == "compile",
                # One process without a wrapper. fp32 states beside bf16 weights are no engine's that is modelled.
                "engine": "ddp" if half else "other"}
    return {
        "id": f"{series}-mbs{point['micro_batch']}",
        "group": series,
        "source": f"{platform.node()} {time.strftime('%Y-%m-%d')}",
        "scenario": {"model": name, "cluster": arguments.cluster, "workload": workload,
                     "software": result["software"],
                     "ds_config": {"bf16": {"enabled": True, "bf16_master_weights_and_grads": half}}},
        "measured": measured,
        "uncertainty": {"step_seconds": relative_sd(result["seconds"])},
        "notes": f"PyTorch {point['mode']}, {point['states']} states, AdamW(fused), median of {point['steps']} steps "
                 f"after {point['warm_up']}; loss {result['losses'][0]:.3f} -> {result['losses'][1]:.3f}",
    }


def series_of(arguments):
    """Every (name, point): eager before compile, which begins at its micro-batch."""
    for model in arguments.models.split(","):
        for sequence in arguments.sequences.split(","):
            for mode in arguments.modes.split(","):
                name = Path(model).parent.name + "-" + Path(model).stem if model.endswith(".json") else model
                yield (f"pytorch-{name}-{arguments.states}-seq{sequence}-{mode}",
                       {"model": model, "sequence": int(sequence), "mode": mode, "states": arguments.states,
                        "device": arguments.device})


def measure(arguments, table, sweep, series, point, peak):
    first = arguments.first
    if point["mode"] == "compile":
        first = table.best(series.removesuffix("compile") + "eager") or first
    best, reason = best_size(arguments, sweep, series, point, first)
    if best is None and first > 1:
        best, reason = best_size(arguments, sweep, series, point, 1)
    if best is None:
        print(f"{series}: {reason}", flush=True)
        return False
    whole_sweep = reason in ("", FULL)
    if best == table.best(series):  # the sweep was broken, and what is beyond is no better or broken still
        return whole_sweep
    result, reason = None, FULL
    # What fitted a few steps may not fit many.
    while result is None and best >= 1 and reason == FULL:
        whole = {**point, "micro_batch": best, "warm_up": arguments.warm_up, "steps": arguments.steps}
        result, reason = start(arguments, whole)
        smaller = [line["micro_batch"] for line in sweep.lines
                   if line["series"] == series and line["tokens_per_second"] and line["micro_batch"] < best]
        best = max(smaller, default=best // 2)
    if result is None:
        print(f"{series}: {reason}", flush=True)
        return False
    line = line_of(arguments, series, whole, result, peak)
    table.add(line)
    share = f", MFU {100 * line['measured']['mfu']:.1f} %" if peak else ""
    print(f"{series}: {line['measured']['tokens_per_second_per_gpu']:.0f} tokens/s "
          f"at {whole['micro_batch']}{share}", flush=True)
    return whole_sweep


def main():
    arguments = flags()
    if arguments.point:
        return run_point(json.loads(arguments.point))
    if arguments.fork:
        signal.signal(signal.SIGTERM, terminated)
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # whether there is a GPU is asked without CUDA
        import torch
        import transformers.models.auto.modeling_auto
    table = Table(arguments.output)
    sweep = Sweep(arguments.output + ".sweep")
    peak = peak_flops(arguments)
    failed = 0
    for series, point in sorted(series_of(arguments), key=lambda pair: sweep.broken(pair[0])):
        if table.best(series) is not None and not sweep.broken(series):
            print(f"{series}: there already")
            continue
        print(series, flush=True)
        failed += not measure(arguments, table, sweep, series, point, peak)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
