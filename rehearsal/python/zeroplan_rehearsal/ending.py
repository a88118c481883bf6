"""How the program ended: by itself, after the steps that were asked for, by an error, or out of memory."""
import atexit
import functools
import os
import sys
import threading
import traceback

from . import gpu, facts, living, phases, records, world

_MOST_FRAMES = 40
_SNAPSHOT = "ZEROPLAN_REHEARSAL_SNAPSHOT"  # the file for one, or nothing
_failed = False
_OWN = os.path.dirname(os.path.abspath(__file__))


def _frames(stack):
    kept = [f for f in stack if not f.filename.startswith(_OWN)]
    return [{"file": f.filename, "line": f.lineno, "function": f.name} for f in kept[-_MOST_FRAMES:]]


def _stack():
    """Where Python is; the thread of autograd has no frames of its own while the main one waits for it."""
    here = traceback.extract_stack()
    if threading.current_thread() is threading.main_thread():
        return here
    main = sys._current_frames().get(threading.main_thread().ident)
    return traceback.extract_stack(main) + here


def _watch_memory(torch):
    def out_of_memory(device, requested, total, free):
        records.write(
            "out_of_memory",
            device=device,
            requested=requested,
            total=total,
            free=free,
            allocated=torch.cuda.memory_allocated(device),
            reserved=torch.cuda.memory_reserved(device),
            phase=phases.tracker.current,
            step=phases.tracker.steps,
            frames=_frames(_stack()),
        )
        try:
            records.write("living", rows=living.rows(torch, device))
        except Exception as error:  # the error that the program gets is the one of the GPU
            records.write("living", rows=[], problem=repr(error))
        _save_snapshot(torch)

    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is not None:
        torch.cuda._lazy_call(lambda: attach(out_of_memory))


def _save_snapshot(torch):
    """Once: what lives when memory runs out, else at the end."""
    path = os.environ.pop(_SNAPSHOT, "")
    rank = int(os.environ.get("RANK", 0))
    if path:
        own = path if world.RANKS or not rank else "%s.rank%d" % (path, rank)
        living.save_snapshot(torch, own)


def _watch_errors():
    before = sys.excepthook

    def hook(kind, error, trace):
        global _failed
        _failed = True
        if not issubclass(kind, KeyboardInterrupt):
            records.write(
                "error",
                type=kind.__name__,
                message=str(error),
                out_of_memory=kind.__name__ == "OutOfMemoryError",
                frames=_frames(traceback.extract_tb(trace)),
            )
        before(kind, error, trace)

    sys.excepthook = hook


def _end(torch):
    tracker = phases.tracker
    if not torch.cuda.is_initialized():
        return
    tracker.mark("end")
    facts.software("torch")
    _save_snapshot(torch)
    records.write(
        "end",
        stopped=tracker.stopped,
        steps=tracker.steps,
        rank=int(os.environ.get("RANK", 0)),
        ranks=int(os.environ.get("WORLD_SIZE", 1)),
        peak_allocated=tracker.peaks.of_run("allocated_bytes"),
        peak_reserved=tracker.peaks.of_run("reserved_bytes"),
        kernels=gpu.number("kernels"),
        products=gpu.number("products"),
        collectives=gpu.number("collectives"),
        copies=gpu.number("copies"),
        cuda_mallocs=gpu.number("allocations"),
        refused=gpu.number("refused"),
        unknown_functions=gpu.unknown_functions(),
    )
    if world.RANKS and world.RANK:
        _end_at_once()
    _leave_group(torch)


def _end_at_once():
    """NCCL's threads in torch ask the store of such a rank, which is Python's, and Python waits for them: it would not end.

    This is the last of what runs at exit. A number that was given to sys.exit is lost; an error is not.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if _failed else 0)


def _leave_group(torch):
    """Who ends without it leaves NCCL's watchdog to ask a torch that is gone."""
    dist = torch.distributed
    if dist.is_available() and dist.is_initialized():
        try:
            dist.destroy_process_group()
        except Exception:  # the run is over; what matters is written
            pass


def _end_work_before_groups(torch):
    """torch waits for a group's collectives by asking again and again, which ends nothing that pends."""
    dist = torch.distributed
    if not dist.is_available():
        return
    destroy = dist.destroy_process_group

    @functools.wraps(destroy)
    def destroy_process_group(*args, **kwargs):
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return destroy(*args, **kwargs)

    dist.destroy_process_group = dist.distributed_c10d.destroy_process_group = destroy_process_group


def install(torch):
    living.watch(torch, history=bool(os.environ.get(_SNAPSHOT)))
    _watch_memory(torch)
    _end_work_before_groups(torch)
    _watch_errors()
    atexit.register(_end, torch)
