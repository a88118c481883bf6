"""Values of the GPU's small tensors, computed on the host.

Whole numbers and truths that come of small whole numbers, or of nothing, are true. Floating point numbers of a few
elements are computed where all they come of is as small; what comes of large tensors is zero, and a norm is one, so
that no step is skipped for an overflow and DeepSpeed's assertions hold; what is asked is finite. Everything else stays
what memory held. Who branches on a value that nobody computed is named (unknown.py).
"""
import ctypes
import functools
import os

from . import gpu, counts, timing, unknown
from .host import NAMES, PASSES, Host

MOST_WHOLE = 1 << 23  # elements
MOST_FLOAT = 64
_COPIED_BYTES = 65536  # what the libraries copy themselves: kMostCopied in libraries/gpu/record.hpp
_ZEROED_BYTES = 8 * MOST_FLOAT
# What only hands its argument on, or gets its values by a real copy.
_HANDED_ON = {
    "to", "cuda", "tensor", "as_tensor", "detach", "requires_grad_", "empty", "empty_like", "__get__", "clone",
    "pin_memory", "_make_subclass", "as_subclass", "set_", "__set__",
}
_MADE_OF_DATA = {"tensor", "as_tensor"}
_MOVED = {"to", "cuda", *_MADE_OF_DATA}
_BROUGHT = {"cpu", "to", "copy_", "tolist"}  # to the host
_KEPT = {"__get__", "empty", "empty_like", "detach"}
_SHAPED = {"unique", "_unique2", "unique_consecutive", "_consecutive_return_output"}  # of a mask: counts.py
_MADE_LIKE = {"new_zeros", "new_empty"}  # of a large tensor's kind: as memory is


_kept = []  # the mode, while values are computed


