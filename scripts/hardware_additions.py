"""What import_hardware.py adds to the collected tables: names, GPUs that measurements name and the
tables lack, generic machines, latencies. Every number has its source here."""

import json

GIB = 2**30

# The family that a memory in GB stands for where no GPU is named ("24G"): a usual one, and not the
# fastest of its size.
USUAL_OF_SIZE_GB = {
    "11": "RTX 2080 Ti", "15": "T4", "16": "V100", "24": "RTX 3090", "32": "V100", "40": "A100",
    "48": "RTX A6000", "80": "A100", "94": "H100", "96": "H20", "141": "H200",
}

# Spellings of a family, longest match first, compared without case, spaces, '-', '_' and '.'; the
# size taken where a name leaves it open. V100: the smaller one, so that an open name errs on the
# safe side; A100: 80 GB is what clouds rent out now.
FAMILIES = {
    "P100": {"spellings": ["P100"]},
    "V100": {"spellings": ["V100"], "size_gb": 16},
    "V100S": {"spellings": ["V100S"]},
    "T4": {"spellings": ["T4"]},
    "A10": {"spellings": ["A10"]},
    "A10G": {"spellings": ["A10G"]},
    "A30": {"spellings": ["A30"]},
    "A40": {"spellings": ["A40"]},
    "A100": {"spellings": ["A100"], "size_gb": 80},
    "A800": {"spellings": ["A800"]},
    "RTX A6000": {"spellings": ["RTX A6000", "A6000"]},
    "RTX 2080 Ti": {"spellings": ["RTX 2080 Ti", "2080 Ti"]},
    "RTX 3090": {"spellings": ["RTX 3090", "3090"]},
    "RTX 4080": {"spellings": ["RTX 4080", "4080"]},
    "RTX 4090": {"spellings": ["RTX 4090", "4090"]},
    "RTX 4090 48G": {"spellings": ["RTX 4090 48G", "4090 48G", "RTX 4090 48GB", "4090 48GB"]},
    "RTX 5060 Ti": {"spellings": ["RTX 5060 Ti", "5060 Ti"]},
    "RTX 5060 Ti 8G": {"spellings": ["RTX 5060 Ti 8G", "5060 Ti 8G", "RTX 5060 Ti 8GB",
                                     "5060 Ti 8GB"]},
    "RTX 5070 Ti": {"spellings": ["RTX 5070 Ti", "5070 Ti"]},
    "RTX 5080": {"spellings": ["RTX 5080", "5080"]},
    "RTX 5090": {"spellings": ["RTX 5090", "5090"]},
    "TITAN RTX": {"spellings": ["TITAN RTX"]},
    "Quadro RTX 6000": {"spellings": ["Quadro RTX 6000"]},
    "RTX 6000 Ada": {"spellings": ["RTX 6000 Ada", "6000 Ada", "RTX 6000 Ada Generation"]},
    "RTX PRO 6000": {"spellings": ["RTX PRO 6000", "PRO 6000", "RTX PRO 6000 Blackwell",
                                   "RTX PRO 6000 Blackwell Workstation Edition",
                                   "RTX PRO 6000 Workstation"]},
    "RTX PRO 6000 Server": {"spellings": ["RTX PRO 6000 Server", "RTX PRO 6000 Blackwell Server",
                                          "RTX PRO 6000 Blackwell Server Edition"]},
    "RTX PRO 6000 Max-Q": {"spellings": ["RTX PRO 6000 Max-Q", "PRO 6000 Max-Q",
                                         "RTX PRO 6000 Blackwell Max-Q",
                                         "RTX PRO 6000 Blackwell Max-Q Workstation Edition"]},
    **{name: {"spellings": [name, name.removeprefix("RTX ")]} for name in (
        "RTX 3060", "RTX 3060 Ti", "RTX 3070", "RTX 3070 Ti", "RTX 3080 Ti", "RTX 3090 Ti",
        "RTX 4060", "RTX 4070", "RTX 4070 Super", "RTX 4070 Ti", "RTX 4070 Ti Super",
        "RTX 4080 Super", "RTX 4090 D", "RTX 5060", "RTX 5070", "RTX 5090 D", "RTX A2000",
        "RTX A4000", "RTX A4500", "RTX A5000", "RTX A5500")},
    "RTX 3080": {"spellings": ["RTX 3080", "3080"], "size_gb": 10},
    "RTX 4060 Ti": {"spellings": ["RTX 4060 Ti", "4060 Ti"], "size_gb": 8},
    **{name: {"spellings": [name, name.removeprefix("RTX "), name + " Generation"]} for name in (
        "RTX 2000 Ada", "RTX 4000 Ada", "RTX 4500 Ada", "RTX 5000 Ada", "RTX 5880 Ada")},
    "RTX 4000 SFF Ada": {"spellings": ["RTX 4000 SFF Ada", "RTX 4000 SFF Ada Generation"]},
    **{name: {"spellings": [name, name.removeprefix("RTX "), name + " Blackwell"]} for name in (
        "RTX PRO 2000", "RTX PRO 4000", "RTX PRO 4500")},
    "RTX PRO 5000": {"spellings": ["RTX PRO 5000", "PRO 5000", "RTX PRO 5000 Blackwell"],
                     "size_gb": 48},
    "GB10": {"spellings": ["GB10", "DGX Spark GB10"]},
    "Quadro RTX 8000": {"spellings": ["Quadro RTX 8000", "RTX 8000"]},
    "A2": {"spellings": ["A2"]},
    "A16": {"spellings": ["A16"]},
    "L4": {"spellings": ["L4"]},
    "L20": {"spellings": ["L20"]},
    "L40": {"spellings": ["L40"]},
    "L40S": {"spellings": ["L40S"]},
    "H100": {"spellings": ["H100"], "size_gb": 80},
    "H800": {"spellings": ["H800"]},
    "H20": {"spellings": ["H20", "H20-3e"], "size_gb": 96},
    "H200": {"spellings": ["H200"]},
    "GH200": {"spellings": ["GH200"], "size_gb": 96},
    "B200": {"spellings": ["B200"]},
    "B300": {"spellings": ["B300"]},
    "GB200": {"spellings": ["GB200"]},
    "GB300": {"spellings": ["GB300"]},
}

