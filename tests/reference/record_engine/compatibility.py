"""What an older DeepSpeed needs to be importable beside a newer torch, and the reverse.

Nothing here changes what an engine does.
"""

import sys
import types
import typing


def _schema_types():
    """DeepSpeed 0.19 annotates operators with list[int]; torch 2.6 knows only typing.List[int]."""
    try:
        from torch._library import infer_schema
    except ImportError:
        return
    known = getattr(infer_schema, "SUPPORTED_PARAM_TYPES", None)
    if known is None:
        return
    for annotation, name in list(known.items()):
        if getattr(annotation, "__origin__", None) is list:
            known.setdefault(list[annotation.__args__[0]], name)
            known.setdefault(typing.List[annotation.__args__[0]], name)


def _dropped_names():
    """Names that DeepSpeed 0.12 imports for its launchers and that torch and numpy dropped."""
    import numpy
    import torch.distributed.elastic.agent.server.api as api

    for module, name in ((api, "log"), (api, "_get_socket_with_port"), (numpy, "BUFSIZE")):
        if not hasattr(module, name):
            setattr(module, name, None)


def _intel_extensions():
    """DeepSpeed 0.12 asks for Intel's extensions on CPUs, and uses nothing of them here."""
    for name in ("intel_extension_for_pytorch", "oneccl_bindings_for_pytorch"):
        try:
            __import__(name)
        except ImportError:
            sys.modules[name] = types.ModuleType(name)


def prepare(release):
    """Before deepspeed is imported."""
    _schema_types()
    _dropped_names()
    if release.startswith("0.12"):
        _intel_extensions()


def no_native_collectives():
    """After deepspeed was imported: its shared-memory collectives would be compiled."""
    module = sys.modules["deepspeed.comm.torch"]
    if hasattr(module, "build_shm_op"):
        module.build_shm_op = lambda: None
