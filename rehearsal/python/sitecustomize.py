"""Loaded by every Python that runs under `zeroplan rehearse`: puts the rehearsal's parts behind the imports they are for."""
import os
import sys


def _next_sitecustomize():
    """The environment's own sitecustomize, which this one stands before."""
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    others = [p for p in sys.path if os.path.abspath(p or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_next_sitecustomize()
if os.environ.get("ZEROPLAN_REHEARSAL"):
    import zeroplan_rehearsal

    zeroplan_rehearsal.begin()