C2C = {"value": 450e9, "confidence": "datasheet", "relative_sd": 0.05,
       "source": "NVIDIA Grace Hopper data sheet: NVLink-C2C 900 GB/s in both directions",
       "note": "359 GB/s to the device, 377 back, were measured on a DGX Station GB300",
       "seen": False}

# key -> short name, family, sizes people write in GB, the machine it usually stands in.
NAMES = {
    "p100_pcie_16gb": {"name": "P100-16G-PCIe", "family": "P100", "node": "generic_pcie_server"},
    "p100_sxm2_16gb": {"name": "P100-16G-SXM", "family": "P100", "node": "dgx_1v"},
    "v100_sxm2_16gb": {"name": "V100-16G-SXM", "family": "V100", "node": "dgx_1v"},
    "v100_sxm2_32gb": {"name": "V100-32G-SXM", "family": "V100", "node": "dgx_1v"},
    "v100_pcie_16gb": {"name": "V100-16G-PCIe", "family": "V100",
                       "node": "server_4x_v100_16g_e5_2640v4"},
    "v100_pcie_32gb": {"name": "V100-32G-PCIe", "family": "V100",
                       "node": "server_4x_v100_16g_e5_2640v4"},
    "t4": {"name": "T4-16G", "family": "T4", "sizes": [16, 15], "node": "generic_pcie_server"},
    "a10": {"name": "A10-24G", "family": "A10", "node": "aliyun_ecs.gn7i-c32g1.32xlarge"},
    "a10g": {"name": "A10G-24G", "family": "A10G", "node": "aws_g5.48xlarge"},
    "a30": {"name": "A30-24G", "family": "A30", "node": "generic_pcie_server"},
    "a40": {"name": "A40-48G", "family": "A40", "node": "generic_pcie_server"},
    "a100_pcie_40gb": {"name": "A100-40G-PCIe", "family": "A100", "node": "azure_nc96ads_a100_v4"},
    "a100_sxm_40gb": {"name": "A100-40G-SXM", "family": "A100", "node": "aws_p4d.24xlarge"},
    "a100_pcie_80gb": {"name": "A100-80G-PCIe", "family": "A100", "node": "azure_nc96ads_a100_v4"},
    "a100_sxm_80gb": {"name": "A100-80G-SXM", "family": "A100", "node": "dgx_a100_640"},
    "a800_pcie_80gb": {"name": "A800-80G-PCIe", "family": "A800", "node": "azure_nc96ads_a100_v4"},
    "a800_sxm_80gb": {"name": "A800-80G-SXM", "family": "A800", "node": "cluster_8x_a800_gold6348"},
    "rtx_a6000": {"name": "RTX-A6000", "family": "RTX A6000", "node": "generic_pcie_server"},
    "rtx_3090": {"name": "RTX-3090", "family": "RTX 3090", "node": "consumer_3x_rtx3090_pcie",
                 "no_p2p": True},
    "rtx_4090": {"name": "RTX-4090", "family": "RTX 4090", "node": "generic_workstation",
                 "no_p2p": True},
    "rtx_6000_ada": {"name": "RTX-6000-Ada", "family": "RTX 6000 Ada",
                     "node": "generic_pcie_server"},
    "l4": {"name": "L4-24G", "family": "L4", "node": "generic_pcie_server"},
    "l20": {"name": "L20-48G", "family": "L20", "node": "generic_pcie_server"},
    "l40": {"name": "L40-48G", "family": "L40", "node": "generic_pcie_server"},
    "l40s": {"name": "L40S-48G", "family": "L40S", "node": "generic_pcie_server"},
    "h100_pcie": {"name": "H100-80G-PCIe", "family": "H100", "node": "generic_pcie_server"},
    "h100_sxm": {"name": "H100-80G-SXM", "family": "H100", "node": "dgx_h100"},
    "h100_nvl": {"name": "H100-94G-NVL", "family": "H100", "sizes": [94, 96], "form": "NVL",
                 "node": "generic_pcie_server"},
    "h800_sxm": {"name": "H800-80G-SXM", "family": "H800", "node": "dgx_h100"},
    "h20": {"name": "H20-96G-SXM", "family": "H20", "node": "dgx_h100"},
    "h200_sxm": {"name": "H200-141G-SXM", "family": "H200", "sizes": [141, 144],
                 "node": "dgx_h200"},
    "gh200_96gb": {"name": "GH200-96G", "family": "GH200", "form": "superchip",
                   "node": "generic_grace", "host_link": C2C},
    "gh200_144gb": {"name": "GH200-144G", "family": "GH200", "sizes": [144, 141],
                    "form": "superchip", "node": "generic_grace", "host_link": C2C},
    "b200": {"name": "B200-180G-SXM", "family": "B200", "sizes": [180, 183, 192],
             "node": "dgx_h200"},
    "b300": {"name": "B300-288G-SXM", "family": "B300", "sizes": [288, 270, 275],
             "node": "dgx_h200"},
    "gb200": {"name": "GB200-186G", "family": "GB200", "sizes": [186, 189, 192],
              "form": "superchip", "node": "generic_grace", "host_link": C2C},
    "rtx_5090": {"name": "RTX-5090", "family": "RTX 5090", "node": "generic_workstation",
                 "no_p2p": True},
}

