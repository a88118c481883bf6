"""Results as large as a count that the GPU would make: how many elements of a mask are true.

torch asks for them deep within C++, too (an index that is a mask, and its gradient), so that its own kernel for `nonzero`
is replaced. Of masks that nobody computed it counts what memory holds, which is the same at each use.
"""
import warnings


def install(torch, values):
    def nonzero(tensor):
        with torch._C.DisableTorchFunction():
            torch.cuda.current_stream().synchronize()  # the host waits for the count
            # As torch's: an index behind the other in memory.
            spread = tensor.dtype is torch.bool and tensor.untyped_storage().nbytes() <= values.most_whole
            if not spread and not values.is_small(tensor):
                return torch.empty((tensor.dim(), 0), dtype=torch.int64, device=tensor.device).t()
            found = values.of_host(tensor).nonzero().t().contiguous()
            made = torch.empty(found.shape, dtype=torch.int64, device=tensor.device)
            if made.numel() > 0:
                values.of_host(made).copy_(found)
            return made.t()

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced
        library.impl("nonzero", nonzero, "CUDA")
    torch._zeroplan_counts = library  # as long as torch is there


def repeated(values, args, kwargs):
    """repeat_interleave's arguments, with the sum that the GPU would make of the counts."""
    tensors = [a for a in (*args, kwargs.get("repeats")) if hasattr(a, "is_cuda")]
    counts = tensors[-1] if tensors and (len(tensors) > 1 or len(args) == 1) else None
    if counts is None or kwargs.get("output_size") is not None or not counts.is_cuda or not values.is_small(counts):
        return kwargs
    if len(tensors) > 1 and counts.numel() == 1:
        sizes = tensors[0].shape[kwargs["dim"]] if kwargs.get("dim") is not None else tensors[0].numel()
        return {**kwargs, "output_size": int(values.of_host(counts)) * sizes} if len(args) < 3 else kwargs
    return {**kwargs, "output_size": int(values.of_host(counts).sum())}
