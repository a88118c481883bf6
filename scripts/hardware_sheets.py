"""GPUs that people name and no collected table has, a row each: hardware_additions.py takes them in.

A row is: short name, product, sizes in GB, chip, compute capability, then the data sheet's memory bandwidth in GB/s, fp32
TFLOP/s outside the tensor cores, L2 in MiB, multiprocessors, watts, PCIe generation and lanes, and what is not usual.
"""

import hardware_additions as additions

GIB = additions.GIB
ADA = "Ada Lovelace ({})"
AMPERE = "Ampere ({})"
BLACKWELL = "Blackwell ({})"

# CUDA's total of GPUs of one nominal size without ECC: the least that out-of-memory messages of that size showed.
LEAST_GIB = {8: 7.60, 10: 9.62, 12: 11.49, 16: 15.47, 20: 19.57, 24: 23.46, 32: 31.34, 48: 47.27}
PRINTED_GIB = {"RTX-3060": 11.63, "RTX-3080-10G": 9.62, "RTX-4070": 11.56, "RTX-4060-Ti-16G": 15.55, "RTX-A4000": 15.61,
               "RTX-4090-48G": 47.27}
# nvidia-smi's MiB where nobody printed CUDA's total; 98.5 % of it are left.
SMI_MIB = {"RTX-PRO-5000-72G": 73415}

# Tensor cores with fp32 accumulation against fp32 outside them, by kind: tf32, fp16 and bf16, fp8.
GEFORCE = (1, 2, 4)
FULL = (2, 4, 8)

GEFORCE_SHEET = "NVIDIA's GeForce product page and architecture whitepaper"
PRO_SHEET = "NVIDIA's data sheet of the product"
PAGES = "public specification pages (hmc-tech.com, technical.city, topcpu.net)"

# key: (name, family, sizes, chip, capability, GB/s, TFLOP/s, MiB, SMs, W, PCIe)
GEFORCES = {
    "rtx_3060": ("RTX-3060", "RTX 3060", [12], AMPERE.format("GA106"), 360, 12.7, 3, 28, 170, (4, 16)),
    "rtx_3060_ti": ("RTX-3060-Ti", "RTX 3060 Ti", [8], AMPERE.format("GA104"), 448, 16.2, 4, 38, 200, (4, 16)),
    "rtx_3070": ("RTX-3070", "RTX 3070", [8], AMPERE.format("GA104"), 448, 20.3, 4, 46, 220, (4, 16)),
    "rtx_3070_ti": ("RTX-3070-Ti", "RTX 3070 Ti", [8], AMPERE.format("GA104"), 608, 21.7, 4, 48, 290, (4, 16)),
    "rtx_3080_10gb": ("RTX-3080-10G", "RTX 3080", [10], AMPERE.format("GA102"), 760, 29.8, 5, 68, 320, (4, 16)),
    "rtx_3080_12gb": ("RTX-3080-12G", "RTX 3080", [12], AMPERE.format("GA102"), 912, 30.6, 6, 70, 350, (4, 16)),
    "rtx_3080_ti": ("RTX-3080-Ti", "RTX 3080 Ti", [12], AMPERE.format("GA102"), 912, 34.1, 6, 80, 350, (4, 16)),
    "rtx_3090_ti": ("RTX-3090-Ti", "RTX 3090 Ti", [24], AMPERE.format("GA102"), 1008, 40.0, 6, 84, 450, (4, 16)),
    "rtx_4060": ("RTX-4060", "RTX 4060", [8], ADA.format("AD107"), 272, 15.1, 24, 24, 115, (4, 8)),
    "rtx_4060_ti_8gb": ("RTX-4060-Ti-8G", "RTX 4060 Ti", [8], ADA.format("AD106"), 288, 22.1, 32, 34, 160, (4, 8)),
    "rtx_4060_ti_16gb": ("RTX-4060-Ti-16G", "RTX 4060 Ti", [16], ADA.format("AD106"), 288, 22.1, 32, 34, 165, (4, 8)),
    "rtx_4070": ("RTX-4070", "RTX 4070", [12], ADA.format("AD104"), 504, 29.1, 36, 46, 200, (4, 16)),
    "rtx_4070_super": ("RTX-4070-Super", "RTX 4070 Super", [12], ADA.format("AD104"), 504, 35.5, 48, 56, 220, (4, 16)),
    "rtx_4070_ti": ("RTX-4070-Ti", "RTX 4070 Ti", [12], ADA.format("AD104"), 504, 40.1, 48, 60, 285, (4, 16)),
    "rtx_4070_ti_super": ("RTX-4070-Ti-Super", "RTX 4070 Ti Super", [16], ADA.format("AD103"), 672, 44.1, 48, 66, 285, (4, 16)),
    "rtx_4080_super": ("RTX-4080-Super", "RTX 4080 Super", [16], ADA.format("AD103"), 736, 52.2, 64, 80, 320, (4, 16)),
    "rtx_4090_d": ("RTX-4090-D", "RTX 4090 D", [24], ADA.format("AD102"), 1008, 73.5, 72, 114, 425, (4, 16)),
    "rtx_4090_48gb": ("RTX-4090-48G", "RTX 4090 48G", [48], ADA.format("AD102"), 1008, 82.6, 72, 128, 450, (4, 16)),
    "rtx_5060": ("RTX-5060", "RTX 5060", [8], BLACKWELL.format("GB206"), 448, 19.2, 32, 30, 145, (5, 8)),
    "rtx_5060_ti_8gb": ("RTX-5060-Ti-8G", "RTX 5060 Ti 8G", [8], BLACKWELL.format("GB206"), 448, 23.7, 32, 36, 180, (5, 8)),
    "rtx_5070": ("RTX-5070", "RTX 5070", [12], BLACKWELL.format("GB205"), 672, 30.9, 48, 48, 250, (5, 16)),
}

