"""What is recorded: a line of JSON each, in a file a process. Written at once, so that a crash loses nothing."""
import json
import os
import threading

_lock = threading.RLock()
_file = None


def _plain(value):
    """What JSON has no form for, as text."""
    return str(value)


def write(kind, **values):
    global _file
    with _lock:
        if _file is None:
            name = "process-%d.jsonl" % os.getpid()
            _file = open(os.path.join(os.environ["ZEROPLAN_REHEARSAL"], name), "a")
        line = json.dumps({"kind": kind, **values}, default=_plain, skipkeys=True)
        _file.write(line + "\n")
        _file.flush()


def _forget():
    """A forked child writes a file of its own."""
    global _file, _lock
    _file, _lock = None, threading.RLock()


os.register_at_fork(after_in_child=_forget)
