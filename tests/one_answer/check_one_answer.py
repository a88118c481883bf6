#!/usr/bin/env python3
"""One question, one answer: seeded questions are asked in several ways, and verdict, needs, speed and words compared.

    check_one_answer.py ZEROPLAN [--questions 20] [--first 0] [--jobs 2]

The first question is drawn of seed `first`. Every question is asked of `fit -o DIR`; the kit's scenario by `simulate`
and `explain`, its ds_config.json by `lint`, its rows by `simulate --batch`; then, question by question in turn, one of
WAYS. What differs is printed with the command; exit 1 where anything does.
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

MODELS = ["gpt2", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b", "qwen2.5-14b", "qwen2.5-32b", "llama-2-7b",
          "llama-3.1-8b", "llama-2-13b", "mistral-7b", "qwen3-8b", "llama-3.1-70b", "3B", "10B"]
CLUSTERS = ["1xRTX-4090", "4xRTX-4090", "8xRTX-3090", "4xV100-32G", "8xT4", "2xA10G", "4xL20", "1xA100-40G",
            "8xA100-80G", "2x8xA100-40G", "2x4xA800-80G", "1xH100", "8xH100", "16xH100", "8xH200", "4xL40S"]
LENGTHS = [512, 1024, 2048, 4096, 8192, 16384]
GIB = 2 ** 30


class Question:
    """A question as flags, and what was found wrong with its answers."""

    def __init__(self, program, number):
        self.program, self.number, self.faults, self.asked = program, number, [], []
        draw = random.Random(number)
        self.model, self.cluster = draw.choice(MODELS), draw.choice(CLUSTERS)
        self.flags = ["--seq", str(draw.choice(LENGTHS))]
        method = draw.choice(["full", "full", "full", "lora", "qlora"])
        if method != "full":
            self.flags += ["--method", method]
        self.engine = draw.choice(["deepspeed"] * 4 + ["fsdp", "ddp"])
        if self.engine != "deepspeed":
            self.flags += ["--engine", self.engine]
        if draw.random() < 0.2:
            self.flags += ["--host-memory", f"{draw.choice([64, 128, 512, 2048])}GiB"]
        if draw.random() < 0.3:
            self.flags += ["--global-batch", str(draw.choice([32, 64, 256]))]

    def run(self, *arguments, stdin=None):
        command = [self.program, *map(str, arguments)]
        self.asked.append(" ".join(command[1:]))
        done = subprocess.run(command, capture_output=True, text=True, input=stdin, timeout=600)
        # A search that its count of simulations ended knows of nothing that fits, and says so.
        unknown = done.returncode == 1 and "whether something fits is not known" in done.stderr
        if done.returncode not in (0, 3) and not unknown:
            self.fault(f"exit {done.returncode}: {done.stderr.strip()[:300]}")
        return done

    def document(self, *arguments, stdin=None):
        text = self.run(*arguments, "--json", stdin=stdin).stdout
        try:
            return json.loads(text)
        except ValueError:
            return {}

    def fit(self, *more, flags=None):
        return self.document("fit", self.model, self.cluster, *(self.flags if flags is None else flags), *more)

    def fault(self, text):
        self.faults.append(f"{text}\n    by: {self.asked[-1] if self.asked else ''}")

    def same(self, what, a, b, tolerance=0.0):
        if a is None or b is None or isinstance(a, (bool, str, dict, list, tuple)) or isinstance(b, (bool, str, dict, list, tuple)):
            close = a == b
        else:
            close = abs(a - b) <= tolerance * max(abs(a), abs(b))
        if not close:
            self.fault(f"{what}: {a} and {b}")

    def same_results(self, what, a, b, memory=0.0, time=0.0):
        """Two step/1 documents of one plan."""
        self.same(f"{what}, verdict", a["fits"], b["fits"])
        self.same(f"{what}, GPU needs", a["gpu"]["peak_total_bytes"], b["gpu"]["peak_total_bytes"], memory)
        self.same(f"{what}, host needs", a["host"]["peak_bytes"], b["host"]["peak_bytes"])
        self.same(f"{what}, step", a["step"]["seconds"], b["step"]["seconds"], time)
        self.same(f"{what}, has a condition", a["host_condition"] is None, b["host_condition"] is None)
        if memory == 0.0:
            self.same(f"{what}, probability", a["fit_probability"], b["fit_probability"])
            self.same(f"{what}, condition", a["host_condition"], b["host_condition"])
            self.same(f"{what}, limits", [limit["needed_bytes"] for limit in a["limits"]],
                      [limit["needed_bytes"] for limit in b["limits"]])

    def name(self):
        return " ".join(["fit", self.model, self.cluster, *self.flags])


def condition_words(result):
    condition = result["host_condition"]
    return "" if condition is None else f"if a node has {condition['enough_bytes'] // GIB} GiB of host memory"


def with_packages(flags, packages):
    more = list(flags)
    if packages and "liger" in packages:
        more += ["--fused-loss", "true"]
    if packages and "flash-attn" in packages:
        more += ["--attention", "flash"]
    return more


def fit_and_kit(q, folder):
    """fit's recommended row by every reader of the kit. Returns fit's document."""
    answer = q.fit()
    if not answer:
        return None
    text = q.run("fit", q.model, q.cluster, *q.flags, "-o", folder).stdout
    best = answer["recommended"]
    if best is None:
        q.same("the text says no", text.splitlines()[0].split(" on ")[-1] != "" and "\nno: " in "\n" + text, True)
        check_rows(q, answer)
        return answer
    head = next(line for line in text.splitlines() if line.startswith("yes"))
    words = condition_words(best["result"])
    q.same("fit's headline has the condition", words in head, True)
    if not words:
        q.same("fit's headline has no condition", "if a node" in head, False)
    scenario = folder / "kit" / "scenario.json"
    simulated = q.document("simulate", "--scenario", scenario)
    q.same_results("simulate of the kit", best["result"], simulated)
    said = q.run("simulate", "--scenario", scenario).stdout.splitlines()[0]
    q.same("simulate's headline", said.startswith("fits"), best["fits"])
    q.same("simulate's headline has the condition", words in said and ("if a node" in said) == bool(words), True)
    explained = q.document("explain", scenario)
    q.same_results("explain of the kit", simulated, explained["result"])
    plan = (folder / "PLAN.md").read_text()
    q.same("PLAN.md's verdict", "It fits" + (", " + words if words else "") in plan, True)
    for what, value in (("GPU memory, peak", best["result"]["gpu"]["peak_total_bytes"]),
                        ("host memory a node, peak", best["result"]["host"]["peak_bytes"])):
        q.same(f"PLAN.md has {what}", f"{value / GIB:.1f} GiB" in plan, True)
    if q.engine == "deepspeed" and (folder / "ds_config.json").exists():
        lint = q.document("lint", folder / "ds_config.json", "--scenario", scenario)
        found = [one["message"] for one in lint.get("findings", []) if one["code"] == "out-of-memory"]
        wanted = [f"it fits if a node has {best['result']['host_condition']['enough_bytes'] // GIB} GiB"] if words else []
        q.same("lint of the kit", [one[:len(wanted[0])] if wanted else one for one in found], wanted)
    check_rows(q, answer)
    check_host(q, answer)
    return answer


def check_rows(q, answer):
    """Every simulated row by `simulate --batch`."""
    rows = [row for row in answer["strategies"] if row["simulated"]]
    lines = []
    for row in rows:
        scenario = {"model": q.model, "cluster": q.cluster, "workload": row["workload"], "ds_config": row["ds_config"]}
        if "--host-memory" in q.flags:
            inline = q.document("scenario", q.model, q.cluster, *q.flags)
            scenario["cluster"] = inline["cluster"]
        lines.append(json.dumps(scenario))
    if not lines:
        return
    out = q.run("simulate", "--batch", "-", stdin="\n".join(lines) + "\n").stdout
    for row, line in zip(rows, out.splitlines()):
        result = json.loads(line)
        if "error" in result:
            q.fault(f"row {row['name']}: {result['error']}")
            continue
        q.same_results(f"row {row['name']}", row["result"], result, time=1e-9)
    nearest = [row for row in rows if not row["fits"] and row["result"]["limits"]]
    for row in nearest:
        for limit in row["result"]["limits"]:
            if limit["margin_bytes"] and limit["needed_bytes"] + limit["margin_bytes"] < limit["available_bytes"]:
                joint = len(row["result"]["limits"]) == 1  # each resource alone would do, together they do not
                if not joint:
                    q.fault(f"row {row['name']}: needs no more than there is of {limit['resource']}")


def check_host(q, answer):
    """What is said of host memory holds where somebody states it."""
    best = answer["recommended"]
    condition = best["result"]["host_condition"]
    if condition is None:
        q.same("no answer for another host", "usual_host" in answer, False)
        return
    stated = q.fit("--host-memory", f"{condition['enough_bytes']}")
    q.same("with that host memory", (stated["fits"], stated["recommended"] and stated["recommended"]["name"]),
           (True, best["name"]))
    usual = q.fit("--host-memory", f"{best['result']['host']['capacity_bytes']}")
    said = answer["usual_host"]
    q.same("the usual node's answer", usual["recommended"] and usual["recommended"]["name"], said and said["name"])
    if said and usual["recommended"]:
        q.same_results("the usual node's answer", usual["recommended"]["result"], said["result"])


def ask_tune(q, answer, folder):
    if q.engine != "deepspeed":
        return
    tuned = q.document("tune", q.model, q.cluster, *q.flags, "-o", folder / "tuned")
    if not answer["fits"] or tuned["best"] is None:
        q.same("tune's verdict", tuned["best"] is not None, answer["fits"])
        return
    best = tuned["best"]["result"]["step"]["tokens_per_second_per_gpu"]
    top = tuned["top"]["tokens_per_second_per_gpu"] if tuned["top"] else best
    packages = answer["needs_packages"]
    q.same("packages", tuned["needs_packages"], packages)
    of_fit = answer["recommended"]["result"]["step"]["tokens_per_second_per_gpu"]
    if of_fit > top * 1.001:
        q.fault(f"fit's {of_fit:.0f} tokens/s are more than tune's fastest, {top:.0f}")
    if best < top / (1.0 + tuned["gap"]) * 0.999:
        q.fault(f"tune's choice {best:.0f} is not within the gap of {top:.0f}")
    if q.number % 8 == 3:  # a search more
        head = q.run("tune", q.model, q.cluster, *q.flags).stdout.splitlines()[1]
        q.same("tune's headline", head.startswith("simplest within" if tuned["top"] else "fastest of what was"), True)
    simulated = q.document("simulate", "--scenario", folder / "tuned" / "kit" / "scenario.json")
    q.same_results("tune's choice by simulate", tuned["best"]["result"], simulated)


def ask_report(q, answer, folder):
    report = q.document("report", q.model, q.cluster, *q.flags, "--no-search")
    q.same("report's verdict", report["fits"], answer["fits"])
    if answer["fits"]:
        q.same_results("report's choice", report["chosen"]["result"], answer["recommended"]["result"])
    for row, other in zip(report["strategies"], answer["strategies"]):
        q.same(f"report's row {row['name']}", (row["fits"], row["gpu_bytes"], row["host_bytes"], row["micro_batch_size"]),
               (other["fits"], other["result"]["gpu"]["peak_total_bytes"], other["result"]["host"]["peak_bytes"],
                other["micro_batch_size"]))


def ask_longest(q, answer, folder):
    reach = q.fit("--goal", "longest-sequence")
    asked = int(q.flags[1])
    if answer["fits"] and answer["needs_packages"] is None:
        farthest = max([reach["value"] or 0] + [reach[key]["value"] for key in ("longer",) if key in reach])
        if reach["needs_packages"] is not None or farthest < asked // 128 * 128:
            q.fault(f"fit takes {asked} tokens, the longest are {reach['value']}")
    if not reach["fits"]:
        q.same("nothing fits", answer["fits"], False)
        return
    flags = with_packages(q.flags[2:], reach["needs_packages"])
    there = q.fit("--seq", str(reach["value"]), flags=flags)
    q.same("fit at the longest", there["fits"], True)
    words = "with the package" if reach["needs_packages"] else "longest sequences that train"
    text = q.run("fit", q.model, q.cluster, *q.flags, "--goal", "longest-sequence").stdout
    q.same("the words", f"{words}" in text.splitlines()[1], True)
    if reach["needs_packages"] is None:
        farthest = max([reach["value"]] + ([reach["longer"]["value"]] if "longer" in reach else []))
        # What the allocator reserves does not grow steadily: far beyond, a length may fit again.
        for beyond in (farthest + 128, farthest + farthest // 8 + 128):
            there = q.fit("--seq", str(beyond), flags=flags)
            if not there.get("fits") or there["needs_packages"] is not None:
                break
        else:
            q.fault(f"fit takes {beyond} tokens, the longest are {farthest}")


def ask_clusters(q, answer, folder):
    others = random.Random(q.number + 1000).sample([one for one in CLUSTERS if one != q.cluster], 1)
    choice = q.document("fit", q.model, "--clusters", ",".join([q.cluster, *others]), "--tokens", "1B", *q.flags)
    mine = [one for one in choice["clusters"] if one["cluster"] == q.cluster]
    q.same("the cluster's verdict", bool(mine), answer["fits"])
    if mine:
        q.same("its packages", mine[0]["needs_packages"], answer["needs_packages"])
        q.same_results("its strategy", mine[0]["result"], answer["recommended"]["result"])


WAYS = [ask_clusters, ask_longest, ask_report, ask_tune]


def check(program, number):
    q = Question(program, number)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        try:
            answer = fit_and_kit(q, folder / "kit")
            if answer is not None:
                WAYS[number % len(WAYS)](q, answer, folder)
        except Exception as error:  # an answer without what it has to have
            q.fault(f"{type(error).__name__}: {error}")
    return q


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    program = str(pathlib.Path(arguments.program).resolve())
    numbers = range(arguments.first, arguments.first + arguments.questions)
    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for q in pool.map(lambda number: check(program, number), numbers):
            if q.faults:
                wrong += 1
                print(f"question {q.number}: {q.name()}")
                for fault in q.faults:
                    print("  " + re.sub(r"/tmp/\S*?/(kit|tuned)", r"\1", fault))
    print(f"{len(numbers)} questions, {wrong} with more than one answer")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
