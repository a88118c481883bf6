#!/usr/bin/env python3
"""Configurations whose micro-batches have different lengths, as lines for scripts/rehearse_matrix.py: lengths_lines.py > LINES.jsonl

Samples are lognormal, cut at the sequence length. Each run sees 32 micro-batches in the order that zeroplan takes
(model/step/sample_lengths.hpp padded_lengths) and then micro-batches of the longest length.
"""
import json
import math
import statistics

import matrix_lines

MICRO_BATCHES = 32
GOLDEN = 0.5 * (math.sqrt(5) - 1)


def samples(mean, deviation, longest, count=64):
    """Quantiles of a lognormal distribution, ascending."""
    log_sd = math.sqrt(math.log1p((deviation / mean) ** 2))
    log_mean = math.log(mean) - 0.5 * log_sd ** 2
    normal = statistics.NormalDist(log_mean, log_sd)
    return [min(longest, round(math.exp(normal.inv_cdf((i + 0.5) / count)))) for i in range(count)]


def padded(lengths, batch):
    """Of the micro-batches, in their order."""
    found = []
    for i in range(1, MICRO_BATCHES + 1):
        share = math.modf(i * GOLDEN)[0] ** (1 / batch)
        found.append(lengths[min(int(share * len(lengths)), len(lengths) - 1)])
    return found


def line(name, version, mean, deviation, **more):
    made = matrix_lines.line(name, version, **more)
    workload = made["scenario"]["workload"]
    lengths = samples(mean, deviation, workload["sequence_length"])
    workload["dataset"] = {"lengths": lengths, "padding": "longest"}
    each = workload["gradient_accumulation_steps"]
    made["id"] += "-mean%d" % mean
    made["program"] = {**made.get("program", {}), "lengths": padded(lengths, workload["micro_batch_size"]),
                       "steps": MICRO_BATCHES // each + 3}
    if workload["micro_batch_size"] > 1:
        made["program"]["padded"] = True
    made["group"] = made["group"].replace("rehearsal/", "lengths/")
    return made


def padded_lines(version):
    """Masks by class and attention."""
    yield line("qwen2.5-0.5b", version, 600, 500, stage=2, ranks=2, sequence=2048, batch=4, checkpointing="ckn")
    yield line("qwen2.5-0.5b", version, 600, 500, engine="ddp", ranks=1, lora=8, sequence=2048, batch=4)
    yield line("qwen2.5-0.5b", version, 600, 500, stage=1, ranks=2, sequence=1024, batch=4, attention="eager")
    for name in ("gpt2-large", "bloom-560m", "phi-1.5", "pythia-410m", "opt-1.3b"):
        yield line(name, version, 300, 200, stage=2, ranks=2, sequence=1024, batch=4)
    yield line("gpt2-large", version, 300, 200, engine="ddp", ranks=1, sequence=1024, batch=4)
    yield line("llama-3.2-1b", version, 600, 500, engine="fsdp", stage=3, ranks=2, sequence=2048, batch=4)


def lines():
    for version in ("t211", "t26"):
        for name in ("qwen2.5-0.5b", "tinyllama-1.1b"):
            for stage in (0, 1, 2, 3):
                yield line(name, version, 600, 500, stage=stage, ranks=2, sequence=2048)
            yield line(name, version, 600, 500, stage=3, ranks=2, sequence=2048, checkpointing="ckn")
            yield line(name, version, 600, 500, stage=2, ranks=2, sequence=2048, checkpointing="ckr")
            yield line(name, version, 600, 500, stage=2, ranks=2, sequence=2048, micro_batches=4)
            yield line(name, version, 600, 500, stage=3, ranks=2, sequence=2048, batch=4, checkpointing="ckn")
            yield line(name, version, 600, 500, engine="ddp", ranks=1, lora=8, sequence=2048)
            yield line(name, version, 600, 500, engine="ddp", ranks=1, lora=8, sequence=4096, checkpointing="ckn")
            yield line(name, version, 600, 500, engine="ddp", ranks=2, sequence=2048)
            yield line(name, version, 600, 500, engine="fsdp", stage=3, ranks=2, sequence=2048)
        yield from padded_lines(version)
    yield line("qwen2.5-0.5b", "t211", 600, 500, engine="fsdp", stage=3, fsdp=2, ranks=2, sequence=2048)


if __name__ == "__main__":
    for row in lines():
        print(json.dumps(row))
