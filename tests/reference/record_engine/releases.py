"""Releases of DeepSpeed side by side, each in a folder of its own (`pip install --target`)."""

import os
import subprocess
import sys

from configurations import NEWEST


def installed_here():
    """The release that this interpreter would import, or None."""
    try:
        from importlib.metadata import PackageNotFoundError, version
    except ImportError:
        return None
    try:
        return version("deepspeed")
    except PackageNotFoundError:
        return None


def folder_of(release, root):
    return os.path.join(root, release)


def _stand_ins(root):
    """DeepSpeed 0.12 asks for Intel's extension before it installs on a machine without a GPU."""
    folder = os.path.join(root, "stand_ins")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "intel_extension_for_pytorch.py"), "w") as file:
        file.write("")
    return folder


def install(release, root):
    """Installs a release without its dependencies (README.md lists them) unless it is there."""
    target = folder_of(release, root)
    if os.path.isdir(os.path.join(target, "deepspeed")):
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    environment = dict(os.environ, DS_ACCELERATOR="cpu", DS_BUILD_OPS="0")
    environment["PYTHONPATH"] = _stand_ins(root)
    subprocess.run(
        command + ["--target", target, f"deepspeed=={release}"], env=environment, check=True
    )


def python_path(release, root):
    """PYTHONPATH under which `import deepspeed` gives the release."""
    if release == NEWEST and installed_here() == NEWEST:
        return ""
    install(release, root)
    return folder_of(release, root)
