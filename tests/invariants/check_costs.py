#!/usr/bin/env python3
"""Any question answers in 5 s of CPU and 500 MB: check_costs.py PROGRAM [--full] [--only WORD]

Seconds are those of a free core of an ordinary machine: a piece of work is timed beside each question, and a machine that takes longer for
it may take longer for the question, too.

The longest sequences, the largest accumulations and the most GPUs, for one model of each kind of work, under every
engine and trainer; `simulate`, `fit` and the commands that answer without a search. Searches (tune, report) have their
--time-limit. Memory that an answer needs less of, and time on an idle machine, are benchmarks' (docs/benchmarks.md):
here is what no question may pass.
"""

import argparse
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from asking import Program, Report  # noqa: E402

# Of an ordinary core; beside other tests the two halves of one take half as long again.
SECONDS, MEGABYTES = 7.5, 500.0
# Of _work() on an ordinary core: Xeon of 2.0 GHz, Python 3.11, beside other work.
SECONDS_OF_WORK = 0.065
# A class each of what grows: linear attention, windows, experts, encoders, many layers, latent attention.
MODELS = ("gpt2", "llama-3.2-1b", "qwen3.5-0.8b", "qwen3-next-80b-a3b", "gemma-3-1b", "mixtral-8x7b", "t5-11b",
          "bert-large-uncased", "llama-3.1-405b", "deepseek-v3", "bloom-176b", "1000B")
LONG = (("--seq", "1M"), ("--seq", "16M", "--mbs", "64"), ("--seq", "1M", "--ckpt", "none"), ("--seq", "32768", "--mbs", "512"))
MANY = (("--gas", "10000"), ("--gas", "1000000"), ("--gas", "1000000", "--ckpt", "full"))
ENGINES = (("--stage", "0"), ("--stage", "1"), ("--stage", "2"), ("--stage", "3"), ("--stage", "3", "--offload-optimizer", "nvme"),
           ("--stage", "3", "--offload-param", "cpu", "--offload-optimizer", "cpu"), ("--engine", "fsdp"),
           ("--engine", "fsdp", "--fsdp-version", "2"), ("--engine", "ddp"), ("--engine", "embedded"))
TRAINERS = ((), ("--trainer", "dpo"), ("--trainer", "kto"), ("--trainer", "grpo"), ("--trainer", "ppo"))
CLUSTERS = ("8x8xH200-141G", "4096x8xH200-141G", "100000x8xH200-141G")
ONE_GPU = "8xH200-141G"


def questions():
    """The most of one thing, in turn."""
    for model in MODELS:
        for long in LONG:
            yield ["simulate", model, CLUSTERS[0], *long]
            yield ["fit", model, CLUSTERS[0], *long]
        for many in MANY:
            yield ["fit", model, ONE_GPU, *many]
        for cluster in CLUSTERS[1:]:
            yield ["simulate", model, cluster]
            yield ["fit", model, cluster]
    for engine in ENGINES:
        for trainer in TRAINERS:
            for many in MANY:
                yield ["simulate", "llama-3.2-1b", ONE_GPU, "--seq", "128", *engine, *trainer, *many]
            yield ["simulate", "llama-3.2-1b", ONE_GPU, "--seq", "1M", *engine, *trainer]
            yield ["simulate", "llama-3.2-1b", CLUSTERS[-1], *engine, *trainer]
    for model in ("qwen3.5-0.8b", "llama-3.1-405b", "deepseek-v3"):
        yield ["report", model, ONE_GPU, "--seq", "32768", "--no-search", "-o", "report.html"]
        yield ["tune", model, ONE_GPU, "--seq", "32768", "--time-limit", "1"]
        yield ["simulate", model, CLUSTERS[0], "--pipeline-parallel", "8", "--stage", "1", "--gas", "100000", "--frontend", "native"]
        yield ["simulate", model, CLUSTERS[0], "--trace", "trace.json", "--seq", "65536"]
        yield ["simulate", model, CLUSTERS[0], "--memory-snapshot", "snapshot.pickle", "--seq", "65536"]


def _work():
    """Seconds of CPU of a piece of work that is always the same; the least of three."""
    def once():
        begin, total = time.process_time(), 0
        for i in range(1000000):
            total += i
        return time.process_time() - begin

    return min(once() for _ in range(3))


def answer(program, words, folder):
    """How the question ended, and its CPU in seconds of an ordinary core. What takes too long is asked again: another program may have begun beside it."""
    tried = []
    while not tried or len(tried) < 3 and min(tried)[0] > SECONDS:
        before = _work()
        done = program.run(words, folder, seconds=60)
        slower = max(before, _work(), SECONDS_OF_WORK) / SECONDS_OF_WORK
        tried.append((done.cpu / slower, len(tried), done))
    seconds, _, done = min(tried)
    return done, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--full", action="store_true", help="all questions; else one of eighteen")
    parser.add_argument("--only", default="", help="questions in which this is found, a regular expression")
    options = parser.parse_args()
    program, report = Program(options.program), Report()
    chosen = [words for words in questions() if re.search(options.only, " ".join(words))]
    if not options.full and not options.only:
        chosen = chosen[::18]
    folder = Path(tempfile.mkdtemp(prefix="zeroplan_costs_"))
    most = {"cpu": (0.0, ""), "memory": (0.0, "")}
    try:
        for words in chosen:
            done, seconds = answer(program, words, folder)
            said = " ".join(words)
            report.asked += 1
            for what, value, limit in (("cpu", seconds, SECONDS), ("memory", done.memory, MEGABYTES)):
                most[what] = max(most[what], (value, said))
                if value > limit:
                    report.fail(what, f"{said}: {value:.1f} {'s' if what == 'cpu' else 'MB'}")
            if done.fault() and not (words[0] == "tune" and "nothing found so far" in done.out):
                report.fail("ends", f"{said}: {done.fault()} {(done.out + done.err)[-200:]}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"at most {most['cpu'][0]:.1f} s ({most['cpu'][1]}), {most['memory'][0]:.0f} MB ({most['memory'][1]})")
    report.end()


if __name__ == "__main__":
    main()
