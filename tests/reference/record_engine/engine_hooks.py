"""Wraps methods of the installed DeepSpeed so that its engines write what they do into LOG.

No file of DeepSpeed is changed. Names differ between releases; a hook that a release lacks is left out
where the release does not do the thing (`optional`), and is an error otherwise.
"""

import sys

import torch
import torch.distributed as dist

from event_log import LOG, dtype_name


def wrap(cls, name, before=None, after=None, optional=False):
    """Calls before(self, ...) and after(self, what before returned, ...) around a method."""
    method = getattr(cls, name, None)
    if method is None:
        if optional:
            return
        raise AttributeError(f"{cls.__name__} has no {name}: this release is not known here")

    def wrapped(self, *args, **kwargs):
        token = before(self, *args, **kwargs) if before else None
        result = method(self, *args, **kwargs)
        if after:
            after(self, token, *args, **kwargs)
        return result

    wrapped.__name__ = name
    setattr(cls, name, wrapped)


def _skip_rank_agreement():
    """Rank-agreement checks compare with rank 0's data, which a simulated group cannot deliver."""
    for module in list(sys.modules.values()):
        if not (getattr(module, "__name__", None) or "").startswith("deepspeed"):
            continue
        for name in ("assert_ints_same_as_other_ranks", "assert_lst_len_same_as_other_ranks"):
            check = getattr(module, name, None)
            if check is None or hasattr(check, "recorded"):
                continue

            def checked(*args, _check=check, **kwargs):
                if LOG.simulated and dist.get_rank() > 0:
                    return None
                return _check(*args, **kwargs)

            checked.recorded = True
            setattr(module, name, checked)


def _split_by_dtype(tensors):
    """The original compares type() with "torch.<device>.HalfTensor", which no CPU tensor has."""
    order = (torch.float16, torch.float32, torch.float64, torch.bfloat16)
    buckets = [[t for t in tensors if t.dtype == dtype] for dtype in order]
    return [bucket for bucket in buckets if bucket]


def _split_gradients_by_dtype():
    """The same in the engine's own reduction, up to 0.12."""
    import deepspeed

    if deepspeed.__version__.startswith("0.12"):
        engine = sys.modules["deepspeed.runtime.engine"]
        engine.split_half_float_double_sparse = lambda tensors: [
            (bucket[0].dtype, bucket) for bucket in _split_by_dtype(tensors)
        ]


# ---- the coordinator of stage 3 ----

_COORDINATOR = "_PartitionedParameterCoordinator__"


def _pass(forward):
    return "f" if forward else "b"


class CoordinatorHooks:
    """Fetch, prefetch, wait and release of the parameters of stage 3."""

    def __init__(self):
        from deepspeed.runtime.zero import partitioned_param_coordinator as module
        from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload
        from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus

        self.module = module
        self.status = ZeroParamStatus
        self.entered = []  # modules whose fetch_sub_module runs
        coordinator = module.PartitionedParameterCoordinator
        wrap(coordinator, "fetch_sub_module", self.enter, self.leave)
        wrap(coordinator, _COORDINATOR + "all_gather_params", self.gather)
        wrap(coordinator, "release_sub_module", self.exit)
        wrap(coordinator, _COORDINATOR + "release_param", self.status_of, self.released)
        wrap(coordinator, "reset_step", None, self.micro_step)
        wrap(coordinator, "_invalidate_trace", lambda unused: LOG.add("inval"))
        wrap(coordinator, "release_backward_leftovers", self.leftovers, optional=True)
        wrap(DeepSpeedZeRoOffload, "partition_all_parameters", lambda unused: LOG.add("gap"))
        module.InflightParamRegistry.pop = self.waiting_pop(module.UserDict.pop)

    @staticmethod
    def available(coordinator):
        return getattr(coordinator, _COORDINATOR + "n_available_params")

    def enter(self, coordinator, module, forward):
        step = getattr(coordinator, _COORDINATOR + "step_id")
        LOG.add("F", LOG.module(module), _pass(forward), step, self.available(coordinator))
        self.entered.append(module)

    def leave(self, *unused, **more):
        self.entered.pop()

    def gather(self, unused, params, forward):
        missing = [p for p in params if p.ds_status == self.status.NOT_AVAILABLE]
        if not missing:
            return
        module = self.entered[-1]
        leaf = self.module.z3_leaf_module(module) if hasattr(self.module, "z3_leaf_module") else False
        own = {id(p) for p in self.module.iter_params(module, recurse=leaf)}
        kind = "fetch" if any(id(p) in own for p in params) else "prefetch"
        LOG.add(kind, sorted(LOG.parameter(p) for p in missing), _pass(forward))

    def exit(self, coordinator, module, *args, **kwargs):
        # Only some releases say the direction; the hook that calls always has it in its name.
        caller = sys._getframe(2).f_code.co_name
        forward = _pass("backward" not in caller)
        LOG.add("X", LOG.module(module), forward, self.available(coordinator))

    def status_of(self, unused, parameter, *args, **kwargs):
        return parameter.ds_status

    def released(self, unused, before, parameter, *args, **kwargs):
        now = parameter.ds_status
        if before == self.status.AVAILABLE and now == self.status.NOT_AVAILABLE:
            LOG.add("R", LOG.parameter(parameter))

    def micro_step(self, coordinator, unused):
        if coordinator.is_complete_trace():
            mode = "COMPLETE"
        else:
            mode = "RECORD" if coordinator.is_record_trace() else "INVALID"
        LOG.add("trace", mode)

    def leftovers(self, coordinator):
        if getattr(coordinator, _COORDINATOR + "active_backward_submodules"):
            LOG.add("L")

    @staticmethod
    def waiting_pop(pop):
        def waiting(registry, key, *default):
            LOG.add("W", LOG.parameter(key))
            return pop(registry, key, *default)

        return waiting