TOPOLOGY = {
    "hybrid_cube_mesh": "hybrid_cube_mesh", "nvswitch": "nvswitch", "nvswitch_nv8": "nvswitch",
    "pcie": "pcie", "pcie_no_p2p": "pcie_no_p2p", "pcie+nvlink_bridge_pairs": "nvlink_pairs",
}

# `usual`: taken first among machines with the same GPU and as many of them. `divisible`: false for a
# box that is not rented out in parts; `per_gpu`: each GPU brings its own host. `uplink`: GPUs that
# share one PCIe link to the host.
NODES = {
    "dgx_1v": {"usual": True, "uplink": 2},
    "dgx_2": {"usual": True, "uplink": 2},
    "dgx_a100_640": {"usual": True, "uplink": 2},
    "dgx_h100": {"usual": True, "uplink": 1},
    "dgx_h200": {"usual": True, "uplink": 1},
    "aws_p4d.24xlarge": {"usual": True, "host_pcie": 3, "uplink": 2, "sockets": 2},
    "aws_p4de.24xlarge": {"host_pcie": 3, "uplink": 2, "sockets": 2},
    "aws_p5.48xlarge": {"host_pcie": 4},
    "aws_g5.12xlarge": {"usual": True, "topology": "pcie_no_p2p", "host_pcie": 4, "sockets": 1},
    "aws_g5.48xlarge": {"usual": True, "topology": "pcie_no_p2p", "host_pcie": 4, "sockets": 2},
    "azure_nc96ads_a100_v4": {"usual": True},
    "aliyun_ecs.gn7i-c32g1.32xlarge": {"usual": True, "host_pcie": 4, "sockets": 2},
    "aliyun_ecs.gn7e-c16g1.32xlarge": {"host_pcie": 4, "sockets": 2},
    "cluster_8x_a800_gold6348": {"usual": True},
    "server_4x_v100_16g_e5_2640v4": {"usual": True, "divisible": False, "uplink": 1},
    "consumer_3x_rtx3090_pcie": {"usual": True, "divisible": False},
}

