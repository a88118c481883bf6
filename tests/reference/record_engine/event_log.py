"""The list of events that one process writes while an engine runs, and how objects are named in it."""

import torch

DTYPES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "b8",
}


def dtype_name(tensor):
    """The short name of a tensor's element type."""
    return DTYPES.get(tensor.dtype, str(tensor.dtype))


class EventLog:
    """Events of the phase at hand; `writing` switches the recorder off around its own work."""

    def __init__(self):
        self.events = []
        self.writing = False
        self.streams = ["C"]  # names of the streams that are current, innermost last
        self.parameters = {}  # id(parameter) -> index into model.parameters()
        self.modules = {}  # id(module) -> index into model.modules()
        self.pinned = PinnedStorages()
        self.finished_events = False  # what Event.query() answers
        self.simulated = True  # one process of a simulated group, not real processes

    def add(self, *event):
        """Appends an event."""
        if self.writing:
            self.events.append(list(event))

    def has(self, kind):
        """Whether such an event was written since the last take()."""
        return any(event[0] == kind for event in self.events)

    def take(self):
        """Returns the events so far and starts a new list."""
        events, self.events = self.events, []
        return events

    def stream(self):
        """Name of the stream that kernels are launched on."""
        return self.streams[-1]

    def parameter(self, parameter):
        """Index of a parameter, -1 for any other tensor."""
        return self.parameters.get(id(parameter), -1)

    def module(self, module):
        """Index of a module, -1 for one that the model does not have."""
        return self.modules.get(id(module), -1)

    def pause(self):
        """Context in which nothing is written."""
        return _Paused(self)


class _Paused:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.before, self.log.writing = self.log.writing, False

    def __exit__(self, *unused):
        self.log.writing = self.before


class PinnedStorages:
    """Which storages count as page locked. A storage is known by its address while it lives; its
    tensor is kept, so that no other storage can take the address."""

    def __init__(self):
        self.kept = {}

    def add(self, tensor):
        self.kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()

    def holds(self, tensor):
        return tensor.untyped_storage().data_ptr() in self.kept


LOG = EventLog()
