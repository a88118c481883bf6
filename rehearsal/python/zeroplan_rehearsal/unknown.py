"""Values that nobody computed, and the lines of the program that branch on them.

A small tensor that comes of large ones is marked, and so is what comes of it. `if tensor:` is a branch; `.item()` is
none yet, people log losses: the number that it returns looks out for comparisons. Questions whether a number is finite
are no branches: it is. torch's and DeepSpeed's own checks of norms and overflows are left out for the same reason.
"""
import linecache
import math
import os
import sys

from . import records

_FINITE = {"isfinite": True, "isnan": False, "isinf": False}
_NOT = {"logical_not", "bitwise_not", "__invert__"}
UNIFORM = {*_FINITE, *_NOT, "all", "any"}  # of truths that are all the same
ASKED = {"item", "__bool__", "nonzero", "masked_select", "unique", "_unique2", "unique_dim", "__getitem__", "equal"}
_OVERWRITES = {"zero_", "fill_", "copy_", "zeros_like", "ones_like", "full_like"}
_OWN = os.path.dirname(os.path.abspath(__file__))
_CHECKERS = ("/torch/", "/deepspeed/runtime/", "/deepspeed/utils/", "/accelerate/")
_MOST = 40  # places
_MARK = "_zeroplan_unknown"
_SAME = "_zeroplan_same"  # every element of these truths is this one
_said = set()


def mark(tensor):
    setattr(tensor, _MARK, True)


def is_unknown(value):
    return getattr(value, _MARK, False)


def hand_on(given, out, name):
    """`out` came of these."""
    sources = [g for g in given if g is not out]
    if any(is_unknown(g) for g in sources):
        mark(out)
    elif name in _OVERWRITES and is_unknown(out):
        delattr(out, _MARK)


def uniform(name, tensor, known):
    """What all elements of `name`'s answer are; None where they are not known to be the same."""
    if name in _FINITE:
        return None if known else _FINITE[name]
    same = getattr(tensor, _SAME, None)
    return same if same is None or name not in _NOT else not same


def say_uniform(tensor, truth):
    setattr(tensor, _SAME, truth)


# --- naming


def _place():
    """The innermost line that is neither ours nor a library's own check; None where a checker asks."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    if frame is None or any(part in frame.f_code.co_filename for part in _CHECKERS):
        return None
    return frame


def branch(what):
    frame = _place()
    if frame is None or len(_said) >= _MOST:
        return
    file, line = frame.f_code.co_filename, frame.f_lineno
    if (file, line) in _said:
        return
    _said.add((file, line))
    records.write("unknown_value", what=what, file=file, line=line, function=frame.f_code.co_name,
                  source=linecache.getline(file, line).strip())


def forget():
    _said.clear()


# --- numbers that look out


def _watched(base):
    def compare(name):
        original = getattr(base, name)

        def method(self, other):
            if isinstance(other, (int, float)) and math.isfinite(other) and other is not self:
                branch("comparison")
            return original(self, other)

        return method

    def handed_on(name):
        original = getattr(base, name)

        def method(self, *others):
            out = original(self, *others)
            kind = _KINDS.get(type(out))
            return out if kind is None else kind(out)

        return method

    def __bool__(self):
        branch("truth")
        return base.__bool__(self)

    methods = {name: compare(name) for name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__")}
    methods.update({name: handed_on(name) for name in (
        "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__neg__",
        "__abs__")})
    return type("Unknown" + base.__name__.title(), (base,), {
        **methods, "__bool__": __bool__, "__hash__": base.__hash__, "__reduce__": lambda self: (base, (base(self),))})


_KINDS = {}
_KINDS.update({float: _watched(float), int: _watched(int)})


def _is_mask(index, has_values):
    parts = index if isinstance(index, tuple) else (index,)
    return any(getattr(part, "is_cuda", False) and str(part.dtype) == "torch.bool" and not has_values(part) for part in parts)


def ask_mask(index, has_values):
    """Of an assignment to what a mask says."""
    if _is_mask(index, has_values):
        branch("mask")


def ask(out, name, args, has_values):
    """`out` of a function that brings a value to Python, or whose shape depends on values."""
    if name == "__getitem__":
        if len(args) > 1 and _is_mask(args[1], has_values):
            branch("mask")
            if hasattr(out, "numel"):
                mark(out)
        elif is_unknown(args[0]) and hasattr(out, "numel"):
            mark(out)
        return out
    large = name not in ("item", "__bool__") and args and getattr(args[0], "is_cuda", False) and not has_values(args[0])
    if not large and not any(is_unknown(a) for a in args[:2]):
        return out
    if name == "item":
        kind = _KINDS.get(type(out))
        return out if kind is None else kind(out)
    branch({"__bool__": "truth", "equal": "comparison"}.get(name, name))
    return out
