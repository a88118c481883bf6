#!/usr/bin/env python3
"""Runs a script on a real GPU and writes its peaks: gpu_peaks.py OUT.json SCRIPT ARGUMENTS...; of rank 0 alone."""
import json
import os
import runpy
import sys

import torch

out, sys.argv = sys.argv[1], sys.argv[2:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
fits, problem = True, None
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except torch.cuda.OutOfMemoryError as error:
    fits, problem = False, str(error)
if int(os.environ.get("RANK", 0)) == 0:
    found = {"fits": fits, "message": problem}
    if fits:
        found["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
        found["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
    with open(out, "w") as file:
        json.dump(found, file)
