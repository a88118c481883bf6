"""DeepSpeed's compiled extensions: nothing is compiled, their functions do nothing.

What they allocate is allocated by DeepSpeed's Python around them, which is real.
"""


class Extension:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def install(module):
    made = {}

    def load(self, verbose=True):
        return made.setdefault(self.name, Extension())

    builder = module.OpBuilder
    builder.load = builder.jit_load = load
    builder.is_compatible = lambda self, verbose=False: True
    builder.is_installed = lambda self: False