PROFESSIONALS = {
    "rtx_a2000_12gb": ("RTX-A2000-12G", "RTX A2000", [12], AMPERE.format("GA106"), 288, 8.0, 3, 26, 70, (4, 16)),
    "rtx_a4000": ("RTX-A4000", "RTX A4000", [16], AMPERE.format("GA104"), 448, 19.2, 4, 48, 140, (4, 16)),
    "rtx_a4500": ("RTX-A4500", "RTX A4500", [20], AMPERE.format("GA102"), 640, 23.65, 6, 56, 200, (4, 16)),
    "rtx_a5000": ("RTX-A5000", "RTX A5000", [24], AMPERE.format("GA102"), 768, 27.8, 6, 64, 230, (4, 16)),
    "rtx_a5500": ("RTX-A5500", "RTX A5500", [24], AMPERE.format("GA102"), 768, 34.1, 6, 80, 230, (4, 16)),
    "rtx_2000_ada": ("RTX-2000-Ada", "RTX 2000 Ada", [16], ADA.format("AD107"), 224, 12.0, 12, 22, 70, (4, 8)),
    "rtx_4000_sff_ada": ("RTX-4000-SFF-Ada", "RTX 4000 SFF Ada", [20], ADA.format("AD104"), 280, 19.2, 48, 48, 70, (4, 16)),
    "rtx_4000_ada": ("RTX-4000-Ada", "RTX 4000 Ada", [20], ADA.format("AD104"), 360, 26.7, 48, 48, 130, (4, 16)),
    "rtx_4500_ada": ("RTX-4500-Ada", "RTX 4500 Ada", [24], ADA.format("AD103"), 432, 39.6, 48, 60, 210, (4, 16)),
    "rtx_5000_ada": ("RTX-5000-Ada", "RTX 5000 Ada", [32], ADA.format("AD102"), 576, 65.3, 72, 100, 250, (4, 16)),
    "rtx_5880_ada": ("RTX-5880-Ada", "RTX 5880 Ada", [48], ADA.format("AD102"), 960, 69.3, 96, 110, 285, (4, 16)),
    "rtx_pro_2000": ("RTX-PRO-2000", "RTX PRO 2000", [16], BLACKWELL.format("GB206"), 288, 17.0, 32, 34, 70, (5, 8)),
    "rtx_pro_4000": ("RTX-PRO-4000", "RTX PRO 4000", [24], BLACKWELL.format("GB203"), 672, 36.8, 48, 70, 145, (5, 16)),
    "rtx_pro_4500": ("RTX-PRO-4500", "RTX PRO 4500", [32], BLACKWELL.format("GB203"), 896, 52.7, 64, 82, 200, (5, 16)),
    "rtx_pro_5000_48gb": ("RTX-PRO-5000-48G", "RTX PRO 5000", [48], BLACKWELL.format("GB202"), 1344, 64.5, 96, 110, 300, (5, 16)),
    "rtx_pro_5000_72gb": ("RTX-PRO-5000-72G", "RTX PRO 5000", [72], BLACKWELL.format("GB202"), 1344, 64.5, 96, 110, 300, (5, 16)),
}

