"""Functions that PyTorch takes apart in another way on a GPU than on the meta device: they are recorded as they are called."""

import contextlib
import functools
import inspect
import sys

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from .problem import Problem


class _Attention(torch.autograd.Function):
    """The result of a fused kernel: (b, s, heads, d) in memory, whatever its sizes are."""

    @staticmethod
    def forward(ctx, query, key, value):
        sizes = list(query.shape)
        sizes[-1] = value.shape[-1]
        sizes[-2], sizes[-3] = sizes[-3], sizes[-2]
        return query.new_empty(sizes).transpose(-2, -3)

    @staticmethod
    def backward(ctx, gradient):
        return None, None, None


class _Same(torch.autograd.Function):
    """A new tensor like one that is there."""

    @staticmethod
    def forward(ctx, tensor, dtype):
        return torch.empty_like(tensor, dtype=dtype, memory_format=torch.preserve_format)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class _Quiet:
    def __init__(self, recorder):
        self.recorder = recorder

    def __enter__(self):
        self.recorder.quiet += 1

    def __exit__(self, *_):
        self.recorder.quiet -= 1


def _meta(*tensors):
    return any(isinstance(t, torch.Tensor) and t.device.type == "meta" for t in tensors)


def _linear(recorder, func, args, kwargs):
    x, weight = args[0], args[1] if len(args) > 1 else kwargs["weight"]
    bias = args[2] if len(args) > 2 else kwargs.get("bias")
    recorder.poll()
    saves = recorder.take_saved()
    with _Quiet(recorder):
        out = func(*args, **kwargs)
    recorder.operation("linear", [x, weight, bias], [out], saves)
    return out


def _sdpa(recorder, func, args, kwargs):
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    said = dict(zip(names, args))
    said.update(kwargs)
    query, key, value = said["query"], said["key"], said["value"]
    recorder.poll()
    saves = recorder.take_saved()
    with _Quiet(recorder):
        out = _Attention.apply(query, key, value)
    recorder.operation(
        "scaled_dot_product_attention", [query, key, value, said.get("attn_mask")], [out], saves,
        p=said.get("dropout_p") or 0.0, causal=bool(said.get("is_causal")), grouped=bool(said.get("enable_gqa")),
    )
    return out


def _softmax(recorder, func, args, kwargs):
    x = args[0] if args else kwargs.get("input")
    dim = kwargs.get("dim", args[1] if len(args) > 1 else -1)
    dtype = kwargs.get("dtype")
    if not _meta(x):
        return func(*args, **kwargs)
    recorder.poll()
    saves = recorder.take_saved()
    with _Quiet(recorder):
        out = _Same.apply(x.contiguous() if not x.is_contiguous() else x, dtype or x.dtype)
    recorder.operation("softmax", [x], [out], saves, dims=[dim])
    return out


def _contiguous(recorder, func, args, kwargs):
    x = args[0]
    if kwargs or len(args) > 1 or not _meta(x):
        return func(*args, **kwargs)
    recorder.poll()
    if x.is_contiguous():
        # Nothing here; a copy where another kernel made the tensor. A name of its own, so that both can be told.
        recorder.operation("contiguous", [x], [x], recorder.take_saved())
        return x
    return func(*args, **kwargs)


def _dropout(recorder, func, args, kwargs):
    x = args[0] if args else kwargs["input"]
    p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
    training = args[2] if len(args) > 2 else kwargs.get("training", True)
    in_place = args[3] if len(args) > 3 else kwargs.get("inplace", False)
    if not training or p == 0.0:
        return func(*args, **kwargs) if in_place else x
    if in_place or not _meta(x):
        return func(*args, **kwargs)
    recorder.poll()
    saves = recorder.take_saved()
    with _Quiet(recorder):
        out = _Same.apply(x, x.dtype)
    recorder.operation("dropout", [x], [out], saves, p=p)
    return out


class _Result(torch.autograd.Function):
    """A new tensor of the sizes of one, contiguous, that follows from all."""

    @staticmethod
    def forward(ctx, dtype, like, *others):
        return like.new_empty(like.shape, dtype=dtype)

    @staticmethod
    def backward(ctx, gradient):
        return None


