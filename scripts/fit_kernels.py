#!/usr/bin/env python3
"""Fits the shape curve of matrix products (equation [T6]) to published timings.

One shape set a GPU, one level a source: tables of single kernels differ from profiles of busy
GPUs in level, hardly in shape. Prints the values of profiles/coefficients.json
with the errors of each source; --sample writes tests/published/gemm_times.json, whose bounds are then set from what the test finds
(ZEROPLAN_SHOW_ERRORS=1).

    fit_kernels.py gemm_shapes.csv [--card A100-SXM] [--sample tests/published/gemm_times.json]

Needs numpy and scipy. The table has a row a timing: gpu, op, b, m, n, k, dtype, out_dtype, layout,
time_us, ..., source. A fit takes half a minute a GPU.
"""
import argparse
import csv
import json
import sys

import numpy as np
from scipy.optimize import minimize

# Multiprocessors, dense peak in TFLOP/s, memory GB/s, key in profiles/gpus.json.
CARDS = {
    "V100-SXM2": (80, 125.0, 900.0, "v100_sxm2_16gb"),
    "T4": (40, 65.1, 320.0, "t4"),
    "A100-SXM": (108, 312.0, 2039.0, "a100_sxm_80gb"),
    "A100-PCIe": (108, 312.0, 1935.0, "a100_pcie_80gb"),
    "H100-SXM": (132, 989.4, 3350.0, "h100_sxm"),
    "H200-SXM": (132, 989.4, 4800.0, "h200_sxm"),
    "B200": (148, 2250.0, 8000.0, "b200"),
    "A40": (84, 149.7, 696.0, "a40"),
    "L40S": (142, 362.0, 864.0, "l40s"),
    "RTX-PRO-6000": (188, 503.8, 1597.0, "rtx_pro_6000_server"),
    "RTX-4090": (128, 165.2, 1008.0, "rtx_4090"),
}
TILES = [(256, 128, 0), (128, 256, 0), (128, 128, 1), (128, 64, 2), (64, 128, 2), (64, 64, 3)]
SPLITS = (1, 2, 4)
# k0, wave share, t0 in us, tile factors, memory share: where data are silent, these stay.
PRIOR = [np.log(120.0), -0.4, np.log(2.8), 2.0, 0.7, 0.5, 0.7]
HUBER = 0.15


def source_of(row):
    text = row["source"]
    if "aiconfigurator" in text:
        return "aiconfigurator " + ("trtllm" if "trtllm" in text else "vllm")
    if "SimuMax" in text:
        if row["op"] != "wgrad_acc":
            return "SimuMax"
        return "SimuMax into fp32" if row["out_dtype"] == "fp32" else "SimuMax wgrad"
    for name in ("vidur", "LLMServingSim", "DeepBench"):
        if name in text:
            return name
    return text


def read(path):
    data = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            b, m, n, k = (int(row[c]) for c in "bmnk")
            if row["gpu"] not in CARDS or min(m, n, k) < 128:
                continue
            entry = (b, m, n, k, float(row["time_us"]), row["out_dtype"] == "fp32")
            data.setdefault(row["gpu"], {}).setdefault(source_of(row), []).append(entry)
    return data


def predict(shapes, card, level, k0, wave, t0, factors, memory):
    """[T6] in microseconds; shapes: columns b m n k time into_fp32."""
    sm, peak, bandwidth, _ = CARDS[card]
    b, m, n, k = shapes[:, :4].T
    out_width = np.where(shapes[:, 5] > 0, 8.0, 2.0)
    streamed = b * (2.0 * k * (m + n) + out_width * m * n)
    best = np.full(len(shapes), np.inf)
    for tile_m, tile_n, factor in TILES:
        tiles = b * np.ceil(m / tile_m) * np.ceil(n / tile_n) / sm
        for split in SPLITS:
            x = tiles * split
            waves = np.maximum(1.0, x + wave * (np.ceil(x) - x))
            flops = 2.0 * tile_m * tile_n * (np.ceil(k / split) + k0)
            compute = waves * flops / (peak * 1e6 / sm * level * factors[factor])
            sums = 8.0 * split * b * m * n if split > 1 else 0.0
            best = np.minimum(best, np.maximum(compute, (streamed + sums) / (bandwidth * 1e3 * memory)))
    return t0 + best


def squash(q, top=1.0):
    return top / (1.0 + np.exp(-q))


