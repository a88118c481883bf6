"""Collectives: logged, and in a simulated group given finite results.

One process plays one rank of a world of N (torch's "fake" backend moves no data). An all-gather then
repeats the local shard, a reduce-scatter returns the local chunk, an all-reduce is the identity:
uninitialised memory would trip DeepSpeed's checks for inf and nan. Import this before deepspeed,
which takes the functions from torch.distributed by name.
"""

import contextlib
import os

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from event_log import LOG, dtype_name
from live_bytes import unmeasured


class FinishedWork:
    """What an asynchronous collective of the simulated group returns."""

    def wait(self, *unused):
        return True

    def is_completed(self):
        return True


def _work(asynchronous):
    return FinishedWork() if asynchronous else None


def _shares_storage(first, second):
    return int(first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr())


def _add(kind, elements, tensor, group, asynchronous, extra):
    LOG.add(
        kind,
        elements,
        dtype_name(tensor),
        dist.get_world_size(group),
        int(asynchronous),
        LOG.stream(),
        extra,
    )


def _all_reduce(real):
    def all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
        _add("ar", tensor.numel(), tensor, group, async_op, str(op).rsplit(".", maxsplit=1)[-1])
        if LOG.simulated:
            return _work(async_op)
        return real(tensor, op=op, group=group, async_op=async_op)

    return all_reduce


def _all_gather_into_tensor(real):
    def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
        in_place = _shares_storage(output_tensor, input_tensor)
        _add("ag", output_tensor.numel(), output_tensor, group, async_op, in_place)
        if not LOG.simulated:
            return real(output_tensor, input_tensor, group=group, async_op=async_op)
        ranks = dist.get_world_size(group)
        with torch.no_grad(), unmeasured():
            source = input_tensor.detach().reshape(-1).clone()
            output_tensor.detach().view(ranks, -1).copy_(source.expand(ranks, -1))
        return _work(async_op)

    return all_gather_into_tensor


def _reduce_scatter_tensor(real_all_reduce):
    def reduce_scatter_tensor(output, input, op=dist.ReduceOp.SUM, group=None, async_op=False):
        _add("rs", input.numel(), input, group, async_op, _shares_storage(output, input))
        ranks = dist.get_world_size(group)
        with torch.no_grad(), unmeasured():
            source = input.clone()
            if not LOG.simulated:  # gloo has no reduce-scatter
                real_all_reduce(source, op=op, group=group)
            output.view(-1).copy_(source.reshape(ranks, -1)[dist.get_rank(group)])
        return _work(async_op)

    return reduce_scatter_tensor


def _broadcast(real):
    def broadcast(tensor, src=0, group=None, async_op=False, **more):
        _add("bc", tensor.numel(), tensor, group, async_op, src)
        if LOG.simulated:
            return _work(async_op)
        return real(tensor, src=src, group=group, async_op=async_op, **more)

    return broadcast


def _reduce(real):
    def reduce(tensor, dst=0, op=dist.ReduceOp.SUM, group=None, async_op=False, **more):
        _add("red", tensor.numel(), tensor, group, async_op, dst)
        if LOG.simulated:
            return _work(async_op)
        return real(tensor, dst=dst, op=op, group=group, async_op=async_op, **more)

    return reduce


def _all_gather(real):
    def all_gather(tensor_list, tensor, group=None, async_op=False):
        _add("agl", tensor.numel() * len(tensor_list), tensor, group, async_op, 0)
        if not LOG.simulated:
            return real(tensor_list, tensor, group=group, async_op=async_op)
        for output in tensor_list:
            output.detach().copy_(tensor.detach())
        return _work(async_op)

    return all_gather


def _all_to_all_single(real):
    def all_to_all_single(output, input, *sizes, group=None, async_op=False, **more):
        _add("a2a", input.numel(), input, group, async_op, 0)
        if not LOG.simulated:
            return real(output, input, *sizes, group=group, async_op=async_op, **more)
        output.detach().copy_(input.detach())
        return _work(async_op)

    return all_to_all_single


def _all_reduce_coalesced(real):
    def all_reduce_coalesced(tensors, op=dist.ReduceOp.SUM, group=None, async_op=False):
        total = sum(tensor.numel() for tensor in tensors)
        _add("ar", total, tensors[0], group, async_op, str(op).rsplit(".", maxsplit=1)[-1])
        if LOG.simulated:
            return _work(async_op)
        return real(tensors, op=op, group=group, async_op=async_op)

    return all_reduce_coalesced


def _barrier(real):
    def barrier(*unused, **more):
        LOG.add("bar", 0, "", dist.get_world_size(more.get("group")), 0, LOG.stream(), 0)
        return None if LOG.simulated else real(*unused, **more)

    return barrier


def _all_gather_object(real):
    def all_gather_object(object_list, obj, group=None):
        LOG.add("ago", 0, "", dist.get_world_size(group), 0, LOG.stream(), 0)
        if not LOG.simulated:
            return real(object_list, obj, group=group)
        for index in range(len(object_list)):
            object_list[index] = obj
        return None

    return all_gather_object


def _broadcast_object_list(real):
    def broadcast_object_list(object_list, *rest, **more):
        return None if LOG.simulated else real(object_list, *rest, **more)

    return broadcast_object_list


def _coalescing_manager(real):
    def coalescing_manager(*args, **kwargs):
        return contextlib.nullcontext() if LOG.simulated else real(*args, **kwargs)

    return coalescing_manager


def log_collectives():
    """Replaces the functions of torch.distributed by ones that log."""
    wrappers = {
        "all_gather_into_tensor": _all_gather_into_tensor,
        "broadcast": _broadcast,
        "reduce": _reduce,
        "all_gather": _all_gather,
        "all_to_all_single": _all_to_all_single,
        "all_reduce_coalesced": _all_reduce_coalesced,
        "barrier": _barrier,
        "all_gather_object": _all_gather_object,
        "broadcast_object_list": _broadcast_object_list,
    }
    real_all_reduce = dist.all_reduce
    dist.all_reduce = _all_reduce(real_all_reduce)
    dist.reduce_scatter_tensor = _reduce_scatter_tensor(real_all_reduce)
    for name, wrapper in wrappers.items():
        setattr(dist, name, wrapper(getattr(dist, name)))
    # MiCS launches its gathers through names of the inner module, as one coalesced group.
    inner = dist.distributed_c10d
    inner.all_gather_into_tensor = dist.all_gather_into_tensor
    inner._coalescing_manager = _coalescing_manager(inner._coalescing_manager)


def join(rank, world_size, port=0):
    """Makes this process one rank; with a port a real one of a gloo group."""
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_RANK=str(rank % 8),
        LOCAL_WORLD_SIZE=str(min(8, world_size)),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port or 29501),
        GLOO_SOCKET_IFNAME="lo",
    )
    LOG.simulated = port == 0
    if LOG.simulated:
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    else:
        dist.init_process_group("gloo", rank=rank, world_size=world_size)
