"""What the rehearsal's own Python costs, which is no time of the program: it is left out of the work file's nanoseconds.

Every function of torch passes through values.py. Its own time is measured call by call; what the detour costs before it
begins and behind its end is the same for all calls and is measured once.
"""
import time

from . import gpu

_clock = time.thread_time_ns
_detour = 0  # ns a call
_watches = None


def watches():
    global _watches
    if _watches is None:
        _watches = gpu.writes()
    return _watches


def forget():
    global _watches
    _watches = None


class Call:
    """A function of torch whose first call is the program's; all else between enter and exit is the rehearsal's."""

    def __init__(self, func):
        self.func = func
        self.called = False

    def __enter__(self):
        self.began = _clock()
        return self

    def __call__(self, *args, **kwargs):
        if self.called:
            return self.func(*args, **kwargs)
        self.called = True
        gpu.leave_out(_clock() - self.began + _detour)
        try:
            return self.func(*args, **kwargs)
        finally:
            self.began = _clock()

    def __exit__(self, *_):
        gpu.leave_out(_clock() - self.began + (0 if self.called else _detour))


def _seconds_of(torch, calls):
    tensor = torch.zeros(8)
    began = _clock()
    for _ in range(calls):
        tensor.dim()
    return (_clock() - began) / calls


def calibrate(torch, calls=2000):
    """The detour: what a call costs beside the function itself and what is measured of it."""
    global _detour
    if not watches():
        return
    _seconds_of(torch, calls)  # warm
    left_out, leave_out = [0], gpu.leave_out

    def counting(nanoseconds):
        left_out[0] += nanoseconds
        leave_out(nanoseconds)

    gpu.leave_out = counting
    try:
        with_detour = _seconds_of(torch, calls)
    finally:
        gpu.leave_out = leave_out
    with torch._C.DisableTorchFunction():
        plain = _seconds_of(torch, calls)
    _detour = max(0, int(with_detour - plain - left_out[0] / calls))
