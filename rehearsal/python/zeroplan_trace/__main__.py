"""python -m zeroplan_trace REQUEST.json: builds the model, runs it, writes the document that REQUEST names. Errors: one JSON line."""

import json
import signal
import sys
import traceback

from .problem import Problem


class Options:
    def __init__(self, said):
        self.model = said.get("model")
        self.family = said.get("family")
        self.beside = said.get("beside")  # a recording of other releases
        self.code = said.get("code")
        self.class_name = said.get("class")
        self.attention = said.get("attention")
        self.trust_remote_code = bool(said.get("trust_remote_code"))
        self.batches = said.get("batches")
        self.sequences = said.get("sequences")
        self.longer_than = said.get("longer_than", 0)
        self.at_most = said.get("at_most", 0)
        self.freeze = said.get("freeze") or []
        self.images = said.get("images", 0)  # in each sequence
        self.batch = said.get("batch", 1)  # the one to run at where the class loops over images
        self.image_size = said.get("image_size")  # (width, height)
        self.seconds = said.get("seconds")
        self.output = said["output"]
        self.errors = said["errors"]


def fail(path, kind, expected, got, hint=""):
    with open(path, "w") as file:
        json.dump({"kind": kind, "expected": expected, "got": got, "hint": hint}, file)
    return 3


def main(path):
    with open(path) as file:
        options = Options(json.load(file))
    try:
        import torch

        torch.set_num_threads(1)  # masks are too small to share: threads wait for each other where others use the cores
    except Exception as error:
        return fail(options.errors, "import", "PyTorch in the Python that traces", "%s: %s" % (type(error).__name__, error), "pip install torch; --python names another Python")
    # Kernels that need a GPU: without them classes run PyTorch's own operations.
    for package in ("fla", "causal_conv1d", "mamba_ssm"):
        sys.modules[package] = None
    from .document import document
    from .family import family

    try:
        end_after(options.seconds)
        made = family(options) if options.family else document(options)
    except Problem as problem:
        return fail(options.errors, "model", problem.expected, problem.got, problem.hint)
    except Exception as error:
        lines = traceback.extract_tb(error.__traceback__)
        at = "%s:%d" % (lines[-1].filename, lines[-1].lineno) if lines else ""
        return fail(options.errors, "model", "a model that runs on the meta device", "%s: %s, at %s" % (type(error).__name__, str(error)[:500], at),
                    "set ZEROPLAN_TRACE_DEBUG=1 for the whole traceback") if not debug() else _reraise()
    with open(options.output, "w") as file:
        json.dump(made, file, separators=(",", ":"))
        file.write("\n")
    return 0


def end_after(seconds):
    if seconds is None:
        return

    def end(_signal, _frame):
        raise Problem("a class that is traced in %d s" % seconds, "one that takes longer", "zeroplan trace MODEL -o graph.json waits for it")

    signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)


def debug():
    import os

    return os.environ.get("ZEROPLAN_TRACE_DEBUG") == "1"


def _reraise():
    traceback.print_exc()
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