# GiB the operating system sees, where somebody looked.
VISIBLE_GIB = {
    "dgx_1v": (503, "of 512 GiB fitted"),
    "dgx_2": (1510, "of 1536 GiB fitted"),
    "azure_nd96amsr_a100_v4": (1772, "of 1900 GiB nominal"),
    "azure_nd96isr_h100_v5": (1772, "of 1900 GiB nominal, as ND96amsr_A100_v4 shows"),
    "azure_nd40rs_v2": (661, "of 672 GiB nominal"),
    "azure_nc96ads_a100_v4": (866, "of 880 GiB nominal"),
}


def leaf(value, confidence, source, relative_sd, note=None, seen=True):
    new = {"value": value, "confidence": confidence, "relative_sd": relative_sd, "source": source}
    if note:
        new["note"] = note
    if not seen:
        new["seen"] = False
    return new


NCCL = "NCCL src/graph/tuning.cc, latency of one ring hop with the LL protocol"

# Of one message on the wire, by the kind of link.
LATENCY = {
    "nvlink": leaf(0.6e-6, "measured", NCCL, 0.3),
    "pcie": leaf(1.0e-6, "measured", NCCL, 0.3),
    "host": leaf(1.0e-6, "assumed", "a cache line between two sockets and the wake-up of a waiter",
                 0.5),
    "ib": leaf(2.7e-6, "measured", NCCL, 0.3),
    "roce": leaf(4.0e-6, "assumed", "NCCL's InfiniBand figure and one switch more", 0.5),
    "opa": leaf(2.7e-6, "assumed", "NCCL's InfiniBand figure: Omni-Path GPUs offer the same verbs",
                0.5),
    "tcp": leaf(50e-6, "assumed", "time of a small message through the kernel, 50-100 us a hop", 0.5),
    "vxlan": leaf(100e-6, "assumed", "TCP with encapsulation: twice its time", 0.5),
}

WORKSTATION = "assumed for a workstation; state yours"
SERVER = "assumed for a PCIe server; state yours"
HGX = "assumed for a server with an SXM board; state yours"
GRACE = "NVIDIA Grace Hopper superchip data sheet"
DEEPNVME = "DeepSpeed blogs/deepnvme/08-2024: four Gen4 drives"
CPU_BOX = "assumed for a machine without GPU; state yours"

