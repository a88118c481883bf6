"""What is recorded: a line of JSON each, in a file a process. Written at once, so that a crash loses nothing."""
import json
import math
import os
import threading

_lock = threading.RLock()
_file = None


def _plain(value):
    """The value as JSON has it: what it has no form for, an infinite number too, is text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def write(kind, **values):
    global _file
    with _lock:
        if _file is None:
            name = "process-%d.jsonl" % os.getpid()
            _file = open(os.path.join(os.environ["ZEROPLAN_REHEARSAL"], name), "a")
        line = json.dumps(_plain({"kind": kind, **values}))
        _file.write(line + "\n")
        _file.flush()


def _forget():
    """A forked child writes a file of its own."""
    global _file, _lock
    _file, _lock = None, threading.RLock()


os.register_at_fork(after_in_child=_forget)
