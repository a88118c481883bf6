"""What each of torch's operations reads and writes, for the time of a step: a line of the work file before and behind it.

Watched from the first forward pass on, where ZEROPLAN_REHEARSAL_OPERATIONS is set: below autograd, so that backward
passes, optimizers and recomputation are among it. This costs the program time, and some references to tensors live a
little longer: neither a run's host seconds nor its memory are taken where it is watched.

  op      NAME
  op_end  READ WRITTEN [attention B HEADS KV-HEADS QUERIES KEYS HEAD-DIM CAUSAL BACKWARD DTYPE]     (bytes of the GPU)
"""
import os

from . import gpu

_VARIABLE = "ZEROPLAN_REHEARSAL_OPERATIONS"
# What is only written of an argument that is changed, and what is read of a large one only as far as it is looked up.
_OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_"}
_LOOKS_UP = {"embedding", "index", "index_select", "gather", "nll_loss_forward", "take"}


def watch(torch):
    if os.environ.get(_VARIABLE) and gpu.writes():
        _watcher(torch).__enter__()  # for as long as the program runs


def _bytes(tensor):
    """Of the elements that are distinct: an expanded dimension is one."""
    count = tensor.element_size()
    for size, stride in zip(tensor.shape, tensor.stride()):
        if stride != 0 or size == 0:
            count *= size
    return count


class _Traffic:
    def __init__(self, torch):
        self.torch = torch
        self.read = self.written = 0

    def _tensors(self, value):
        if isinstance(value, self.torch.Tensor):
            if value.is_cuda and value.layout is self.torch.strided:
                yield value
        elif isinstance(value, (list, tuple)):
            for item in value:
                yield from self._tensors(item)

    def argument(self, value, is_changed, overwrites):
        for tensor in self._tensors(value):
            if is_changed:
                self.written += _bytes(tensor)
            if not (is_changed and overwrites):
                self.read += _bytes(tensor)

    def result(self, value, given):
        for tensor in self._tensors(value):
            if tensor.untyped_storage().data_ptr() not in given:  # neither a view nor changed in place
                self.written += _bytes(tensor)

    def addresses(self, values):
        return {tensor.untyped_storage().data_ptr() for value in values for tensor in self._tensors(value)}


def _attention(name, arguments):
    """The call as numbers, where the operation is fused attention; else nothing."""
    query, key = arguments.get("query"), arguments.get("key")
    if "attention" not in name or getattr(query, "dim", None) is None or query.dim() != 4:
        return ""
    # torch's are (batch, heads, sequence, head_dim) where their names begin so, else the heads are behind the sequence.
    heads = 1 if name.startswith("_scaled_dot_product") else 2
    sequence = 3 - heads
    numbers = (query.shape[0], query.shape[heads], key.shape[heads], query.shape[sequence], key.shape[sequence],
               query.shape[3], int(bool(arguments.get("is_causal", arguments.get("causal", False)))),
               int("backward" in name))
    return " attention %d %d %d %d %d %d %d %d %s" % (*numbers, str(query.dtype).replace("torch.", ""))


def _traffic_of(torch, name, schema, args, kwargs, out, given):
    traffic = _Traffic(torch)
    base = name.split(".")[0]
    arguments = dict(zip((a.name for a in schema), args))
    arguments.update(kwargs)
    for argument in schema:
        changed = argument.alias_info is not None and argument.alias_info.is_write
        if argument.name in arguments:
            traffic.argument(arguments[argument.name], changed, base in _OVERWRITES)
    traffic.result(out, given)
    if base in _LOOKS_UP:
        traffic.read = 2 * traffic.written  # what is looked up, and where
    return traffic, _attention(base, arguments)


def _watcher(torch):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watcher(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            name = getattr(func, "__name__", str(func))
            given = _Traffic(torch).addresses((*args, *kwargs.values()))
            gpu.note("op", name)
            traffic, attention = _Traffic(torch), ""
            try:
                out = func(*args, **kwargs)
                schema = func._schema.arguments
                traffic, attention = _traffic_of(torch, name, schema, args, kwargs, out, given)
                return out
            finally:
                gpu.note("op_end", "%d %d%s" % (traffic.read, traffic.written, attention))

    return Watcher()
