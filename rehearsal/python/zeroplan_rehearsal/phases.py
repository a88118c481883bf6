"""Which phase of a training program is running, and what memory it took: a line of the record at the end of each.

model         until DeepSpeed or an optimizer gets the model
init          until the first forward pass
forward       of a micro-batch: until its backward begins
backward      of a micro-batch
optimizer     of a step; `idle` lines after it (gradients dropped, the Trainer's end of a step) are what is held between steps
save          of a checkpoint

A phase within a phase (reentrant checkpointing calls backward within backward) is part of the outer one.
"""
import functools
import importlib
import os
import time

from . import answers, gpu, facts, operations, records, values

STEPS = 0


def read_settings():
    global STEPS
    STEPS = int(os.environ.get("ZEROPLAN_REHEARSAL_STEPS", 0))


read_settings()


class Stop(SystemExit):
    """The steps that were asked for are done. No Exception, so that programs that catch those end too."""


class _Tracker:
    def __init__(self, torch, peaks):
        self.torch = torch
        self.peaks = peaks
        self.steps = 0  # that are done
        self.micro_batches = 0  # of this step
        self.depth = 0
        self.prepared = False  # an optimizer or an engine has the model
        self.started = False  # the first forward pass has begun
        self.engine = False  # DeepSpeed's: its optimizer's steps are its own
        self.stopped = False
        self.current = "model"

    def mark(self, phase):
        began = time.thread_time_ns()
        gpu.mark(phase)
        self._write(phase)
        gpu.leave_out(time.thread_time_ns() - began)

    def _write(self, phase):
        stats = self.peaks.take()
        if stats is None:
            return
        row = {"phase": phase, "step": self.steps, "micro_batch": self.micro_batches}
        for name in ("allocated", "reserved"):
            numbers = stats[name + "_bytes"]["all"]
            row[name], row["peak_" + name] = numbers["current"], numbers["peak"]
        row["retries"] = stats.get("num_alloc_retries", 0)
        row["cuda_mallocs"] = gpu.number("allocations")
        row["pinned"], row["peak_pinned"] = gpu.number("pinned"), gpu.number("pinned_peak")
        row["host"], row["peak_host"] = _host_bytes()
        row["clock"] = time.perf_counter()
        records.write("phase", **row)

    def prepare(self):
        """An engine or an optimizer is about to get the model."""
        if self.prepared:
            return
        self.prepared = True
        self.mark("model")
        self.current = "init"
        self._at_next_forward(self._start)

    def _start(self):
        if not self.started:
            self.started = True
            self.mark("init")
            self.current = "forward"
            operations.watch(self.torch)
            if answers.are_given():
                values.leave(self.torch)

    def _stop(self):
        self.stopped = True
        raise Stop(0)

    def _at_next_forward(self, call):
        def hook(module, inputs):
            handle.remove()
            call()

        handle = self.torch.nn.modules.module.register_module_forward_pre_hook(hook)

    def begin(self, phase, before=None):
        """True for the outermost; `before` is the phase that ends."""
        self.depth += 1
        if self.depth > 1:
            return False
        if before is not None:
            self.mark(before)
        self.current = phase
        return True

    def end(self, phase, outermost, after):
        self.depth -= 1
        if outermost:
            self.mark(phase)
            self.current = after

    def end_step(self):
        facts.once("micro_batches_per_step", self.micro_batches)
        self.steps += 1
        self.micro_batches = 0
        self.current = "forward"
        if STEPS and self.steps == STEPS:
            self._at_next_forward(self._stop)

    def idle(self):
        if self.depth == 0 and self.steps > 0 and self.micro_batches == 0:
            self.mark("idle")


tracker = None


def _host_bytes():
    """What of this machine's memory the process has touched: now and at most."""
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file if line.startswith(("VmRSS", "VmHWM")))
    return tuple(int(lines[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))


def _wrap(owner, name, make):
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, functools.wraps(original)(make(original)))


