"""DeepSpeed's compiled extensions: nothing is compiled, their functions do nothing.

What they allocate is allocated by DeepSpeed's Python around them, which is real.
"""


from . import card


def _update_on_card(chunk, overflow, lists, *_):
    """csrc/adam/multi_tensor_adam.cu: gradients are read, weights and both moments read and written."""
    if card.writes():
        sizes = [sum(tensor.numel() * tensor.element_size() for tensor in part) for part in lists]
        card.note("op", "multi_tensor_adam")
        card.note("kernel", "0,0,0 0,0,0 0 multi_tensor_adam")
        card.note("op_end", "%d %d" % (sum(sizes), sum(sizes[1:])))


def _update_on_host(optimizer, step, lr, beta1, beta2, eps, weight_decay, bias_correction, params, *_):
    if card.writes():
        card.note("adam", str(params.numel()))


_FUNCTIONS = {"multi_tensor_adam": _update_on_card, "adam_update": _update_on_host}


class Extension:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _FUNCTIONS.get(name, lambda *args, **kwargs: None)


def install(module):
    made = {}

    def load(self, verbose=True):
        return made.setdefault(self.name, Extension())

    builder = module.OpBuilder
    builder.load = builder.jit_load = load
    builder.is_compatible = lambda self, verbose=False: True
    builder.is_installed = lambda self: False