# ---- stages 1 and 2 ----


def _names_of_old_bucket(optimizer):
    """Up to 0.16 the bucket's contents are attributes of the optimizer."""
    return optimizer.params_in_ipg_bucket, optimizer.elements_in_ipg_bucket


def _flush_zero12(optimizer, comm_dtype=None):
    """The contents of the bucket that is reduced, in its order."""
    if hasattr(optimizer, "ipg_buckets"):
        buckets = [(b.params, b.elements) for b in optimizer.ipg_buckets.values()]
    else:
        buckets = [_names_of_old_bucket(optimizer)]
    for entries, elements in buckets:
        if entries:
            members = [LOG.parameter(optimizer.recorded_parameters[e[2]]) for e in entries]
            LOG.add("flush", members, elements)


def _to_master(optimizer, parameter):
    numel = optimizer.grad_position[optimizer.get_param_id(parameter)][3]
    LOG.add("d2h32", LOG.parameter(parameter), numel)


def _step_zero12(optimizer, group):
    master = optimizer.single_partition_of_fp32_groups[group]
    LOG.add("opt", group, master.numel(), dtype_name(master))


def hook_zero12():
    """Gradients, buckets, offload copies and optimizer calls of stages 1 and 2."""
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer as Zero12

    sys.modules["deepspeed.runtime.zero.stage_1_and_2"].split_half_float_double = _split_by_dtype
    ready = "reduce_independent_p_g_buckets_and_remove_grads"
    wrap(Zero12, ready, lambda self, p, *rest: LOG.add("g", LOG.parameter(p)))
    wrap(Zero12, "reduce_ipg_grads", _flush_zero12)
    wrap(
        Zero12,
        "async_accumulate_grad_in_cpu_via_gpu",
        lambda self, p: LOG.add("acc_cpu", LOG.parameter(p)),
    )
    wrap(Zero12, "async_inplace_copy_grad_to_fp32_buffer_from_gpu", _to_master)
    wrap(
        Zero12,
        "copy_grads_in_partition",
        lambda self, p: LOG.add("own", LOG.parameter(p), p.numel()),
    )
    wrap(Zero12, "_optimizer_step", _step_zero12)


# ---- stage 3 ----


def _flush_zero3(optimizer, communication_dtype=None, *unused, **more):
    if hasattr(optimizer, "ipg_buckets"):
        bucket = optimizer.ipg_buckets[communication_dtype]
        entries, elements = bucket.params, bucket.elements
    else:
        entries, elements = _names_of_old_bucket(optimizer)
    if entries:
        LOG.add("flush", [LOG.parameter(p) for p in entries], elements)


def _step_zero3(optimizer, group):
    master = optimizer.fp32_partitioned_groups_flat[group]
    LOG.add("opt", group, master.numel(), dtype_name(master))


def hook_zero3():
    """Gradients, buckets, offload copies and optimizer calls of stage 3."""
    from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3 as Zero3

    ready = "reduce_independent_p_g_buckets_and_remove_grads"
    wrap(Zero3, ready, lambda self, p: LOG.add("g", LOG.parameter(p)))
    wrap(Zero3, "_DeepSpeedZeroOptimizer_Stage3__reduce_and_partition_ipg_grads", _flush_zero3)
    wrap(
        Zero3,
        "partition_grads",
        lambda self, ps, gs: LOG.add("pg", [LOG.parameter(p) for p in ps], self.micro_step_id),
    )
    wrap(
        Zero3,
        "_offload_grad_partition_at_boundary",
        lambda self, p, g, *rest: LOG.add("off3", LOG.parameter(p), g.numel()),
        optional=True,
    )
    wrap(Zero3, "_optimizer_step", _step_zero3)


def hook_swapping():
    """Partitions that are read from NVMe, and the waits for them."""
    from deepspeed.runtime.swap_tensor import partitioned_param_swapper as module

    swapper = module.AsyncPartitionedParameterSwapper

    def read(self, params, async_op=True, swap_in_buffers=None):
        names = sorted(LOG.parameter(p) for p in params)
        if len(params) > len(self.available_buffer_ids):
            LOG.add("short", names, len(self.available_buffer_ids))  # and an assertion follows
        elif len(set(names)) < len(names) or any(p.ds_id in self.param_id_to_buffer_id for p in params):
            LOG.add("twice", names)  # and another
        else:
            LOG.add("si", names, int(async_op))

    def waited(self):
        if self.pending_reads:
            LOG.add("sw")

    wrap(swapper, "swap_in", read)
    wrap(swapper, "synchronize_reads", waited)


def log_concatenations():
    """torch.cat makes a new tensor; the engines use it for buckets of several tensors."""
    concatenate = torch.cat

    def logged(tensors, *args, **kwargs):
        result = concatenate(tensors, *args, **kwargs)
        if len(tensors) > 0 and "out" not in kwargs:
            LOG.add("cat", len(tensors), result.numel(), dtype_name(result))
        return result

    torch.cat = logged


def log_flattening(optimizer):
    """An engine's flatten of several tensors makes a new one."""
    flatten = optimizer.flatten

    def logged(tensors):
        result = flatten(tensors)
        if len(tensors) > 1:
            LOG.add("flat", len(tensors), result.numel(), dtype_name(result))
        return result

    optimizer.flatten = logged


def install():
    """All hooks; once a process, after deepspeed was imported."""
    CoordinatorHooks()
    hook_zero12()
    hook_zero3()
    hook_swapping()
    _skip_rank_agreement()
    _split_gradients_by_dtype()
    log_concatenations()
    torch.Tensor.record_stream = lambda self, stream: None