def unpack(p, sources):
    levels = np.exp(np.clip(p[:sources], -2.0, 0.3))
    k0, wave, t0, *tiles, memory = p[sources:]
    factors = [1.0] + [squash(q, 1.05) for q in tiles]
    return levels, np.exp(np.clip(k0, 0, 7)), squash(wave), np.exp(np.clip(t0, -3, 3)), factors, squash(memory)


def fit(card, by_source):
    names = sorted(by_source)
    shapes = np.array([row for name in names for row in by_source[name]], float)
    index = np.repeat(np.arange(len(names)), [len(by_source[name]) for name in names])
    # Every source has the same say.
    weight = 1.0 / np.bincount(index)[index]

    def errors(p):
        levels, k0, wave, t0, factors, memory = unpack(p, len(names))
        return np.log(predict(shapes, card, levels[index], k0, wave, t0, factors, memory) / shapes[:, 4])

    def loss(p):
        size = np.abs(errors(p))
        huber = np.where(size < HUBER, 0.5 * size**2, HUBER * (size - 0.5 * HUBER))
        return np.sum(weight * huber) / len(names) + 1e-4 * np.sum((p[len(names):] - PRIOR) ** 2)

    best = None
    for seed in range(3):
        start = np.concatenate([np.full(len(names), np.log(0.8)), PRIOR])
        start = start + np.random.default_rng(seed).normal(0, 0.3, len(start)) * (seed > 0)
        for _ in range(3):
            found = minimize(loss, start, method="Nelder-Mead",
                             options={"maxiter": 3000, "maxfev": 3000, "adaptive": True,
                                      "xatol": 1e-3, "fatol": 1e-7})
            start = found.x
        if best is None or found.fun < best.fun:
            best = found
    levels, k0, wave, t0, factors, memory = unpack(best.x, len(names))
    size = np.abs(errors(best.x))
    fitted = {"matmul_prologue_depth": k0, "matmul_wave_share": wave, "matmul_fixed_seconds": t0 * 1e-6, "matmul_tile_128x128": factors[1],
              "matmul_tile_128x64": factors[2], "matmul_tile_64x64": factors[3], "matmul_memory_efficiency": memory}
    print(f"{GPU}: " + ", ".join(f'"{name}": {value:.3g}' for name, value in fitted.items()))
    for i, name in enumerate(names):
        mine = index == i
        large = mine & (shapes[:, 1:4].min(axis=1) >= 1024)
        print(f"        // {name}: level {levels[i]:.3f}, {mine.sum()} rows, median / p95 "
              f"{100 * np.median(size[mine]):.1f} / {100 * np.quantile(size[mine], 0.95):.1f} %, from 1024 on "
              f"{100 * np.median(size[large]):.1f} / {100 * np.quantile(size[large], 0.95):.1f} %")
    sys.stdout.flush()


def sample(data, path, rows=45):
    groups = []
    for card, by_source in sorted(data.items()):
        for name, entries in sorted(by_source.items()):
            picked = np.random.default_rng(7).permutation(len(entries))[:rows]
            groups.append({"gpu": CARDS[card][3], "source": name,
                           "rows": [list(entries[i][:4]) + [entries[i][4], int(entries[i][5])]
                                    for i in sorted(picked)]})
    with open(path, "w", encoding="utf-8") as file:
        file.write('{\n  "schema": "zeroplan.published/1",\n'
                   '  "what": "matrix products: batch, m, n, k, microseconds, added into fp32",\n'
                   '  "sources": "ai-dynamo/aiconfigurator@095f58a, microsoft/vidur@7d47513, '
                   'MooreThreads/SimuMax@4dcaae5, casys-kaist/LLMServingSim@5daddb2, '
                   'baidu-research/DeepBench@da81ba7",\n  "groups": [\n')
        for i, group in enumerate(groups):
            lines = ",\n      ".join(json.dumps(row) for row in group["rows"])
            file.write(f'    {{"gpu": "{group["gpu"]}", "source": "{group["source"]}", "median": 0.5, "p95": 0.9, "rows": [\n      {lines}]}}'
                       + (",\n" if i + 1 < len(groups) else "\n"))
        file.write("  ]\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("--card", choices=CARDS)
    parser.add_argument("--sample")
    options = parser.parse_args()
    data = read(options.table)
    if options.sample:
        sample(data, options.sample)
        return
    for card in [options.card] if options.card else sorted(data):
        fit(card, data[card])


if __name__ == "__main__":
    main()
