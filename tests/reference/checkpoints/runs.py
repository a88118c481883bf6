"""Which checkpoints are written: each run is a scenario of docs/contract.md and how it is saved."""

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1003, "hidden_size": 64,
         "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 128, "tie_word_embeddings": False, "hidden_act": "silu"}
TIED = dict(LLAMA, tie_word_embeddings=True, num_hidden_layers=3)
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 1003, "n_embd": 60, "n_layer": 2,
        "n_head": 4, "n_positions": 128, "activation_function": "gelu_new"}
LORA = {"lora": {"rank": 3, "targets": ["q_proj", "v_proj"], "dtype": "bf16"}}
ADAM = {"type": "AdamW", "params": {"lr": 1e-3}}
TORCH_ADAM = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}
ON_FOUR_RANKS = ("z0-bf16-4", "z1-bf16-4", "z2-bf16-4", "z2-tied-4", "z3-bf16-4", "z3-fp32-4", "z3-lora-4")
# On emulated GPUs: what differs there or needs one. BF16_Optimizer asserts a norm, which has no value there, and full
# fine-tuning at stage 1 takes the values for an overflow, skips its steps and so has no states to save.
ON_GPUS = ("z0-bf16-2", "z0-fp16-2", "z2-bf16-2", "z2-gpt2-2", "z2-lora-2",
           "z2-lora-without-frozen-2", "z1-lora-2", "z3-bf16-2", "z3-fp16-2", "z3-lora-2",
           "z3-lora-without-frozen-2")


def run(name, ranks, stage, precision, model=None, zero=None, ds=None, method="full", exclude_frozen=False, **more):
    """`more`: sixteen_bit, resume_from, optimizer."""
    section = {} if precision == "fp32" else {precision: {"enabled": True}}
    ds_config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, **section,
                 "zero_optimization": {"stage": stage, **(zero or {})}, "zero_allow_untested_optimizer": True,
                 **(ds or {})}
    scenario = {"model": model or LLAMA, "cluster": f"1x{ranks}xA100-80G",
                "workload": {"sequence_length": 16, "micro_batch_size": 1, "method": method, "precision": precision,
                             "optimizer": "adamw", "engine": "deepspeed", "frontend": "native"},
                "ds_config": ds_config}
    return {"id": f"{name}-{ranks}", "ranks": ranks, "scenario": scenario, "exclude_frozen": exclude_frozen,
            "optimizer": "ds_config", **more}


def runs_of(ranks, adam):
    """`adam`: the optimizer section. Those of CPU ranks have no kernels of DeepSpeed's own."""
    own = {"ds": {"optimizer": adam}}

    def one(name, stage, precision, **more):
        ds = {**own["ds"], **more.pop("ds", {})}
        return run(name, ranks, stage, precision, ds=ds, **more)

    small = {"sub_group_size": 50000}
    kept = {"stage3_param_persistence_threshold": 0}
    return [
        one("z0-fp32", 0, "fp32", sixteen_bit=True),
        one("z0-bf16", 0, "bf16", sixteen_bit=True),
        one("z0-fp16", 0, "fp16"),
        one("z1-bf16", 1, "bf16", sixteen_bit=True),
        one("z1-fp16", 1, "fp16"),
        one("z1-bf16-fp32-sums", 1, "bf16", ds={"data_types": {"grad_accum_dtype": "fp32"}}),
        one("z2-bf16", 2, "bf16", sixteen_bit=True),
        one("z2-bf16-elastic", 2, "bf16", zero={"elastic_checkpoint": True}),
        one("z2-fp32", 2, "fp32"),
        one("z2-tied", 2, "bf16", model=TIED, sixteen_bit=True),
        one("z2-round-robin", 2, "bf16", zero={"round_robin_gradients": True}),
        one("z2-gpt2", 2, "fp16", model=GPT2),
        one("z2-lora", 2, "bf16", method=LORA),
        one("z2-lora-without-frozen", 2, "bf16", method=LORA, exclude_frozen=True, sixteen_bit=True),
        one("z1-lora", 1, "bf16", method=LORA),
        one("z3-bf16", 3, "bf16", zero={"stage3_gather_16bit_weights_on_model_save": True}, sixteen_bit=True),
        one("z3-fp16", 3, "fp16", zero={**kept, **small}),
        one("z3-fp32", 3, "fp32"),
        one("z3-tied", 3, "bf16", model=TIED, zero={"stage3_gather_16bit_weights_on_model_save": True},
            sixteen_bit=True),
        one("z3-gpt2", 3, "bf16", model=GPT2, zero=small),
        one("z3-lora", 3, "bf16", method=LORA),
        one("z3-lora-without-frozen", 3, "bf16", method=LORA, exclude_frozen=True, sixteen_bit=True,
            zero={"stage3_gather_16bit_weights_on_model_save": True}),
    ]


def offloads(ranks, adam):
    cpu = {"offload_optimizer": {"device": "cpu"}}
    both = {**cpu, "offload_param": {"device": "cpu"}}
    own = {"ds": {"optimizer": adam}}
    return [run("z2-offload", ranks, 2, "bf16", zero=cpu, **own),
            run("z3-offload", ranks, 3, "bf16", zero=cpu, **own),
            run("z3-offload-both", ranks, 3, "bf16", zero=both, **own)]


RESUMED = ("z0-bf16", "z1-bf16", "z2-bf16", "z2-bf16-elastic", "z3-bf16")
CONVERTED = ("z0-bf16", "z1-bf16", "z2-bf16", "z2-bf16-elastic", "z2-tied", "z2-lora", "z3-bf16", "z3-gpt2", "z3-tied",
             "z3-lora")


def resumes(from_ranks, to_ranks, adam, universal=False):
    """Loads what `from_ranks` ranks saved, or what became of it as a universal checkpoint."""
    names = {f"{name}-{from_ranks}" for name in RESUMED if not (universal and name.startswith("z0"))}
    loaded = []
    for one in runs_of(to_ranks, adam):
        source = one["id"].rsplit("-", 1)[0] + f"-{from_ranks}"
        if source not in names:
            continue
        scenario = dict(one["scenario"])
        if universal:
            scenario["ds_config"] = {**scenario["ds_config"], "checkpoint": {"load_universal": True}}
        folder = "universal" if universal else "saved"
        loaded.append({**one, "scenario": scenario, "id": f"{source}-{folder}-by-{to_ranks}",
                       "resume_from": f"{folder}/{source}", "source": source})
    return loaded
