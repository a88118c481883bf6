"""Records what DeepSpeed's engines do, without a GPU. README.md of tests/reference says how.

    python3 tests/reference/record_engine --all -o FILE.jsonl     everything, all releases
    python3 tests/reference/record_engine --only REGEX -o FILE    some
    python3 tests/reference/record_engine --list
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback

from configurations import RELEASES, grid


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every configuration")
    parser.add_argument("--only", default="", help="configurations whose names match")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("-o", "--output", default="recordings.jsonl")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--parts", default="", help="folder for single recordings and logs")
    parser.add_argument(
        "--releases",
        default=os.path.join(tempfile.gettempdir(), "deepspeed_releases"),
        help="folder where older releases are, or are installed to",
    )
    parser.add_argument("--release", default="", help=argparse.SUPPRESS)  # a child's
    return parser.parse_args()


# ---- the child: one process imports one release and forks for each configuration ----


def import_release(release):
    """Imports the release with everything replaced that must be replaced; order matters."""
    os.environ.update(DS_ACCELERATOR="cpu", DS_IGNORE_CUDA_DETECTION="1", LOCAL_SIZE="8")
    import logging

    import torch

    import compatibility
    import process_group

    torch.set_num_threads(1)
    process_group.log_collectives()
    compatibility.prepare(release)
    logging.disable(logging.WARNING)
    import deepspeed

    if deepspeed.__version__ != release:
        raise SystemExit(f"deepspeed {deepspeed.__version__} is here, {release} was asked for")
    compatibility.no_native_collectives()
    from deepspeed.accelerator import set_accelerator

    import accelerator
    import drive
    import engine_hooks

    set_accelerator(accelerator.make_accelerator())
    drive.install()
    engine_hooks.install()


def record_in_fork(name, configuration, release, parts):
    """The forked process: writes NAME.json, or NAME.error; prints go to NAME.log."""
    path = os.path.join(parts, name)
    log = os.open(path + ".log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        from one_run import record

        recording = record(name, configuration, release)
        with open(path + ".json", "w") as file:
            json.dump(recording, file, separators=(",", ":"))
    except BaseException:
        with open(path + ".error", "w") as file:
            file.write(traceback.format_exc())
    os._exit(0)


def record_release(release, names, options):
    """Records the configurations of one release, options.jobs at a time."""
    import_release(release)
    every = grid()
    running = {}

    def reap():
        process, _ = os.wait()
        name, begun = running.pop(process)
        print(f"{name} {time.time() - begun:.1f} s", file=sys.stderr, flush=True)

    for name in names:
        while len(running) >= options.jobs:
            reap()
        process = os.fork()
        if process == 0:
            record_in_fork(name, every[name], release, options.parts)
        running[process] = (name, time.time())
    while running:
        reap()


# ---- the parent ----


def start_release(release, names, options):
    """A child process per release, because a release is imported once."""
    import releases

    environment = dict(os.environ)
    path = releases.python_path(release, options.releases)
    if path:
        environment["PYTHONPATH"] = path
    command = [sys.executable, os.path.dirname(os.path.abspath(__file__)), "--release", release]
    command += ["--only", "^(" + "|".join(re.escape(n) for n in names) + ")$"]
    command += ["--jobs", str(options.jobs), "--parts", options.parts]
    subprocess.run(command, env=environment, check=True)


def join_parts(names, options):
    """Writes the recordings in the grid's order; returns the names of those that failed."""
    failed = []
    with open(options.output, "w") as output:
        for name in names:
            path = os.path.join(options.parts, name)
            if os.path.exists(path + ".json"):
                with open(path + ".json") as file:
                    output.write(file.read() + "\n")
            else:
                failed.append(name)
    return failed


def report_failure(name, options):
    path = os.path.join(options.parts, name + ".error")
    lines = ["no output"]
    if os.path.exists(path):
        with open(path) as file:
            lines = file.read().strip().splitlines() or lines
    print(f"FAILED {name}: {lines[-1]}", file=sys.stderr)


def remove_old_parts(names, options):
    os.makedirs(options.parts, exist_ok=True)
    for name in names:
        for ending in (".json", ".error"):
            path = os.path.join(options.parts, name + ending)
            if os.path.exists(path):
                os.remove(path)


def main():
    options = arguments()
    names = [n for n in grid() if re.search(options.only, n)]
    if options.list:
        print("\n".join(names))
        return 0
    if options.release:
        record_release(options.release, names, options)
        return 0
    if not options.all and not options.only:
        raise SystemExit("say --all, or --only REGEX")
    options.parts = options.parts or options.output + ".parts"
    remove_old_parts(names, options)
    every = grid()
    for release in RELEASES:
        chosen = [n for n in names if every[n]["release"] == release]
        if chosen:
            start_release(release, chosen, options)
    failed = join_parts(names, options)
    for name in failed:
        report_failure(name, options)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
