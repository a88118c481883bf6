#!/usr/bin/env python3
"""Puts the same published runs to zeroplan, calculon and SimuMax, and prints errors and configurations a second.

compare_planners.py [--program ZEROPLAN] [--calculon FOLDER] [--simumax FOLDER] [--rounds N] [--json] ROWS.jsonl...

ROWS are lines of measurements (docs/contract.md, section 6) with a step's seconds or tokens/s. FOLDER is a checkout of
https://github.com/calculon-ai/calculon or https://github.com/MooreThreads/SimuMax, which whoever runs this has fetched,
and whose requirements (numpy, sympy, pandas, ...) this Python has; a program without FOLDER is left out. Each program
gets the rows it can describe, with the cluster's own network; what it cannot is counted by reason. The programs take
turns, so that a busy machine is busy for all. A rate is of the fastest round, on one thread; zeroplan starts anew in
each, the others are loaded once.

Errors are (predicted - measured) / measured of a step's seconds.
"""
import argparse
import collections
import contextlib
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

ASSUMED_NETWORK = 25e9  # bytes/s of a node, where a row says none: 200 Gb/s


class Unknown(Exception):
    """What the program cannot describe."""


def measured_seconds(row):
    """Of a step; None where the row has no time."""
    measured, work = row["measured"], row["scenario"]["workload"]
    if "step_seconds" in measured:
        return measured["step_seconds"]
    if "tokens_per_second_per_gpu" not in measured or "sequence_length" not in work:
        return None
    tokens = work["sequence_length"] * work["micro_batch_size"] * work.get("gradient_accumulation_steps", 1)
    return tokens / model_ranks(work) / measured["tokens_per_second_per_gpu"]


def model_ranks(work):
    return work.get("tensor_parallel", 1) * work.get("pipeline_parallel", 1) * work.get("sequence_parallel", 1)


def gpus(row):
    cluster = row["scenario"]["cluster"]
    if isinstance(cluster, str):
        raise Unknown("a cluster given by name")
    return cluster["nodes"] * cluster["gpus_per_node"]


def network_of_a_node(row):
    """Bytes/s between nodes."""
    return row["scenario"]["cluster"].get("inter_node", {}).get("bandwidth", ASSUMED_NETWORK)


def need(condition, reason):
    if not condition:
        raise Unknown(reason)


