#!/usr/bin/env python3
"""Runs the same scripts on this machine's GPUs and in rehearsals, and says where their bytes differ.

hold_to_gpu.py --cluster 1x2xH100-80G --zeroplan PROGRAM -o OUT.jsonl [--small]
One line for each configuration, with what the GPUs said, what the rehearsals said at both ends of events, and whether
the allocated peak is equal and the reserved one equal to an end or between them. What OUT has already is left out. A
difference is a result, not a failure; 1 where a program fails. Optimizers are torch's own: DeepSpeed's would have to
be compiled.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import matrix_lines

HERE = os.path.dirname(os.path.abspath(__file__))
TRAIN = os.path.join(HERE, "train.py")


def configurations(ranks, small):
    """As many as show each mechanism once."""
    name = "qwen2.5-0.5b" if small else "tinyllama-1.1b"
    version = next(iter(matrix_lines.SOFTWARE))  # left out below: what is installed runs
    one = [dict(engine="ddp", batch=2), dict(engine="ddp", checkpointing="ckn", batch=4), dict(engine="ddp", lora=8),
           dict(engine="ddp", trainer=True), dict(stage=1), dict(stage=2, checkpointing="ckr"), dict(stage=3, checkpointing="ckr")]
    several = [dict(engine="fsdp", stage=3, checkpointing="ckn"), dict(engine="fsdp", stage=3, fsdp=2),
               dict(stage=2, knobs=("ov",)), dict(stage=3, batch=2), dict(stage=3, lora=16)]
    for said in one if ranks == 1 else one + several:
        line = matrix_lines.line(name, version, **{"ranks": ranks, **said})
        line["id"] = line["id"].rsplit("-", 1)[0]
        del line["scenario"]["software"]
        optimizer = line["scenario"]["ds_config"].get("optimizer")
        if optimizer and not said.get("trainer"):
            optimizer["params"]["torch_adam"] = True
        yield line


def on_cards(line, spec, ranks, folder):
    out = os.path.join(folder, "card.json")
    if os.path.exists(out):
        os.remove(out)
    script = [os.path.join(HERE, "gpu_peaks.py"), out, TRAIN, spec]
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *script],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder)
    if not os.path.exists(out):
        print(line["id"], "failed on the GPU:", done.stdout[-3000:], file=sys.stderr)
        return None
    with open(out) as file:
        return json.load(file)


def rehearsed(line, spec, said, folder):
    environment = dict(os.environ)
    if line["scenario"]["workload"]["engine"] == "deepspeed":
        environment.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(said.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT="29512")
    done = subprocess.run([said.zeroplan, "rehearse", "--cluster", said.cluster, "--json", "--", sys.executable, TRAIN, spec],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment)
    document = json.loads(done.stdout or "{}")
    if document.get("outcome") not in ("ran", "out_of_memory"):
        print(line["id"], "failed in the rehearsal:", done.stderr[-3000:], file=sys.stderr)
        return None
    if not document["ran"]:
        return {"fits": False}
    reserved = {end["events"]: end["peak_reserved_bytes"] for end in document["ends"]}
    return {"fits": True, "peak_allocated_bytes": document["peak_allocated_bytes"], "peak_reserved_bytes": reserved}


def judged(card, rehearsal):
    if card["fits"] != rehearsal["fits"]:
        return {"equal": False}
    if not card["fits"]:
        return {"equal": True}
    allocated = rehearsal["peak_allocated_bytes"] - card["peak_allocated_bytes"]
    ends = rehearsal["peak_reserved_bytes"].values()
    reserved = card["peak_reserved_bytes"]
    return {"equal": allocated == 0 and reserved in ends, "allocated_difference_bytes": allocated,
            "reserved_within_ends": min(ends) <= reserved <= max(ends),
            "reserved_difference_bytes": min((end - reserved for end in ends), key=abs)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--zeroplan", required=True)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--small", action="store_true")
    said = parser.parse_args()
    nodes, cards = re.match(r"(?:(\d+)x)?(\d+)x", said.cluster).groups()
    said.ranks = int(nodes or 1) * int(cards)
    have = set()
    if os.path.exists(said.output):
        with open(said.output) as file:
            have = {json.loads(row)["id"] for row in file}
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for line in configurations(said.ranks, said.small):
            if line["id"] in have:
                continue
            spec = os.path.join(folder, "line.json")
            with open(spec, "w") as file:
                json.dump(line, file)
            card = on_cards(line, spec, said.ranks, folder)
            rehearsal = card and rehearsed(line, spec, said, folder)
            if not rehearsal:
                failed = True
                continue
            row = {"id": line["id"], "cluster": said.cluster, "card": card, "rehearsed": rehearsal, **judged(card, rehearsal)}
            with open(said.output, "a") as file:
                file.write(json.dumps(row) + "\n")
            print(line["id"], {key: value for key, value in row.items() if key not in ("id", "cluster")}, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
