"""What this Python says of its torch, in one line of JSON, without importing it: for rehearsal/torch_install.cpp."""
import importlib.util
import json
import os
import re
import sys


def released(folder):
    """torch/version.py's values."""
    values = {}
    with open(os.path.join(folder, "version.py")) as file:
        exec(compile(file.read(), "version.py", "exec"), values)
    return {key: values.get(key) and str(values[key]) for key in ("__version__", "cuda", "hip")}


def wanted():
    """Releases of cuDNN and NCCL that the wheel asks for."""
    try:
        import importlib.metadata

        requirements = importlib.metadata.requires("torch") or ()
    except Exception:  # conda's and one's own builds
        return {}
    found = (re.match(r"nvidia-(cudnn|nccl)-cu\d+\s*\(?==\s*([\d.]+)", text) for text in requirements)
    return {match.group(1): match.group(2) for match in found if match}


def libraries_beside():
    """Shared libraries of the packages that stand beside torch, NVIDIA's left out."""
    found = []
    for place in sys.path:
        if os.path.basename(place) not in ("site-packages", "dist-packages"):
            continue
        for folder, folders, files in os.walk(place):
            if folder == place:
                folders[:] = [name for name in folders if name not in ("torch", "nvidia")]
            found += [os.path.join(folder, name) for name in files if name.endswith(".so")]
    return sorted(found)


spec = importlib.util.find_spec("torch")
answer = {}
if spec is not None and spec.origin:
    folder = os.path.dirname(os.path.realpath(spec.origin))
    answer = {"library": os.path.join(folder, "lib"), "wants": wanted(), "beside": libraries_beside(), **released(folder)}
print("ZEROPLAN " + json.dumps(answer))
