"""Calls a function when a module has been imported, without importing it."""
import importlib.abc
import importlib.util
import sys

_calls = {}


class _After(importlib.abc.MetaPathFinder):
    """Asked for specs by imports, and by programs that only want to know whether a module is there."""

    def __init__(self):
        self.asking = False

    def find_spec(self, name, path, target=None):
        if self.asking or name not in _calls:
            return None
        self.asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            call = _calls.pop(name, None)
            if call is not None:
                call(module)

        spec.loader.exec_module = exec_module
        return spec


def after(name, call):
    if not _calls:
        sys.meta_path.insert(0, _After())
    _calls[name] = call
