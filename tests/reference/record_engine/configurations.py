"""What is recorded: name -> release, world, model, ds_config and what happens besides.

Keys of a configuration: release, world, rank, model (see models.py), ckpt (0, 1, "reentrant"),
groups (optimizer parameter groups), frozen (regular expression), leaf (class names), zero_init,
steps, overflow, evaluate_before (numbers of steps), orders (step -> layers in the order of calls),
query (what events answer), ds (the ds_config), memory (record peaks too), drive (list what is on NVMe).
"""

NEWEST = "0.19.6"
RELEASES = ("0.12.6", "0.14.5", "0.16.4", "0.17.6", "0.18.9", NEWEST)

PLAIN = dict(h=24, f=40, L=1, V=50, nh=2, kv=2)
ODD = dict(h=20, f=27, L=1, V=33, nh=2, kv=1, bias=True)
TWO = dict(h=16, f=20, L=2, V=45, nh=2, kv=1)
TIED = dict(h=12, f=31, L=1, V=101, nh=3, kv=3, tied=True)
WIDE = dict(h=32, f=16, L=1, V=300, nh=4, kv=2)

CPU = {"device": "cpu"}
UNPINNED = {"device": "cpu", "pin_memory": False}
FETCH = dict(
    stage3_prefetch_bucket_size=700,
    stage3_max_live_parameters=3000,
    stage3_max_reuse_distance=1200,
    stage3_param_persistence_threshold=24,
    reduce_bucket_size=1500,
)


def dtype_section(dtype):
    if dtype == "bf16":
        return {"bf16": {"enabled": True}}
    if dtype == "fp16":
        return {"fp16": {"enabled": True, "initial_scale_power": 4}}
    return {}


def configuration(
    stage, zero=None, model=None, dtype="bf16", accumulation=1, top=None, release=NEWEST, **more
):
    """One entry of the grid. zero: keys of zero_optimization; top: keys beside it."""
    ds_config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": accumulation,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**9,
        **dtype_section(dtype),
        "zero_optimization": dict(stage=stage, **(zero or {})),
        **(top or {}),
    }
    entry = dict(release=release, world=4, rank=0, model=model or PLAIN, steps=3, ds=ds_config)
    entry.update(more)
    return entry


def zero3(zero=None, **more):
    return configuration(3, dict(FETCH, **(zero or {})), **more)


def dense():
    """Stage 0 and BF16_Optimizer."""
    fp32_sums = {"data_types": {"grad_accum_dtype": "fp32"}}
    return {
        "z0_fp32_groups3": configuration(0, model=ODD, dtype="fp32", groups=3),
        "z0_fp16_frozen": configuration(0, dtype="fp16", frozen="embed|gate", accumulation=2),
        "z0_fp16_overflow": configuration(0, dtype="fp16", overflow=[1]),
        "z0_bf16_tied": configuration(0, model=TIED, groups=2),
        "bf16opt_groups3": configuration(
            1, model=ODD, groups=3, top=fp32_sums, accumulation=2, world=3, rank=1
        ),
        "bf16opt_frozen": configuration(1, top=fp32_sums, frozen="norm|lm_head", world=2),
        "bf16opt_tied": configuration(1, model=TIED, top=fp32_sums, groups=2, accumulation=3),
    }


def stages12():
    """Buckets, collectives, partitions and offload of stages 1 and 2."""
    grid = {}
    for stage in (1, 2):
        tag = f"z{stage}_"
        cases = {
            "groups3_rank2": dict(zero=dict(reduce_bucket_size=900), model=ODD, groups=3, rank=2),
            "tied_overlap": dict(
                zero=dict(overlap_comm=True, reduce_bucket_size=1300),
                model=TIED,
                accumulation=3,
                world=3,
                rank=1,
            ),
            "frozen_overlap": dict(
                zero=dict(overlap_comm=True, reduce_bucket_size=1000),
                frozen="embed|q_proj|norm",
                groups=2,
                accumulation=2,
            ),
            "wide_embedding": dict(
                zero=dict(reduce_bucket_size=2000, overlap_comm=True), model=WIDE, world=6, rank=5
            ),
            "fp16_overflow": dict(
                zero=dict(reduce_bucket_size=1200), dtype="fp16", accumulation=2, overflow=[1]
            ),
            "offload_groups3": dict(
                zero=dict(offload_optimizer=CPU, reduce_bucket_size=800, overlap_comm=True),
                model=ODD,
                groups=3,
                accumulation=2,
                world=3,
                rank=1,
            ),
            "offload_frozen_tied": dict(
                zero=dict(offload_optimizer=UNPINNED), model=TIED, frozen="k_proj|up", world=2
            ),
            "clip_recompute": dict(
                zero=dict(reduce_bucket_size=1111), ckpt=1, top={"gradient_clipping": 0.5}, world=5
            ),
            "evaluated": dict(
                zero=dict(reduce_bucket_size=1111, overlap_comm=True), evaluate_before=[1, 2]
            ),
        }
        for name, case in cases.items():
            grid[tag + name] = configuration(stage, **case)
    return grid


