#!/usr/bin/env python3
"""Makes profiles/gpus.json, profiles/nodes.json and profiles/practical.json.

    scripts/import_hardware.py FOLDER [-o profiles]

FOLDER holds the collected tables gpus.json, nodes.json and practical.json (leaves {v, src, conf,
max, note, seen}). The output is ours: SI units, every source written out, one confidence scale, a
relative standard deviation for each number, names to match, the GPUs and the generic machines of
hardware_additions.py. Run by a developer when the tables change; script and output are committed.
The rules stand in profiles/README.md. Standard library only.
"""

import argparse
import json
import math
import pathlib
import re

import hardware_additions as additions
import hardware_sheets as sheets

GIB = 2**30
MACHINES = pathlib.Path(__file__).with_name("hardware_machines.json")  # that measurements name and the tables lack
CONFIDENCE = {"folklore": "assumed"}
# Source texts that name how the collector searched are replaced by what was found.
SOURCE_TEXT = {
    "ds": "NVIDIA data sheet or architecture whitepaper of the product",
    "smi": "nvidia-smi output in public repositories, three or more that agree",
    "bioir": "public benchmark table: device, SM architecture, memory, power limit, driver 595.58.03",
    "b300": "public notes: NVIDIA B300 SXM6 AC, sm_103a, 148 SMs, 275040 MiB, power cap 1100 W",
    "oom": "out-of-memory messages of PyTorch in public repositories (cudaDeviceProp.totalGlobalMem)",
    "aws_a10g": "AWS EC2 G5 product page, NVIDIA A10G",
}
REPLACEMENTS = [
    (r"\w+_\w+ '([^']+)' ids .*", r"public repositories that name \1"),
    (r"\w+ search: ?", "public repositories: "),
    (r"github \(\w+/\w+ search\)", "public repositories,"),
    (r",? ?\(?\w+_\w+ ids? [\d, ]+\)?", ""),
    (r"task \w+", "reference machine of this project"),
    (r"general knowledge of vendor page, not re-read", "vendor's product page"),
    (r" \((from )?general knowledge[^)]*\)", ""),
    (r"not found this \w+", "not found"),
    (r"no table re-read this \w+", "no table at hand"),
    (r"only the '6\.4x at 1B, >5x' ratio was re-read", "only the ratio 6.4x at 1B, >5x was checked"),
    (r"\bcard(s?)\b", r"GPU\1"),
]


def clean(text):
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text)
    return text.strip()


def deviation(confidence, seen, count):
    """Relative standard deviation of a number of that confidence (profiles/README.md)."""
    if count and confidence != "assumed":
        return 0.0
    if confidence == "datasheet" and not seen:
        return 0.05
    return {"measured": 0.02, "datasheet": 0.03, "derived": 0.05, "assumed": 0.2}[confidence]


class Importer:
    def __init__(self, sources):
        self.sources = sources

    def source(self, key):
        return clean(SOURCE_TEXT.get(key, self.sources.get(key, key)))

    def leaf(self, old, scale=1, count=False):
        """{v, src, conf, ...} as {value, source, confidence, relative_sd, ...}; None without value."""
        if not isinstance(old, dict) or old.get("v") is None or isinstance(old["v"], str):
            return None
        seen = old.get("seen", True)
        confidence = CONFIDENCE.get(old["conf"], old["conf"])
        value = old["v"] * scale
        value = int(value) if float(value).is_integer() else value
        new = {"value": value, "confidence": confidence}
        new["relative_sd"] = deviation(confidence, seen, count)
        new["source"] = self.source(old["src"]) or "not stated"
        if "note" in old:
            new["note"] = clean(old["note"])
        if not seen:
            new["seen"] = False
        return new


def made(value, confidence, source, relative_sd, note=None):
    leaf = {"value": value, "confidence": confidence, "relative_sd": relative_sd, "source": source}
    if note:
        leaf["note"] = note
    return leaf


# --- GPUs


def capacity(importer, card):
    """CUDA's total. Where nobody printed it: 98.5 % of nvidia-smi's, else 97 % of the nominal size."""
    total = card["cuda_total_GiB"]
    if total["v"] is not None:
        leaf = importer.leaf(total, GIB)
        leaf["value"] = round(leaf["value"])
        spread = total.get("max", total["v"]) - total["v"]
        leaf["relative_sd"] = round(max(spread / math.sqrt(12) / total["v"], 0.0005), 5)
        if spread > 0:
            leaf["note"] = f"up to {total['max']} GiB with other drivers; the least is taken"
        return leaf
    shown = card["nvidia_smi_total_MiB"]["v"]
    if shown is not None:
        return made(round(shown * 2**20 * 0.985), "derived",
                    "98.5 % of nvidia-smi's total, as on A100 (39.38 of 40 GiB)", 0.01,
                    f"nvidia-smi: {shown} MiB")
    return made(round(card["memory_nominal_GB"] * GIB * 0.97), "assumed",
                "97 % of the nominal size, the least ratio among GPUs with ECC built in", 0.02)