def _as_one(recorder, name, into, like, dtype, kept=(), **facts):
    """`kept`: the numbers of tensors that it keeps for its backward pass."""
    recorder.poll()
    saves = recorder.take_saved() + list(kept)
    with _Quiet(recorder):
        out = _Result.apply(dtype, like, *into)
    recorder.operation(name, into, [out], saves, **facts)
    return out


DELTA_RULE, CHUNK_SCAN, SPLIT_SCAN = "chunk_gated_delta_rule", "mamba_chunk_scan_combined", "mamba_split_conv1d_scan_combined"


def _instead(recorder, func, record):
    """The function; while the recorder listens, what `record` makes of its arguments by name, and its own result where that is None."""
    signature = inspect.signature(func)

    @functools.wraps(func)
    def recorded(*args, **kwargs):
        out = None if recorder.quiet else record(signature.bind(*args, **kwargs).arguments)
        return func(*args, **kwargs) if out is None else out

    return recorded


def _delta_rule(recorder, func):
    """transformers' function: a loop over chunks here, where packages have kernels."""
    def record(said):
        if said.get("initial_state") is not None or said.get("output_final_state"):
            return None
        into = [said[name] for name in ("query", "key", "value", "g", "beta")]
        return _as_one(recorder, DELTA_RULE, into, said["value"], said["value"].dtype), None

    return _instead(recorder, func, record)


def _chunk_scan(recorder, func):
    """transformers' function for Mamba 2, some of whose tensors have a size for each chunk of the sequence."""
    def record(said):
        if said.get("initial_states") is not None or said.get("return_final_states"):
            return None
        into = [said.get(name) for name in ("hidden_states", "dt", "A", "B", "C", "D", "dt_bias")]
        return _as_one(recorder, CHUNK_SCAN, into, said["hidden_states"], torch.float32, step=said["chunk_size"])

    return _instead(recorder, func, record)


def _split_scan(recorder, func):
    """mamba_ssm's kernels, which make what the innermost module returns; without the package the class runs what follows."""
    def record(said):
        into = [said.get(name) for name in ("zxbcdt", "conv1d_weight", "conv1d_bias", "dt_bias", "A", "D", "rmsnorm_weight", "outproj_weight", "outproj_bias")]
        recorder.poll()
        recorder.operation(SPLIT_SCAN, into, [], recorder.take_saved(), step=said["chunk_size"], dims=[said["ngroups"]])

    return _instead(recorder, func, record)


BLOOM_GELU, PHIMOE_MULTIPLIER = "bloom_gelu", "phimoe_multiplier"


class _Known:
    """In the place of an autograd function, whose backward pass is its own: one operation, which the player knows by its name."""

    def __init__(self, recorder, function):
        self.recorder, self.function = recorder, function

    def apply(self, *args):
        return self.function.apply(*args) if self.recorder.quiet else self.record(*args)


class _BloomGelu(_Known):
    def record(self, x):
        return _as_one(self.recorder, BLOOM_GELU, [x], x, x.dtype)


class _PhimoeMultiplier(_Known):
    """Its gradient is that of the scores alone, made of what it keeps of the others."""

    def record(self, scores, multiplier, selected_experts, masked_gates, mask_for_one):
        kept = [number for tensor in (multiplier, selected_experts, masked_gates) if (number := self.recorder.number(tensor)) is not None]
        return _as_one(self.recorder, PHIMOE_MULTIPLIER, [scores, selected_experts, mask_for_one], multiplier, multiplier.dtype, kept)


_KNOWN = {"GeLUFunction": _BloomGelu, "PhimoeMultiplier": _PhimoeMultiplier}


def _place_of(function):
    code = inspect.unwrap(function.forward).__code__
    return "%s, %s:%d" % (function.__name__, code.co_filename, code.co_firstlineno)


@contextlib.contextmanager
def only_known_gradients(recorder):
    """Where an autograd function that nobody here knows is refused: its operations run without gradients, and its backward pass is nowhere recorded."""
    usual = torch.autograd.Function.__dict__["apply"]

    def apply(function, *args, **kwargs):
        if not recorder.quiet and torch.is_grad_enabled() and any(isinstance(one, torch.Tensor) and one.requires_grad for one in (*args, *kwargs.values())):
            raise Problem("operations whose gradients PyTorch makes", "an autograd function of the class's own: %s" % _place_of(function),
                          "zeroplan rehearse runs the model's own code")
        return usual.__func__(function, *args, **kwargs)

    torch.autograd.Function.apply = classmethod(apply)
    try:
        yield
    finally:
        torch.autograd.Function.apply = usual


