"""What one forward pass did: modules, operations, tensors and when each of them went.

Weights and activations stand on the meta device, which has sizes and no values. Whole numbers and truth values are computed, on
the CPU: masks, positions and image grids decide which operations run. What lands on a GPU when the program trains is noted for
each storage, whatever device it is on here.

A tensor is known by its place in its storage (offset, sizes, strides) and by whether autograd follows it: views have new objects
on the way through autograd. Storages are watched through weak references, and what autograd saves is not kept, so that a storage
is gone here when the last variable of the program lets go of it.
"""

import collections

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from . import real_numbers
from .facts import facts_of
from .where import program_place

_is_gone = torch.UntypedStorage._expired  # by the address of a weak reference: asked of every storage at every event


class Row:
    """A tensor: sizes, dtype, and the first tensor of its storage (itself: it owns it)."""

    __slots__ = ("shape", "dtype", "root", "grad", "place")

    def __init__(self, shape, dtype, root, grad, place):
        self.shape, self.dtype, self.root, self.grad, self.place = shape, dtype, root, grad, place


class Recorder:
    def __init__(self):
        self.rows = []  # Row, by number
        self.events = []  # ("enter", module, input) ("leave", module, output) ("op", dict) ("drop", [roots])
        self.names = {}  # number of a tensor -> ("parameter" | "buffer" | "input", name)
        self._storages = {}  # address -> (weak reference, number of the first tensor, on the host)
        # address of a storage that can go -> its weak reference's, the oldest first: the model holds its own while it runs
        self._passing = {}
        # address -> {(address, offset, sizes, strides, dtype): numbers, the newest last}
        self._places = collections.defaultdict(lambda: collections.defaultdict(list))
        self._saved = []  # numbers that autograd saved since the last operation
        self._last = None  # the operation before
        self.quiet = 0
        self.places = []  # of the program, one an event

    # --- tensors

    def _key(self, tensor):
        return (
            tensor.untyped_storage()._cdata,
            tensor.storage_offset(),
            tuple(tensor.size()),
            tuple(tensor.stride()),
            tensor.dtype,
        )

    def new(self, tensor, grad=False, host=False):
        """The number of a tensor that an operation has just made."""
        key = self._key(tensor)
        number = len(self.rows)
        known = self._storages.get(key[0])
        if known is not None and known[0].expired():
            self.poll()
            known = None
        if known is None:
            weak = StorageWeakRef(tensor.untyped_storage())
            self._storages[key[0]] = (weak, number, host)
            self._passing[key[0]] = weak.cdata
            root = number
        else:
            root = known[1]
        self.rows.append(Row(key[2], tensor.dtype, root, grad, key))
        self._places[key[0]][key].append(number)
        return number

    def name(self, tensor, kind, name, grad):
        number = self.new(tensor, grad)
        self.names[number] = (kind, name)
        if kind != "input":
            self._passing.pop(tensor.untyped_storage()._cdata, None)
        return number

    def number(self, tensor):
        """The number of a tensor that is there already; None: unknown."""
        key = self._key(tensor)
        numbers = self._places.get(key[0], {}).get(key)
        if not numbers:
            return None
        wanted = bool(tensor.requires_grad)
        for number in reversed(numbers):
            if self.rows[number].grad == wanted:
                return number
        return numbers[-1]

    def on_host(self, tensor):
        known = self._storages.get(tensor.untyped_storage()._cdata)
        return known is not None and known[2]

    def storage_known(self, tensor):
        return tensor.untyped_storage()._cdata in self._storages

    # --- events

    def _add(self, event):
        self.events.append(event)
        self.places.append(program_place())

    def poll(self):
        """Notes the storages that went since the last event."""
        gone = [address for address, weak in self._passing.items() if _is_gone(weak)]
        if not gone:
            return
        roots = []
        for address in gone:
            del self._passing[address]
            self._places.pop(address, None)
            _, root, host = self._storages.pop(address)
            if not host:
                roots.append(root)
        if roots:
            self._add(("drop", sorted(roots)))

    def enter(self, module, tensor):
        self.poll()
        self._add(("enter", module, None if tensor is None else self.number(tensor)))

    def leave(self, module, tensor):
        self.poll()
        self._add(("leave", module, None if tensor is None else self.number(tensor)))

    def save(self, tensor):
        if self.quiet:
            return
        number = self.number(tensor)
        if number is not None:
            self._saved.append((number, bool(tensor.requires_grad)))

    def operation(self, name, inputs, outputs, saves, **facts):
        """`inputs`: tensors and None; `outputs`: tensors."""
        grad_mode = torch.is_grad_enabled() and not facts.pop("stops_gradient", False)
        for tensor in inputs:
            if tensor is not None and self.on_host(tensor):
                self._bring(tensor)
        into = [None if tensor is None else self.number(tensor) for tensor in inputs]
        follows = grad_mode and any(number is not None and self.rows[number].grad for number in into)
        made = []
        for tensor in outputs:
            floats = tensor.is_floating_point() or tensor.is_complex()
            made.append(self.new(tensor, follows and floats))
        row = {"op": name, "in": into, "out": made}
        row.update({key: value for key, value in facts.items() if value is not None})
        if not grad_mode:
            row["no_grad"] = True
        if saves:
            row["saves"] = saves
        self._add(("op", row))
        self._last = row
        return made

    def constant(self, tensor):
        view = self.storage_known(tensor)
        number = self.new(tensor, bool(tensor.requires_grad))
        if view:  # of a tensor that comes to the GPU when it is read
            return
        self._add(("op", {"op": "full", "in": [], "out": [number], "no_grad": True}))

    def _bring(self, tensor):
        """A tensor of the host that an operation of the GPU reads was the GPU's: whole numbers say that they are on the CPU."""
        address = tensor.untyped_storage()._cdata
        weak, root, _ = self._storages[address]
        self._storages[address] = (weak, root, False)
        self._add(("op", {"op": "full", "in": [], "out": [root], "no_grad": True}))
        number = self.number(tensor)
        if number is not None and number != root:
            self._add(("op", {"op": "as_strided", "in": [root], "out": [number], "no_grad": True}))

    def take_saved(self, outputs_of=None):
        """What autograd saved between two operations: (of the one before, of the one to come)."""
        before, coming = [], []
        last_outputs = set(self._last["out"]) if self._last is not None else set()
        for number, requires_grad in self._saved:
            (before if number in last_outputs and not requires_grad else coming).append(number)
        self._saved = []
        if before and self._last is not None:
            self._last.setdefault("saves", []).extend(before)
        return coming


