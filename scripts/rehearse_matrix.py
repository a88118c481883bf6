#!/usr/bin/env python3
"""Rehearses many configurations with one Python, and keeps each as a line of measurements (source `rehearsal`).

rehearse_matrix.py PYTHON LINES.jsonl... --to KEPT.jsonl [--only TEXT] [--program ZEROPLAN] [--compare] [--count-work]
                   [--real-gpu [--part I/N]]

LINES are measurement lines, whose measured part is not read (tests/reference/rehearsal/matrix_lines.py writes some); of
them those run whose versions PYTHON has. A line that KEPT has already is left out, so that a broken run goes on where
it was. `--compare` says beside each run where its bytes differ from what LINES say. A run takes 4 to 30 seconds on one
core: imports are made once (tests/reference/rehearsal/warm.py). `--count-work` keeps what a step of each puts on the
GPU instead (tests/reference/rehearsal/work_lines.py writes lines for that). `--real-gpu` runs on this machine's GPU, where NCCL alone is
emulated, and keeps seconds of the steps too; a run ends after two minutes. `--part 0/3`: every third line, so that three of these share the GPU.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
REHEARSAL = os.path.join(HERE, "..", "tests", "reference", "rehearsal")
LONGEST = 120  # seconds of a run on a card
BYTES = ("peak_allocated_bytes", "peak_reserved_bytes", "static_allocated_bytes")
VERSIONS = """
import importlib.metadata, json
print(json.dumps({name: importlib.metadata.version(name).split("+")[0] for name in ("torch", "transformers", "deepspeed")}))
"""
# Of TRL, where it is there.
TRL = """
import importlib.metadata
try:
    print(importlib.metadata.version("trl"))
except importlib.metadata.PackageNotFoundError:
    pass
"""


def lines_of(paths):
    for path in paths:
        with open(path) as file:
            yield from map(json.loads, file)


def alone_under_deepspeed(line):
    """What a launcher would say to one process."""
    scenario = line["scenario"]
    if scenario["workload"]["engine"] != "deepspeed" or not scenario["cluster"].startswith("1x1x"):
        return {}
    return {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


class Server:
    """A Python that has imported everything, in a rehearsal of its own."""

    def __init__(self, program, python, folder, options=(), of_server=()):
        """`options`: of each run; it is forked from a rehearsal on the same kind of GPU, which has `of_server`."""
        self.program, self.python, self.folder, self.options = program, python, folder, options
        self.socket = os.path.join(folder, "socket")
        self.warm = os.path.join(REHEARSAL, "warm.py")
        self.log = open(os.path.join(folder, "server.log"), "w")
        self.process = subprocess.Popen(
            [program, "rehearse", "--gpu", "A100-80G", "--steps", "0", *(["--real-gpu"] if "--real-gpu" in options else ["--events", "done"]), *of_server, "--", python, self.warm,
             "serve", self.socket], stdout=self.log, stderr=self.log, cwd=folder)
        while not os.path.exists(self.socket):
            if self.process.poll() is not None:
                sys.exit(open(self.log.name).read()[-4000:])
            time.sleep(0.1)

    def rehearse(self, line):
        """The document, or the end of what the run said."""
        spec = os.path.join(self.folder, "line.json")
        with open(spec, "w") as file:
            json.dump(line, file)
        steps = str(line.get("program", {}).get("steps", 4))
        done = self._run(
            [self.program, "rehearse", "--cluster", line["scenario"]["cluster"], "--steps", steps, "--json", *self.options, "--", self.python,
             self.warm, "run", self.socket, os.path.join(REHEARSAL, "train.py"), spec],
            {**os.environ, **alone_under_deepspeed(line)})
        if done is None:
            return None, "not done in %d s" % LONGEST
        try:
            document = json.loads(done.stdout)
        except ValueError:
            return None, done.stderr[-3000:]
        if document.get("outcome") not in ("ran", "out_of_memory"):
            return None, str(document.get("error")) + done.stderr[-3000:]
        return document, ""

    def _run(self, command, environment):
        """None where a card's run takes too long: a rehearsal that is ended ends what it started."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder, env=environment)
        try:
            out, err = process.communicate(timeout=LONGEST if "--real-gpu" in self.options else None)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.communicate()
            return None
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def end(self):
        self.process.terminate()
        self.process.wait()


