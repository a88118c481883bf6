"""One forward pass of a model, recorded."""

import contextlib
from unittest import mock

import torch
from torch.nn.modules import module as torch_module

from .functions import Functions, named_functions, only_known_gradients, without_pairs
from .recorder import Dispatch, Recorder, tensors_in


class NoLoss(Exception):
    """What the model returned is no loss."""


def _first_tensor(value):
    found = []
    tensors_in(value, found)
    for tensor in found:
        if tensor.is_floating_point():
            return tensor
    return None


def _first_output(value):
    if hasattr(value, "values") and not isinstance(value, (torch.Tensor, dict)):
        value = list(value.values())
    return _first_tensor(value)


def loss_of(output):
    """(the scalar that backward begins at, everything that the program still holds)."""
    if isinstance(output, torch.Tensor):
        return output
    loss = getattr(output, "loss", None)
    if loss is None and isinstance(output, dict):
        loss = output.get("loss")
    if loss is None and isinstance(output, (list, tuple)) and output and isinstance(output[0], torch.Tensor):
        loss = output[0]
    return loss


class _Autocast(torch.autocast):
    """Classes of before transformers 5 switch it off for the device of their tensors; PyTorch knows none of the meta device, where it is never on."""

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        super().__init__("cpu" if device_type == "meta" and not enabled else device_type, dtype, enabled, cache_enabled)


@contextlib.contextmanager
def watched(recorder, model):
    """Where operations on whole numbers are run and others have sizes alone; the recorder notes them."""
    with Dispatch(recorder), Functions(recorder), named_functions(recorder, model), only_known_gradients(recorder), mock.patch("torch.autocast", _Autocast):
        yield


def _stop_gradients(recorder, loss):
    """Operations that the loss does not hang on have no backward pass: what autograd kept for them goes with their results."""
    needed = {loss}
    for event in reversed(recorder.events):
        if event[0] != "op":
            continue
        row = event[1]
        if needed.intersection(row["out"]):
            needed.update(number for number in row["in"] if number is not None)
        elif row.pop("saves", None) or any(recorder.rows[number].grad for number in row["out"]):
            row["no_grad"] = True


def record(model, inputs, loss_function=None):
    """Runs the model once; returns the recorder, the number of its loss and those that the output holds."""
    recorder = Recorder()
    names = {module: name for name, module in model.named_modules(remove_duplicate=True)}
    for name, parameter in model.named_parameters(remove_duplicate=True):
        recorder.name(parameter, "parameter", name, parameter.requires_grad)
    for name, buffer in model.named_buffers(remove_duplicate=True):
        if recorder.number(buffer) is None:
            recorder.name(buffer, "buffer", name, False)
    found = {}
    if isinstance(inputs, dict):
        found = {key: value for key, value in inputs.items() if isinstance(value, torch.Tensor)}
    else:
        found = {"input %d" % i: value for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)}
    for name, value in found.items():
        recorder.name(value, "input", name, bool(value.requires_grad))

    def before(module, args):
        if module in names and not recorder.quiet:
            recorder.enter(names[module], _first_tensor([a for a in args if isinstance(a, (torch.Tensor, list, tuple))]))

    def after(module, args, output):
        if module in names and not recorder.quiet:
            kept = without_pairs(recorder, output)
            recorder.leave(names[module], _first_output(output))
            return kept
        return None

    def pack(tensor):
        recorder.save(tensor)
        return None

    def unpack(_):
        raise RuntimeError("no backward pass is run")

    hooks = [
        torch_module.register_module_forward_pre_hook(before),
        torch_module.register_module_forward_hook(after),
    ]
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack), watched(recorder, model):
            output = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
            loss = loss_function(output) if loss_function is not None else loss_of(output)
    finally:
        for hook in hooks:
            hook.remove()
    recorder.poll()
    recorder.take_saved()
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        raise NoLoss(type(output).__name__)
    number = recorder.number(loss)
    _stop_gradients(recorder, number)
    root = recorder.rows[number].root
    held = sorted({root_ for address, (weak, root_, host) in recorder._storages.items()
                   if not weak.expired() and not host and root_ not in recorder.names and root_ != root})
    return recorder, number, held
