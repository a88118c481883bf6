"""What a forward and a backward pass of a PyTorch model keep alive, storage by storage.

Two devices:
  meta  nothing is computed, so any size takes milliseconds. A dispatch mode sees every ATen
        operation's outputs and follows their storages with weak references. What CUDA kernels
        allocate inside themselves is invisible here; RULES below names those operations.
  cuda  the same numbers from the caching allocator's statistics, kernels' own memory included.

Definitions, the same on both:
  saved_bytes          distinct storages that autograd saves in the forward pass (hooks), each with
                       its exact size; parameters, buffers and the batch do not count
  after_forward_bytes  alive after forward, when the outputs are dropped (or still held, where a row
                       says so); every storage rounded up to 512, as the allocator does
  forward_peak_bytes   highest of the forward pass, rounded likewise
  peak_bytes           highest of forward and backward; a weight's gradient dies when it is complete
"""

import functools
import gc
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ALLOCATOR_BLOCK = 512  # kMinBlockSize, c10/cuda/CUDACachingAllocator.cpp

# Operations whose CUDA kernels allocate beside their outputs: the C++ graph adds these bytes by the
# rule named here (storages of the category "temporaries"), so a row recorded on meta is compared
# without them and lists what would come on top.
RULES = {
    "_softmax_backward_data": "SoftMax.cu softmax_backward_cuda_out: grad * output",
    "addmm": "CUDABlas.cpp gemm_and_bias: cublasLt workspace of 1 MiB a call before torch 2.7",
    "_scaled_dot_product_flash_attention_backward":
        "flash_api.cpp mha_bwd: fp32 accumulator of dq, row sums, gradients of grouped heads",
    "_scaled_dot_product_efficient_attention_backward":
        "kernel_backward.h: delta and, for 16-bit inputs, an fp32 accumulator of dq",
    "embedding_dense_backward":
        "EmbeddingBackwardKernel.cu: sort and fp32 partial sums above 3072 indices",
    "_safe_softmax": "native/transformers/attention.cpp: softmax, comparison and rows before where",
    "_index_put_impl_": "Indexing.cu index_put_with_sort_kernel: sorted indices",
}
SMALL_EMBEDDING = 3072


def rounded(nbytes):
    return (nbytes + ALLOCATOR_BLOCK - 1) // ALLOCATOR_BLOCK * ALLOCATOR_BLOCK


def storage_key(tensor):
    return tensor.untyped_storage()._cdata


def keys_of(tensors):
    return {storage_key(t) for t in tensors}


class MetaAnswers:
    """Answers for what meta tensors cannot tell: booleans, and how many tokens an expert gets."""

    def __init__(self, all_ones, experts=0, tokens_per_expert=0):
        self.all_ones = all_ones  # `torch.all(mask == 1)` and the like
        self.experts = experts
        self.tokens_per_expert = tokens_per_expert
        self.expert = -1

    def __call__(self, name, args):
        if not args or not isinstance(args[0], torch.Tensor) or not args[0].is_meta:
            return NotImplemented
        if name == "_local_scalar_dense":
            if args[0].dtype == torch.bool:
                return self.all_ones
            self.expert = (self.expert + 1) % self.experts  # a loop over the experts that were hit
            return self.expert
        if name == "nonzero":
            which_experts = tuple(args[0].shape) == (self.experts,)
            rows = self.experts if which_experts else self.tokens_per_expert
            return torch.empty(rows, args[0].dim(), dtype=torch.int64, device="meta")
        return NotImplemented


class Watch(TorchDispatchMode):
    """Follows the storages of every operation's results."""

    def __init__(self, known, answers=None):
        super().__init__()
        self.known = known  # storages that do not count
        self.answers = answers
        self.live = {}
        self.alive = self.peak = 0
        self.backward = False
        self.cuda_only = set()
        self.peak_live = None  # with explain: what was alive at the peak
        self.explain = False

    def track(self, tensor, name):
        if tensor.device.type == "cpu":
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.live or key in self.known:
            return
        nbytes = rounded(storage.nbytes())
        self.live[key] = (nbytes, name, tuple(tensor.shape))
        self.alive += nbytes
        if self.alive > self.peak:
            self.peak = self.alive
            if self.explain:
                self.peak_live = list(self.live.values())
        weakref.finalize(storage, self.dead, key)

    def dead(self, key):
        nbytes = self.live.pop(key, (0,))[0]
        self.alive -= nbytes

    def engine_adds_in_place(self, old):
        """Whether autograd's input buffer would add into `old`, the gradient it already has.

        Under any dispatch mode it does not (isTensorSubclassLike, input_buffer.cpp); without one it
        does where it holds the last reference, to the tensor and to its storage: a view keeps its
        base, so that a gradient that came through a view is not added to. Such a sum runs while its
        node is the current one, after the node's formula, and never records history; only formulas
        written in Python have sums of their own.
        """
        if not self.backward or torch.is_grad_enabled():
            return False
        node = torch._C._current_autograd_node()
        if node is None or isinstance(node, torch.autograd.function.BackwardCFunction):
            return False
        return references(old) == references_when_alone() and dense(old)

    def note_rule(self, name, args):
        if name not in RULES:
            return
        if name == "embedding_dense_backward" and args[1].numel() <= SMALL_EMBEDDING:
            return
        if name == "addmm" and args[0].dim() != 1:
            return
        if name == "_index_put_impl_" and all(i is None or i.numel() == 1 for i in args[1]):
            return
        self.cuda_only.add(name)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.split("::")[1]
        if self.answers is not None:
            answer = self.answers(name, args)
            if answer is not NotImplemented:
                if isinstance(answer, torch.Tensor):
                    self.track(answer, name)
                return answer
        if func is torch.ops.aten.add.Tensor and self.engine_adds_in_place(args[0]):
            return torch.ops.aten.add_.Tensor(*args)
        if name == "index_put" and not torch.is_grad_enabled():
            # index_backward puts into its fresh zeros in place, except under a dispatch mode
            # (areAnyTensorSubclassLike, FunctionsManual.cpp).
            name, func = "_index_put_impl_", torch.ops.aten.index_put_.default
        out = func(*args, **(kwargs or {}))
        self.note_rule(name, args)
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                # The fused kernels' seed and offset stand on the host without dropout
                # (attention.cu); on meta they look like the rest.
                if "attention" in name and tensor.dtype == torch.int64:
                    continue
                self.track(tensor, name)
        return out