# Machines for GPUs whose own machine nobody described, and for gaps of described ones.
GENERIC_NODES = {
    "generic_pcie_server": {
        "name": "a two-socket PCIe server", "gpus": [], "gpus_per_node": 8, "topology": "pcie",
        "host_memory_bytes": leaf(503 * GIB, "assumed", SERVER, 0.3, "64 GiB a GPU"),
        "host_memory_bandwidth": leaf(409.6e9, "assumed", "2 sockets x 8 x DDR4-3200 x 8 B", 0.3),
        "cpu_cores": leaf(64, "assumed", SERVER, 0.3), "cpu_sockets": 2,
        "host_pcie_generation": 4, "gpus_per_pcie_uplink": 2,
        "inter_node": {"link": "tcp", "cards": 1,
                       "bandwidth": leaf(25e9 / 8, "assumed", SERVER, 0.5, "1 x 25 Gb/s")},
        "nvme": {
            "capacity_bytes": leaf(4 * 1920000000000, "assumed", SERVER, 0.5, "4 x 1.92 TB"),
            "read_bandwidth": leaf(10e9, "measured", DEEPNVME, 0.2),
            "write_bandwidth": leaf(5e9, "measured", DEEPNVME, 0.2)},
    },
    "generic_hgx_server": {
        "name": "an HGX server", "gpus": [], "gpus_per_node": 8, "topology": "nvswitch",
        "host_memory_bytes": leaf(1006 * GIB, "assumed", HGX, 0.3, "of 1024 GiB fitted"),
        "host_memory_bandwidth": leaf(409.6e9, "assumed", "2 sockets x 8 x DDR4-3200 x 8 B", 0.3),
        "cpu_cores": leaf(64, "assumed", HGX, 0.3), "cpu_sockets": 2,
        "host_pcie_generation": 4, "gpus_per_pcie_uplink": 2,
        "inter_node": {"link": "ib", "cards": 1,
                       "bandwidth": leaf(100e9 / 8, "assumed", HGX, 0.5, "1 x 100 Gb/s")},
        "nvme": {
            "capacity_bytes": leaf(4 * 1920000000000, "assumed", HGX, 0.5, "4 x 1.92 TB"),
            "read_bandwidth": leaf(10e9, "measured", DEEPNVME, 0.2),
            "write_bandwidth": leaf(5e9, "measured", DEEPNVME, 0.2)},
    },
    "generic_workstation": {
        "name": "a workstation", "gpus": [], "gpus_per_node": 4, "topology": "pcie",
        "divisible": False,
        "host_memory_bytes": leaf(62 * GIB, "assumed", WORKSTATION, 0.3, "of 64 GiB fitted"),
        "host_memory_bandwidth": leaf(51.2e9, "assumed", "2 channels of DDR4-3200 x 8 B", 0.3),
        "cpu_cores": leaf(16, "assumed", WORKSTATION, 0.3), "cpu_sockets": 1,
        "host_pcie_generation": 4, "host_pcie_lanes": 16, "gpus_per_pcie_uplink": 1,
        "inter_node": {"link": "tcp", "cards": 1,
                       "bandwidth": leaf(10e9 / 8, "assumed", WORKSTATION, 0.5, "1 x 10 Gb/s")},
        "nvme": {
            "capacity_bytes": leaf(1000000000000, "assumed", WORKSTATION, 0.5),
            "read_bandwidth": leaf(3.69e9, "measured", "DeepSpeed docs/_tutorials/deepnvme.md: one "
                                   "consumer Gen4 drive under aio", 0.2),
            "write_bandwidth": leaf(3.18e9, "measured", "DeepSpeed docs/_tutorials/deepnvme.md: one "
                                    "consumer Gen4 drive under aio", 0.2)},
    },
    "generic_grace": {
        "name": "a Grace node", "gpus": [], "gpus_per_node": 1, "topology": "nvswitch",
        "per_gpu": True,
        "host_memory_bytes": leaf(471 * GIB, "datasheet", GRACE, 0.05, "of 480 GB LPDDR5X",
                                  seen=False),
        "host_memory_bandwidth": leaf(500e9, "datasheet", GRACE, 0.05, seen=False),
        "cpu_cores": leaf(72, "datasheet", GRACE, 0.0, seen=False), "cpu_sockets": 1,
        "gpus_per_pcie_uplink": 1,
        "inter_node": {"link": "ib", "cards": 1,
                       "bandwidth": leaf(400e9 / 8, "assumed", "one NDR GPU a superchip", 0.5)},
    },
    "generic_cpu": {
        "name": "a machine without GPU", "gpus": ["cpu"], "gpus_per_node": 1,
        "topology": "shared_memory", "divisible": False,
        "host_memory_bytes": leaf(16 * GIB, "assumed", CPU_BOX, 0.3),
        "host_memory_bandwidth": leaf(25.6e9, "assumed", "one channel of DDR4-3200", 0.5),
        "cpu_cores": leaf(8, "assumed", CPU_BOX, 0.3), "cpu_sockets": 1,
        "gpus_per_pcie_uplink": 1,
        "inter_node": {"link": "tcp", "cards": 1,
                       "bandwidth": leaf(10e9 / 8, "assumed", CPU_BOX, 0.5, "1 x 10 Gb/s")},
        "nvme": {
            "capacity_bytes": leaf(500000000000, "assumed", CPU_BOX, 0.5),
            "read_bandwidth": leaf(2e9, "assumed", CPU_BOX, 0.5),
            "write_bandwidth": leaf(1e9, "assumed", CPU_BOX, 0.5)},
    },
}