def pcie(card):
    text = str(card["pcie"]["v"])
    found = re.match(r"(\d)\.0 x(\d+)", text)
    return {"generation": int(found[1]), "lanes": int(found[2])} if found else None


def import_gpu(importer, key, card):
    extra = additions.NAMES[key]
    new = {"name": extra["name"], "product_name": card["name"], "family": extra["family"]}
    if not new["product_name"].startswith(("NVIDIA", "Tesla", "GeForce", "Quadro")):
        new["product_name"] = "NVIDIA " + new["product_name"]
    new["sizes_gb"] = extra.get("sizes", [card["memory_nominal_GB"]])
    new["form"] = extra.get("form", "SXM" if card["form"].startswith("SXM") else card["form"])
    new["architecture"] = card["arch"]
    new["compute_capability"] = card["compute_capability"]["v"]
    new["usual_node"] = extra["node"]
    if extra.get("no_p2p"):
        new["pcie_peer_to_peer"] = False
    new["memory_bytes"] = capacity(importer, card)
    new["memory_bandwidth"] = importer.leaf(card["mem_bw_GBps"], 1e9)
    old = card["dense_TFLOPS"]
    names = {"fp32": "fp32", "tf32": "tf32", "fp16": "fp16_fp32acc", "bf16": "bf16", "fp8": "fp8"}
    peaks = {name: importer.leaf(old[there], 1e12) for name, there in names.items()}
    new["peak_flops"] = {name: leaf for name, leaf in peaks.items() if leaf}
    new["bf16_supported"] = card["bf16_supported"]["v"]
    nvlink = importer.leaf(card["nvlink"]["unidir_GBps_per_gpu"], 1e9)
    if nvlink:
        nvlink["note"] = clean(card["nvlink"].get("note", ""))
        new["nvlink"] = nvlink
    if "host_link" in extra:
        new["host_link"] = extra["host_link"]
    elif pcie(card):
        new["pcie"] = pcie(card)
    new["l2_bytes"] = importer.leaf(card["l2_MB"], 2**20, count=True)
    new["sm_count"] = importer.leaf(card["sm_count"], count=True)
    new["power_watts"] = importer.leaf(card["tdp_W"], count=True)
    return new


# --- nodes


def first_number(leaf, pattern):
    found = re.search(pattern, str(leaf["v"])) if leaf and leaf.get("v") else None
    return int(found[1]) if found else None


def host_memory(importer, key, node):
    """What the operating system sees: 98.2 % of the modules (503 of 512 GiB on DGX-1)."""
    seen = additions.VISIBLE_GIB.get(key)
    nominal, unit = node.get("host_ram_GiB"), GIB
    if nominal is None:
        # Clouds count in powers of ten where they write GB; memory modules come in powers of two.
        nominal, unit = node.get("host_ram_GB"), 1e9 if key.startswith("gcp") else GIB
    leaf = importer.leaf(nominal, unit)
    if leaf is None:
        return None
    if seen:
        leaf["value"] = seen[0] * GIB
        leaf["note"] = seen[1]
    else:
        leaf["note"] = f"98.2 % of {nominal['v']} {'GiB' if unit == GIB else 'GB'} fitted"
        leaf["value"] = round(leaf["value"] * 0.982)
        leaf["confidence"] = "derived" if leaf["confidence"] != "assumed" else "assumed"
    return leaf


def network(importer, node):
    cards = (node.get("nics") or {}).get("v")
    if not cards:
        return None
    kind = cards.get("type", "")
    link = "tcp"
    if "IB" in kind:
        link = "ib"
    elif "RoCE" in kind or "TCPX" in kind or "EFA v" in kind:
        link = "roce"
    whole = dict(node["nics"], v=cards["count"] * cards["Gbps"])
    leaf = importer.leaf(whole, 1e9 / 8)
    leaf["note"] = f"{cards['count']} x {cards['Gbps']} Gb/s {kind}".strip()
    return {"link": link, "cards": cards["count"], "bandwidth": leaf}


def drives(importer, node, new):
    nvme = (node.get("nvme") or {}).get("v")
    read = importer.leaf(node.get("nvme_read_GBps"), 1e9)
    write = importer.leaf(node.get("nvme_write_GBps"), 1e9)
    if nvme and nvme.get("count") == 0:
        new["nvme"] = False
        return
    found = {}
    if nvme and nvme.get("TB_each"):
        found["capacity_bytes"] = importer.leaf(
            dict(node["nvme"], v=nvme["count"] * nvme["TB_each"]), 1e12, count=True)
        found["capacity_bytes"]["value"] = round(found["capacity_bytes"]["value"])
        if not read:
            read = made(nvme["count"] * 2.5e9, "derived",
                        "2.5 GB/s a drive, as four Gen4 drives gave under DeepNVMe", 0.3)
    elif nvme and nvme.get("GiB_total"):
        found["capacity_bytes"] = importer.leaf(dict(node["nvme"], v=nvme["GiB_total"]), GIB, True)
    if read:
        found["read_bandwidth"] = read
        found["write_bandwidth"] = write or made(
            round(read["value"] * 0.55), "derived",
            "0.55 of reading: 33.9/55.3, 26/48 and 5/10 GB/s were measured", 0.25)
    if found:
        new["nvme"] = found


