"""Writes a run as one line of zeroplan's measurement format: peaks of the worst rank, times of a step.

`zeroplan validate measurements.jsonl` sets them beside the prediction, `zeroplan calibrate` learns from them.
"""

import json
import os
import platform
import resource
import statistics
import time

import torch
import torch.distributed as distributed

WARM_UP_STEPS = 3


def on_gpu():
    return torch.cuda.is_available()


def used_on_gpu():
    """Bytes in use on this rank's GPU by anybody, as nvidia-smi shows them."""
    free, total = torch.cuda.mem_get_info()
    return total - free


def software():
    """What really ran, for the scenario's `software`."""
    found = {"torch": torch.__version__}
    for name in ("deepspeed", "transformers", "trl"):
        try:
            found[name] = __import__(name).__version__
        except ImportError:
            continue
    return {name: version.split("+")[0] for name, version in found.items()}


def relative_deviation(seconds):
    """Standard deviation of the median over it, from the quartiles as of a normal sample; None for one step."""
    if len(seconds) < 2:
        return None
    low, median, high = statistics.quantiles(seconds, n=4)
    return min(1.0, (high - low) / 1.349 * 1.2533 / len(seconds) ** 0.5 / median)


def timer(recorder):
    """The Trainer's callback that calls it."""
    from transformers import TrainerCallback

    class Timer(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            recorder.step_begins()

        def on_step_end(self, args, state, control, **kwargs):
            recorder.step_ends()

    return Timer()


class Recorder:
    """Call step_begins() and step_ends() around optimizer steps, then write()."""

    def __init__(self):
        self.seconds = []
        self.phases = {}
        self.started = None
        self.used = 0
        if on_gpu():
            torch.cuda.reset_peak_memory_stats()

    def step_begins(self):
        self.synchronize()
        self.started = time.perf_counter()

    def phase(self, name, seconds):
        self.phases.setdefault(name, []).append(seconds)

    def step_ends(self):
        self.synchronize()
        # PPOTrainer says when a rollout and all its steps have ended, and of no step when it begins.
        if self.started is not None:
            self.seconds.append(time.perf_counter() - self.started)
        if on_gpu():
            self.used = max(self.used, used_on_gpu())

    @staticmethod
    def synchronize():
        if on_gpu():
            torch.cuda.synchronize()

    def of_this_rank(self):
        steady = self.seconds[WARM_UP_STEPS:] or self.seconds
        mine = {
            "host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "node": int(os.environ.get("GROUP_RANK", os.environ.get("CROSS_RANK", 0))),
            "seconds": statistics.median(steady) if steady else None,
            "deviation": relative_deviation(steady),
        }
        for name, values in self.phases.items():
            mine[name] = statistics.median(values[WARM_UP_STEPS:] or values)
        if on_gpu():
            mine["allocated"] = torch.cuda.max_memory_allocated()
            mine["reserved"] = torch.cuda.max_memory_reserved()
            mine["held"] = torch.cuda.memory_allocated()
            mine["used"] = self.used
        return mine

    def write(self, path, scenario, frontend):
        """Every rank calls it, rank 0 appends the line; `frontend`: hf-trainer or native."""
        ranks = [self.of_this_rank()]
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            ranks = [None] * distributed.get_world_size()
            distributed.all_gather_object(ranks, self.of_this_rank())
            if distributed.get_rank() != 0:
                return None
        ran = {**scenario, "software": software(), "workload": {**scenario["workload"], "frontend": frontend}}
        line = {
            "id": scenario.get("id", "run"),
            "source": f"{platform.node()} {time.strftime('%Y-%m-%d')}",
            "scenario": ran,
            "measured": {"fits": True, **self.measured(ranks, scenario)},
            "notes": f"median of {max(0, len(self.seconds) - WARM_UP_STEPS) or len(self.seconds)} steps on {len(ranks)} ranks",
        }
        if ranks[0]["deviation"] is not None:
            line["uncertainty"] = {"step_seconds": ranks[0]["deviation"]}
        with open(path, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")
        return line

    @staticmethod
    def measured(ranks, scenario):
        nodes = {}
        for rank in ranks:
            nodes[rank["node"]] = nodes.get(rank["node"], 0) + rank["host"]
        measured = {"host_peak_bytes": max(nodes.values())}
        names = {
            "allocated": "peak_allocated_bytes",
            "reserved": "peak_reserved_bytes",
            "used": "peak_total_bytes",
            "held": "static_allocated_bytes",
            "forward": "forward_seconds",
            "backward": "backward_seconds",
            "optimizer": "optimizer_seconds",
        }
        for short, name in names.items():
            if short in ranks[0]:
                measured[name] = max(rank[short] for rank in ranks)
        if ranks[0]["seconds"]:
            seconds = max(rank["seconds"] for rank in ranks)
            workload = scenario["workload"]
            # Ranks of one pipeline share their samples.
            replicas = len(ranks) / workload.get("pipeline_parallel", 1)
            samples = workload["micro_batch_size"] * workload["gradient_accumulation_steps"] * replicas
            measured["step_seconds"] = seconds
            measured["samples_per_second"] = samples / seconds
            measured["tokens_per_second_per_gpu"] = samples / len(ranks) * workload["sequence_length"] / seconds
        return measured
