#!/usr/bin/env python3
"""Commands that run out of memory: check_out_of_memory.py PROGRAM LIBRARY [--full] [--only WORD] [--jobs N]

Each command is run with the N-th allocation, or start of a thread, failing (LIBRARY is preloaded:
failing_allocations.cpp), alone or with all that follow, for many N. It ends by itself and soon, with its usual
answer, whole, where it could do without, or with exit code 1 and a line that says "out of memory"; a file that
it writes is there whole or not at all, and nothing else is left beside it.
"""

import argparse
import concurrent.futures
import filecmp
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

INPUT = Path(__file__).resolve().parent.parent / "golden" / "input"
TINY = str(INPUT / "tiny_llama.json")
COMMANDS = {
    "fit": "fit llama-3.2-1b 2xA100-80G -o out/kit",
    "simulate": "simulate --model llama-3.2-1b --cluster 2xA100-80G --json --trace out/trace.json",
    "batch": f"simulate --batch {INPUT}/many.jsonl --jobs 2",
    "tune": "tune llama-3.2-1b 2xA100-80G --gap 0.5 --jobs 2 --fix activation_checkpointing=full --fix zero_optimization.stage=2 "
            "--fix micro_batch_size=1 --fix gradient_accumulation_steps=1 -o out/kit",
    "lint": f"lint {INPUT}/lint_old.json --gpus 8 --json",
    "explain config": f"explain {INPUT}/z3.json --model llama-3.2-1b --cluster 2xA100-80G",
    "explain log": f"explain {INPUT}/dictionaries.log",
    "plot": "plot llama-3.2-1b 2xA100-80G -o out/plot.svg",
    "report": "report llama-3.2-1b 2xA100-80G -o out/report.html",
    "run": f"run {TINY} --device cpu --ranks 2 --steps 1 --seq 16 --save out/saved",
    "run nvme": f"run {TINY} --device cpu --ranks 2 --steps 1 --seq 16 --ds-config out/nvme.json",
    "import": f"import {INPUT}/import/hf_train.log {INPUT}/import/nvidia_smi.csv --together --model llama-2-7b "
              "--cluster 8xA100-80G --seq 512 -o out/measured.jsonl",
    "validate": f"validate {INPUT}/calibrate.jsonl --jobs 2",
    "calibrate": f"calibrate {INPUT}/calibrate.jsonl --jobs 2 -o out/profile.json",
    "doctor": f"doctor --recorded {INPUT}/doctor/broken.json",
    "scenario": "scenario --model llama-3.2-1b --cluster 2xA100-80G --lang zh",
    "models": f"models --config {TINY}",
}
# Which calls fail, where it is not operator new alone.
WHAT = {"run": ["new", "memory", "thread"], **{name: ["new", "thread"] for name in ("fit", "batch", "tune", "validate", "calibrate")}}
# Seconds, dates, names of temporary files: what two good runs do not agree about.
VARIES = re.compile(r"\d+\.\d+ (?:ms|s)\b|in \d+ s\b|[\d,]+ simulated|\d\d\d\d-\d\d-\d\d|\d+(\.\d+)? GiB free")
SAYS_WHY = re.compile("out of [a-z ]*memory|no thread or memory|cannot start a thread|内存不足")
TIMEOUT = 120  # seconds, of a command that takes less than one: a hang