def references(tensor):
    """To the tensor and to its storage, as a dispatch mode sees them."""
    return tensor._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


@functools.lru_cache(None)
def references_when_alone():
    """The counts of a gradient that nobody but the input buffer refers to, in this torch."""
    seen = []

    class Look(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.add.Tensor and not torch.is_grad_enabled():
                seen.append(references(args[0]))
            return func(*args, **(kwargs or {}))

    with torch.enable_grad(), Look():
        x = torch.empty(4, device="meta", requires_grad=True) * 2
        (torch.relu(x) * torch.neg(x)).sum().backward()
    assert len(seen) == 1
    return seen[0]


def dense(tensor):
    expected = 1
    for size, stride in sorted(zip(tensor.shape, tensor.stride()), key=lambda p: p[1]):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def drop_gradients(model):
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(forget)


def forget(parameter):
    parameter.grad = None


def saved_storages(model, call, known, answers):
    """{storage: (bytes, shape, dtype)} of what autograd saves in `call`."""
    saved, keep = {}, []

    def pack(tensor):
        storage = tensor.untyped_storage()
        attention_seed = tensor.dtype == torch.int64 and tensor.dim() == 0
        if storage._cdata not in known and tensor.device.type != "cpu" and not attention_seed:
            saved[storage._cdata] = (storage.nbytes(), tuple(tensor.shape), str(tensor.dtype))
            keep.append(storage)  # so that no later storage gets its address
        return tensor

    with Watch(known, answers), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss = call()[0]
    del loss
    gc.collect()
    return saved


def record(model, batch, call, device, answers=None, held=False, explain=False):
    """The row's numbers. `call` returns (loss, outputs)."""
    known = keys_of(list(model.parameters()) + list(model.buffers()) + list(batch.values()))
    saved = saved_storages(model, call, known, answers)
    drop_gradients(model)
    gc.collect()
    if device == "cuda":
        numbers = record_cuda(call, held)
    else:
        numbers = record_meta(call, known, answers, held, explain)
    numbers["saved_bytes"] = sum(row[0] for row in saved.values())
    if explain:
        numbers["saved"] = sorted(saved.values(), reverse=True)
    return numbers


def record_meta(call, known, answers, held, explain):
    references_when_alone()
    watch = Watch(known, answers)
    watch.explain = explain
    with watch:
        loss, outputs = call()
        if not held:
            outputs = None
        numbers = {"forward_peak_bytes": watch.peak, "after_forward_bytes": watch.alive}
        if explain:
            numbers["forward_peak_live"] = watch.peak_live
            numbers["after_forward_live"] = list(watch.live.values())
        watch.backward = True
        loss.backward()
        numbers["peak_bytes"] = watch.peak
        del outputs, loss
    if explain:
        numbers["peak_live"] = watch.peak_live
    numbers["cuda_only"] = sorted(watch.cuda_only)
    return numbers


def record_cuda(call, held):
    call()[0].backward()  # cuBLAS's workspaces and lazily loaded kernels come with the first pass
    gc.collect()
    torch.cuda.synchronize()
    base = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss, outputs = call()
    if not held:
        outputs = None
    numbers = {"forward_peak_bytes": torch.cuda.max_memory_allocated() - base,
               "after_forward_bytes": torch.cuda.memory_allocated() - base}
    loss.backward()
    torch.cuda.synchronize()
    numbers["peak_bytes"] = torch.cuda.max_memory_allocated() - base
    del outputs, loss
    numbers["cuda_only"] = []
    return numbers
