#!/usr/bin/env python3
"""What torch.save and torch.load take of one core, bytes a second of processor time: rate.py [FOLDER] (/dev/shm)

Seconds of the processor, user's and system's, so that other programs do not count. FOLDER is memory: a drive's time is
another term of the prediction.
"""
import os
import statistics
import sys
import time

import torch

STORAGE = 256 << 20
STORAGES = 4


def rate(work):
    before = time.process_time()
    work()
    return STORAGE * STORAGES / (time.process_time() - before)


def main(folder="/dev/shm"):
    path = os.path.join(folder, "zeroplan_rate.pt")
    torch.set_num_threads(1)
    state = {str(i): torch.randn(STORAGE // 4) for i in range(STORAGES)}
    saved, loaded = [], []
    for _ in range(3):
        saved.append(rate(lambda: torch.save(state, path)))
        loaded.append(rate(lambda: torch.load(path, map_location="cpu", weights_only=False)))
    os.remove(path)
    for what, rates in (("save", saved), ("load", loaded)):
        print(f"torch {torch.__version__} {what}: {statistics.median(rates) / 1e9:.2f} GB/s of a core, "
              f"{min(rates) / 1e9:.2f} to {max(rates) / 1e9:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
