"""Process groups: of one process that is a rank of many, and of processes that a launcher started.

One process: its group is torch's own, whose other ranks have always been there; what another rank would say is what
this one says. Launched processes find each other by their launcher's store as ever; objects and barriers go through
that store too, because the emulated NCCL carries nothing from process to process.
"""
import os
import pickle

from . import gpu

RANKS, RANK, PER_NODE = 0, 0, 1
_KEPT = ("timeout", "device_id", "pg_options")


def read_settings():
    """A script that Python starts is one of several ranks from here on."""
    global RANKS, RANK, PER_NODE
    RANKS = int(os.environ.get("ZEROPLAN_REHEARSAL_RANKS", 0))
    RANK = int(os.environ.get("ZEROPLAN_REHEARSAL_RANK", 0))
    PER_NODE = int(os.environ.get("ZEROPLAN_GPU_COUNT", 1))
    if RANKS > 1:
        _say(RANKS, RANK)


def _store_class(dist):
    class Agreeing(dist.Store):
        """Every key has been set and everybody has come."""

        def __init__(self):
            super().__init__()
            self.values = {}

        def set(self, key, value):
            self.values[key] = value if isinstance(value, bytes) else str(value).encode()

        def get(self, key):
            return self.values.get(key, bytes(128))

        def add(self, key, amount):
            total = int(self.values.get(key, b"0")) + amount
            self.values[key] = str(total).encode()
            return total

        def compare_set(self, key, expected, desired):
            self.set(key, desired)
            return self.values[key]

        def wait(self, *args):
            return None

        def check(self, keys):
            return True

        def delete_key(self, key):
            return self.values.pop(key, None) is not None

        def num_keys(self):
            return len(self.values)

        def set_timeout(self, timeout):
            return None

    return Agreeing


def _variables(ranks, rank):
    per_node = min(PER_NODE, ranks)
    return {
        "RANK": rank,
        "WORLD_SIZE": ranks,
        # A real GPU is alone in its machine.
        "LOCAL_RANK": 0 if gpu.is_real() else rank % per_node,
        "LOCAL_WORLD_SIZE": per_node,
        "LOCAL_SIZE": per_node,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }


def launch_alone():
    """DeepSpeed wants a launcher's variables also where there is one rank."""
    if RANKS == 1:
        _say(1, 0)


def _say(ranks, rank):
    for name, value in _variables(ranks, rank).items():
        os.environ.setdefault(name, str(value))


def install(torch):
    read_settings()
    if not torch.distributed.is_available():
        return
    if RANKS:
        _be_alone(torch.distributed)
    else:
        _meet_by_store(torch.distributed)


def _replace(dist, functions):
    for module in (dist, dist.distributed_c10d):
        for function in functions:
            setattr(module, function.__name__, function)


def _be_alone(dist):
    begin = dist.init_process_group
    agreeing = _store_class(dist)
    stores = []  # torch keeps its own half of one alone

    def init_process_group(backend=None, *args, **kwargs):
        kept = {key: value for key, value in kwargs.items() if key in _KEPT}
        # The first rank asks nobody; a store of torch's own can be read by its threads without Python.
        store = agreeing() if RANK else dist.HashStore()
        stores.append(store)
        return begin("nccl", store=store, rank=RANK, world_size=RANKS, **kept)

    def all_gather_object(object_list, obj, group=None):
        for i in range(len(object_list)):
            object_list[i] = obj

    def gather_object(obj, object_gather_list=None, *args, **kwargs):
        if object_gather_list is not None:
            all_gather_object(object_gather_list, obj)

    def broadcast_object_list(object_list, *args, **kwargs):
        return None

    _replace(dist, (init_process_group, all_gather_object, gather_object, broadcast_object_list))


def _meet_by_store(dist):
    counts = {}  # exchanges of each group: its members take part in all of them, in the same order

    def exchange(value, group):
        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        if dist.get_rank() not in members:
            return None
        name = "-".join(map(str, members))
        counts[name] = counts.get(name, 0) + 1
        store = dist.distributed_c10d._get_default_store()
        key = "zeroplan/%s/%d/" % (name, counts[name])
        store.set(key + str(dist.get_rank()), pickle.dumps(value))
        return {rank: pickle.loads(store.get(key + str(rank))) for rank in members}

    def all_gather_object(object_list, obj, group=None):
        said = exchange(obj, group)
        if said is not None:
            object_list[:] = said.values()

    def gather_object(obj, object_gather_list=None, dst=None, group=None, **kwargs):
        said = exchange(obj, group)
        if said is not None and object_gather_list is not None:
            object_gather_list[:] = said.values()

    def broadcast_object_list(object_list, src=None, group=None, *args, **kwargs):
        said = exchange(list(object_list), group)
        if said is not None:
            object_list[:] = said[src or 0]

    waits = dist.barrier

    def barrier(group=None, *args, **kwargs):
        work = waits(group, *args, **kwargs)
        exchange(None, group)
        return work

    _replace(dist, (all_gather_object, gather_object, broadcast_object_list, barrier))


def agree_with_rank_0(module):
    """deepspeed/runtime/zero/utils.py asks whether ranks have the same; what rank 0 would have sent is what is here."""
    module.get_lst_from_rank0 = lambda lst: lst
    module.assert_lst_len_same_as_rank0 = lambda lst: None
    module.assert_ints_same_as_other_ranks = lambda ints: None