class Zeroplan:
    name = "zeroplan"

    def __init__(self, program):
        self.program = program

    def case(self, row):
        return row["scenario"]

    def seconds(self, cases):
        """One process for all; its time is that of the batch, start included (0.02 s)."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("".join(json.dumps(case) + "\n" for case in cases))
            file.flush()
            done = subprocess.run([self.program, "simulate", "--batch", file.name, "--jobs", "1"], capture_output=True,
                                  text=True)
        results = [json.loads(line) for line in done.stdout.splitlines()]
        if len(results) != len(cases):
            sys.exit(done.stderr)
        return [result["step"]["seconds"] if "step" in result else None for result in results]


class Calculon:
    """GPT-like models under Megatron: tensor, pipeline and data ranks, on its A100 with 80 GB."""

    name = "calculon"

    def __init__(self, folder):
        sys.path.insert(0, folder)
        import calculon
        from calculon.llm import Llm, System
        self.llm, self.system = Llm, System
        self.machine = calculon.io.read_json_file(os.path.join(folder, "systems", "a100_80g.json"))
        self.log = logging.getLogger("calculon")

    def case(self, row):
        scenario = row["scenario"]
        model, work = scenario["model"], scenario["workload"]
        need(isinstance(model, dict) and model["model_type"] in ("bloom", "gpt2"), "a model without GPT's two products")
        need(scenario["cluster"]["gpu"] == "A100-80G-SXM", "a GPU other than A100-80G")
        stage = scenario["ds_config"]["zero_optimization"]["stage"]
        need(stage < 2, "ZeRO 2 and 3")
        need(work["engine"] in ("deepspeed", "megatron"), "FSDP and DDP")
        hidden = model.get("hidden_size") or model["n_embd"]
        heads = model["n_head"]
        tensor, pipeline = work.get("tensor_parallel", 1), work.get("pipeline_parallel", 1)
        data = gpus(row) // tensor // pipeline
        application = {"hidden": hidden, "feedforward": 4 * hidden, "seq_size": work["sequence_length"],
                       "attn_heads": heads, "attn_size": hidden // heads, "num_blocks": model["n_layer"]}
        execution = {
            "num_procs": gpus(row), "tensor_par": tensor, "pipeline_par": pipeline, "data_par": data,
            "tensor_par_net": 0, "pipeline_par_net": 1, "data_par_net": 1,
            "batch_size": data * work["micro_batch_size"] * work.get("gradient_accumulation_steps", 1),
            "microbatch_size": work["micro_batch_size"], "datatype": "float16", "fused_activation": True,
            "attention_type": "multihead",
            "activation_recompute": {"full": "full", "none": "none"}[work.get("activation_checkpointing", "none")],
            "pipeline_interleaving": 1, "optimizer_sharding": stage == 1, "tensor_par_comm_type": "ar",
            "tensor_par_overlap": "none", "seq_par_ag_redo": False, "data_par_overlap": False, "weight_offload": False,
            "activations_offload": False, "optimizer_offload": False, "training": True}
        machine = json.loads(json.dumps(self.machine))
        machine["networks"][0]["size"] = tensor  # the ranks of a tensor group must fill it
        per_node = row["scenario"]["cluster"]["gpus_per_node"]
        machine["networks"][1]["bandwidth"] = network_of_a_node(row) / per_node / 1e9
        machine["mem1"]["GiB"] = 1 << 20  # the run ran; its verdict is not asked
        return application, execution, machine

    def seconds(self, cases):
        return [self.one(*case) for case in cases]

    def one(self, application, execution, machine):
        try:
            system = self.system(machine)
            model = self.llm(self.llm.Application(application), self.log)
            model.compile(system, self.llm.Execution.from_json(execution))
            model.run(system)
            return model.get_total_time()
        except self.llm.Error:
            return None


class SimuMax:
    """Llama-like models under Megatron-core with a distributed optimizer. Its A100 is the PCIe GPU; the GPUs' links and
    the network are the row's."""

    name = "SimuMax"

    def __init__(self, folder):
        sys.path.insert(0, folder)
        from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig
        from simumax.core.perf_llm import PerfLLM
        self.types = ModelConfig, StrategyConfig, SystemConfig, PerfLLM
        systems = os.path.join(folder, "configs", "system")
        with open(os.path.join(systems, "a100_pcie.json")) as file:
            self.machine = json.load(file)
        with open(os.path.join(systems, "b200_bf16_ceperm.json")) as file:
            self.machine["networks"] = json.load(file)["networks"]
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")

    def case(self, row):
        scenario = row["scenario"]
        model, work = scenario["model"], scenario["workload"]
        need(isinstance(model, dict) and "intermediate_size" in model, "a model without gate, up and down products")
        need(scenario["cluster"]["gpu"].startswith(("A100-80G", "A800-80G")), "a GPU other than A100-80G")
        need(scenario["ds_config"]["zero_optimization"]["stage"] < 2, "ZeRO 2 and 3")
        need(work["engine"] in ("deepspeed", "megatron"), "FSDP and DDP")
        heads = model["num_attention_heads"]
        described = {"model_type": "dense", "model_name": "row", "hidden_size": model["hidden_size"], "head_num": heads,
                     "kv_head_num": model.get("num_key_value_heads", heads), "head_size": model["hidden_size"] // heads,
                     "intermediate_size": model["intermediate_size"], "layer_num": model["num_hidden_layers"],
                     "vocab_size": model["vocab_size"], "use_swiglu": True}
        full = work.get("activation_checkpointing", "none") == "full"
        strategy = {
            "seq_len": work["sequence_length"], "micro_batch_size": work["micro_batch_size"],
            "micro_batch_num": work.get("gradient_accumulation_steps", 1), "dtype": "bf16", "world_size": gpus(row),
            "tp_size": work.get("tensor_parallel", 1), "pp_size": work.get("pipeline_parallel", 1), "ep_size": 1,
            "etp_size": 1, "moe_dispatcher_policy": "all2all", "enable_sequence_parallel": False,
            "interleaving_size": 1, "zero_state": 1, "enable_dropout": False, "use_fused_norm": True,
            "use_math_sdp": False, "use_flash_sdp": True, "use_fp32_accum_grad": True, "enable_recompute": full,
            "recompute_granularity": "full_block" if full else None,
            "recompute_layer_num": model["num_hidden_layers"] if full else 0, "mem_factor": 1.0}
        machine = json.loads(json.dumps(self.machine))
        for link in ("low_intra_node", "high_intra_node"):
            machine["networks"][link]["bandwidth"]["gbps"] = 300  # NVLink of an A100, one direction
        machine["networks"]["inter_node"]["bandwidth"]["gbps"] = network_of_a_node(row) / 1e9
        return described, strategy, machine

    def seconds(self, cases):
        return [self.one(*case) for case in cases]

    def one(self, described, strategy, machine):
        Model, Strategy, System, Perf = self.types
        model = Perf()
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            model.configure(strategy_config=Strategy.init_from_dict(dict(strategy)),
                            model_config=Model.init_from_dict(dict(described)),
                            system_config=System.init_from_dict(json.loads(json.dumps(machine))))
            model.run_estimate()
            result = model.analysis_cost().data
        return result["all_tokens_per_iter"] / result["throughput_per_accelerator"] / strategy["world_size"]


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def cases_of(program, rows):
    kept, reasons = [], collections.Counter()
    for row in rows:
        try:
            kept.append((row, program.case(row)))
        except (Unknown, KeyError) as error:
            reasons[str(error)] += 1
    return kept, reasons


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+")
    parser.add_argument("--program", default="build/ci/bin/zeroplan")
    parser.add_argument("--calculon")
    parser.add_argument("--simumax")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    said = parser.parse_args()
    rows = []
    for path in said.rows:
        with open(path) as file:
            rows += [row for row in map(json.loads, file) if measured_seconds(row)]
    programs = [Zeroplan(said.program)]
    programs += [Calculon(said.calculon)] if said.calculon else []
    programs += [SimuMax(said.simumax)] if said.simumax else []
    asked = {program.name: cases_of(program, rows) for program in programs}
    best, answers = {}, {}
    for _ in range(said.rounds):
        for program in programs:
            kept, _ = asked[program.name]
            started = time.perf_counter()
            answers[program.name] = program.seconds([case for _, case in kept])
            took = time.perf_counter() - started
            best[program.name] = min(took, best.get(program.name, took))
    report = [summary(program.name, asked[program.name], answers[program.name], best[program.name]) for program in programs]
    by_row = {name: {row["id"]: error for row, error in errors} for name, errors in
              ((entry["program"], entry.pop("errors")) for entry in report)}
    for entry in report[1:]:
        shared = [by_row["zeroplan"][key] for key in by_row[entry["program"]] if key in by_row["zeroplan"]]
        entry["zeroplan_on_the_same"] = spread(shared)
    if said.json:
        print(json.dumps(report, indent=1))
        return
    for entry in report:
        print(text_of(entry))


