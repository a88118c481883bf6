#!/usr/bin/env python3
"""Runs a list of scenarios with real DeepSpeed and random weights, and writes one measurement line each.

    ./measure.py scenarios.jsonl --ranks 8 -o measurements.jsonl

Every scenario is a process group of its own: one that runs out of memory becomes a line that says so, and
the next one starts on empty GPUs. A scenario's model is an inline Hugging Face config or a folder. Lines
that are already in the output are not run again; what failed is. With --once what failed before comes after
the rest, so that a call that is cut short gets on. With --fork scenarios of one rank begin with torch,
transformers and DeepSpeed imported, which takes longer than the steps of a small model.
"""

import argparse
import json
import multiprocessing
import os
import platform
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|DefaultCPUAllocator")
KILLED = (-9, 137)
LONGEST_NAME = 200  # of a file, without its ending
TO_END = 40  # seconds: torch's agent gives its workers 30


def flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", help="one scenario document a line")
    parser.add_argument("-o", "--output", default="measurements.jsonl")
    parser.add_argument("--ranks", type=int, default=1, help="processes on this machine")
    parser.add_argument("--steps", type=int, default=13, help="optimizer steps, of which 3 are warm-up")
    parser.add_argument("--timeout", type=int, default=1800, help="seconds for one scenario")
    parser.add_argument("--logs", default="measure_logs", help="folder for what the runs print")
    parser.add_argument("--once", action="store_true", help="what was tried and failed comes last")
    parser.add_argument("--fork", action="store_true", help="one rank, without a launcher")
    parser.add_argument("--script", default="train_native.py", help="train.py measures the Trainer's runs")
    return parser.parse_args()


def model_folder(scenario, folder):
    model = scenario["model"]
    if isinstance(model, dict):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(model))
        return folder
    path = Path(model)
    if (path / "config.json").is_file():
        return path
    if path.is_file():
        folder.mkdir()
        (folder / "config.json").write_text(path.read_text())
        return folder
    if (HERE / "model" / "config.json").is_file():  # of the plan, which names it
        return HERE / "model"
    raise SystemExit(f"model: expected a Hugging Face config or a folder with config.json, got {model!r}")


def run(scenario, arguments, work):
    """(exit code, what it printed)"""
    # An absolute path: a name such as --save would be taken for a flag.
    model = model_folder(scenario, work / "model").resolve()
    (work / "scenario.json").write_text(json.dumps(scenario))
    script = [str(HERE / arguments.script), "--scenario", str(work / "scenario.json"), "--model", str(model)]
    script += ["--steps", str(arguments.steps), "--measure", str(work / "line.jsonl"), "--output", str(work / "out")]
    if arguments.fork:
        return forked(script, arguments.timeout, work / "printed.txt")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={arguments.ranks}"]
    command += script
    # Its own session, so that a signal to this group reaches it once, from end().
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    )
    try:
        printed, errors = process.communicate(timeout=arguments.timeout)
        return process.returncode, printed + errors
    except subprocess.TimeoutExpired:
        return "timeout", f"no end after {arguments.timeout} s\n{end(process)}"
    except BaseException:
        end(process)
        raise


def forked(script, seconds, to):
    """As run(), in a child of this process, which has the libraries imported and has not begun with CUDA."""

    def child():
        os.setsid()
        with open(to, "w", encoding="utf-8") as printed:
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in ranks.items()}, MASTER_ADDR="127.0.0.1")
        sys.argv = script
        sys.path.insert(0, str(HERE))
        runpy.run_path(script[0], run_name="__main__")

    process = multiprocessing.get_context("fork").Process(target=child)
    late = run_for(process, seconds)
    printed = to.read_text(encoding="utf-8", errors="replace") if to.is_file() else ""
    return ("timeout", f"no end after {seconds} s\n{printed}") if late else (process.exitcode, printed)


def run_for(process, seconds):
    """Starts a process that makes a session of its own, and ends it; whether it had not ended by itself."""
    process.start()
    try:
        process.join(seconds)
    finally:  # also where this process is to end: the child has a session of its own
        late = process.is_alive()
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()  # it has not come to its session yet
        process.join()
    return late