# One rank of the embedded runtime on a CPU. Its memory is its share of the host's.
CPU_RANK = {
    "name": "cpu", "product_name": "CPU rank", "family": "cpu", "sizes_gb": [], "form": "CPU",
    "architecture": "CPU", "compute_capability": "0.0", "usual_node": "generic_cpu",
    "memory_bytes": leaf(16 * GIB, "assumed", CPU_BOX, 0.3),
    "memory_bandwidth": leaf(10e9, "assumed", "one core copying from DRAM", 0.5),
    "peak_flops": {
        "fp32": leaf(50e9, "assumed", "one core: 3 GHz x 16 lanes with one fused multiply-add", 0.5),
        "fp16": leaf(50e9, "assumed", "computed in fp32", 0.5),
        "bf16": leaf(50e9, "assumed", "computed in fp32", 0.5)},
    "bf16_supported": True,
    "host_link": leaf(10e9, "assumed", "one core copying within DRAM", 0.5),
    "l2_bytes": leaf(1 << 20, "assumed", CPU_BOX, 0.5),
    "sm_count": leaf(1, "assumed", "one core", 0.0),
    "power_watts": leaf(15, "assumed", CPU_BOX, 0.5),
}

TURING = "NVIDIA Turing architecture whitepaper WP-09183-001, appendix"
VOLTA = "NVIDIA V100S PCIe data sheet"
OOM = "out-of-memory messages of PyTorch in public repositories"


def sheet(value, source, seen=False, count=False):
    return leaf(value, "datasheet", source, 0.0 if count else (0.03 if seen else 0.05), seen=seen)


