"""Every tensor storage that an engine's optimizer object leads to."""

import torch

from event_log import LOG, dtype_name

SMALLEST = 64  # bytes; smaller storages are only counted

# Attributes that are looked at first: a storage is listed under the first path that leads to it.
FIRST = [
    "ipg_buckets",
    "ipg_buffer",
    "_DeepSpeedZeroOptimizer_Stage3__ipg_bucket_flat_buffer",
    "bit16_groups_flat",
    "lp_param_buffer",
    "single_partition_of_fp32_groups",
    "fp32_partitioned_groups_flat",
    "grad_partitions_flat_buffer",
    "_DeepSpeedZeroOptimizer_Stage3__param_id_to_grad_partition",
    "fp32_groups_flat_partition",
    "fp32_groups_gradients_flat",
    "bf16_groups_flat",
    "fp16_groups_flat",
    "fp32_groups_flat",
]
LEFT_OUT = ("module", "optimizer", "recorded_parameters", "param_groups")
DEEPEST = 5

# What older releases call the same thing.
SAME = {
    "ipg_buffer": "ipg_buckets[dtype].buffer",
    "_DeepSpeedZeroOptimizer_Stage3__ipg_bucket_flat_buffer": "ipg_buckets[dtype].buffer",
}


class Scan:
    """Walks lists, dictionaries and buckets below an object; every storage counts once."""

    def __init__(self):
        self.storages = {}  # address -> its entry
        self.entries = []
        self.visited = set()

    def tensor(self, path, tensor):
        gradient = tensor.grad if tensor.is_leaf else None
        for name, held in ((path, tensor), (path + ".grad", gradient)):
            if held is None or held.numel() == 0 or held.device.type == "meta":
                continue
            address = held.untyped_storage().data_ptr()
            if address in self.storages:
                continue
            entry = {
                "path": name,
                "numel": held.numel(),
                "dtype": dtype_name(held),
                "bytes": held.untyped_storage().nbytes(),
                "pinned": int(LOG.pinned.holds(held)),
            }
            self.storages[address] = entry
            self.entries.append(entry)

    def visit(self, path, value, depth=0):
        if isinstance(value, torch.Tensor):
            self.tensor(path, value)
            return
        if depth > DEEPEST or id(value) in self.visited:
            return
        if isinstance(value, (list, tuple)):
            self.visited.add(id(value))
            for index, item in enumerate(value):
                self.visit(f"{path}[{index}]", item, depth + 1)
        elif isinstance(value, dict):
            self.visited.add(id(value))
            for key, item in value.items():
                self.visit(f"{path}[{key_name(key)}]", item, depth + 1)
        elif type(value).__name__ in ("IPGBucketZ3", "IPGBucket"):
            self.visited.add(id(value))
            for key, item in vars(value).items():
                if key != "params":
                    self.visit(f"{path}.{key}", item, depth + 1)


def key_name(key):
    """How a dictionary's key stands in a path."""
    if isinstance(key, torch.Tensor):
        return f"p{LOG.parameter(key)}"
    return key if isinstance(key, (str, int)) else type(key).__name__


def held_buffers(optimizer, parameters):
    """The storages an optimizer object holds, and how many elements of weights are gathered."""
    scan = Scan()
    attributes = vars(optimizer)
    names = [name for name in FIRST if name in attributes]
    names += [name for name in attributes if name not in FIRST and name not in LEFT_OUT]
    for name in names:
        scan.visit(SAME.get(name, name), attributes[name])
    if hasattr(optimizer, "optimizer"):
        scan.visit("state", dict(optimizer.optimizer.state.items()))
    listed = [entry for entry in scan.entries if entry["bytes"] >= SMALLEST]
    # Leaf modules of a granularity threshold leave one element in a released parameter.
    resident = [p for p in parameters if p.data.numel() == getattr(p, "ds_numel", p.numel())]
    return {
        "buffers": listed,
        "param_elems_resident": sum(p.data.numel() for p in resident),
    }