FLASH_ATTENTION = "flash_attention"


def _flash_attention(recorder, func):
    """flash-attn's function, or that of transformers around it: tensors are (b, s, heads, d)."""
    @functools.wraps(func)
    def recorded(query, key, value, *args, **kwargs):
        if recorder.quiet:
            return func(query, key, value, *args, **kwargs)
        recorder.poll()
        saves = recorder.take_saved()
        with _Quiet(recorder):
            out = _Attention.apply(query.transpose(1, 2), key, value).transpose(1, 2)
        said = inspect.signature(func).bind(query, key, value, *args, **kwargs).arguments
        recorder.operation(FLASH_ATTENTION, [query, key, value], [out], saves, p=said.get("dropout") or said.get("dropout_p") or 0.0,
                           causal=bool(said.get("is_causal") or said.get("causal")))
        return out

    return recorded


UPDATE_CACHE = "update_cache"


def _update_cache(recorder, func):
    """Nothing is kept: whoever plays the document decides whether the run has a cache."""
    @functools.wraps(func)
    def recorded(cache, key, value, *args, **kwargs):
        recorder.poll()
        recorder.operation(UPDATE_CACHE, [key, value], [key, value], recorder.take_saved())
        return key, value

    return recorded


def without_pairs(recorder, output):
    """What a module returns of a class that has no cache object: without its keys and values, which are recorded as handed to one; None: as it is."""
    if not isinstance(output, tuple) or not any(map(_is_pair, output)):
        return None
    for pair in filter(_is_pair, output):
        recorder.poll()
        recorder.operation(UPDATE_CACHE, list(pair), [], recorder.take_saved())
    return tuple(() if _is_pair(part) else part for part in output)


def _is_pair(part):
    return isinstance(part, tuple) and len(part) == 2 and all(isinstance(one, torch.Tensor) and one.dim() in (3, 4) for one in part)


@functools.lru_cache(maxsize=1)
def _modules(_count):
    """Those of transformers; asked anew where there are more modules."""
    return [module for name, module in list(sys.modules.items()) if name.startswith(("transformers.models.", "transformers.integrations."))]


@contextlib.contextmanager
def named_functions(recorder, model):
    """What the classes of transformers call by a name of their module, or of the layer, is recorded as it is called."""
    places = [*_modules(len(sys.modules)), *model.modules()]
    caches = [kind for name in ("Cache", "DynamicCache") if (kind := getattr(sys.modules.get("transformers.cache_utils"), name, None)) is not None]
    places += caches  # of before 4.56 the second has an update of its own
    named = {"torch_" + DELTA_RULE: _delta_rule, DELTA_RULE: _delta_rule, "mamba2_chunk_scan": _chunk_scan,
             "mamba2_split_conv1d_scan_combined": _split_scan, "_flash_attention_forward": _flash_attention, "flash_attn_func": _flash_attention,
             "update": _update_cache, **_KNOWN}
    undo = []
    for place in places:
        for name, record in named.items():
            function = vars(place).get(name)
            is_one = inspect.isclass(function) if name in _KNOWN else inspect.isfunction(function)
            if is_one and (name != "update" or place in caches):
                undo.append((place, name, function))
                setattr(place, name, record(recorder, function))
    try:
        yield
    finally:
        for place, name, function in undo:
            setattr(place, name, function)


_HANDLERS = {
    F.linear: _linear,
    F.scaled_dot_product_attention: _sdpa,
    F.softmax: _softmax,
    torch.softmax: _softmax,
    torch.Tensor.softmax: _softmax,
    torch.Tensor.contiguous: _contiguous,
    F.dropout: _dropout,
}


class Functions(TorchFunctionMode):
    def __init__(self, recorder):
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        handler = _HANDLERS.get(func)
        if handler is None or self.recorder.quiet:
            return func(*args, **kwargs)
        return handler(self.recorder, func, args, kwargs)
