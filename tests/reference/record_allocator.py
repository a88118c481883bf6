"""Plays random traces through torch's CUDA caching allocator and writes what happened, for
tests/simulator/allocator_recordings_test.cpp.

Needs a machine with a CUDA GPU and torch; nothing else may use the GPU. One process a
configuration, because PYTORCH_CUDA_ALLOC_CONF is read at start.

    python3 tests/reference/record_allocator.py OUTPUT_FOLDER [--seeds 8] [--operations 400]

Format, one statement a line (also written by the naive allocator of the tests):
    torch VERSION                    the release, first
    conf TEXT|-                      PYTORCH_CUDA_ALLOC_CONF
    total BYTES                      cudaMemGetInfo's total
    allowed BYTES|-                  set_per_process_memory_fraction, as bytes
    alloc TENSOR BYTES STREAM        a tensor on a stream (0: the default stream)
    record TENSOR STREAM             Tensor.record_stream
    free TENSOR
    busy STREAM                      work is queued on the stream that lasts until the next sync
    sync                             the host waits for the device
    empty                            torch.cuda.empty_cache()
    = OUTCOME NAME:VALUE ...         after each of alloc, record, free, empty: ok or oom, and of what
                                     torch.cuda.memory_stats says (the names of FIELDS below) the
                                     values that have changed; all of them are zero before
    # ...                            a comment

What is recorded does not depend on timing: work that lasts is a spin kernel of many milliseconds,
and a trace whose spin may have ended too early is played again; after every call of cudaMalloc and
cudaFree, which may wait for the device, the trace has a sync of its own; events on idle streams are
given the time to complete.
"""
import argparse
import os
import random
import subprocess
import sys
import time

# Statement name in the file: key of torch.cuda.memory_stats.
FIELDS = {
    "allocated": "allocated_bytes.all.current",
    "reserved": "reserved_bytes.all.current",
    "active": "active_bytes.all.current",
    "requested": "requested_bytes.all.current",
    "split": "inactive_split_bytes.all.current",
    "splits": "inactive_split.all.current",
    "segments": "segment.all.current",
    "small": "allocated_bytes.small_pool.current",
    "small_reserved": "reserved_bytes.small_pool.current",
    "peak_allocated": "allocated_bytes.all.peak",
    "peak_reserved": "reserved_bytes.all.peak",
    "retries": "num_alloc_retries",
    "ooms": "num_ooms",
    "device_allocs": "num_device_alloc",
    "device_frees": "num_device_free",
}
MIB = 1 << 20
# (name, PYTORCH_CUDA_ALLOC_CONF, memory fraction in MiB or None)
CONFIGURATIONS = [
    ("default", "", None),
    ("fraction", "", 300),
    ("split", "max_split_size_mb:64", 300),
    ("divisions", "roundup_power2_divisions:[1:4,16:8,>:2]", 300),
    ("garbage", "garbage_collection_threshold:0.6", 300),
    ("garbage_split", "garbage_collection_threshold:0.5,max_split_size_mb:48", 250),
    ("expandable", "expandable_segments:True", None),
    ("expandable_fraction", "expandable_segments:True", 300),
]
STREAMS = 3
# At the 1.0 to 2.0 GHz of today's GPUs the spin lasts at least SPIN_SECONDS.
SPIN_CYCLES = 400_000_000
SPIN_SECONDS = 0.2


def random_size(rng):
    kind = rng.randrange(8)
    if kind == 0:
        return rng.randrange(1, 2000)
    if kind == 1:
        return rng.randrange(1, MIB)
    if kind == 2:
        return MIB - 512 + rng.randrange(1025)
    if kind == 3:
        return MIB + rng.randrange(9 * MIB)
    if kind == 4:
        return 10 * MIB - 512 + rng.randrange(1025)
    if kind == 5:
        return 2 * MIB * rng.randrange(1, 21)
    if kind == 6:
        return rng.randrange(1, 60 * MIB)
    return 512 * rng.randrange(1, 41)


class Late(Exception):
    """The spin ended before the trace wanted it to."""