def tensors_in(value, into):
    if isinstance(value, torch.Tensor):
        into.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            tensors_in(item, into)
    elif isinstance(value, dict):
        for item in value.values():
            tensors_in(item, into)


class Dispatch(TorchDispatchMode):
    """Every operation below autograd."""

    def __init__(self, recorder):
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        recorder = self.recorder
        if recorder.quiet:
            return real_numbers.run(func, args, kwargs)
        recorder.poll()
        inputs = []
        tensors_in(args, inputs)
        tensors_in(kwargs, inputs)
        if real_numbers.has_no_values(func, kwargs, inputs):
            del kwargs["device"]
            if kwargs.get("dtype") in (None, inputs[0].dtype):
                return inputs[0]
        known, unknown = [], []
        for tensor in inputs:
            (unknown if recorder.number(tensor) is None else known).append(tensor)
        host = all(recorder.on_host(tensor) or tensor.device.type == "cpu" and not recorder.storage_known(tensor) for tensor in inputs)
        wants_gpu = real_numbers.goes_to_gpu(kwargs, inputs)
        saves = recorder.take_saved()
        if real_numbers.stays_there(func, kwargs, inputs) and not host:
            return inputs[0]
        result = real_numbers.run(func, args, kwargs)
        outputs = []
        tensors_in(result, outputs)
        if not outputs:
            if func is torch.ops.aten._local_scalar_dense.default and not host:
                recorder.operation("_local_scalar_dense", known, [], saves)
            return result
        if host and not wants_gpu or real_numbers.goes_to_host(kwargs):
            for tensor in outputs:
                if not recorder.storage_known(tensor):
                    recorder.new(tensor, host=True)
            return result
        for tensor in unknown:  # a constant that the program made before: a number in a tensor
            recorder.constant(tensor)
        name = func._schema.name.split("::")[1]
        recorder.operation(name, inputs, outputs, saves, **facts_of(func, args, kwargs, outputs))
        return result