class Sweep:
    def __init__(self, program, library, folder):
        self.program, self.library, self.folder = program, library, folder
        self.failures = []
        self.runs = self.answered = 0

    def run(self, name, at, fail_all, what="new"):
        """One run in a folder of its own: (exit code or what went wrong, output, folder)."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        out = folder / "out"
        out.mkdir()
        if "nvme" in name:
            (out / "nvme.json").write_text('{"zero_optimization":{"stage":3,"offload_optimizer":{"device":"nvme",'
                                           f'"nvme_path":"{out}"}},"offload_param":{{"device":"nvme","nvme_path":"{out}"}}}}}}')
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "LD_PRELOAD": self.library, "ZEROPLAN_FAIL_AT": str(at),
                       "ZEROPLAN_COUNT_IN": str(folder / "count"), "ZEROPLAN_COUNT_WHAT": what,
                       **({"ZEROPLAN_FAIL_ALL": "1"} if fail_all else {})}
        try:
            done = subprocess.run([self.program, *COMMANDS[name].split()], cwd=folder, env=environment, text=True,
                                  capture_output=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT, errors="replace")
        except subprocess.TimeoutExpired:
            return f"still runs after {TIMEOUT} s", "", "", folder
        return done.returncode, done.stdout, done.stderr, folder

    def good(self, name, what):
        code, out, err, folder = self.run(name, 0, False, what)
        count = int((folder / "count").read_text().strip() or 0)
        if code not in (0, 3, 4):
            self.failures.append(f"{name}: by itself ends with {code}: {err}")
        return {"code": code, "out": VARIES.sub("#", out), "folder": folder, "count": count}

    def judge(self, name, good, at, fail_all, what):
        code, out, err, folder = self.run(name, at, fail_all, what)
        where = f"{name}: {what} {at} of {good['count']}{' and all behind' if fail_all else ''}"
        wrong = []
        if code == good["code"]:
            self.answered += 1
            if VARIES.sub("#", out) != good["out"] and "out of memory" not in out:
                wrong.append(f"another answer: {out[-300:]!r}")
        elif code == 4 and name == "batch" and "out of memory" in out:
            pass  # of a line: the others have their answers
        elif code != 1:
            wrong.append(f"ends with {code}: {err[-300:]!r}")
        elif not SAYS_WHY.search(err):
            wrong.append(f"does not say why: {err[-300:]!r}")
        if "defect" in out + err:
            wrong.append(f"calls it a defect: {err[-300:]!r}")
        wrong += self.files(good["folder"] / "out", folder / "out")
        self.runs += 1
        self.failures += [f"{where}: {text}" for text in wrong]
        shutil.rmtree(folder, ignore_errors=True)

    def files(self, good, found):
        """Every file is one of those that a good run writes, and whole."""
        names = {path.relative_to(good) for path in good.rglob("*")}
        wrong = []
        for path in found.rglob("*"):
            name = path.relative_to(found)
            if name not in names:
                wrong.append(f"leaves {name}")
            elif path.is_file() and path.suffix in (".json", ".jsonl", ".html", ".svg", ".safetensors"):
                if path.stat().st_size == 0:
                    wrong.append(f"leaves {name} empty")
                elif path.suffix == ".safetensors" and not filecmp.cmp(path, good / name, shallow=False):
                    wrong.append(f"leaves another {name}")
                elif path.suffix != ".safetensors":
                    tail = path.read_bytes()[-16:]
                    if tail.strip()[-1:] != (good / name).read_bytes().strip()[-1:]:
                        wrong.append(f"leaves half of {name}: {tail!r}")
        return wrong


def places(count, full):
    """Which allocations fail: some in a row, then further and further apart."""
    row, steps = (40, 80) if full else (4, 6)
    chosen = set(range(1, min(row, count) + 1))
    chosen |= {max(1, round(count ** (i / steps))) for i in range(steps + 1)}
    chosen |= {max(1, count * i // (steps + 1)) for i in range(1, steps + 1)}
    chosen |= {max(1, count - i) for i in range(row // 4)}
    return sorted(chosen)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("library")
    parser.add_argument("--full", action="store_true", help="every command, many allocations: an hour")
    parser.add_argument("--only", help="commands whose name begins so")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    quick = ["fit", "simulate", "batch", "lint", "explain log", "run", "run nvme", "import", "scenario"]
    names = [n for n in (COMMANDS if options.full or options.only else quick) if n.startswith(options.only or "")]
    folder = Path(tempfile.mkdtemp(prefix="zeroplan_out_of_memory_"))
    sweep = Sweep(str(Path(options.program).resolve()), str(Path(options.library).resolve()), folder)
    try:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for name in names:
                before, runs = len(sweep.failures), sweep.runs
                for what in WHAT.get(name.split()[0], ["new"]):
                    good = sweep.good(name, what)
                    list(pool.map(lambda job: sweep.judge(name, good, *job, what),
                                  [(at, fail_all) for at in places(good["count"], options.full)
                                   for fail_all in (False, True)]))
                    if good["count"] == 0:
                        sweep.failures.append(f"{name}: no allocation is counted: is the library preloaded?")
                print(f"{name:12} {sweep.runs - runs:5} runs, {len(sweep.failures) - before} failures", flush=True)
                for text in sweep.failures[before:]:
                    print("  " + text, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{sweep.runs} runs, {sweep.answered} of them with the usual answer; {len(sweep.failures)} failures")
    return 1 if sweep.failures else 0


if __name__ == "__main__":
    sys.exit(main())