class Player:
    def __init__(self, torch, out, rng):
        self.torch = torch
        self.out = out
        self.rng = rng
        self.streams = [torch.cuda.default_stream()]
        self.streams += [torch.cuda.Stream() for _ in range(STREAMS - 1)]
        self.tensors = {}
        self.busy = {}
        self.next_tensor = 0
        self.said = {name: 0 for name in FIELDS}
        self.last_calls = self.calls()
        self.out_of_memory = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)

    def calls(self):
        stats = self.torch.cuda.memory_stats()
        keys = ("num_device_alloc", "num_device_free", "reserved_bytes.all.current")
        return tuple(stats.get(key, 0) for key in keys)

    def say(self, text):
        self.out.append(text)

    def outcome(self, word):
        stats = self.torch.cuda.memory_stats()
        values = [word]
        for name, key in FIELDS.items():
            value = stats.get(key, 0)
            if value != self.said[name]:
                values.append(f"{name}:{value}")
                self.said[name] = value
        self.say("= " + " ".join(values))
        called = self.calls() != self.last_calls
        self.last_calls = self.calls()
        for started, event in self.busy.values():
            if time.monotonic() - started > SPIN_SECONDS / 2 or (not called and event.query()):
                raise Late
        if called:
            self.sync()

    def sync(self):
        self.torch.cuda.synchronize()
        self.busy.clear()
        self.say("sync")

    def make_busy(self, index):
        torch = self.torch
        with torch.cuda.stream(self.streams[index]):
            torch.cuda._sleep(SPIN_CYCLES)
            event = torch.cuda.Event()
            event.record()
        self.busy[index] = (time.monotonic(), event)
        self.say(f"busy {index}")

    def alloc(self):
        torch = self.torch
        name = self.next_tensor
        self.next_tensor += 1
        size = random_size(self.rng)
        index = self.rng.randrange(STREAMS)
        self.say(f"alloc {name} {size} {index}")
        retries = torch.cuda.memory_stats()["num_alloc_retries"]
        word = "ok"
        try:
            with torch.cuda.stream(self.streams[index]):
                self.tensors[name] = (torch.empty(size, dtype=torch.uint8, device="cuda"), set())
        except self.out_of_memory:
            word = "oom"
        if torch.cuda.memory_stats()["num_alloc_retries"] != retries:
            # The flush waited for events: which streams are idle now depends on them.
            for started, _ in self.busy.values():
                if time.monotonic() - started > 2 * SPIN_SECONDS:
                    raise Late
            self.busy.clear()
            self.outcome(word)
            self.sync()
            return
        self.outcome(word)

    def free(self):
        name = self.rng.choice(sorted(self.tensors))
        self.say(f"free {name}")
        tensor, uses = self.tensors.pop(name)
        del tensor
        self.outcome("ok")
        if uses - set(self.busy):
            time.sleep(0.002)  # events on idle streams complete at once; give them the time

    def record(self):
        name = self.rng.choice(sorted(self.tensors))
        index = self.rng.randrange(STREAMS)
        self.say(f"record {name} {index}")
        self.tensors[name][0].record_stream(self.streams[index])
        self.tensors[name][1].add(index)
        self.outcome("ok")

    def step(self):
        kind = self.rng.randrange(40)
        if kind < 2 and len(self.busy) < STREAMS:
            index = self.rng.randrange(1, STREAMS)
            if index not in self.busy:
                self.make_busy(index)
        elif kind < 6 and self.busy:
            self.sync()
        elif kind == 6:
            self.sync()
            self.say("empty")
            self.torch.cuda.empty_cache()
            self.outcome("ok")
        elif not self.tensors or (kind < 24 and len(self.tensors) < 40):
            self.alloc()
        elif kind < 28:
            self.record()
        else:
            self.free()


def play(torch, name, conf, allowed_mib, seed, operations):
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    if torch.cuda.memory_reserved() != 0:
        raise SystemExit("something else holds memory of the allocator")
    total = torch.cuda.mem_get_info()[1]
    out = [f"torch {torch.__version__.split('+')[0]}", f"conf {conf or '-'}", f"total {total}"]
    if allowed_mib is None:
        out.append("allowed -")
    else:
        fraction = allowed_mib * MIB / total
        torch.cuda.set_per_process_memory_fraction(fraction)
        out.append(f"allowed {int(fraction * total)}")
    player = Player(torch, out, random.Random(f"{name} {seed}"))
    for _ in range(operations):
        player.step()
    player.sync()
    player.tensors.clear()
    torch.cuda.synchronize()
    return out


def record_one(name, folder, seeds, operations):
    import torch

    conf, allowed = next((c, a) for n, c, a in CONFIGURATIONS if n == name)
    torch.cuda.init()
    torch.cuda._sleep(1000)  # the module is loaded before anything is counted
    torch.cuda.synchronize()
    for seed in range(seeds):
        for _ in range(5):
            try:
                lines = play(torch, name, conf, allowed, seed, operations)
            except Late:
                torch.cuda.synchronize()
                continue
            path = os.path.join(folder, f"{name}_{seed}.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
            print("recorded", path, flush=True)
            break
        else:
            print("gave up:", name, seed, file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--operations", type=int, default=400)
    parser.add_argument("--only", help="one configuration, in this process")
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    if args.only:
        record_one(args.only, args.folder, args.seeds, args.operations)
        return
    for name, conf, _ in CONFIGURATIONS:
        environment = dict(os.environ)
        environment.pop("PYTORCH_ALLOC_CONF", None)
        environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
        if conf:
            environment["PYTORCH_CUDA_ALLOC_CONF"] = conf
        command = [sys.executable, os.path.abspath(__file__), args.folder, "--only", name]
        command += ["--seeds", str(args.seeds), "--operations", str(args.operations)]
        subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    main()
