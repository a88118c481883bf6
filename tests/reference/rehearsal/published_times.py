#!/usr/bin/env python3
"""Steps of published measurements, rehearsed: the time of train.py's program beside what was measured.

published_times.py PROGRAM PYTHON MEASUREMENTS.jsonl [--only ID...] [-o TIMES.jsonl]
Takes the lines with tokens_per_second_per_gpu whose engine is PyTorch's own, plain DDP or FSDP, in one precision without
autocast: train.py runs these by its own loop. SDPA's flash kernel stands for flash-attn, which the index has no wheel of.
One GPU is no DDP. A line of TIMES.jsonl has both rates and the versions that ran; error = rehearsed / measured - 1.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
RATE = "tokens_per_second_per_gpu"


def program_of(line):
    """The line of train.py's loop, or None where it would be another program."""
    scenario = json.loads(json.dumps(line["scenario"]))
    workload = scenario["workload"]
    whole = scenario.get("ds_config", {}).get("bf16", {}).get("bf16_master_weights_and_grads")
    lora = isinstance(workload.get("method"), dict)
    if workload.get("engine") not in ("ddp", "fsdp") or not (whole or lora) or RATE not in line["measured"]:
        return None
    workload["frontend"] = "native"
    if workload.get("attention") == "flash":
        workload["attention"] = "sdpa"
        # A window as long as the sequence hides nothing; SDPA would get it as a mask, which its flash kernel does not take.
        if (scenario["model"].get("sliding_window") or 0) >= workload["sequence_length"]:
            scenario["model"]["sliding_window"] = None
    return {"id": line["id"], "scenario": scenario, "program": {"steps": 4}}


def rehearse(program, python, line, folder):
    spec = os.path.join(folder, "line.json")
    with open(spec, "w") as file:
        json.dump(line, file)
    cluster = line["scenario"]["cluster"]
    if isinstance(cluster, dict):
        cluster = f"{cluster['nodes']}x{cluster['gpus_per_node']}x{cluster['gpu']}"
    said = [program, "rehearse", "--cluster", cluster, "--time", "--events", "done", "--json"]
    done = subprocess.run(said + ["--", python, os.path.join(HERE, "train.py"), spec],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
    document = json.loads(done.stdout or "{}")
    if not document.get("ran"):
        print(line["id"], done.stderr[-2000:], document.get("out_of_memory"), sep="\n", file=sys.stderr)
        return None
    return document


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("python")
    parser.add_argument("measurements")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("-o", "--output")
    said = parser.parse_args()
    with open(said.measurements) as file:
        lines = [json.loads(line) for line in file]
    said.program = os.path.abspath(said.program)
    errors = []
    with tempfile.TemporaryDirectory() as folder:
        for line in lines:
            spec = program_of(line)
            if spec is None or (said.only and line["id"] not in said.only):
                continue
            document = rehearse(said.program, said.python, spec, folder)
            if document is None:
                continue
            workload = spec["scenario"]["workload"]
            tokens = workload["sequence_length"] * workload["micro_batch_size"] * workload.get("gradient_accumulation_steps", 1)
            seconds = document["time"]["step_seconds"]
            result = {"id": line["id"], "rehearsed": tokens / seconds, "measured": line["measured"][RATE],
                      "step_seconds": seconds, "software": document.get("software")}
            result["error"] = result["rehearsed"] / result["measured"] - 1
            errors.append(abs(result["error"]))
            print("%s rehearsed %.0f, measured %.0f tokens/s a GPU: %+.1f %%"
                  % (line["id"], result["rehearsed"], result["measured"], 100 * result["error"]), flush=True)
            if said.output:
                with open(said.output, "a") as file:
                    file.write(json.dumps(result) + "\n")
    if errors:
        print("median error %.1f %% of %d" % (100 * sorted(errors)[len(errors) // 2], len(errors)))


if __name__ == "__main__":
    main()
