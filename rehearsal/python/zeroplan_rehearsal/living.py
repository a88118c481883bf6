"""What lives on the GPU at a moment, by kind, module and line: from PyTorch's own memory history.

torch remembers for every block that lives the Python frames that asked for it. Kinds come of the objects that hold a
block: parameters and buffers of modules, gradients, an optimizer's states and its own copies; the rest is "other":
activations, gathered weights, buckets. The line is the innermost outside of torch, the module the class around that line.
A thread of autograd has no frames of its own, so that what backward allocates stands under "backward".
"""
import ast
import collections
import functools
import gc
import os

_OWN = os.path.dirname(os.path.abspath(__file__))
_MOST = 40  # rows
_LIVES = ("active_allocated", "active_awaiting_free", "active_pending_free")


def watch(torch, history):
    """From the start: states of living blocks; where a snapshot is wanted, all that happens."""
    record = getattr(torch.cuda.memory, "_record_memory_history", None)
    if record is None:
        return
    most = {"max_entries": 1 << 20} if history else {}
    torch.cuda._lazy_call(lambda: record("all" if history else "state", context="alloc" if history else "state",
                                         stacks="python", **most))


# --- who holds a block


def _all_of(torch, kinds):
    """Living objects of these classes: of their own class, which proxies cannot pretend."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kinds)]


def _tensors(torch, value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(torch, item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(torch, item)


def _held(torch):
    """Address of a block's use: kind. The first that is said counts."""
    kinds = {}

    def hold(value, kind):
        for tensor in _tensors(torch, value):
            try:
                tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor
                if tensor.is_cuda:
                    kinds.setdefault(tensor.untyped_storage().data_ptr(), kind)
            except Exception:  # a tensor without storage
                pass

    modules = _all_of(torch, (torch.nn.Module,))
    parameters = [p for module in modules for p in module._parameters.values() if p is not None]
    for parameter in parameters:
        hold([parameter.data, getattr(parameter, "ds_tensor", None)], "parameters")
    for parameter in parameters:
        hold([parameter.grad, getattr(parameter, "main_grad", None)], "gradients")
    for module in modules:
        hold(module._buffers, "buffers")
    for optimizer in _all_of(torch, (torch.optim.Optimizer,)):
        hold(list(optimizer.state.values()), "optimizer states")
        for group in optimizer.param_groups:
            hold([p.data for p in group["params"]], "optimizer states")  # its own fp32 copies
            hold([p.grad for p in group["params"]], "gradients")
    return kinds


# --- where it was asked for


@functools.lru_cache(maxsize=None)
def _classes(file):
    """(first line, last line, name) of the classes in a file, the innermost last."""
    try:
        with open(file, encoding="utf-8") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        return ()
    found = [(n.lineno, n.end_lineno, n.name) for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    return tuple(sorted(found, key=lambda row: row[0] - row[1]))


def _module_of(frame):
    around = [name for first, last, name in _classes(frame["filename"]) if first <= frame["line"] <= last]
    return around[-1] if around else ""


def _is_torchs(name):
    return "/torch/" in name or "/accelerate/utils/operations.py" in name or "/deepspeed/utils/" in name


def _place(frames):
    """The frame to show; None where there is no Python."""
    known = [f for f in frames if f["filename"].endswith(".py") and not f["filename"].startswith(_OWN)]
    return next((f for f in known if not _is_torchs(f["filename"])), known[0] if known else None)


def _module_around(frame, frames):
    """The class of the line; of a line outside classes torch's own module that it calls."""
    own = _module_of(frame)
    inner = [f for f in frames if "/torch/nn/modules/" in f["filename"] and f["name"] == "forward"]
    return own or next((_module_of(f) for f in inner), "")


def rows(torch, device):
    """The largest first: kind, module, file, line, function, bytes, tensors; small rest in one row."""
    kinds = _held(torch)
    sums, counts = collections.Counter(), collections.Counter()
    for segment in torch.cuda.memory._snapshot(device)["segments"]:
        if segment.get("device", device) != device:
            continue
        address = segment["address"]
        for block in segment["blocks"]:
            at = block.get("address", address)
            address += block["size"]
            if block["state"] not in _LIVES:
                continue
            frames = block.get("frames") or (block.get("history") or [{}])[0].get("frames", [])
            frame = _place(frames)
            kind = kinds.get(at, "other")
            key = (kind, None, "")
            if kind == "other" and frame is not None:
                key = (kind, (frame["filename"], frame["line"], frame["name"]), _module_around(frame, frames))
            elif kind == "other":
                key = ("backward", None, "")
            sums[key] += block["size"]
            counts[key] += 1
    return [_row(key, sums[key], counts[key]) for key, _ in sums.most_common(_MOST)]


def _row(key, size, count):
    kind, place, module = key
    made = {"kind": kind, "bytes": size, "tensors": count}
    if place is not None:
        made.update(zip(("file", "line", "function"), place), module=module)
    return made


def save_snapshot(torch, path):
    """For pytorch.org/memory_viz."""
    import pickle

    with open(path, "wb") as file:
        pickle.dump(torch.cuda.memory._snapshot(), file)
