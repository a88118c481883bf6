#!/usr/bin/env python3
"""The embedded runtime beside PyTorch, each at its best micro-batch: a Markdown table of tokens a second and MFU.

    gpu_compare.py profiles/measured/<gpu>/runtime.jsonl profiles/measured/<gpu>/pytorch.jsonl
    gpu_compare.py --best profiles/measured/<gpu>/runtime_sweep.jsonl MODEL SEQUENCE fp32|bf16

The second prints the micro-batch of the runtime's fastest line with those states, and whether its loss is fused: what
gpu.sh measures once more, longer, without CUDA graphs and with. Ends with 1 where there is no such line.

`fp32` keeps fp32 weights and moments beside bf16 weights and gradients; of `bf16` all is bf16: PyTorch has one copy of the
weights then, the runtime masters beside them, as DeepSpeed does. `fused loss`: the runtime's logits go by chunks of rows, where that was
faster than all of them at once at its own best micro-batch; `graphs`: its kernels went by CUDA graphs, where that was
faster than one by one. Tokens a second are of the median of 50 steps after ten, on both sides. MFU counts
6 N + 12 L h s a token, as zeroplan does, over the peak that the lines of gpu_pytorch.py were given.
"""

import json
import sys
from pathlib import Path

CONFIGS = Path(__file__).resolve().parent.parent / "configs" / "models"
COLUMNS = ("runtime", "fp32 eager", "fp32 compile", "runtime bf16", "bf16 eager", "bf16 compile")


def read(path):
    text = Path(path).read_text(encoding="utf-8") if Path(path).is_file() else ""
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def column_of(line):
    """runtime and its states, or the states and the mode that gpu_pytorch.py named its series by."""
    group = line.get("group", "")
    if not group.startswith("pytorch-"):
        bf16 = line["scenario"].get("ds_config", {}).get("bf16", {})
        return "runtime bf16" if bf16.get("bf16_optimizer_states") else "runtime"
    states = "fp32" if "-fp32-seq" in group else "bf16"
    return f"{states} {group.rsplit('-', 1)[1]}"


def best_lines(lines):
    """(model, sequence) -> column -> the line with the most tokens a second."""
    table = {}
    for line in lines:
        rate = line["measured"].get("tokens_per_second_per_gpu")
        model = line["scenario"]["model"]
        if not rate or not isinstance(model, str):
            continue
        row = table.setdefault((model, line["scenario"]["workload"]["sequence_length"]), {})
        column = column_of(line)
        if column not in row or rate > row[column]["measured"]["tokens_per_second_per_gpu"]:
            row[column] = line
    return table


def by_graphs(line):
    """As cli/embedded_run.cpp names them."""
    return line.get("id", "").startswith("embedded-") and line["id"].endswith("-graphs")


def print_best(path, model, sequence, states):
    table = best_lines([line for line in read(path) if not by_graphs(line)])
    line = table.get((model, int(sequence)), {}).get("runtime" if states == "fp32" else "runtime bf16")
    if line is None:
        return 1
    workload = line["scenario"]["workload"]
    print(workload["micro_batch_size"], "true" if workload.get("fused_loss") else "false")
    return 0


def peak_of(lines):
    """FLOP/s, or None where no line says it."""
    for line in lines:
        measured = line["measured"]
        if measured.get("mfu") and measured.get("model_tflops_per_gpu"):
            return 1e12 * measured["model_tflops_per_gpu"] / measured["mfu"]
    return None


def flops_per_token(model, sequence):
    known = json.loads((CONFIGS / f"{model}.json").read_text(encoding="utf-8"))
    config = known["config"]
    return 6.0 * known["parameters"] + 12.0 * config["num_hidden_layers"] * config["hidden_size"] * sequence


def cell(line, model, sequence, peak):
    if line is None:
        return ""
    rate = line["measured"]["tokens_per_second_per_gpu"]
    workload = line["scenario"]["workload"]
    share = f", {100 * rate * flops_per_token(model, sequence) / peak:.1f} %" if peak else ""
    ways = [", fused loss"] if workload.get("fused_loss") else []
    ways += [", graphs"] if by_graphs(line) else []
    return f"{rate:.0f} at {workload['micro_batch_size']}{share}{''.join(ways)}"


def main():
    if len(sys.argv) == 6 and sys.argv[1] == "--best":
        return print_best(*sys.argv[2:])
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    lines = [line for path in sys.argv[1:] for line in read(path)]
    peak = peak_of(lines)
    print("tokens/s at micro-batch" + (", MFU" if peak else ""))
    print("(of the median step)\n")
    pairs = (("runtime", "fp32 eager"), ("runtime bf16", "bf16 eager"))
    print("| model | sequence | " + " | ".join(COLUMNS + tuple(" / ".join(pair) for pair in pairs)) + " |")
    print("|---" * (len(COLUMNS) + len(pairs) + 2) + "|")
    for (model, sequence), row in sorted(best_lines(lines).items()):
        cells = [cell(row.get(column), model, sequence, peak) for column in COLUMNS]
        for ours, theirs in pairs:
            rates = [row[column]["measured"]["tokens_per_second_per_gpu"] for column in (ours, theirs) if column in row]
            cells.append(f"{rates[0] / rates[1]:.2f}" if len(rates) == 2 else "")
        print(f"| {model} | {sequence} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
