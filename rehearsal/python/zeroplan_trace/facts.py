"""What an operation's time, memory and gradient depend on besides its tensors."""

import torch


def _dims(value):
    return [value] if isinstance(value, int) else list(value)


def _bound(func, args, kwargs):
    bound = {}
    for argument, value in zip(func._schema.arguments, args):
        bound[argument.name] = value
    bound.update(kwargs)
    return bound


def facts_of(func, args, kwargs, outputs):
    name = func._schema.name.split("::")[1]
    said = _bound(func, args, kwargs)
    facts = {}
    if name in ("transpose", "swapaxes"):
        facts["dims"] = [said["dim0"], said["dim1"]]
    elif name == "permute":
        facts["dims"] = list(said["dims"])
    elif name in ("unsqueeze", "squeeze", "select", "slice", "split", "split_with_sizes", "unbind", "cat", "stack", "_softmax", "_log_softmax",
                  "cumsum", "mean", "sum", "topk", "chunk", "narrow", "argmax", "max", "min", "gather", "scatter", "index_select", "var_mean", "var", "amax", "any", "all"):
        dim = said.get("dim", 0 if name in ("cat", "stack", "split", "select", "slice", "split_with_sizes", "unbind") else None)
        if dim is not None:
            facts["dims"] = _dims(dim)
        if name == "slice" and said.get("step", 1) != 1:
            facts["step"] = said["step"]
        if name in ("mean", "sum", "amax", "any", "all", "max", "min", "argmax") and said.get("keepdim"):
            facts["keepdim"] = True
    elif name == "clone":
        if said.get("memory_format") == torch.contiguous_format:
            facts["contiguous"] = True
    elif name == "detach":
        facts["stops_gradient"] = True
    elif name == "native_dropout":
        facts["p"] = said["p"]
    elif name in ("convolution", "conv2d"):
        facts["groups"] = said.get("groups", 1)
        facts["dims"] = list(said.get("stride", []))
    elif name == "pow" and isinstance(said.get("exponent"), (int, float)):
        facts["p"] = said["exponent"]
    return facts