def card(name, product, family, size, architecture, capability, node, memory, figures, source,
         pcie=(3, 16), nvlink=None, bf16=True, peer_to_peer=True, seen=False, form="PCIe"):
    """A GPU from its data sheet; figures = (GB/s, peaks in TFLOPS, L2 MiB, SMs, W)."""
    bandwidth, peaks, l2, sms, watts = figures
    new = {"name": name, "product_name": product, "family": family, "sizes_gb": [size],
           "form": form, "architecture": architecture, "compute_capability": capability,
           "usual_node": node}
    if not peer_to_peer:
        new["pcie_peer_to_peer"] = False
    new["memory_bytes"] = memory
    new["memory_bandwidth"] = sheet(round(bandwidth * 1e9), source, seen)
    new["peak_flops"] = {key: sheet(round(value * 1e12), source, seen)
                         for key, value in peaks.items()}
    new["bf16_supported"] = bf16
    if nvlink:
        new["nvlink"] = sheet(nvlink * 1e9, source)
        new["nvlink"]["note"] = "bridge joins 2 GPUs"
    new["pcie"] = {"generation": pcie[0], "lanes": pcie[1]}
    new["l2_bytes"] = sheet(int(l2 * 2**20), source, seen, count=True)
    new["sm_count"] = sheet(sms, source, seen, count=True)
    new["power_watts"] = sheet(watts, source, seen, count=True)
    return new


def nominal_without_ecc(size):
    """Nobody's message with this GPU was read: 15.47 of 16 GiB is what an RTX 5060 Ti has, the least of 16 GB."""
    return leaf(round(15.47 / 16 * size * GIB), "derived", "as RTX 5060 Ti of 16 GB: " + OOM, 0.01)


def copy_of(gpu, **changes):
    copied = json.loads(json.dumps(gpu))
    copied.update(changes)
    return copied


def from_others(cards):
    """GPUs that differ from collected ones in little: `GPUs` are those of the tables."""
    large = copy_of(cards["h20"], name="H20-141G-SXM", product_name="NVIDIA H20-3e",
                    sizes_gb=[141, 144])
    large["memory_bytes"] = dict(cards["h200_sxm"]["memory_bytes"], confidence="derived",
                                 relative_sd=0.005, note="as H200, which has the same memory")
    large["memory_bandwidth"] = sheet(4800000000000, "public specification pages of NVIDIA H20-3e")
    ultra = copy_of(cards["gb200"], name="GB300-288G", product_name="NVIDIA GB300 (per GPU)",
                    family="GB300", sizes_gb=[288, 279, 270], architecture="Blackwell Ultra",
                    compute_capability="10.3")
    ultra["memory_bytes"] = dict(cards["b300"]["memory_bytes"], confidence="derived",
                                 relative_sd=0.02, note="as B300, which has the same memory")
    ultra["power_watts"] = sheet(1400, "NVIDIA GB300 NVL72 product page", count=True)
    return {"h20_141gb": large, "gb300": ultra}


