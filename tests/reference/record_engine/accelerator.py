"""A DeepSpeed accelerator that looks asynchronous but computes on the CPU.

DeepSpeed's own CPU accelerator is "synchronous" (Stream is None), and the engines then leave out half
of the code that runs on a GPU. This one hands out streams and events that only log.
"""

import sys

import torch

from event_log import LOG


class Stream:
    """A stream that launches nothing; its name is what events say."""

    made = 0

    def __init__(self, *unused, name=None, **more):
        Stream.made += 1
        self.name = name or f"S{Stream.made}"

    def wait_stream(self, other):
        if other is not self:  # waiting for itself does nothing
            LOG.add("ws", self.name, other.name)

    def synchronize(self):
        LOG.add("ss", self.name)

    def wait_event(self, unused):
        LOG.add("we", self.name)

    def record_event(self, event=None):
        return event or Event()

    def query(self):
        return LOG.finished_events


class Event:
    """An event that is either never or always finished when asked (LOG.finished_events)."""

    def __init__(self, *unused, **more):
        pass

    def record(self, *unused):
        LOG.add("er", LOG.stream())

    def query(self):
        return LOG.finished_events

    def synchronize(self):
        LOG.add("es")

    def wait(self, *unused):
        LOG.add("ew")

    def elapsed_time(self, unused):
        return 0.0


COMPUTE = Stream(name="C")
_current = [COMPUTE]


class _OnStream:
    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        LOG.streams.append(self.stream.name)
        _current.append(self.stream)

    def __exit__(self, *unused):
        LOG.streams.pop()
        _current.pop()


def make_accelerator():
    """The class stands in a function because DeepSpeed may only be imported after process_group."""
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

    class AsynchronousCpu(CPU_Accelerator):
        """Answers what a GPU's accelerator answers where the engines ask."""

        def is_synchronized_device(self):
            return False

        def resolves_data_dependency(self):
            return False

        def handles_memory_backpressure(self):
            return False

        def communication_backend_name(self):
            return "gloo"  # 0.12 would look for Intel's library

        def use_host_timers(self):
            return True

        @property
        def Stream(self):
            return Stream

        @property
        def Event(self):
            return Event

        def stream(self, stream):
            return _OnStream(stream if stream is not None else COMPUTE)

        def current_stream(self, device_index=None):
            return _current[-1]

        def default_stream(self, device_index=None):
            return COMPUTE

        def synchronize(self, device_index=None):
            # The throughput timer's own synchronisations are of no interest.
            if not sys._getframe(1).f_code.co_filename.endswith("timer.py"):
                LOG.add("ds")

        def is_fp16_supported(self):
            return True

        def is_bf16_supported(self):
            return True

        def supported_dtypes(self):
            return [torch.float, torch.half, torch.bfloat16]

        def available_memory(self, device_index=None):
            return 1 << 40

        def pin_memory(self, tensor, *unused, **more):
            LOG.pinned.add(tensor)
            return tensor

        def is_pinned(self, tensor):
            return LOG.pinned.holds(tensor)

    return AsynchronousCpu()