def _is_in_place(name):
    return (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")


class _Values:
    def __init__(self, torch):
        self.torch = torch
        self.most_whole = MOST_WHOLE
        self.whole = {torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool}

    def is_small(self, tensor):
        most = MOST_WHOLE if tensor.dtype in self.whole else MOST_FLOAT
        return tensor.numel() <= most and tensor.layout is self.torch.strided and not tensor.is_complex()

    def of_host(self, tensor):
        """The same memory as a tensor of the host."""
        torch = self.torch
        if not tensor.is_cuda:
            return tensor
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        if size == 0 or tensor.numel() == 0:
            return torch.empty(tensor.shape, dtype=tensor.dtype)
        raw = (ctypes.c_byte * size).from_address(storage.data_ptr())
        flat = torch.frombuffer(raw, dtype=tensor.dtype)
        return flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def argument(self, value, given):
        """An argument for the host's function; tensors are added to `given`."""
        torch = self.torch
        if isinstance(value, torch.Tensor):
            given.append(value)
            return self.of_host(value)
        if type(value) in (list, tuple) and any(isinstance(item, torch.Tensor) for item in value):
            return type(value)(self.argument(item, given) for item in value)
        if isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda")):
            return torch.device("cpu")
        return value

    def forget(self, out, name):
        """What comes of tensors without values: zero, a norm one."""
        if name in _MADE_LIKE:
            return
        unknown.mark(out)
        storage = out.untyped_storage()
        # Masks are false, whoever asks how many of them are true.
        if storage.nbytes() > (MOST_WHOLE if out.dtype is self.torch.bool else _ZEROED_BYTES):
            return
        ctypes.memset(storage.data_ptr(), 0, storage.nbytes())
        if "norm" in name and out.dtype.is_floating_point:
            self.of_host(out).fill_(1)

    # --- shapes that depend on values: true where the values are

    def has_values(self, value):
        tensor = self.torch.Tensor
        return isinstance(value, tensor) and value.is_cuda and self.is_small(value) and not unknown.is_unknown(value)

    def to_card(self, done, most):
        made = self.torch.empty(most, dtype=done.dtype, device="cuda").resize_(done.shape)
        if made.numel() > 0:
            self.of_host(made).copy_(done)
        return made

    def set_item(self, func, tensor, index, value):
        func(tensor, index, value)
        if not tensor.is_cuda or not self.is_small(tensor):
            return
        given = []
        host_index, host_value = self.argument(index, given), self.argument(value, given)
        if not all(self.is_small(g) and not unknown.is_unknown(g) for g in given):
            unknown.mark(tensor)
            return
        with self.torch.no_grad():
            func(self.of_host(tensor), host_index, host_value)

    def shaped(self, func, name, args, kwargs):
        """The result of a function whose shape depends on known values, in memory for as many elements as it was given; None
        where it is none. Its own kernel would read how many there are from memory that nobody wrote."""
        torch = self.torch
        if not args or not all(self.has_values(a) for a in args if isinstance(a, torch.Tensor)):
            return None
        done = func(*[self.of_host(a) if isinstance(a, torch.Tensor) else a for a in args], **kwargs)
        most = max(a.numel() for a in args if isinstance(a, torch.Tensor))
        return tuple(self.to_card(one, most) for one in done) if isinstance(done, tuple) else self.to_card(done, most)

    def answer(self, out, name, args):
        """Whether the numbers of a tensor without values are finite: true where this is such a question."""
        tensor = args[0] if args else None
        if not isinstance(tensor, self.torch.Tensor) or not isinstance(out, self.torch.Tensor):
            return False
        said = unknown.uniform(name, tensor, known=self.is_small(tensor) and not unknown.is_unknown(tensor))
        if said is None:
            return False
        unknown.say_uniform(out, said)
        if out.is_cuda and self.is_small(out):
            self.of_host(out).fill_(said)
        return True

    def is_copied(self, source, dtype):
        """Whether the libraries copied the values of a tensor between host and GPU themselves."""
        return source.is_contiguous() and source.dtype is dtype and source.nbytes <= _COPIED_BYTES

    def bring(self, out, name, args):
        """To the host: what torch gathers or casts on the GPU before it copies has not been gathered there."""
        source = args[1] if name == "copy_" and len(args) > 1 else args[0] if args else None
        if name not in _BROUGHT or not isinstance(source, self.torch.Tensor) or not source.is_cuda:
            return out
        if not self.is_small(source) or self.is_copied(source, getattr(out, "dtype", source.dtype)):
            return out
        if name == "tolist":
            return self.of_host(source).tolist()
        with self.torch.no_grad():
            return out.copy_(self.of_host(source).expand(out.shape))

    def fill(self, out, func, name, args, kwargs):
        tensor = self.torch.Tensor
        in_place = _is_in_place(name)
        if any(isinstance(a, tensor) and not self.is_small(a) for a in (*args, *kwargs.values())):
            if not in_place and name not in _KEPT:
                self.forget(out, name)
            return
        if name in _HANDED_ON:
            unknown.hand_on([a for a in args if isinstance(a, tensor)], out, name)
            source = args[0] if args else None
            if name in _MADE_OF_DATA and out.nbytes > _COPIED_BYTES and not isinstance(source, tensor):
                source = self.torch.as_tensor(source)
            if isinstance(source, tensor) and (name == "clone" or (name in _MOVED and not self.is_copied(source, out.dtype))):
                self.of_host(out).copy_(self.of_host(source))
            return
        given = []
        host_args = [self.argument(a, given) for a in args]
        host_kwargs = {key: self.argument(value, given) for key, value in kwargs.items()}
        if any(not self.is_small(g) for g in given):
            if not in_place:
                self.forget(out, "")
            return
        unknown.hand_on(given, out, name)
        at = out.untyped_storage().data_ptr()
        if not in_place and any(g.untyped_storage().data_ptr() == at for g in given):
            return  # a view
        if not given:
            host_kwargs["device"] = "cpu"
        with self.torch.no_grad():
            done = func(*host_args, **host_kwargs)
        if isinstance(done, tensor) and done.data_ptr() != out.data_ptr():
            self.of_host(out).copy_(done)


def _note_host_pass(out, name):
    """What the host would have read and written; memory that is only given costs it nothing yet."""
    if name in PASSES and gpu.writes():
        gpu.note("cpu", str(2 * out.numel() * out.element_size()))


def _follow_backward(torch, mode):
    """A backward pass runs without the modes of the thread that called it: DeepSpeed asks for overflows in hooks of gradients,
    and a layer that is computed again reads the sizes of its images."""
    import torch.utils.checkpoint

    is_on = torch._C._len_torch_function_stack

    def inside(function):
        @functools.wraps(function)
        def followed(*args, **kwargs):
            if is_on() or not _kept:
                return function(*args, **kwargs)
            with mode:
                return function(*args, **kwargs)

        return followed

    for name in ("register_hook", "register_post_accumulate_grad_hook"):
        register = getattr(torch.Tensor, name, None)  # the second since torch 2.1
        if register is not None:
            setattr(torch.Tensor, name, functools.wraps(register)(lambda self, hook, register=register: register(self, inside(hook))))
    checkpoint = torch.utils.checkpoint.checkpoint

    @functools.wraps(checkpoint)
    def checkpoints(function, *args, **kwargs):
        return checkpoint(inside(function), *args, **kwargs)

    torch.utils.checkpoint.checkpoint = checkpoints


def leave(torch):
    """No values are computed from here on: the program's answers are given (answers.py)."""
    if torch._C._len_torch_function_stack() == 1:  # else it is not ours that would go
        _kept.pop().__exit__(None, None, None)


def _of_its_shape(torch, func, args, kwargs):
    """A tensor of the GPU as the function's result is, whose values nobody computed."""
    made = func(*[a.to("meta") if isinstance(a, torch.Tensor) else a for a in args], **kwargs)
    return torch.empty_like(made, device="cuda")


def install(torch):
    from torch.overrides import TorchFunctionMode

    values, host = _Values(torch), Host(torch)
    debug = bool(os.environ.get("ZEROPLAN_REHEARSAL_DEBUG"))

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            name = getattr(func, "__name__", "")
            if not timing.watches():
                return self.run(func, name, args, kwargs or {})
            with timing.Call(func) as call:
                return self.run(call, name, args, kwargs or {})

        def run(self, func, name, args, kwargs):
            if name in NAMES:
                out = host.result(func, name, args, kwargs)
                if out is not None:
                    if host.left_out:
                        _note_host_pass(out, name)
                    return out
            if name == "__setitem__":
                unknown.ask_mask(args[1], values.has_values)
                return values.set_item(func, *args)
            if name == "repeat_interleave":
                kwargs = counts.repeated(values, args, kwargs)
            out = values.shaped(func, name, args, kwargs) if name in _SHAPED else None
            if out is not None:
                return out
            try:
                out = func(*args, **kwargs)
            except RuntimeError as error:  # kernels that PyTorch compiles when they are called: erfinv, digamma, prod and more
                if "NVRTC" not in str(error):
                    raise
                out = args[0] if name.endswith("_") else _of_its_shape(torch, func, args, kwargs)
            if name in unknown.ASKED:
                out = unknown.ask(out, name, args, values.has_values)
            elif type(out) is torch.Tensor and out.device.type == "cpu":
                unknown.hand_on([a for a in args if isinstance(a, torch.Tensor)], out, name)
                out = values.bring(out, name, args)
            elif name == "tolist":
                out = values.bring(out, name, args)
            elif name in unknown.UNIFORM and values.answer(out, name, args):
                return out
            if isinstance(out, tuple) and type(out) is not tuple:  # torch.return_types: sort, topk; no values
                for part in out:
                    if isinstance(part, torch.Tensor) and part.is_cuda and values.is_small(part):
                        values.forget(part, name)
            if type(out) is torch.Tensor and out.device.type == "cuda" and values.is_small(out):
                try:
                    values.fill(out, func, name, args, kwargs)
                except Exception as error:  # values are a help, not a promise
                    if debug:
                        print("zeroplan rehearse: values of", func, error)
            return out

    counts.install(torch, values)
    mode = Mode()
    mode.__enter__()
    _kept.append(mode)
    torch._zeroplan_rehearsal = mode  # as long as torch is there; compiling.py takes it away for a while
    _follow_backward(torch, mode)
    timing.calibrate(torch)