def peaks(document):
    """The allocated peak of each phase, over all steps."""
    found = {}
    for row in document["phases"]:
        if row["phase"] not in ("idle", "end"):
            found[row["phase"]] = max(found.get(row["phase"], 0), row["peak_allocated_bytes"])
    return found


def measurement(line, document, software):
    kept = {"id": line["id"], "source": "rehearsal", "tier": "A", "group": line.get("group", "rehearsal")}
    kept["scenario"] = {**line["scenario"], "software": software}
    kept["scenario"].pop("id", None)
    if line.get("program"):
        kept["program"] = line["program"]
    if not document["ran"]:
        kept["measured"] = {"fits": False}
        found = document["out_of_memory"]
        kept["out_of_memory"] = {name: found[name] for name in ("requested_bytes", "allocated_bytes", "reserved_bytes", "phase", "step")}
        return kept
    kept["measured"] = {**{name: document[name] for name in BYTES if document[name] is not None}, "fits": True}
    least, most = document["peak_reserved_range"]
    if most > least:
        kept["uncertainty"] = {"peak_reserved_bytes": round((most - least) / most / 2, 6)}
    kept["reserved_by_events"] = {end["events"]: end["peak_reserved_bytes"] for end in document["ends"]}
    kept["peak_allocated_by_phase"] = peaks(document)
    if "step_seconds" in document:
        kept["step_seconds"] = document["step_seconds"]
        kept["reserved_by_phase"] = [[row["phase"], row["step"], row["reserved_bytes"]] for row in document["phases"]]
    return kept


def work(line, document, software):
    """What a step puts on the GPU."""
    kept = {"id": line["id"], "scenario": {**line["scenario"], "software": software}}
    if line.get("program"):
        kept["program"] = line["program"]
    kept["work"] = document["work"]["rehearsed"]
    return kept


def differences(line, kept):
    """Of another's line of the same configuration."""
    theirs, ours = line["measured"], kept["measured"]
    said = []
    for name in ("fits", *BYTES):
        if name in theirs and theirs[name] != ours.get(name):
            share = "" if name == "fits" or name not in ours else " (%+.4f %%)" % (100 * (ours[name] / theirs[name] - 1))
            said.append("%s %s, said %s%s" % (name, ours.get(name), theirs[name], share))
    return "; ".join(said) or "equal"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("python")
    parser.add_argument("lines", nargs="+")
    parser.add_argument("--to", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--program", default=shutil.which("zeroplan") or os.path.join(HERE, "..", "build", "ci", "bin", "zeroplan"))
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--count-work", action="store_true")
    parser.add_argument("--real-gpu", action="store_true")
    parser.add_argument("--part", default="0/1")
    said = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the server ends with this
    software = json.loads(subprocess.run([said.python, "-c", VERSIONS], stdout=subprocess.PIPE, check=True).stdout)
    trl = subprocess.run([said.python, "-c", TRL], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    have = {line["id"] for line in lines_of([said.to])} if os.path.exists(said.to) else set()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--count-work"] * said.count_work + ["--real-gpu"] * said.real_gpu
        server = Server(os.path.abspath(said.program), said.python, folder, options)
        try:
            part, parts = map(int, said.part.split("/"))
            for line in list(lines_of(said.lines))[part::parts]:
                runs = {**software, "trl": trl} if "trainer" in line["scenario"]["workload"] else software
                wanted = line["scenario"].get("software", runs)
                if line["id"] in have or wanted != runs or said.only not in line["id"]:
                    continue
                began = time.time()
                document, problem = server.rehearse(line)
                if document is None:
                    print(line["id"], "FAILED", problem, flush=True)
                    continue
                have.add(line["id"])
                kept = (work if said.count_work else measurement)(line, document, runs)
                with open(said.to, "a") as file:
                    file.write(json.dumps(kept) + "\n")
                print(line["id"], "%.0f s" % (time.time() - began), kept.get("measured", ""),
                      differences(line, kept) if said.compare and "measured" in line else "", flush=True)
        finally:
            server.end()


if __name__ == "__main__":
    main()
