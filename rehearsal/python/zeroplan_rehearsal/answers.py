"""What a program asks its tensors on the GPU: kept in a run where values are computed (values.py), and given again in a run
where they are not from the first forward pass on, so that it goes the same way.

That second run is for the host's time alone: without values.py nothing stands between the program and torch. The file
(ZEROPLAN_REHEARSAL_ANSWERS) has a line of JSON for each answer, in order; of a launcher's processes rank R has FILE.R.
"""
import functools
import json
import os

_VARIABLE = "ZEROPLAN_REHEARSAL_ANSWERS"
_GIVE = "ZEROPLAN_REHEARSAL_GIVE_ANSWERS"
_METHODS = ("item", "tolist", "__bool__", "__float__", "__int__", "__index__")


def are_given():
    return bool(os.environ.get(_GIVE))


def _path():
    return "%s.%s" % (os.environ[_VARIABLE], os.environ.get("RANK", "0"))


class _Keeping:
    """Whole numbers and others are written at once, so that a program that is ended has them all."""

    def __init__(self):
        self.file = None

    def __call__(self, answer):
        if self.file is None:
            self.file = open(_path(), "w")
        self.file.write(json.dumps(answer) + "\n")
        self.file.flush()
        return answer


class _Giving:
    """Once they are used up the program gets what memory has: it will be seen to have done something else."""

    def __init__(self):
        self.kept = None

    def __call__(self, answer):
        if self.kept is None:
            path = _path()
            lines = open(path).read().splitlines() if os.path.exists(path) else []
            self.kept = iter([json.loads(line) for line in lines])
        return next(self.kept, answer)


def watch(torch):
    if not os.environ.get(_VARIABLE):
        return
    answered = _Giving() if are_given() else _Keeping()
    depth = [0]  # one question may be answered by another

    def wrapped(original):
        @functools.wraps(original)
        def asks(self, *args):
            if depth[0] or not self.is_cuda:
                return original(self, *args)
            depth[0] += 1
            try:
                return answered(original(self, *args))
            finally:
                depth[0] -= 1

        return asks

    for name in _METHODS:
        original = getattr(torch.Tensor, name)
        setattr(torch.Tensor, name, wrapped(original))
