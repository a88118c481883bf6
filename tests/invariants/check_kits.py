#!/usr/bin/env python3
"""A recommendation is what its kit says: check_kits.py PROGRAM [--full] [--seed N]

`fit -o KIT` and, rarely, `tune -o KIT` of random questions: the scenario of the kit, simulated, gives the answer that
was recommended, in every number; asked again, the same bytes; no strategy that fits is shown to be clearly faster.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from asking import Program, Report  # noqa: E402

MODELS = ("gpt2", "llama-3.2-1b", "qwen3-0.6b", "qwen2.5-3b", "llama-2-7b", "bert-large-uncased", "opt-1.3b", "bloom-1b7", "phi-2",
          "gemma-2-2b", "mistral-7b-v0.1", "7B", "13B", "1B", "0.5B", "qwen3-30b-a3b", "t5-base", "pythia-1b", "falcon-7b", "glm-4-9b")
GPUS = ("A100-80G", "A100-40G", "V100-32G", "RTX-4090", "H100-80G-SXM", "T4-16G", "L40S-48G", "A800-80G", "B200-180G", "RTX-3090",
        "H20-96G")
SHORT = ("gpt2", "bert-large-uncased", "t5-base", "opt-1.3b")  # learned positions
PARTS = ("fits", "fit_probability", "gpu", "host", "nvme", "step", "intervals", "parameters")
CLEARLY_FASTER, SAFER = 1.03, 1.34  # ties within 2 % go to the simpler one, room on the GPU may cost a quarter


def random_question(draw):
    model = draw.choice(MODELS)
    words = [model, f"{draw.choice((1, 1, 1, 2, 4, 8))}x{draw.choice((1, 2, 3, 4, 8, 8))}x{draw.choice(GPUS)}"]
    words += ["--seq", str(512 if model in SHORT else draw.choice((128, 512, 1000, 2048, 4096, 8192)))]
    for share, flag, values in ((0.3, "--mbs", (1, 2, 3, 8)), (0.2, "--method", ("lora", "qlora")), (0.2, "--ckpt", ("none", "full")),
                                (0.2, "--host-memory", ("32G", "128G", "1T")), (0.15, "--trainer", ("dpo", "kto", "grpo")),
                                (0.15, "--dataset", ('{"samples":1000,"mean_tokens":100,"tokens_sd":60}',)),
                                (0.1, "--engine", ("fsdp", "ddp")), (0.1, "--frontend", ("native",))):
        if draw.random() < share:
            words += [flag, str(draw.choice(values))]
    if draw.random() < 0.2 and "--mbs" not in words:
        words += ["--global-batch", str(draw.choice((1, 8, 24, 64, 100, 256, 1000)))]
    return words


def differences(expected, got, path=""):
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in sorted(set(expected) | set(got)):
            yield from differences(expected.get(key), got.get(key), f"{path}/{key}")
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, (one, other) in enumerate(zip(expected, got)):
            yield from differences(one, other, f"{path}/{index}")
    elif isinstance(expected, float) or isinstance(got, float):
        if None in (expected, got) or abs(expected - got) > 1e-9 * max(abs(expected), abs(got)):
            yield f"{path}: {expected}, simulated {got}"
    elif expected != got:
        yield f"{path}: {str(expected)[:60]}, simulated {str(got)[:60]}"


def speed_of(result):
    """Of lengths that vary the whole job's, as their padding depends on the micro-batch."""
    job = result["job"]
    return 1 / job["seconds"] if job and job["padding_share"] is not None else result["step"]["tokens_per_second_per_gpu"]


def at_limit(result):
    return result["gpu"]["peak_total_bytes"] > 0.95 * result["gpu"]["capacity_bytes"]


def check(program, report, folder, command, words):
    said = f"{command} {' '.join(words)}"
    kit = folder / "kit"
    shutil.rmtree(kit, ignore_errors=True)
    question = [command, *words, "--json", *(["--jobs", "1", "--time-limit", "20"] if command == "tune" else [])]
    done = program.run([*question, "-o", kit], folder)
    report.asked += 1
    if done.fault() and not (command == "tune" and done.code == 1):
        return report.fail("ends", f"{said}: {done.fault()} {done.err[-300:]}")
    if done.code not in (0, 3):
        return None
    answer = json.loads(done.out)
    best = answer["recommended" if command == "fit" else "best"]
    if (done.code == 0) != bool(best):
        report.fail("exit code", f"{said}: {done.code} with {'an' if best else 'no'} answer")
    if not best:
        return None
    if command == "fit":
        speed = speed_of(best["result"])
        for one in answer["strategies"]:
            if one["fits"] != one["result"]["fits"]:
                report.fail("verdict", f"{said}: {one['name']}")
            if one["fits"] and speed_of(one["result"]) > speed * (SAFER if at_limit(one["result"]) else CLEARLY_FASTER):
                report.fail("faster", f"{said}: {one['name']}")
        again = program.run([*question, "-o", kit, "--force"], folder)
        if again.out != done.out:
            report.fail("same bytes", said)
    scenario = kit / "scenario.json"
    if not scenario.exists():
        return None
    simulated = program.run(["simulate", "--scenario", scenario, "--json"], folder)
    if simulated.code != 0:
        return report.fail("simulate", f"{said}: exit code {simulated.code} {simulated.err[-300:]}")
    result = json.loads(simulated.out)
    found = [text for part in PARTS for text in differences(best["result"].get(part), result.get(part), part)]
    if found:
        report.fail("differs", f"{said}: {found[:4]}")
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--full", action="store_true", help="hundreds of questions")
    parser.add_argument("--seed", type=int, default=int(time.time() // 86400))
    options = parser.parse_args()
    draw = random.Random(options.seed)
    program, report = Program(options.program), Report()
    folder = Path(tempfile.mkdtemp(prefix="zeroplan_kits_"))
    print(f"seed {options.seed}")
    try:
        for number in range(400 if options.full else 8):
            searches = options.full and number % 24 == 0
            check(program, report, folder, "tune" if searches else "fit", random_question(draw))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.end()


if __name__ == "__main__":
    main()
