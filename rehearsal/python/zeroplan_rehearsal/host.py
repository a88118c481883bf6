"""Large tensors of the host stay untouched: nobody needs their values, and memory that is not touched costs nothing.

`result` is asked before a function of torch runs, and answers with what it would return, or with nothing.
"""

LEAST = 1 << 20  # elements
IN_PLACE = {
    "copy_", "zero_", "fill_", "normal_", "uniform_", "mul_", "add_", "div_", "sub_", "random_",
    "trunc_normal_", "kaiming_uniform_", "xavier_uniform_", "constant_",
}
CASTS = {"bfloat16", "half", "float", "double", "to", "clone", "type", "contiguous"}
MADE = {"zeros", "ones", "full", "randn", "rand", "zeros_like", "ones_like", "randn_like", "rand_like"}
FLATTEN = "flatten_dense_tensors"
NAMES = IN_PLACE | CASTS | MADE | {FLATTEN}


class Host:
    def __init__(self, torch):
        self.torch = torch
        self.plain = (torch.Tensor, torch.nn.Parameter)

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
        return torch.empty(shape.shape, dtype=shape.dtype, pin_memory=kwargs.get("pin_memory", False))

    def _flattened(self, parts):
        parts = list(parts)
        count = sum(part.numel() for part in parts)
        if count < LEAST or any(part.device.type != "cpu" for part in parts):
            return None
        return self.torch.empty(count, dtype=parts[0].dtype)

    def _cast(self, func, first, args, kwargs):
        torch = self.torch
        if first.requires_grad and torch.is_grad_enabled():
            return None
        shape = torch.empty_strided(first.size(), first.stride(), dtype=first.dtype, device="meta")
        try:
            done = func(shape, *args[1:], **kwargs)
        except NotImplementedError:  # a copy to the card
            return None
        if done is shape or done.device.type != "meta":
            return None
        return torch.empty_strided(done.size(), done.stride(), dtype=done.dtype)

    def result(self, func, name, args, kwargs):
        if name in MADE:
            return self._made(func, name, args, kwargs)
        if name == FLATTEN:
            return self._flattened(args[0])
        first = args[0] if args else kwargs.get("tensor")  # torch.nn.init names it
        if type(first) not in self.plain or first.device.type != "cpu" or first.numel() < LEAST:
            return None
        if name in IN_PLACE:
            return first
        return self._cast(func, first, args, kwargs)
