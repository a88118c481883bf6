#!/usr/bin/env python3
"""Writes checkpoints with the DeepSpeed at hand and keeps what lies on the disk as lines of JSON.

usage: record.py FOLDER LINES.jsonl [--rehearse ZEROPLAN]

Without --rehearse: CPU ranks by gloo (DS_ACCELERATOR=cpu), two and four of them. With it: every rank on an emulated
A100, where copies to the host are copies as on a GPU.
--reload, after a run without --rehearse: ds_to_universal of each, and what two and four ranks say when they load it.
A line: {"id", "device": "cpu|cuda", "software", "ranks", "scenario", "exclude_frozen", "files": [{"path", "bytes",
"storage_bytes", "storages", "scalars"}]}; of --reload "universal" files, "universal_error", or "resume".
"""
import argparse
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys

import runs as made

HERE = pathlib.Path(__file__).resolve().parent
KEPT = ("id", "ranks", "scenario", "exclude_frozen")


def software():
    return {name: importlib.metadata.version(name).split("+")[0]
            for name in ("deepspeed", "torch", "transformers", "peft")}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def on_cpu_ranks(runs, ranks, folder):
    """What rank 0 listed."""
    plan, listing = folder / "runs.json", folder / "listing"
    plan.write_text(json.dumps(runs))
    environment = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
                       LOCAL_SIZE=str(ranks), DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
    started = [subprocess.Popen([sys.executable, str(HERE / "save_rank.py"), str(plan), str(folder / "saved"),
                                 str(listing)], env=dict(environment, RANK=str(rank), LOCAL_RANK=str(rank)))
               for rank in range(ranks)]
    if any([process.wait() for process in started]):
        raise SystemExit("a rank failed")
    return json.loads(pathlib.Path(f"{listing}.rank0").read_text())


def rehearsed(program, runs, ranks, folder):
    """What the last rank listed: ranks run one after the other, and it sees all files."""
    plan, listing = folder / "runs.json", folder / "listing"
    plan.write_text(json.dumps(runs))
    for rank in range(ranks):
        subprocess.run([program, "rehearse", "--gpu", "A100-80G", "--ranks", str(ranks), "--rank", str(rank),
                        "--steps", "0", "--events", "done", "--json", "--", sys.executable, str(HERE / "save_rank.py"),
                        str(plan), str(folder / "saved"), str(listing)], check=True, stdout=subprocess.DEVNULL)
    return json.loads(pathlib.Path(f"{listing}.rank{ranks - 1}").read_text())


def lines_of(device, runs, listed):
    for run, got in zip(runs, listed):
        assert run["id"] == got["id"]
        rest = {key: got[key] for key in got if key != "id"}
        yield {"device": device, "software": software(), **{key: run[key] for key in KEPT}, **rest}


def universal(name, folder):
    """ds_to_universal of one checkpoint, or its error's last line."""
    from save_rank import files_of

    source = folder / "saved" / name / "global_step2"
    target = folder / "universal" / name / "global_step2_universal"
    if (target.parent / "latest_universal").exists():
        return {"universal": files_of(target.parent)}
    shutil.rmtree(target.parent, ignore_errors=True)
    target.mkdir(parents=True)
    converter = importlib.util.find_spec("deepspeed").origin.replace("__init__.py", "checkpoint/ds_to_universal.py")
    done = subprocess.run([sys.executable, converter, "--input_folder", str(source), "--output_folder", str(target),
                           "--inject_missing_state", "--num_extract_workers", "1", "--num_merge_workers", "1"],
                          env=dict(os.environ, DS_ACCELERATOR="cpu"), capture_output=True, text=True)
    if done.returncode:
        return {"universal_error": done.stderr.strip().splitlines()[-1].replace(str(source), "FOLDER")[:200]}
    return {"universal": files_of(target.parent)}


def reloaded(folder):
    """What ranks of another number, and of the same, say to checkpoints; and what the converter makes of them."""
    converted = {name: universal(f"{name}-2", folder) for name in made.CONVERTED}
    lines = [{"device": "cpu", "software": software(), "id": f"{name}-2", **got} for name, got in converted.items()]
    for from_ranks, to_ranks, of_universal in ((2, 2, False), (2, 4, False), (2, 2, True), (2, 4, True)):
        runs = made.resumes(from_ranks, to_ranks, made.TORCH_ADAM, of_universal)
        runs = [run for run in runs if not of_universal or "universal" in converted[run["source"].rsplit("-", 1)[0]]]
        for run, got in zip(runs, on_cpu_ranks(runs, to_ranks, folder)):
            lines.append({"device": "cpu", "software": software(), "id": run["id"], "ranks": to_ranks,
                          "source": run["source"], "saved_by": from_ranks, "universal": of_universal, "resume": got["resume"]})
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("lines", type=pathlib.Path)
    parser.add_argument("--rehearse", metavar="ZEROPLAN")
    parser.add_argument("--reload", action="store_true", help="of checkpoints that lie in FOLDER: convert and load")
    parser.add_argument("--only", default="", help="runs whose name begins so")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    if arguments.reload:
        lines = reloaded(folder)
    elif arguments.rehearse:
        runs = [run for run in made.runs_of(2, made.ADAM) if run["id"] in made.ON_GPUS]
        runs = [run for run in runs + made.offloads(2, made.ADAM) if run["id"].startswith(arguments.only)]
        lines += lines_of("cuda", runs, rehearsed(arguments.rehearse, runs, 2, folder))
    else:
        for ranks in (2, 4):
            runs = [run for run in made.runs_of(ranks, made.TORCH_ADAM) if run["id"].startswith(arguments.only) and
                    run["scenario"]["workload"]["precision"] != "fp16" and
                    (ranks == 2 or run["id"] in made.ON_FOUR_RANKS)]
            lines += lines_of("cpu", runs, on_cpu_ranks(runs, ranks, folder))
    arguments.lines.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