def import_node(importer, key, node):
    extra = additions.NODES.get(key, {})
    new = {"name": extra.get("name", node["name"]), "gpus": node["gpu"].split("|")}
    new["gpus_per_node"] = node["num_gpus"]["v"]
    new["topology"] = extra.get("topology", additions.TOPOLOGY[node["topology"]["v"]])
    if extra.get("usual"):
        new["usual"] = True
    if node.get("host_cpu", {}).get("v"):
        new["cpu"] = node["host_cpu"]["v"]
    leaves = {
        "host_memory_bytes": host_memory(importer, key, node),
        "host_memory_bandwidth": importer.leaf(node["host_mem_bw_GBps"], 1e9),
        "cpu_cores": importer.leaf(node["cpu_cores"], count=True),
    }
    new.update({name: leaf for name, leaf in leaves.items() if leaf})
    cpu = new.get("cpu", "")
    sockets = 2 if cpu.startswith("2x") else extra.get("sockets")
    if sockets:
        new["cpu_sockets"] = sockets
    generation = extra.get("host_pcie") or first_number(node.get("pcie"), r"^(\d)\.0")
    if generation:
        new["host_pcie_generation"] = generation
    if "uplink" in extra:
        new["gpus_per_pcie_uplink"] = extra["uplink"]
    nics = network(importer, node)
    if nics:
        new["inter_node"] = nics
    drives(importer, node, new)
    if not extra.get("divisible", True):
        new["divisible"] = False
    return new


# --- practical figures


def import_practical(importer, value):
    """The same tree with sources written out and one confidence scale."""
    if isinstance(value, list):
        return [import_practical(importer, item) for item in value]
    if isinstance(value, str):
        return clean(value)
    if not isinstance(value, dict):
        return value
    if "v" in value and "conf" in value:
        if value["v"] is None:
            return None
        seen = value.get("seen", True)
        confidence = CONFIDENCE.get(value["conf"], value["conf"])
        new = {"value": import_practical(importer, value["v"]), "confidence": confidence}
        new["source"] = importer.source(value["src"]) or "not stated"
        if value.get("note"):
            new["note"] = clean(value["note"])
        if not seen:
            new["seen"] = False
        return new
    renamed = {"src": "source", "conf": "confidence"}
    new = {renamed.get(key, key): import_practical(importer, item) for key, item in value.items()}
    return {key: item for key, item in new.items() if item is not None}


# --- output


def text_of(value, depth=0):
    """JSON with one leaf a line."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or len(flat) + 2 * depth <= 98:
        return flat
    if isinstance(value, dict) and "value" in value and not isinstance(value["value"], dict):
        return flat
    if isinstance(value, list) and all(not isinstance(item, dict) for item in value):
        return flat
    pad = "  " * (depth + 1)
    if isinstance(value, list):
        inner = ",\n".join(pad + text_of(item, depth + 1) for item in value)
        return "[\n" + inner + "\n" + "  " * depth + "]"
    inner = ",\n".join(
        f"{pad}{json.dumps(key)}: {text_of(item, depth + 1)}" for key, item in value.items())
    return "{\n" + inner + "\n" + "  " * depth + "}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("profiles"))
    arguments = parser.parse_args()

    cards = json.loads((arguments.folder / "gpus.json").read_text())
    machines = json.loads((arguments.folder / "nodes.json").read_text())
    practical = json.loads((arguments.folder / "practical.json").read_text())
    importer = Importer(cards["sources"])

    gpus = {key: import_gpu(importer, key, card) for key, card in cards["gpus"].items()}
    gpus.update(additions.from_others(gpus))
    gpus.update(additions.gpus())
    gpus.update(sheets.gpus(gpus))
    nodes = {key: import_node(importer, key, node) for key, node in machines["nodes"].items()}
    nodes.update(json.loads(MACHINES.read_text()))
    nodes.update(additions.GENERIC_NODES)
    figures = {key: import_practical(importer, value)
               for key, value in practical.items() if key != "_meta"}

    units = "bytes, bytes/s per direction, FLOP/s without sparsity, s, W"
    outputs = {
        "gpus.json": {"schema": "zeroplan.gpus/1", "units": units, "families": additions.FAMILIES,
                      "usual_of_size_gb": additions.USUAL_OF_SIZE_GB, "gpus": gpus, "cpu": additions.CPU_RANK},
        "nodes.json": {"schema": "zeroplan.nodes/1", "units": units,
                       "latency": additions.LATENCY, "nodes": nodes},
        "practical.json": {"schema": "zeroplan.practical/1",
                           "units": "as the keys say: GB/s and TFLOPS decimal, MiB and GiB binary",
                           **figures},
    }
    for name, content in outputs.items():
        (arguments.output / name).write_text(text_of(content) + "\n")


if __name__ == "__main__":
    main()