def stage3():
    """Fetching, reduction, sub-groups and offload of stage 3."""
    both = dict(offload_optimizer=CPU, offload_param=CPU)
    return {
        "z3_odd_groups3": zero3(
            dict(sub_group_size=300), model=ODD, groups=3, world=3, rank=2
        ),
        "z3_tied_recompute": zero3(model=TIED, ckpt="reentrant", accumulation=2),
        "z3_two_layers_frozen": zero3(model=TWO, frozen="q_proj|up_proj|embed", ckpt=1),
        "z3_adapters_reentrant": zero3(model=TWO, frozen="proj", ckpt="reentrant"),
        "z3_adapters_recompute": zero3(model=TWO, frozen="proj", ckpt=1),
        "z3_leaf_mlp": zero3(model=TWO, leaf=["Mlp"]),
        "z3_leaf_layer_recompute": zero3(model=TWO, leaf=["Layer"], ckpt=1),
        "z3_granularity": zero3(
            dict(stage3_module_granularity_threshold=160), model=TWO
        ),
        "z3_no_efficient_linear": zero3(dict(memory_efficient_linear=False), ckpt=1),
        "z3_zero_init_tied_frozen": zero3(model=TIED, zero_init=1, frozen="o_proj"),
        "z3_evaluated": zero3(evaluate_before=[1, 3], steps=4),
        "z3_reversed_layers": zero3(model=TWO, orders={"2": [1, 0], "3": [1, 0]}, steps=5),
        "z3_fp16_overflow": zero3(dtype="fp16", overflow=[1], accumulation=2, rank=3),
        "z3_offload_groups3": zero3(
            dict(offload_optimizer=CPU, sub_group_size=300), model=ODD, groups=3, accumulation=2
        ),
        "z3_offload_both_odd": zero3(both, model=ODD, world=3, rank=1),
        "z3_offload_both_zero_init": zero3(both, model=TWO, zero_init=1),
        "z3_ratio_half": zero3(
            dict(offload_optimizer=dict(CPU, ratio=0.5), sub_group_size=250),
            accumulation=2,
            top={"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}},
        ),
        "z3_hpz": zero3(dict(zero_hpz_partition_size=2), model=PLAIN, accumulation=2),
        "z3_hpz_rank3": zero3(dict(zero_hpz_partition_size=4), world=8, rank=3, model=ODD),
        "z3_quantised_gradients": zero3(dict(zero_quantized_gradients=True)),
        "z3_mics": zero3(dict(mics_shard_size=2), zero_init=1),
        "z3_mics_rank5": zero3(
            dict(mics_shard_size=4), world=8, rank=5, zero_init=1, model=ODD, accumulation=2
        ),
        "z3_keyword_calls": zero3(model=dict(TWO, variant="keyword+dropout")),
        "z3_parallel_residual": zero3(model=dict(PLAIN, variant="parallel"), ckpt=1),
        "z3_accumulates_fp32": zero3(
            top={"data_types": {"grad_accum_dtype": "fp32"}}, model=ODD, accumulation=2
        ),
    }


# Weights of 1 MiB and more a rank go to the drive; k and v of these do not.
DRIVE = dict(h=1024, f=1100, L=3, V=60, nh=8, kv=2)
NVME = {"device": "nvme", "nvme_path": "/tmp/zeroplan_recorder", "buffer_size": 2e6, "max_in_cpu": 0}


def drive_case(zero=None, buffers=40, weights=None, **more):
    """Stage 3 with weights on a drive (drive.py); the optimizer's states in host memory."""
    section = dict(
        offload_optimizer=CPU,
        offload_param=dict(NVME, buffer_count=buffers, **(weights or {})),
        stage3_prefetch_bucket_size=1500000,
        stage3_max_live_parameters=10**9,
        stage3_max_reuse_distance=2000000,
        stage3_param_persistence_threshold=100,
        reduce_bucket_size=3000000,
        **(zero or {}),
    )
    return configuration(3, section, **{"model": DRIVE, "world": 2, "zero_init": 1, "drive": 1, **more})


def drives():
    """What is read from NVMe when, and when the pool of buffers does not suffice."""
    cases = {
        "plain": drive_case(),
        "one_rank": drive_case(world=1),
        "few_buffers": drive_case(buffers=7),
        "two_buffers": drive_case(buffers=2),
        "short": drive_case(buffers=5),
        "short_at_once": drive_case(buffers=2, leaf=["Mlp"]),
        "some_in_memory": drive_case(
            weights=dict(max_in_cpu=4000000), zero=dict(sub_group_size=1500000)
        ),
        "recompute": drive_case(ckpt=1, accumulation=2),
        "frozen": drive_case(frozen="q_proj|up_proj"),
        "leaf": drive_case(model=dict(DRIVE), leaf=["Mlp"]),
        "no_prefetch": drive_case(),
        "live_limit": drive_case(),
        "reuse_all": drive_case(),
        "persistent": drive_case(),
        "other_order": drive_case(orders={"2": [1, 0, 2], "3": [1, 0, 2]}, steps=5),
        "evaluated": drive_case(evaluate_before=[1, 2]),
    }
    zero = lambda name: cases[name]["ds"]["zero_optimization"]  # noqa: E731
    zero("no_prefetch")["stage3_prefetch_bucket_size"] = 0
    zero("live_limit")["stage3_max_live_parameters"] = 3000000
    zero("reuse_all")["stage3_max_reuse_distance"] = 10**9
    zero("short")["stage3_max_reuse_distance"] = 10**9
    zero("persistent")["stage3_param_persistence_threshold"] = 1048576
    return {"drive_" + name: case for name, case in cases.items()}


LARGE = dict(h=96, f=160, L=1, V=512, nh=4, kv=4)


def memory():
    """Peaks too, for what keeps everything on the device; models large beside single numbers."""
    fp32_sums = {"data_types": {"grad_accum_dtype": "fp32"}}
    big = dict(reduce_bucket_size=30000)
    fetch = dict(
        FETCH, reduce_bucket_size=60000, stage3_param_persistence_threshold=100, sub_group_size=20000
    )
    cases = {
        "z0_fp32": configuration(0, dtype="fp32"),
        "z0_bf16": configuration(0),
        "bf16opt": configuration(1, top=fp32_sums, groups=2),
        "z1": configuration(1, big, groups=2),
        "z1_overlap": configuration(1, dict(big, overlap_comm=True), dtype="fp16"),
        "z2": configuration(2, big),
        "z2_fp32": configuration(2, big, dtype="fp32", rank=3),
        "z2_all_reduce": configuration(2, dict(big, reduce_scatter=False)),
        "z3": configuration(3, fetch),
        "z3_groups": configuration(3, dict(fetch, sub_group_size=10**9), groups=2),
        "z3_all_reduce": configuration(3, dict(fetch, reduce_scatter=False)),
        "z3_fp16": configuration(3, dict(fetch, sub_group_size=1000), dtype="fp16"),
        "z3_fp32_sums": configuration(3, fetch, top=fp32_sums),
    }
    for case in cases.values():
        case.update(model=LARGE, memory=1)
    # The zero gradient of initialisation is more than the bucket and the largest weight together.
    cases["z3_small_bucket"] = configuration(
        3,
        dict(fetch, reduce_bucket_size=2000, sub_group_size=10**9),
        model=dict(LARGE, V=16),
        world=2,
        memory=1,
    )
    return {"peaks_" + name: case for name, case in cases.items()}


def old_releases():
    """The same few configurations under every release besides the newest."""
    grid = {}
    fp32_sums = {"data_types": {"grad_accum_dtype": "fp32"}}
    for release in RELEASES[:-1]:
        cases = {
            "z0_fp16": configuration(0, dtype="fp16", release=release),
            "z0_bf16": configuration(0, release=release, accumulation=2),
            "bf16opt": configuration(1, top=fp32_sums, groups=2, release=release, accumulation=2),
            "z1_overlap": configuration(
                1,
                dict(overlap_comm=True, reduce_bucket_size=1200),
                model=ODD,
                accumulation=2,
                release=release,
                rank=1,
            ),
            "z2": configuration(
                2, dict(reduce_bucket_size=1200), groups=2, accumulation=2, release=release
            ),
            "z2_overlap": configuration(
                2, dict(overlap_comm=True, reduce_bucket_size=1200), model=TIED, release=release
            ),
            "z1_offload": configuration(
                1, dict(offload_optimizer=CPU), accumulation=2, release=release, rank=1
            ),
            "z2_offload": configuration(
                2,
                dict(offload_optimizer=dict(CPU, pin_memory=True), overlap_comm=True),
                accumulation=2,
                release=release,
            ),
            "z3": zero3(release=release),
            "z3_recompute": zero3(release=release, ckpt=1, model=ODD, groups=2),
            "z3_offload": zero3(
                dict(offload_optimizer=CPU, sub_group_size=300),
                release=release,
                accumulation=2,
                groups=2,
            ),
            "z3_offload_both": zero3(
                dict(offload_optimizer=CPU, offload_param=dict(CPU, pin_memory=True)),
                release=release,
                zero_init=1,
            ),
        }
        for name, case in cases.items():
            grid[f"v{release}_{name}"] = case
    return grid


def grid():
    """All configurations by name."""
    return {**dense(), **stages12(), **stage3(), **drives(), **memory(), **old_releases()}