# Rows whose figures were read in public pages, and not from memory.
SEEN = {"rtx_4070", "rtx_4070_ti", "rtx_a4000", "rtx_a4500", "rtx_2000_ada", "rtx_4000_ada", "rtx_5000_ada", "rtx_4500_ada",
        "rtx_pro_5000_48gb", "rtx_pro_5000_72gb"}


def memory(name, size):
    oom = additions.OOM
    if name in SMI_MIB:
        mib = SMI_MIB[name]
        return additions.leaf(round(0.985 * mib * 2**20), "derived", "98.5 % of nvidia-smi's total", 0.01,
                              f"nvidia-smi: {mib} MiB")
    if name in PRINTED_GIB:
        return additions.leaf(round(PRINTED_GIB[name] * GIB), "measured", oom, 0.002)
    return additions.leaf(round(LEAST_GIB[size] * GIB), "derived", f"the least of GPUs of {size} GB without ECC: {oom}", 0.01)


def product(name, maker):
    """RTX-4060-Ti-16G -> NVIDIA GeForce RTX 4060 Ti 16G"""
    return maker + name.replace("-", " ")


def row(key, figures, rates, maker, node, capability, source):
    name, family, sizes, architecture, bandwidth, fp32, l2, sms, watts, pcie = figures
    tf32, half, fp8 = (round(fp32 * rate, 2) for rate in rates)
    peaks = {"fp32": fp32, "tf32": tf32, "fp16": half, "bf16": half}
    if capability > "8.6":
        peaks["fp8"] = fp8
    seen = key in SEEN
    return additions.card(name, product(name, maker), family, sizes[0], architecture, capability, node,
                          memory(name, sizes[0]), (bandwidth, peaks, l2, sms, watts), PAGES if seen else source, pcie=pcie,
                          peer_to_peer=rates is not GEFORCE, seen=seen)


def capability_of(architecture):
    return {"Ampere": "8.6", "Ada": "8.9", "Blackwell": "12.0"}[architecture.split()[0]]


def data_center():
    """A2 and A16 have ECC on, as T4, and their rates from NVIDIA's data sheets; an A16 board is four of these GPUs."""
    low = additions.leaf(round(14.56 * GIB), "derived", "as T4, which has as much with ECC on: " + additions.OOM, 0.01)
    peaks = {"fp32": 4.5, "tf32": 9.0, "fp16": 18.0, "bf16": 18.0}
    a2 = additions.card("A2-16G", "NVIDIA A2", "A2", 16, AMPERE.format("GA107"), "8.6", "generic_pcie_server", low,
                        (200, peaks, 2, 10, 60), PRO_SHEET, pcie=(4, 8))
    a16 = additions.card("A16-16G", "NVIDIA A16", "A16", 16, AMPERE.format("GA107"), "8.6", "generic_pcie_server", low,
                         (200, dict(peaks, fp16=17.9, bf16=17.9), 2, 10, 62.5), PRO_SHEET, pcie=(4, 4))
    return {"a2": a2, "a16": a16}


