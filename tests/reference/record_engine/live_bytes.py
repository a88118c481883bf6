"""How many bytes of tensors live, and the most of them inside a phase or a call.

Counts every storage that an operator returns, from then until it is freed; what a kernel allocates
inside itself is not seen. On a CPU all of it is host memory: only configurations that keep everything
on the device of a real run say something about that device.
"""

import contextlib
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten


class LiveBytes(TorchDispatchMode):
    """`windows` are the phases and calls that are being measured, each with its largest sum."""

    def __init__(self):
        super().__init__()
        self.storages = {}
        self.total = 0
        self.windows = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for item in tree_flatten(result)[0]:
            if isinstance(item, torch.Tensor):
                self.see(item)
        return result

    def see(self, tensor):
        """Counts a tensor's storage unless it is known."""
        if tensor.device.type == "meta":
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.storages or storage.nbytes() == 0:
            return
        self.storages[key] = storage.nbytes()
        self.total += storage.nbytes()
        weakref.finalize(storage, self.gone, key)
        for window in self.windows:
            window.most = max(window.most, self.total)

    def gone(self, key):
        self.total -= self.storages.pop(key, 0)

    @contextlib.contextmanager
    def window(self):
        """Measures what happens inside."""
        window = Window(self.total)
        self.windows.append(window)
        try:
            yield window
        finally:
            self.windows.remove(window)
            window.after = self.total


class Window:
    """Bytes before, at most, and after."""

    def __init__(self, before):
        self.before = before
        self.most = before
        self.after = before

    def added(self):
        return self.most - self.before


class Peaks:
    """The peaks of one run: of initialisation, of each step, of a bucket's reduction."""

    def __init__(self):
        self.live = LiveBytes()
        self.flush = 0
        self.steps = []
        self.init = None

    def around_flush(self, cls, name):
        """Measures every call of the method that reduces a bucket."""
        method = getattr(cls, name)
        peaks = self

        def measured(optimizer, *args, **kwargs):
            with peaks.live.window() as window:
                result = method(optimizer, *args, **kwargs)
            peaks.flush = max(peaks.flush, window.added())
            return result

        setattr(cls, name, measured)

    def hook(self):
        from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3 as Zero3
        from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer as Zero12

        self.around_flush(Zero12, "reduce_ipg_grads")
        self.around_flush(Zero3, "_DeepSpeedZeroOptimizer_Stage3__reduce_and_partition_ipg_grads")

    def described(self):
        """What the recording gets."""
        return {
            "init_peak": self.init.most,
            "init_after": self.init.after,
            "flush_peak": self.flush,
            "steps": [[w.before, w.most, w.after] for w in self.steps],
        }


def unmeasured():
    """Context for the recorder's own tensors."""
    return _disable_current_modes()