def spread(errors):
    sizes = [abs(error) for error in errors]
    return {"rows": len(sizes), "median": statistics.median(sizes), "p95": quantile(sizes, 0.95),
            "mean": statistics.mean(errors)} if sizes else {"rows": 0}


def summary(name, asked, seconds, took):
    kept, reasons = asked
    errors = [(row, predicted / measured_seconds(row) - 1) for (row, _), predicted in zip(kept, seconds) if predicted]
    failed = sum(1 for predicted in seconds if not predicted)
    return {"program": name, "errors": errors, "spread": spread([error for _, error in errors]),
            "refused": failed, "not_described": dict(reasons), "per_second": len(kept) / took if kept else 0.0}


def text_of(entry):
    def words(values):
        if not values["rows"]:
            return "no row"
        return "%d rows, %.1f %% median, %.0f %% at 95 %%, mean %+.1f %%" % (
            values["rows"], 100 * values["median"], 100 * values["p95"], 100 * values["mean"])
    lines = ["%s: %s; %.0f configurations a second" % (entry["program"], words(entry["spread"]), entry["per_second"])]
    if "zeroplan_on_the_same" in entry:
        lines.append("  zeroplan on the same: " + words(entry["zeroplan_on_the_same"]))
    if entry["refused"]:
        lines.append("  refused: %d" % entry["refused"])
    lines += ["  not described, %s: %d" % item for item in sorted(entry["not_described"].items())]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
