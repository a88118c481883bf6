#!/usr/bin/env python3
"""Nothing is lost or mixed whoever is killed: check_kills.py PROGRAM LIBRARY [--full] [--seed N]

LIBRARY (killing_calls.cpp) kills the program at its N-th call that changes a file. What stood at a name then stands
there whole, or the new does, or, of a kit's folder, its run.sh says that it is neither; the same command, run again, ends and writes the new. Of checkpoints `latest` names a
whole one, and who goes on from it ends with the bytes of the run that was not killed. A sample of the calls runs in
`./check`, all of them with --full.
"""

import argparse
import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from asking import Program, Report  # noqa: E402

INPUT = Path(__file__).resolve().parent.parent / "golden" / "input"
IN_THE_MAKING = re.compile(r"^\..*\.[a-z0-9]{8}$")
LOG = "".join(f"{{'loss': 2.{i}, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.{i}}}\n" for i in range(20)) + (
    "{'train_runtime': 100.0, 'train_samples_per_second': 12.3, 'train_steps_per_second': 1.5, 'train_loss': 2.0, 'epoch': 1.0}\n")
MEASURED = ["--model", "1B", "--cluster", "8xA100-80G", "--seq"]
# (what, words, name that is written, words that wrote what stood there before)
FILES = [
    ("measurements", ["import", "train.log", *MEASURED, "2048", "-o", "lines.jsonl"], "lines.jsonl",
     ["import", "train.log", *MEASURED, "1024", "-o", "lines.jsonl"]),
    ("timeline", ["simulate", "0.5B", "2xA100-80G", "--seq", "64", "--trace", "trace.json"], "trace.json",
     ["simulate", "0.5B", "2xA100-80G", "--seq", "128", "--trace", "trace.json"]),
    ("form", ["fit", "0.5B", "2xA100-80G", "--seq", "128", "--mbs", "2", "-o", "form.yaml", "--form", "llama-factory"], "form.yaml",
     ["fit", "0.5B", "2xA100-80G", "--seq", "128", "--mbs", "1", "-o", "form.yaml", "--form", "llama-factory"]),
    ("kit", ["fit", "0.5B", "2xA100-80G", "--seq", "128", "--mbs", "2", "-o", "kit"], "kit",
     ["fit", "0.5B", "2xA100-80G", "--seq", "128", "--mbs", "1", "-o", "kit"]),
]
STEPS = 3


def bytes_of(path):
    """The bytes under a name, without what is in the making; nothing where there is nothing."""
    if path.is_dir():
        return {str(one.relative_to(path)): hashlib.sha256(one.read_bytes()).hexdigest() for one in sorted(path.rglob("*"))
                if one.is_file() and not any(IN_THE_MAKING.match(part) for part in one.relative_to(path).parts)}
    return path.read_bytes() if path.exists() else None


def refuses(kit):
    """Whether what starts a kit says that it is not whole."""
    start = kit / "run.sh"
    if not start.is_file():
        return kit.is_dir()  # nothing there starts
    done = subprocess.run(["bash", str(start), "torchrun"], capture_output=True, text=True, timeout=60)
    return done.returncode == 2 and "was not written to its end" in done.stderr


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()


class Killer:
    def __init__(self, program, library, folder, report):
        self.program, self.library, self.folder, self.report = program, str(Path(library).resolve()), folder, report

    def run(self, words, at=0):
        self.report.asked += 1
        return self.program.run(words, self.folder, variables={"LD_PRELOAD": self.library, "ZEROPLAN_KILL_AT": str(at),
                                                               "ZEROPLAN_COUNT_IN": str(self.folder / "count")})

    def calls_of(self, words):
        done = self.run(words)
        if done.code != 0:
            self.report.fail("ends", f"{' '.join(words)}: {done.code} {done.err[-300:]}")
            return 0
        return int((self.folder / "count").read_text())

    def file(self, what, words, name, before, moments):
        path = self.folder / name
        remove(path)
        self.calls_of(before)
        old = bytes_of(path)
        calls = self.calls_of(words)
        new = bytes_of(path)
        for at in moments(calls):
            for fresh in (False, True):
                remove(path)
                if not fresh:
                    self.program.run(before, self.folder)
                self.run(words, at)
                got = bytes_of(path)
                whole = (new, None if fresh else old, *([{}] if fresh and isinstance(new, dict) else []))
                if got not in whole and not refuses(path):
                    self.report.fail("mixed", f"{what}, killed at call {at} of {calls}{', nothing stood there' if fresh else ''}")
                again = self.program.run(words, self.folder)
                if again.code != 0 or bytes_of(path) != new:
                    self.report.fail("again", f"{what}, killed at call {at} of {calls}: {again.code} {again.err[-300:]}")
        return calls

    # --- checkpoints

    def training(self, folder, steps, resumes=False):
        return ["run", "model.json", "--device", "cpu", "--ranks", "2", "--seq", "16", "--ds-config", "ds.json", "--steps", str(steps),
                "--save", folder, "--save-every", "1", *(["--resume", folder] if resumes else [])]

    def tensors(self, folder):
        latest = folder / (folder / "latest").read_text().strip()
        return [hashlib.sha256((latest / f"{what}.safetensors").read_bytes()).hexdigest() for what in ("model", "optimizer")]

    def steps_kept(self, folder, said):
        """Of the checkpoint that `latest` names; 0 where nothing was finished."""
        name = folder / "latest"
        if not name.exists():
            return 0
        latest = folder / name.read_text().strip()
        state = json.loads((latest / "state.json").read_text())
        for file, facts in state["files"].items():
            if zlib.crc32((latest / file).read_bytes()) != facts["crc32"]:
                self.report.fail("half", f"{said}: {file} of {latest.name}")
        return state["steps"]

    def checkpoints(self, moments):
        shutil.copy(INPUT / "tiny_llama.json", self.folder / "model.json")
        (self.folder / "ds.json").write_text(json.dumps({"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}))
        calls = self.calls_of(self.training("whole", STEPS))
        expected = self.tensors(self.folder / "whole") if calls else None
        for at in moments(calls):
            folder = self.folder / "killed"
            remove(folder)
            said = f"a run, killed at call {at} of {calls}"
            self.run(self.training("killed", STEPS), at)
            kept = self.steps_kept(folder, said)
            if kept < STEPS:
                done = self.program.run(self.training("killed", STEPS - kept, resumes=kept > 0), self.folder)
                if done.code != 0:
                    self.report.fail("resume", f"{said}, {kept} steps kept: {done.code} {done.err[-300:]}")
                    continue
            if self.tensors(folder) != expected:
                self.report.fail("other bytes", f"{said}, {kept} steps kept")
        return calls


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("library")
    parser.add_argument("--full", action="store_true", help="at every call: minutes")
    parser.add_argument("--seed", type=int, default=int(time.time() // 86400))
    options = parser.parse_args()
    draw = random.Random(options.seed)

    def moments(calls):
        every = range(1, calls + 1)
        return every if options.full else sorted(draw.sample(every, min(3, calls)))
    report = Report()
    folder = Path(tempfile.mkdtemp(prefix="zeroplan_kills_"))
    (folder / "train.log").write_text(LOG)
    killer = Killer(Program(options.program), options.library, folder, report)
    print(f"seed {options.seed}")
    try:
        for file in FILES:
            print(f"{file[0]}: {killer.file(*file, moments)} calls", flush=True)
        print(f"checkpoints: {killer.checkpoints(moments)} calls", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.end()


if __name__ == "__main__":
    main()