def rtx_8000():
    return {"quadro_rtx_8000": additions.card(
        "Quadro-RTX-8000", "Quadro RTX 8000", "Quadro RTX 8000", 48, "Turing (TU102)", "7.5", "generic_pcie_server",
        memory("Quadro-RTX-8000", 48), (672, {"fp32": 16.3, "fp16": 130.5}, 6, 72, 260), additions.TURING, nvlink=50, bf16=False)}


def from_others(gpus):
    """GPUs that differ from ones above in little."""
    sheet = additions.sheet
    quiet = additions.copy_of(gpus["rtx_pro_6000"], name="RTX-PRO-6000-Max-Q", family="RTX PRO 6000 Max-Q",
                              product_name="NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition")
    quiet["peak_flops"] = {key: sheet(round(value * 1e12), PRO_SHEET)
                           for key, value in {"fp32": 110, "tf32": 220, "fp16": 439, "bf16": 439, "fp8": 878}.items()}
    quiet["power_watts"] = sheet(300, PRO_SHEET, count=True)
    china = additions.copy_of(gpus["rtx_5090"], name="RTX-5090-D", family="RTX 5090 D", product_name="NVIDIA GeForce RTX 5090 D")
    for key, value in {"tf32": 74.2, "fp16": 148.4, "bf16": 148.4, "fp8": 296.9}.items():
        china["peak_flops"][key] = sheet(round(value * 1e12), "NVIDIA's product page: 2375 AI TOPS against 3352 of RTX 5090")
    h800 = additions.copy_of(gpus["h100_pcie"], name="H800-80G-PCIe", family="H800", product_name="NVIDIA H800 PCIe")
    h800["nvlink"] = dict(sheet(200e9, PRO_SHEET), note="bridge joins 2 GPUs")
    return {"rtx_pro_6000_max_q": quiet, "rtx_5090_d": china, "h800_pcie": h800}


SPARK = "public measurements on DGX Spark: "


def gb10():
    """One pool for host and GPU. Its fp16 rate is an eighth of NVIDIA's petaflop of FP4 with sparsity."""
    leaf, rate = additions.leaf, "NVIDIA DGX Spark product page: 1 PFLOP/s of FP4 with sparsity, an eighth of it in fp16"
    made = additions.card(
        "GB10-128G", "NVIDIA GB10", "GB10", 128, BLACKWELL.format("GB10"), "12.1", "dgx_spark",
        leaf(round(119.61 * GIB), "measured", additions.OOM, 0.0005, "up to 121.69 GiB with other drivers; the least is taken"),
        (273, {"fp32": 31.25, "tf32": 62.5, "fp16": 125, "bf16": 125, "fp8": 250}, 24, 48, 140), rate, form="superchip")
    for peak in made["peak_flops"].values():
        peak.update(confidence="derived", relative_sd=0.15, note="92.3 TFLOP/s in bf16 products: huggingface/kernels#283")
    del made["pcie"]
    made["sizes_gb"] = [128, 120, 119]
    made["host_link"] = leaf(136.5e9, "derived", "a copy reads and writes the one memory: half of 273 GB/s", 0.3)
    made["pool_system_bytes"] = leaf(round(6.4 * GIB), "measured", SPARK + "GuigsEvt/dgx_spark_config#1 and leptonai/gpud#1170", 0.3,
                                     "6.2 and 6.4 GiB in use on an idle machine; 4.4 beside a process of 112.4")
    return {"gb10": made}


def gpus(others):
    made = gb10()
    for key, figures in GEFORCES.items():
        made[key] = row(key, figures, GEFORCE, "NVIDIA GeForce ", "generic_workstation", capability_of(figures[3]), GEFORCE_SHEET)
    for key, figures in PROFESSIONALS.items():
        made[key] = row(key, figures, FULL, "NVIDIA ", "generic_pcie_server", capability_of(figures[3]), PRO_SHEET)
    made["rtx_4090_48gb"]["memory_bandwidth"]["note"] = "an RTX 4090 whose memory chips were doubled; not NVIDIA's product"
    made["rtx_3090_ti"]["nvlink"] = dict(additions.sheet(56.25e9, GEFORCE_SHEET), note="bridge joins 2 GPUs")
    return {**made, **data_center(), **rtx_8000(), **from_others(others)}
