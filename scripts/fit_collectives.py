#!/usr/bin/env python3
"""Fits collectives over NVLink (equation [T12]) to published nccl-tests curves.

One set of numbers a GPU describes all-gather, reduce-scatter, all-reduce and all-to-all of 2, 4
and 8 ranks. Prints the values of profiles/coefficients.json with the errors of each curve; --sample
writes tests/published/collective_times.json.

    fit_collectives.py nccl_curves.csv practical.json [--sample tests/published/collective_times.json]

Needs numpy and scipy. The table has a row a timing: gpu, host, coll, ranks, nodes, bytes, time_us,
source; practical.json has larger all-reduces ("nccl_curves": bytes and bus rates in GB/s).
"""
import argparse
import csv
import json
from collections import Counter

import numpy as np
from scipy.optimize import least_squares

# Names in the table, NVLink GB/s a direction, larger curves, key of the GPU, NVLink SHARP.
CARDS = {
    "a100": (["a100_sxm"], 300.0, ["a100_sxm_x8_1node", "a100_sxm_x8_1node_azure"], "8xA100-80G-SXM", False),
    "h100": (["h100_sxm"], 450.0, ["h100_sxm_x8_1node_azure", "h100_sxm_x8_1node_aws_p5"], "8xH100-80G-SXM", True),
    "h200": (["h200_sxm"], 450.0, ["h200_sxm_x8_1node", "h200_sxm_x8_1node_azure"], "8xH200-141G-SXM", True),
    "b200": (["b200_sxm"], 900.0, ["b200_x8_1node"], "8xB200-180G-SXM", True),
}
# Sampled beside them; their numbers were set from the plateaus.
PRO_6000 = {"nodes": 1, "gpus_per_node": 8, "gpu": "RTX-PRO-6000-Server", "pcie_bandwidth": 63e9}
OTHERS = [("rtx_pro_6000_server", "aic", json.dumps(PRO_6000)), ("v100", "vtrain", '"8xV100-16G-SXM"')]
KINDS = ["all_gather", "reduce_scatter", "all_reduce", "alltoall"]
NAMES = ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"]
LARGE = 1 << 24  # of the larger curves only what the table lacks: their hosts start slower


def read(table, practical, card):
    names, _, curves, _, _ = CARDS[card]
    points = []
    with open(table, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["gpu"] in names and row["host"] == "aic" and float(row["bytes"]) >= 1024:
                points.append((KINDS.index(row["coll"]), int(row["ranks"]), float(row["bytes"]),
                               float(row["time_us"])))
    with open(practical, encoding="utf-8") as file:
        known = json.load(file)["nccl_curves"]
    for name in curves:
        for point in known[name]["points"]:
            if point[0] >= LARGE:
                points.append((2, 8, float(point[0]), point[0] * 1.75 / point[-1] / 1e3))
    return points


def fit(card, points):
    _, link, _, _, sharp = CARDS[card]
    table = np.array(points)
    kind, ranks, size, time = table[:, 0].astype(int), table[:, 1], table[:, 2], table[:, 3]
    repeats = Counter(point[:3] for point in points)
    weight = np.array([1.0 / np.sqrt(repeats[point[:3]]) for point in points])
    weight *= np.where(size >= 1 << 20, 1.0, 0.5)
    reduces = kind == 2
    multicast = reduces & (ranks > 4) & sharp
    wire = size * (ranks - 1) / ranks * np.where(reduces, 2, 1)
    steps = (ranks - 1) * np.where(reduces, 2, 1)

    def predict(p):
        base, hop, pair, gain, gain_ramp = np.exp(p[[0, 1, 10, 11, 12]])
        share = np.exp(p[2:6])[kind] * np.where(ranks == 2, pair, 1.0) * np.where(multicast, gain, 1.0)
        ramp = np.where(multicast, gain_ramp, np.exp(p[6:10])[kind])
        transfer = wire / (link * 1e3 * share)
        return base + steps * hop + transfer + np.sqrt(ramp * transfer)

    start = np.log([5, 1] + [0.75] * 4 + [15] * 4 + [0.85, 1.0, 20])
    found = least_squares(lambda p: weight * np.log(predict(p) / time), start, loss="soft_l1", f_scale=0.1)
    names = ["base us", "hop us"] + [f"share {n}" for n in NAMES] + [f"ramp us {n}" for n in NAMES]
    names += ["pair", "SHARP gain", "SHARP ramp us"]
    print(card, ", ".join(f"{n} {v:.3g}" for n, v in zip(names, np.exp(found.x))))
    error = 100 * np.abs(np.log(predict(found.x) / time))
    for k, name in enumerate(NAMES):
        for n in (2, 4, 8):
            mine = (kind == k) & (ranks == n)
            large = mine & (size >= 1 << 23)
            print(f"    {name} {n}: median / p95 {np.median(error[mine]):.1f} / {np.quantile(error[mine], .95):.1f} %, "
                  f"from 8 MiB on {np.median(error[large]):.1f} / {np.quantile(error[large], .95):.1f} %")


def other_groups(table):
    found = {}
    with open(table, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            for gpu, host, cluster in OTHERS:
                if (row["gpu"], row["host"]) == (gpu, host) and float(row["bytes"]) >= 1 << 16:
                    key = (cluster, NAMES[KINDS.index(row["coll"])], int(row["ranks"]))
                    found.setdefault(key, []).append([int(float(row["bytes"])), float(row["time_us"])])
    return [(*key, sorted(rows)) for key, rows in sorted(found.items())]


def sample(path, data, table):
    groups = other_groups(table)
    for card, points in data.items():
        for k, name in enumerate(NAMES):
            for n in (2, 4, 8):
                by_size = {}
                for point in points:
                    if point[:2] == (k, n):
                        by_size.setdefault(int(point[2]), []).append(point[3])
                rows = [[size, round(float(np.median(times)), 2)] for size, times in sorted(by_size.items())
                        if size >= 1 << 16]
                groups.append((json.dumps(CARDS[card][3]), name, n, rows))
    with open(path, "w", encoding="utf-8") as file:
        file.write('{\n  "schema": "zeroplan.published/1",\n'
                   '  "what": "collectives inside a node: message bytes (full tensor), microseconds",\n'
                   '  "sources": "ai-dynamo/aiconfigurator@095f58a (NCCL 2.27-2.29); V100: VIA-Research/vTrain@f8dda84; larger all-reduces: '
                   'stas00/ml-engineering@744d01e, Azure/AI-benchmarking-guide@8fd0c6e, '
                   'aws-samples/awsome-distributed-training@7217859",\n  "groups": [\n')
        file.write(",\n".join(f'    {{"cluster": {c}, "collective": "{k}", "ranks": {n}, "median": 0.5, "p95": 0.9, "rows": {json.dumps(r)}}}'
                              for c, k, n, r in groups))
        file.write("\n  ]\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("practical")
    parser.add_argument("--sample")
    options = parser.parse_args()
    data = {card: read(options.table, options.practical, card) for card in CARDS}
    if options.sample:
        sample(options.sample, data, options.table)
        return
    for card, points in data.items():
        fit(card, points)


if __name__ == "__main__":
    main()