def gpus():
    """GPUs the tables lack. `seen` where the figures were read in public pages, not from memory."""
    pro = "public specification pages (hmc-tech.com, tomshardware.com) of NVIDIA RTX PRO 6000 Blackwell"
    ada = "NVIDIA Ada GPU architecture whitepaper, appendix: GeForce RTX 4080"
    blackwell = "NVIDIA RTX Blackwell GPU architecture whitepaper, appendix: GeForce RTX "
    ti5060 = "public specification pages of GeForce RTX 5060 Ti; tensor rate: 36 SM x 2.572 GHz x 512"
    return {
        "v100s_pcie_32gb": card(
            "V100S-32G-PCIe", "Tesla V100S-PCIE-32GB", "V100S", 32, "Volta", "7.0",
            "server_4x_v100_16g_e5_2640v4",
            leaf(round(31.73 * GIB), "derived", "as V100-PCIE-32GB: " + OOM, 0.002),
            (1134, {"fp32": 16.4, "fp16": 130}, 6, 80, 250), VOLTA, bf16=False),
        "quadro_rtx_6000": card(
            "Quadro-RTX-6000", "Quadro RTX 6000", "Quadro RTX 6000", 24, "Turing (TU102)", "7.5",
            "generic_pcie_server",
            leaf(round(23.65 * GIB), "derived", "as TITAN RTX, which has the same memory, ECC off",
                 0.03, "22.2 GiB with ECC on"),
            (672, {"fp32": 16.3, "fp16": 130.5}, 6, 72, 260), TURING, nvlink=50, bf16=False),
        "titan_rtx": card(
            "TITAN-RTX", "TITAN RTX", "TITAN RTX", 24, "Turing (TU102)", "7.5",
            "generic_workstation", leaf(round(23.65 * GIB), "measured", OOM, 0.0005),
            (672, {"fp32": 16.3, "fp16": 130.5}, 6, 72, 280), TURING, nvlink=50, bf16=False,
            peer_to_peer=False),
        "rtx_2080_ti": card(
            "RTX-2080-Ti", "GeForce RTX 2080 Ti", "RTX 2080 Ti", 11, "Turing (TU102)", "7.5",
            "generic_workstation",
            leaf(round(10.75 * GIB), "measured", OOM, 0.0005, "10.75 to 10.76 GiB"),
            (616, {"fp32": 13.4, "fp16": 53.8}, 5.5, 68, 250), TURING, nvlink=50, bf16=False,
            peer_to_peer=False),
        "rtx_5060_ti_16gb": card(
            "RTX-5060-Ti", "GeForce RTX 5060 Ti", "RTX 5060 Ti", 16, "Blackwell (GB206)", "12.0",
            "generic_workstation", leaf(round(15.47 * GIB), "measured", OOM, 0.001),
            (448, {"fp32": 23.7, "tf32": 23.7, "fp16": 47.4, "bf16": 47.4, "fp8": 94.8}, 32, 36,
             180), ti5060, pcie=(5, 8), peer_to_peer=False, seen=True),
        "rtx_4080": card(
            "RTX-4080", "GeForce RTX 4080", "RTX 4080", 16, "Ada Lovelace (AD103)", "8.9",
            "generic_workstation", nominal_without_ecc(16),
            (716.8, {"fp32": 48.7, "tf32": 48.7, "fp16": 97.5, "bf16": 97.5, "fp8": 194.9}, 64, 76,
             320), ada, pcie=(4, 16), peer_to_peer=False),
        "rtx_5070_ti": card(
            "RTX-5070-Ti", "GeForce RTX 5070 Ti", "RTX 5070 Ti", 16, "Blackwell (GB203)", "12.0",
            "generic_workstation", nominal_without_ecc(16),
            (896, {"fp32": 43.9, "tf32": 43.9, "fp16": 87.9, "bf16": 87.9, "fp8": 175.8}, 48, 70,
             300), blackwell + "5070 Ti", pcie=(5, 16), peer_to_peer=False),
        "rtx_5080": card(
            "RTX-5080", "GeForce RTX 5080", "RTX 5080", 16, "Blackwell (GB203)", "12.0",
            "generic_workstation", nominal_without_ecc(16),
            (960, {"fp32": 56.3, "tf32": 56.3, "fp16": 112.6, "bf16": 112.6, "fp8": 225.1}, 64, 84,
             360), blackwell + "5080", pcie=(5, 16), peer_to_peer=False),
        "rtx_pro_6000": card(
            "RTX-PRO-6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000", 96,
            "Blackwell (GB202)", "12.0", "generic_pcie_server",
            leaf(round(94.97 * GIB), "measured", OOM, 0.0005, "nvidia-smi: 97887 MiB"),
            (1792, {"fp32": 125.95, "tf32": 251.9, "fp16": 503.8, "bf16": 503.8, "fp8": 1007.6},
             128, 188, 600), pro, pcie=(5, 16), seen=True),
        "rtx_pro_6000_server": card(
            "RTX-PRO-6000-Server", "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "RTX PRO 6000 Server", 96, "Blackwell (GB202)", "12.0", "generic_pcie_server",
            leaf(round(94.97 * GIB), "derived", "as the workstation edition: " + OOM, 0.002),
            (1597, {"fp32": 120, "tf32": 240, "fp16": 480, "bf16": 480, "fp8": 960},
             128, 188, 600), "NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet",
            pcie=(5, 16)),
    }
