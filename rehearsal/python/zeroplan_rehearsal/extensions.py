"""DeepSpeed's compiled extensions: nothing is compiled, their functions do nothing.

What they allocate is allocated by DeepSpeed's Python around them, which is real.
"""


from . import gpu, nvme


def _update_on_gpu(chunk, overflow, lists, *_):
    """csrc/adam/multi_tensor_adam.cu: gradients are read, weights and both moments read and written."""
    if gpu.writes():
        sizes = [sum(tensor.numel() * tensor.element_size() for tensor in part) for part in lists]
        gpu.note("op", "multi_tensor_adam")
        gpu.note("kernel", "0,0,0 0,0,0 0 multi_tensor_adam")
        gpu.note("op_end", "%d %d" % (sum(sizes), sum(sizes[1:])))


def _update_on_host(optimizer, step, lr, beta1, beta2, eps, weight_decay, bias_correction, params, *_):
    if gpu.writes():
        gpu.note("adam", str(params.numel()))


_FUNCTIONS = {
    "multi_tensor_adam": _update_on_gpu,
    "adam_update": _update_on_host,
    "aio_handle": nvme.AsyncIOHandle,
    "gds_handle": nvme.AsyncIOHandle,
    "pin_handle": nvme.PinHandle,
}
# Those whose builders ask this machine for libraries that nothing here needs.
_EVERYWHERE = {"async_io", "gds", "pin_memory"}


class Extension:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _FUNCTIONS.get(name, lambda *args, **kwargs: None)


def install(module):
    made = {}

    def load(self, verbose=True):
        return made.setdefault(self.name, Extension())

    def compatible(self, verbose=False):
        return True

    def defined(cls, **more):
        """Builders that load or look in a way of their own."""
        super(module.OpBuilder, cls).__init_subclass__(**more)
        if "load" in vars(cls):
            cls.load = load
        if getattr(cls, "NAME", None) in _EVERYWHERE:
            cls.is_compatible = compatible

    builder = module.OpBuilder
    builder.load = builder.jit_load = load
    builder.is_compatible = compatible
    builder.is_installed = lambda self: False
    builder.__init_subclass__ = classmethod(defined)
