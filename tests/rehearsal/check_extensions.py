#!/usr/bin/env python3
"""Rehearses a small program for each extension that a Python has: check_extensions.py ZEROPLAN PYTHON [CASE...].

The programs are those of programs/extensions.py. Exit 1 where one does not run, or gives bytes that cannot be; what the
Python has no packages for is skipped aloud, and exit is 77 where that is everything.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# What it needs beside torch and transformers, and ranks.
CASES = {
    "adam8bit": (["bitsandbytes"], 1), "paged_adam8bit": (["bitsandbytes"], 1), "lora": (["peft"], 1),
    "qlora": (["bitsandbytes", "peft"], 1), "int8_lora": (["bitsandbytes", "peft"], 1), "liger": (["liger_kernel"], 1),
    "compiled": (["triton"], 1), "ddp": ([], 2), "fsdp1": ([], 2), "fsdp2": ([], 2), "sft": (["trl"], 1), "dpo": (["trl"], 1),
    "grpo": (["trl"], 1), "zero3": (["deepspeed"], 8), "zero3_offload": (["deepspeed"], 2),
    "zero3_nvme": (["deepspeed"], 2), "pipeline": (["deepspeed"], 4), "ulysses": (["deepspeed"], 2),
    "flash_attention": ([], 1),
}
LAYERS, HIDDEN, INNER, VOCABULARY = 2, 512, 1536, 4096
PARAMETERS = 2 * VOCABULARY * HIDDEN + LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * INNER + 2 * HIDDEN) + HIDDEN


def has(python, packages):
    question = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"
    return subprocess.run([python, "-c", question, *packages]).returncode == 0


def rehearse(program, python, case, ranks, folder):
    done = subprocess.run(
        [program, "rehearse", "--gpu", "A100-80G", "--ranks", str(ranks), "--events", "done", "--json", "--", python,
         os.path.join(HERE, "programs", "extensions.py"), case],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
    document = json.loads(done.stdout or "{}")
    if document.get("outcome") not in ("ran", "failed"):
        print(done.stderr[-3000:], file=sys.stderr)
    return document


def wrong(case, found, python):
    """What is wrong with a run's document, or nothing. `found` has those before it, by case."""
    document = found[case]
    if case == "flash_attention" and not has(python, ["flash_attn"]):
        refused = "flash-attn" in (document.get("error") or {}).get("hint", "")
        return None if refused else "not refused by name: %s" % document.get("error")
    if document.get("outcome") != "ran" or document.get("steps") != 3:
        return "%s after %s steps: %s" % (document.get("outcome"), document.get("steps"), document.get("error"))
    if document["unknown_functions"]:
        return "called what nobody emulates: %s" % document["unknown_functions"]
    if case == "paged_adam8bit" and "adam8bit" in found:
        # Two states of a byte for each parameter, with a scale for 256 of them, against none on the GPU; a block that is
        # less than a MiB too large is not split.
        bytes_each = (found["adam8bit"]["static_allocated_bytes"] - document["static_allocated_bytes"]) / PARAMETERS
        return None if 2 < bytes_each < 2.3 else "8-bit states of %.3f bytes a parameter" % bytes_each
    if case == "zero3":
        # Sixteen bytes for each parameter over eight ranks, and what is whole beside them.
        return None if document["static_allocated_bytes"] > 16 * PARAMETERS / 8 else "less than a rank's states"
    if case == "zero3_nvme" and "zero3_offload" in found:
        # Where states are makes no difference to the GPU; five buffers of 1e8 elements are locked for the weights (buffer_count,
        # buffer_size).
        peaks = [found[other]["peak_allocated_bytes"] for other in ("zero3_offload", case)]
        locked = max(phase["peak_pinned_bytes"] for phase in document["phases"])
        return None if peaks[0] == peaks[1] and locked > 5 * 2e8 else "%d and %d allocated, %d locked" % (*peaks, locked)
    return None


def main():
    program, python, *only = sys.argv[1:]
    found, failed = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for case, (packages, ranks) in CASES.items():
            if only and case not in only:
                continue
            if not has(python, ["torch", "transformers", *packages]):
                print("SKIPPED", case, "needs", *packages, flush=True)
                continue
            found[case] = rehearse(program, python, case, ranks, folder)
            problem = wrong(case, found, python)
            failed += problem is not None
            print(case, problem or "as it must be, %s bytes allocated" % found[case].get("peak_allocated_bytes"), flush=True)
    sys.exit(1 if failed else 0 if found else 77)


if __name__ == "__main__":
    main()