def _backward(original):
    def backward(*args, **kwargs):
        outermost = tracker.begin("backward", "forward")
        if outermost:
            facts.backward_begins()
        try:
            return original(*args, **kwargs)
        finally:
            tracker.micro_batches += 1 if outermost else 0
            tracker.end("backward", outermost, "forward")

    return backward


def _saving(original):
    def save(*args, **kwargs):
        outermost = tracker.begin("save")
        try:
            return original(*args, **kwargs)
        finally:
            tracker.end("save", outermost, "forward")

    return save


def _engine_step(original):
    def step(self, *args, **kwargs):
        last = self.is_gradient_accumulation_boundary()
        outermost = tracker.begin("optimizer")
        done = False
        try:
            result = original(self, *args, **kwargs)
            done = True
            return result
        finally:
            tracker.end("optimizer" if last else "backward", outermost, "forward")
            if last and outermost and done:
                tracker.end_step()
                facts.skipped_steps(getattr(self, "skipped_steps", 0))

    return step


def _pipeline_step(original):
    """DeepSpeed's schedule of a pipeline takes its steps past the engine's `step`, once for all micro-batches."""

    def step(self, *args, **kwargs):
        outermost = tracker.begin("optimizer")
        try:
            result = original(self, *args, **kwargs)
        finally:
            tracker.end("optimizer", outermost, "forward")
        tracker.end_step()
        facts.skipped_steps(getattr(self, "skipped_steps", 0))
        return result

    return step


def _watch_optimizers(torch):
    optim = importlib.import_module("torch.optim.optimizer")  # the package hides the name

    def before(optimizer, args, kwargs):
        if not tracker.engine:
            tracker.begin("optimizer")

    def after(optimizer, args, kwargs):
        if not tracker.engine:
            tracker.end("optimizer", tracker.depth == 1, "forward")
            tracker.end_step()

    def constructor(original):
        def __init__(self, *args, **kwargs):
            tracker.prepare()
            original(self, *args, **kwargs)
            facts.optimizer(self)

        return __init__

    def zero_grad(original):
        def zero(self, *args, **kwargs):
            original(self, *args, **kwargs)
            tracker.idle()

        return zero

    optim.register_optimizer_step_pre_hook(before)
    optim.register_optimizer_step_post_hook(after)
    _wrap(torch.optim.Optimizer, "__init__", constructor)
    _wrap(torch.optim.Optimizer, "zero_grad", zero_grad)


def install(torch):
    global tracker
    from .peaks import Peaks

    tracker = _Tracker(torch, Peaks(torch))
    _wrap(torch.autograd, "backward", _backward)
    _wrap(torch, "save", _saving)
    _watch_optimizers(torch)


def wrap_initialize(deepspeed):
    def make(original):
        def initialize(*args, **kwargs):
            tracker.prepare()
            tracker.engine = True
            result = original(*args, **kwargs)
            facts.deepspeed_engine(result[0])
            return result

        return initialize

    _wrap(deepspeed, "initialize", make)


def wrap_engine(engine):
    _wrap(engine, "backward", _backward)
    _wrap(engine, "step", _engine_step)
    for name in ("save_checkpoint", "save_16bit_model"):
        _wrap(engine, name, _saving)


def wrap_pipeline(engine):
    original = engine._exec_optimizer_step
    _wrap(engine, "_exec_optimizer_step", _pipeline_step)
    for instruction, call in engine._INSTRUCTION_MAP.items():  # what the schedule calls
        if call is original:
            engine._INSTRUCTION_MAP[instruction] = engine._exec_optimizer_step


def wrap_trainer(trainer):
    import transformers.trainer_callback

    def make(original):
        def on_step_end(self, *args, **kwargs):
            control = original(self, *args, **kwargs)
            tracker.idle()
            return control

        return on_step_end

    _wrap(transformers.trainer_callback.CallbackHandler, "on_step_end", make)
    for name in ("save_model", "_save_checkpoint"):
        _wrap(trainer, name, _saving)
