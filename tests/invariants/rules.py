"""What holds of every answer of `simulate`, and between the answers to two questions that differ in one thing.

Each rule is a generator of sentences about what is wrong.
"""

import math
import re

CONFIDENCE = 0.95
TIMES = ("forward_seconds", "backward_seconds", "optimizer_seconds")
RATES = ("tokens_per_second_per_gpu", "samples_per_second", "model_tflops_per_gpu", "mfu")


def numbers(value, path=""):
    if isinstance(value, dict):
        for key, member in value.items():
            yield from numbers(member, f"{path}/{key}")
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from numbers(member, f"{path}/{index}")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, value


def numbers_are_sane(answer):
    may_be_negative = re.compile("frees_bytes|costs_seconds|moves")
    for path, value in numbers(answer):
        if not math.isfinite(value) or abs(value) > 1e19:
            yield f"{path} is {value}"
        elif value < 0 and not may_be_negative.search(path):
            yield f"{path} is {value}, below nothing"


def memory_adds_up(answer):
    gpu = answer["gpu"]
    parts = gpu["breakdown_at_peak"]
    allocated, reserved, total = (gpu[f"peak_{what}_bytes"] for what in ("allocated", "reserved", "total"))
    if sum(parts.values()) != total:
        yield f"the breakdown sums up to {sum(parts.values())}, the peak is {total}"
    if allocated + parts["cuda_context"] + parts["fragmentation"] != total:
        yield f"allocated {allocated} with context and fragmentation is not {total}"
    if reserved - allocated != parts["fragmentation"]:
        yield f"reserved {reserved} - allocated {allocated} is not the fragmentation {parts['fragmentation']}"
    if not gpu["static_allocated_bytes"] <= allocated <= reserved <= total:
        yield f"static {gpu['static_allocated_bytes']}, allocated {allocated}, reserved {reserved}, total {total}"
    for phase, held in gpu.get("breakdown_by_phase", {}).items():
        tensors = sum(size for what, size in held.items() if what not in ("cuda_context", "fragmentation"))
        if tensors > allocated:
            yield f"{phase} holds {tensors}, the peak is {allocated}"


def verdict_agrees(answer):
    probability, fits = answer["fit_probability"], answer["fits"]
    gpu, host = answer["gpu"], answer["host"]
    if not 0 <= probability <= 1:
        yield f"probability {probability}"
    if fits != (probability >= CONFIDENCE):
        yield f"fits is {fits} at probability {probability}"
    if fits and gpu["peak_total_bytes"] > gpu["capacity_bytes"]:
        yield f"fits, and takes {gpu['peak_total_bytes']} of {gpu['capacity_bytes']}"
    known = host["capacity_bytes"] is not None and answer["host_condition"] is None
    if fits and known and host["peak_bytes"] > host["capacity_bytes"]:
        yield f"fits, and takes {host['peak_bytes']} of the host's {host['capacity_bytes']}"
    if fits == bool(answer["limits"]):
        yield f"fits is {fits}, limits are {answer['limits'][:1]}"
    parameters = answer["parameters"]
    if not 0 <= parameters["trainable"] <= parameters["total"]:
        yield f"parameters {parameters}"


def time_adds_up(answer):
    step = answer["step"]
    unknown = [key for key in (*TIMES, "seconds", *RATES) if step[key] is None]
    if unknown:
        if answer["fits"] or not answer["nvme"]["bytes"]:
            yield f"nobody can say {unknown}, without a drive or although it fits"
        if step["seconds"] is None and any(step[key] is not None for key in RATES):
            yield "no time, and a rate"
        return
    seconds = step["seconds"]
    parts = sum(step[key] for key in TIMES)
    if not math.isclose(parts, seconds, rel_tol=1e-6):
        yield f"forward, backward and optimizer take {parts}, the step {seconds}"
    if seconds <= 0:
        yield f"a step of {seconds} s"
    for key in ("exposed_communication_seconds", "exposed_offload_seconds"):
        if step[key] > seconds * (1 + 1e-9):
            yield f"{key} {step[key]} of a step of {seconds}"
    if step["mfu"] > 1:
        yield f"MFU {step['mfu']}"