def preload():
    """What every scenario imports; whether there is a GPU is asked without CUDA, which does not survive a fork."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    import deepspeed
    import transformers.models.auto.modeling_auto

    return deepspeed, transformers


def descendants(ancestors):
    """{pid: start time} of the processes in ancestors and all below them, from Linux' /proc."""
    parents, starts = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        pid = int(file.parent.name)
        parents[pid], starts[pid] = int(fields[1]), fields[19]
    found, size = set(ancestors) & set(starts), -1
    while size != len(found):
        size = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return {pid: starts[pid] for pid in found}


def end(process):
    """Ends the launcher and its workers, which have sessions of their own; what they printed."""
    family = descendants([process.pid])
    process.terminate()  # the launcher hands it on
    try:
        return "".join(process.communicate(timeout=TO_END))
    except subprocess.TimeoutExpired:
        pass
    finally:
        # A number may belong to another process by now: not with the same start.
        now = descendants(family)
        family = {pid: start for pid, start in family.items() if now.get(pid) == start}
        for pid in descendants(family):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    try:
        return "".join(process.communicate(timeout=10))
    except subprocess.TimeoutExpired:
        return ""


def terminated(number, _):
    """timeout(1) signals twice, the process and its group: once is enough."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def line_of(scenario, code, text, work):
    """The measurement, or None where the run failed for another reason than memory."""
    written = work / "line.jsonl"
    if code == 0 and written.is_file():
        return json.loads(written.read_text().splitlines()[-1])
    refused = [line for line in text.splitlines() if OUT_OF_MEMORY.search(line)]
    killed = code in KILLED or (code != "timeout" and "Signal 9" in text)
    if not refused and not killed:
        return None
    return {
        "id": scenario.get("id", "run"),
        "source": f"{platform.node()} {time.strftime('%Y-%m-%d')}",
        "scenario": scenario,
        "measured": {"fits": False},
        "notes": refused[-1].strip() if refused else "killed: host memory, most likely",
    }


def already_done(path):
    if not Path(path).is_file():
        return set()
    return {json.loads(line)["id"] for line in Path(path).read_text().splitlines() if line.strip()}


def log_of(identifier, arguments):
    return Path(arguments.logs) / f"{re.sub(r'[^A-Za-z0-9._-]', '_', identifier)[:LONGEST_NAME]}.log"


def shown(identifier):
    """For a terminal, which characters that are not to be seen would steer."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in identifier)


def main():
    arguments = flags()
    signal.signal(signal.SIGTERM, terminated)
    if arguments.fork:
        if arguments.ranks != 1:
            raise SystemExit(f"--fork starts one rank, --ranks says {arguments.ranks}")
        preload()
    done = already_done(arguments.output)
    Path(arguments.logs).mkdir(exist_ok=True)
    counts = {"measured": 0, "out of memory": 0, "failed": 0, "there already": 0}
    with open(arguments.scenarios, encoding="utf-8") as lines:
        scenarios = [json.loads(line) for line in lines if line.strip()]
    for number, scenario in enumerate(scenarios):
        scenario.setdefault("id", f"scenario-{number}")
    if arguments.once:
        # Of those that failed, the one that has waited longest first.
        logs = [log_of(scenario["id"], arguments) for scenario in scenarios]
        tried = [log.stat().st_mtime if log.is_file() else 0 for log in logs]
        scenarios = [scenario for _, scenario in sorted(zip(tried, scenarios), key=lambda pair: pair[0])]
    for scenario in scenarios:
        identifier = scenario["id"]
        if identifier in done:
            counts["there already"] += 1
            continue
        with tempfile.TemporaryDirectory() as folder:
            code, text = run(scenario, arguments, Path(folder))
            line = line_of(scenario, code, text, Path(folder))
        log_of(identifier, arguments).write_text(text)
        outcome = "failed" if line is None else "measured" if line["measured"]["fits"] else "out of memory"
        counts[outcome] += 1
        print(f"{shown(identifier)}: {outcome}" + ("" if line else f" (exit {code}, see {arguments.logs})"), flush=True)
        if line:
            with open(arguments.output, "a", encoding="utf-8") as output:
                output.write(json.dumps(line) + "\n")
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
