"""Runs an operation where its values are: whole numbers and truth values on the CPU, everything else without values.

A router's choice of experts cannot be known: tokens go round the experts in turn.
"""

import functools

import torch

_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_MOST_ELEMENTS = 1 << 26  # of a tensor with values
_META = torch.device("meta")
aten = torch.ops.aten


class NoValue(Exception):
    """The program asks for a value that nobody computed."""


def _is_meta(device):
    return device is not None and torch.device(device).type == "meta"


def goes_to_gpu(kwargs, inputs):
    """Whether the result stands on the GPU in a real run, though all inputs are the host's."""
    return _is_meta(kwargs.get("device"))


def goes_to_host(kwargs):
    device = kwargs.get("device")
    return device is not None and torch.device(device).type == "cpu"


def stays_there(func, kwargs, inputs):
    """Whether this moves whole numbers to the GPU, where they are already."""
    if func is not aten._to_copy.default or not inputs or inputs[0].device.type == "meta":
        return False
    return _is_meta(kwargs.get("device")) and kwargs.get("dtype") in (None, inputs[0].dtype)


def has_no_values(func, kwargs, inputs):
    """Whether this moves to the device of whole numbers, which is the host here and the GPU in a real run, what has no values."""
    return func is aten._to_copy.default and bool(inputs) and inputs[0].device.type == "meta" and goes_to_host(kwargs)


def _whole_result(func, args, kwargs):
    """Whether a tensor made on the device has whole numbers, as far as its arguments say."""
    dtype = kwargs.get("dtype")
    if dtype is not None:
        return dtype in _WHOLE
    name = func._schema.name.split("::")[1]
    if name == "arange":
        return all(isinstance(arg, int) for arg in args)
    if name in ("full", "new_full", "full_like"):
        value = args[-1] if len(args) > 1 else kwargs.get("fill_value")
        if name == "full":
            return isinstance(value, (bool, int)) and not isinstance(value, float)
    if args and isinstance(args[0], torch.Tensor):
        return args[0].dtype in _WHOLE
    return name in ("randperm", "ones")  # a mask that the program makes is one of floating-point ones


def _to_meta(value):
    if isinstance(value, torch.Tensor) and value.device.type != "meta":
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return type(value)(_to_meta(item) for item in value)
    return value


def _any(value, test):
    if isinstance(value, torch.Tensor):
        return test(value)
    if isinstance(value, (list, tuple)):
        return any(_any(item, test) for item in value)
    if isinstance(value, dict):
        return any(_any(item, test) for item in value.values())
    return False


def _in_turn(values, k):
    """Numbers below the last size, each as often as the others, as indices of the k largest."""
    rows = 1
    for size in values.shape[:-1]:
        rows *= size
    most = values.shape[-1]
    return (torch.arange(rows * k) % most).reshape(*values.shape[:-1], k)


def run(func, args, kwargs):
    meta = _any(args, lambda tensor: tensor.device.type == "meta") or _any(kwargs, lambda tensor: tensor.device.type == "meta")
    if not meta:
        if func is aten.rand.default and not args[0]:
            return torch.ones(())  # no layer is left out at random
        if func is aten.histc.default and args[0].dtype in _WHOLE:
            return func(args[0].float(), *args[1:], **kwargs).to(args[0].dtype)  # the CPU's has no whole numbers
        if _is_meta(kwargs.get("device")) and _whole_result(func, args, kwargs):
            kwargs = dict(kwargs, device=torch.device("cpu"))
        return func(*args, **kwargs)
    if func in (aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default, aten.equal.default):
        raise NoValue(func._schema.name.split("::")[1])
    if func is aten.topk.default:
        values, _ = func(*_to_meta(args), **_to_meta_of(kwargs))
        return values, _in_turn(args[0], args[1])
    if func is aten.argmax.default and args[0].device.type == "meta":
        shape = func(*_to_meta(args), **kwargs).shape
        count = 1
        for size in shape:
            count *= size
        return (torch.arange(count) % args[0].shape[-1]).reshape(shape)
    if func in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default):
        args = (args[0], _places(args[1]), *args[2:])
    if _is_meta(kwargs.get("device")) or "device" not in kwargs:
        if func._schema.name.split("::")[1] in _LIKE and _whole_result(func, args, kwargs):
            kwargs = dict(kwargs, device=torch.device("cpu"))
    return _made(func, _to_meta(args), _to_meta_of(kwargs))


_KNOWN = {}  # (operation, its arguments) -> the form of what it makes: PyTorch works it out in Python, and a pass has many of one form


@functools.cache
def _makes_new(func):
    """Whether an operation gives new tensors alone: no views, nothing in place."""
    schema = func._schema
    return func is not aten._unsafe_view.default and all(part.alias_info is None for part in (*schema.arguments, *schema.returns))


def _form(value):
    if isinstance(value, torch.Tensor):
        return value.size(), value.stride(), value.dtype
    if isinstance(value, (list, tuple)):
        return tuple(map(_form, value))
    if isinstance(value, dict):
        return tuple((key, _form(item)) for key, item in value.items())
    return type(value), value


def _of_form(form):
    size, stride, dtype = form
    return torch.empty_strided(size, stride, dtype=dtype, device=_META)


def _made(func, args, kwargs):
    """The result on the meta device, by the form that it had before."""
    if not _makes_new(func):
        return func(*args, **kwargs)
    key = func, _form(args), _form(kwargs)
    known = _KNOWN.get(key)
    if known is not None:
        return _of_form(known[0]) if len(known) == 1 else tuple(map(_of_form, known))
    result = func(*args, **kwargs)
    several = isinstance(result, tuple) and len(result) > 1
    tensors = result if several else (result,)
    if all(isinstance(one, torch.Tensor) and one.device == _META and one.storage_offset() == 0 for one in tensors):
        _KNOWN[key] = tuple(map(_form, tensors))
    return result


def _places(indices):
    """Masks of truth values, which have their values, as the numbers of the elements that they choose."""
    places = []
    for index in indices:
        masks = isinstance(index, torch.Tensor) and index.dtype is torch.bool and index.device.type != "meta"
        places.extend(index.nonzero(as_tuple=True) if masks else [index])
    return places


_LIKE = ("ones_like", "zeros_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty")


def _to_meta_of(kwargs):
    return {key: _to_meta(value) for key, value in kwargs.items()}