def intervals_hold_their_value(answer):
    values = {**answer["gpu"], "step_seconds": answer["step"]["seconds"]}
    for key, interval in answer["intervals"].items():
        if interval is None or None in interval or values.get(key) is None:
            continue
        low, high = interval
        if not low - 1 <= values[key] <= high + 1:
            yield f"{key} {values[key]} is not within {interval}"


OF_ONE = (numbers_are_sane, memory_adds_up, verdict_agrees, time_adds_up, intervals_hold_their_value)


def rates_follow(scenario, gpus, answer):
    """Samples and tokens a second of a plain fine-tuning, of its own batch."""
    workload, seconds = scenario["workload"], answer["step"]["seconds"]
    if seconds is None or "trainer" in workload:
        return
    pipeline = workload.get("pipeline_parallel", 1)
    accumulation = workload.get("gradient_accumulation_steps") or (4 * pipeline if pipeline > 1 else 1)
    together = pipeline * workload.get("sequence_parallel", 1) * workload.get("tensor_parallel", 1)
    samples = workload["micro_batch_size"] * accumulation * gpus // together / seconds
    if not math.isclose(samples, answer["step"]["samples_per_second"], rel_tol=1e-6):
        yield f"{answer['step']['samples_per_second']} samples/s, its batch makes {samples}"
    tokens = samples * workload["sequence_length"] / gpus
    if "dataset" not in workload and not math.isclose(tokens, answer["step"]["tokens_per_second_per_gpu"], rel_tol=1e-6):
        yield f"{answer['step']['tokens_per_second_per_gpu']} tokens/s per GPU, its batch makes {tokens}"


# --- two answers
# The allocator hands out blocks that it does not cut where little would remain, so that what is held moves by some of
# that, and the segments it takes for them by more; kernels take their time by shape, and partitions of more ranks may
# cut tensors in other places.
BLOCKS = 4 << 20
OF_BLOCKS, OF_SEGMENTS, OF_SHAPES, OF_PARTITIONS, OF_PARTITIONS_RESERVED = 0.0005, 0.06, 0.02, 0.1, 0.2


def peak(answer, what="allocated"):
    return answer["gpu"][f"peak_{what}_bytes"]


def takes_no_less_time(less, more):
    """Unless the first gives memory back to the driver to stay on the card, and the second, beyond its card, never does."""
    beyond = more["gpu"]["peak_total_bytes"] > more["gpu"]["capacity_bytes"]
    if beyond and less["gpu"]["allocator_flushes"] > more["gpu"]["allocator_flushes"]:
        return
    before, after = less["step"]["seconds"], more["step"]["seconds"]
    if before is not None and after is not None and after < before * (1 - OF_SHAPES):
        yield f"takes {after} s, less than {before}"


def holds_at_least(less, more):
    if peak(more) < peak(less) * (1 - OF_BLOCKS) - BLOCKS:
        yield f"holds {peak(more)}, less than {peak(less)}"


def holds_no_less(less, more):
    """Longer sequences, a larger micro-batch. What is reserved beside what is allocated lies between blocks that happen to be
    too small for the next request: half of it may be gone at the next size (a BERT of 256,000 tokens, NVMe, keeps 24 % beside
    what it allocates at a micro-batch of 8 and of 12, and 3 % from 9 to 11)."""
    yield from holds_at_least(less, more)
    idle = peak(less, "reserved") - peak(less)
    if peak(more, "reserved") < peak(less, "reserved") - max(OF_SEGMENTS * peak(less, "reserved"), idle / 2) - 10 * BLOCKS:
        yield f"reserves {peak(more, 'reserved')}, less than {peak(less, 'reserved')}"
    if more["fit_probability"] > less["fit_probability"] + 0.01:
        yield f"fits with {more['fit_probability']}, more than {less['fit_probability']}"
    yield from takes_no_less_time(less, more)


def holds_no_more(less, more):
    """More nodes for the same job of each GPU."""
    for what, by in (("allocated", OF_PARTITIONS), ("reserved", OF_PARTITIONS_RESERVED)):
        if peak(more, what) > peak(less, what) * (1 + by):
            yield f"peak {what} {peak(more, what)}, more than {peak(less, what)}"


def accumulates(less, more):
    yield from holds_at_least(less, more)
    yield from takes_no_less_time(less, more)


BETWEEN = {"twice the sequence": holds_no_less, "a larger micro-batch": holds_no_less, "twice the nodes": holds_no_more,
           "twice the accumulation": accumulates}
