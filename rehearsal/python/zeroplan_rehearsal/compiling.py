"""torch.compile: what watches torch's functions steps aside while compiled code is traced or runs.

Its tracer would inline the watcher, or compile for a mode that is not the program's. Values of small tensors are not
followed within; what it allocates is what its code, compiled for the emulated GPU, allocates.
"""
import contextlib
import functools
import importlib

from . import facts


@contextlib.contextmanager
def _without(torch, overrides):
    """Takes the mode from where it is on torch's stack, and puts it back there."""
    mode, above = torch._zeroplan_rehearsal, []
    while torch._C._len_torch_function_stack() and (not above or above[-1] is not mode):
        above.append(overrides._pop_mode())
    found = bool(above) and above[-1] is mode
    for kept in reversed(above[:-1] if found else above):
        overrides._push_mode(kept)
    try:
        yield
    finally:
        if found:
            kept = [overrides._pop_mode() for _ in above[:-1]]
            overrides._push_mode(mode)
            for other in reversed(kept):
                overrides._push_mode(other)


def install(module):
    """torch._dynamo.eval_frame has been imported."""
    import torch

    overrides = importlib.import_module("torch.overrides")
    # Of what torch.compile returns alone: before torch 2.3 functions that it shall leave alone share its parent's call.
    context = module.OptimizeContext
    original = context.__call__

    @functools.wraps(original)
    def __call__(self, function):
        made = original(self, function)
        if isinstance(made, (type, torch.nn.Module)) or not callable(made):
            return made  # a module's forward comes here by itself

        # DeepSpeed compiles Muon's update itself, which is no choice of the program.
        of_deepspeed = str(getattr(function, "__module__", "")).startswith("deepspeed.")

        @functools.wraps(made)
        def run(*args, **kwargs):
            if not of_deepspeed:
                facts.once("compile", True)
            with _without(torch, overrides):
                return made(*args, **kwargs)

        return run

    context.__call__ = __call__
