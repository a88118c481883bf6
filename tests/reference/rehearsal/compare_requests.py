#!/usr/bin/env python3
"""Holds the simulator's requests for memory against those of the real programs, call by call.

compare_requests.py PYTHON LINES.jsonl... --snapshots FOLDER --to KEPT.jsonl [--only TEXT] [--most N] [--steps N]
                    [--program ZEROPLAN] [--record-only]

Each line whose versions PYTHON has is rehearsed with PyTorch's own memory history (FOLDER keeps the snapshots, so that a
second run compares at once), simulated, and compared by `zeroplan replay REAL --against SIMULATED`: size, stream and
lifetime of every request of at least 1 MiB, module by module. The same snapshot is played through the replica of the
allocator. Modules and Python lines that differ in numbers alone (layers) are summed up.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "scripts"))
import rehearse_matrix as matrix  # noqa: E402  the server, and which lines run


class Recorder(matrix.Server):
    """Its children keep the whole history: that is decided before they begin."""

    def __init__(self, program, python, folder):
        super().__init__(program, python, folder, of_server=["--memory-snapshot", os.path.join(folder, "server.pickle")])

    def record(self, line, snapshot, steps):
        spec = os.path.join(self.folder, "line.json")
        with open(spec, "w") as file:
            json.dump(line, file)
        done = subprocess.run(
            [self.program, "rehearse", "--cluster", line["scenario"]["cluster"], "--rank", str(line.get("rank", 0)),
             "--events", "done", "--steps", str(steps), "--memory-snapshot", snapshot, "--json", "--", self.python,
             self.warm, "run", self.socket, os.path.join(HERE, "train.py"), spec],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder, timeout=900,
            env={**os.environ, **matrix.alone_under_deepspeed(line)})
        return os.path.exists(snapshot) and os.path.getsize(snapshot) > 0, done.stderr[-1500:]


def asked(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(" ".join(command) + "\n" + done.stderr[-2000:]) from None


def unnumbered(name):
    return re.sub(r"\.\d+\.", ".N.", name)


def summed(document):
    """Layers together, most bytes first."""
    modules = collections.OrderedDict()
    for row in document["modules"]:
        total = modules.setdefault(unnumbered(row["module"]), [0, 0, 0])
        for i, key in enumerate(("recorded", "simulated", "equal")):
            total[i] += row[key]
    differences = collections.Counter()
    for row in document["differences"]:
        differences[row["kind"], unnumbered(row["module"]), row["place"], row["bytes"]] += row["times"]
    rows = [{"kind": kind, "module": module, "place": place, "bytes": size, "times": times}
            for (kind, module, place, size), times in differences.items()]
    rows.sort(key=lambda row: -row["bytes"] * row["times"])
    return modules, rows


def compared(program, line, snapshot, folder):
    scenario, simulated = (os.path.join(folder, name) for name in ("scenario.json", "simulated.pickle"))
    with open(scenario, "w") as file:
        json.dump(line["scenario"], file)
    asked([program, "simulate", "--scenario", scenario, "--rank", str(line.get("rank", 0)), "--memory-snapshot",
           simulated, "--json"])
    document = asked([program, "replay", snapshot, "--against", simulated, "--json"])
    modules, differences = summed(document)
    played = max(asked([program, "replay", snapshot, "--json"])["devices"], key=lambda device: device["allocations"])
    return {"id": line["id"], "software": line["scenario"].get("software", {}),
            "replica": {key: played[key] for key in ("allocations", "segments", "peak_reserved_bytes", "difference")},
            "requests": {key: document[key] for key in ("recorded", "simulated", "both", "other_stream", "other_lifetime")},
            "modules": modules, "differences": differences[:12]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("python")
    parser.add_argument("lines", nargs="+")
    parser.add_argument("--snapshots", required=True)
    parser.add_argument("--to", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--most", type=int, default=1 << 30)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--record-only", action="store_true")
    parser.add_argument("--program", type=os.path.abspath, default=os.path.join(HERE, "..", "..", "..", "build", "ci", "bin", "zeroplan"))
    said = parser.parse_args()
    program = os.path.abspath(said.program)
    shown = subprocess.run([program, "rehearse", "--gpu", "A100-80G", "--steps", "0", "--json", "--", said.python, "-c", matrix.VERSIONS],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    versions = re.search(r'\{"torch".*?\}', shown.stdout + shown.stderr)
    if not versions:
        sys.exit(shown.stderr[-2000:])
    software = json.loads(versions.group())
    trl = subprocess.run([said.python, "-c", matrix.TRL], stdout=subprocess.PIPE, text=True).stdout.strip()
    os.makedirs(said.snapshots, exist_ok=True)
    wanted = []
    for line in matrix.lines_of(said.lines):
        runs = {**software, "trl": trl} if "trainer" in line["scenario"]["workload"] else software
        if line["scenario"].get("software", runs) == runs and re.search(said.only, line["id"]):
            wanted.append(line)
    wanted = wanted[:said.most]
    with tempfile.TemporaryDirectory() as folder:
        server = None
        for line in wanted:
            snapshot = os.path.join(os.path.abspath(said.snapshots), line["id"] + ".pickle")
            if not os.path.exists(snapshot):
                server = server or Recorder(program, said.python, folder)
                try:
                    recorded, problem = server.record(line, snapshot, said.steps)
                except subprocess.TimeoutExpired:
                    recorded, problem = False, "took too long"
                if not recorded:
                    print(line["id"], "FAILED", problem, flush=True)
                    continue
            if said.record_only:
                print(line["id"], "recorded", flush=True)
                continue
            try:
                kept = compared(program, line, snapshot, folder)
            except RuntimeError as problem:
                print(line["id"], "FAILED", problem, flush=True)
                continue
            with open(said.to, "a") as file:
                file.write(json.dumps(kept) + "\n")
            print(line["id"], kept["requests"], kept["replica"]["difference"] or "replica: equal to the byte", flush=True)
        if server:
            server.end()


if __name__ == "__main__":
    main()
