"""Large tensors of the host stay untouched: nobody needs their values, and memory that is not touched costs nothing.

`result` is asked before a function of torch runs, and answers with what it would return, or with nothing.
"""

LEAST = 1 << 20  # elements
LEAST_DRAWN = 1 << 12  # of floating point numbers at random, which take longest: zeros do as well
DRAWN = {
    "normal_", "uniform_", "trunc_normal_", "kaiming_normal_", "kaiming_uniform_", "xavier_normal_", "xavier_uniform_",
}
IN_PLACE = DRAWN | {"copy_", "zero_", "fill_", "mul_", "add_", "div_", "sub_", "random_", "constant_"}
CASTS = {"bfloat16", "half", "float", "double", "to", "clone", "type", "contiguous"}
MADE = {"zeros", "ones", "full", "randn", "rand", "zeros_like", "ones_like", "randn_like", "rand_like"}
FLATTEN = "flatten_dense_tensors"
PIN = "pin_memory"
PASSES = IN_PLACE | CASTS | {FLATTEN}  # over memory; not where a tensor is only made or pinned
NAMES = IN_PLACE | CASTS | MADE | {FLATTEN, PIN}


class Host:
    def __init__(self, torch):
        self.torch = torch
        self.plain = (torch.Tensor, torch.nn.Parameter)
        self.left_out = True  # does the last result stand for a pass over the host's memory
        # torch's own: zero.Init puts others in their place, which allocate on the GPU.
        self.empty, self.empty_strided = torch.empty, torch.empty_strided

    def _default_device(self):
        torch = self.torch
        if hasattr(torch, "get_default_device"):
            return torch.get_default_device()
        import torch.utils._device as mode  # before torch 2.3

        return mode.CURRENT_DEVICE or "cpu"

    def _made(self, func, name, args, kwargs):
        torch = self.torch
        device = kwargs.get("device")
        if device is None:
            device = args[0].device if name.endswith("_like") else self._default_device()
        if torch.device(device).type != "cpu":
            return None
        shape = func(*args, **{**kwargs, "device": "meta", "pin_memory": False})
        if shape.numel() < LEAST:
            return None
        return self.empty(shape.shape, dtype=shape.dtype, device="cpu", pin_memory=kwargs.get("pin_memory", False))

    def _flattened(self, parts):
        parts = list(parts)
        count = sum(part.numel() for part in parts)
        if count < LEAST or any(part.device.type != "cpu" for part in parts):
            return None
        return self.empty(count, dtype=parts[0].dtype, device="cpu")

    def _to_host(self, value):
        """The device that an argument names, where it names one."""
        if isinstance(value, self.torch.device):
            return value
        if isinstance(value, str):
            return self.torch.device(value)
        whole = isinstance(value, int) and not isinstance(value, bool)
        return self.torch.device("cuda", value) if whole else None

    def _cast(self, func, first, args, kwargs):
        torch = self.torch
        if first.requires_grad and torch.is_grad_enabled():
            return None
        devices = [self._to_host(value) for value in (*args[1:], *kwargs.values())]
        if any(device is not None and device.type != "cpu" for device in devices):
            return None  # a copy to the GPU

        def on_meta(value):
            return value if self._to_host(value) is None else torch.device("meta")

        shape = self.empty_strided(first.size(), first.stride(), dtype=first.dtype, device="meta")
        if isinstance(getattr(args[1] if len(args) > 1 else None, "device", None), torch.device):
            return None  # to what another tensor is

        done = func(shape, *map(on_meta, args[1:]), **{key: on_meta(value) for key, value in kwargs.items()})
        if done is shape or done.device.type != "meta":
            return None
        return self.empty_strided(done.size(), done.stride(), dtype=done.dtype, device="cpu")

    def _sent(self, func, args, kwargs):
        """A copy to the GPU in another dtype, which torch would cast here, and then send what came of it."""
        to, source = args[0], args[1] if len(args) > 1 else kwargs.get("src")
        if not isinstance(source, self.torch.Tensor) or not to.is_cuda or source.device.type != "cpu":
            return None
        records = self.torch.is_grad_enabled() and (to.requires_grad or source.requires_grad)
        if source.dtype == to.dtype or source.numel() < LEAST or source.shape != to.shape or records:
            return None
        if not to.is_contiguous() or not source.is_contiguous():
            return None
        return func(to, self.empty(to.shape, dtype=to.dtype, device="cpu"))

    def _brought(self, func, args, kwargs):
        """A copy from the GPU, which moves no values of that size; what torch would cast here behind it is left out."""
        to, source = args[0], args[1] if len(args) > 1 else kwargs.get("src")
        if not isinstance(source, self.torch.Tensor) or not source.is_cuda or source.shape != to.shape:
            return None
        if not to.is_contiguous() or not source.is_contiguous():
            return None
        waits = not (kwargs.get("non_blocking", False) or len(args) > 2 and args[2])
        self.left_out = waits and source.dtype != to.dtype
        if self.left_out:
            func(self.empty(to.shape, dtype=source.dtype, device="cpu"), source)
            return to
        return func(*args, **kwargs)

    def result(self, func, name, args, kwargs):
        self.left_out = True
        if name in MADE:
            return self._made(func, name, args, kwargs)
        if name == FLATTEN:
            return self._flattened(args[0])
        first = args[0] if args else kwargs.get("tensor")  # torch.nn.init names it
        if type(first) not in self.plain:
            return None
        if name == "copy_" and first.is_cuda:
            return self._sent(func, args, kwargs)
        if first.device.type != "cpu":
            return None
        count = first.numel()
        if count < LEAST and name in DRAWN and count >= LEAST_DRAWN and first.is_floating_point():
            with self.torch.no_grad():
                return first.zero_()
        if count < LEAST:
            return None
        if name in IN_PLACE:
            brought = self._brought(func, args, kwargs) if name == "copy_" else None
            return first if brought is None else brought
        if name == PIN:
            pinned = first.is_pinned()  # then it is its own copy
            return None if pinned else self.empty(first.shape, dtype=first.dtype, device="cpu", pin_memory=True)
        return self._cast(func, first, args, kwargs)
