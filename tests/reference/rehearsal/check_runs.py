#!/usr/bin/env python3
"""Rehearses runs again and compares their bytes with the lines that are kept, exactly.

check_runs.py PROGRAM PYTHON LINES.jsonl [--torch VERSION] [--first N] [--only ID...] [--jobs 2] [--write]
Work ends when it is enqueued: where it pends, reserved memory of several ranks depends on when torch's watchdog looks.
`--write` rewrites the lines with what was found. Exit 1 where a byte differs.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BYTES = ("peak_allocated_bytes", "peak_reserved_bytes", "static_allocated_bytes")


def rehearse(program, python, line, folder):
    spec = os.path.join(folder, "line.json")
    with open(spec, "w") as file:
        json.dump(line, file)
    said = [program, "rehearse", "--cluster", line["scenario"]["cluster"], "--events", "done", "--json"]
    done = subprocess.run(said + ["--", python, os.path.join(HERE, "train.py"), spec],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
    document = json.loads(done.stdout or "{}")
    if "outcome" not in document or document["outcome"] not in ("ran", "out_of_memory"):
        print(done.stderr[-3000:], document.get("error"), sep="\n", file=sys.stderr)
        return None
    return document


def measured(document):
    if not document["ran"]:
        found = document["out_of_memory"]
        return {"fits": False}, {"requested_bytes": found["requested_bytes"], "phase": found["phase"]}
    return {**{name: document[name] for name in BYTES}, "fits": True}, None


def check(program, python, line):
    """What was found of a line: its bytes, where it ran out of memory, and whether they are those that are kept."""
    with tempfile.TemporaryDirectory() as folder:
        document = rehearse(program, python, line, folder)
    found, end = measured(document) if document else (None, None)
    return found, end, found == line.get("measured") and end == line.get("out_of_memory")


def chosen(lines, said):
    of_torch = [line for line in lines if said.torch in (None, line["scenario"]["software"]["torch"])]
    named = [line for line in of_torch if not said.only or line["id"] in said.only]
    return named[:said.first]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("python")
    parser.add_argument("lines")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--torch", help="the lines of this release")
    parser.add_argument("--first", type=int, help="so many of them")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    said = parser.parse_args()
    with open(said.lines) as file:
        lines = [json.loads(line) for line in file]
    runs = chosen(lines, said)
    different = 0
    with concurrent.futures.ThreadPoolExecutor(said.jobs) as pool:
        results = pool.map(lambda line: check(said.program, said.python, line), runs)
        for line, (found, end, same) in zip(runs, results):
            if said.write and found:
                line["measured"] = found
                line.update({"out_of_memory": end} if end else {})
                line.pop("uncertainty", None)
            elif not same:
                different += 1
            print(line["id"], "equal" if same else "rehearsed %s %s, kept %s" % (found, end or "", line.get("measured")), flush=True)
    if said.write:
        with open(said.lines, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    if not runs:
        print("no kept run has torch", said.torch, file=sys.stderr)
    sys.exit(1 if different or not runs else 0)


if __name__ == "__main__":
    main()
