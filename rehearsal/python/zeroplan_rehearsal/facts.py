"""What ran, for a prediction of the same: the model's config, the ds_config, batch and sequence, versions.

A line of the record for each fact, when it is known.
"""
import functools
import os
import sys
import weakref

from . import pictures, records

_said = set()


def once(name, value):
    if name not in _said:
        _said.add(name)
        records.write("fact", name=name, value=value)


def forget():
    global _longest, _shortest, _made, _outputs, _went_back
    _said.clear()
    _longest = _shortest = 0
    _made = _outputs = None
    _went_back = False


def software(*packages):
    import importlib.metadata

    for package in packages:
        try:
            once("version/" + package, importlib.metadata.version(package).split("+")[0])
        except importlib.metadata.PackageNotFoundError:
            pass


# --- models of transformers


def _reentrant(model):
    for module in model.modules():
        function = getattr(module, "_gradient_checkpointing_func", None)
        if function is not None:
            return bool(getattr(function, "keywords", {}).get("use_reentrant", True))
    return None


def _loses_in_kernels(forward):
    """Liger puts a forward pass of its own in the class's place, which never holds the logits."""
    module = getattr(forward, "__module__", "") or ""
    return module.startswith("liger_kernel") and "lce" in getattr(forward, "__name__", "")


def _ids_shape(args, kwargs):
    for value in (kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args):
        if value is not None and hasattr(value, "shape") and len(value.shape) >= 2:
            return list(value.shape[:2])
    return None


_longest = 0
_shortest = 0


def _note_batch(shape):
    """The longest batch decides how much is needed; `lengths` says whether others were shorter."""
    global _longest, _shortest
    if shape is None:
        return
    if shape[1] > _longest:
        _longest = shape[1]
        records.write("fact", name="ids", value=shape)  # the last that is said counts
    if _shortest == 0 or shape[1] < _shortest:
        _shortest = shape[1]
    if _shortest < _longest:
        records.write("fact", name="lengths", value=[_shortest, _longest])


def _expands_segments():
    settings = [os.environ.get(name, "") for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")]
    return any("expandable_segments:true" in setting.lower() for setting in settings)


def _note_model(model, args, kwargs):
    import torch

    once("expandable_segments", _expands_segments())
    _note_optimizer()
    software("torch", "transformers", "deepspeed", "accelerate", "peft", "trl", "triton")
    once("model", model.config.to_dict())
    once("class", type(model).__name__)
    counts = [(getattr(p, "ds_numel", p.numel()), p.requires_grad) for p in model.parameters()]
    once("parameters", sum(count for count, _ in counts))
    once("trainable", sum(count for count, trained in counts if trained))
    if "lora" not in _said and not all(trained for _, trained in counts):
        once("frozen", _frozen(model))
    dtypes = {str(p.dtype).replace("torch.", "") for p in model.parameters()}
    once("parameter_dtypes", sorted(dtypes))
    # transformers 5.23 renamed it, and warns of the old name.
    names = ("is_activation_checkpointing", "is_gradient_checkpointing")
    checkpointing = bool(next((getattr(model, name) for name in names if hasattr(model, name)), False))
    once("checkpointing", checkpointing)
    if checkpointing:
        once("reentrant", _reentrant(model))
    once("fused_loss", _loses_in_kernels(model.forward))
    # transformers takes its kernels where the package can be imported.
    if "fla" in sys.modules and any(name.endswith("linear_attn") for name, _ in model.named_modules()):
        once("linear_attention", "fla")
    once("attention", getattr(model.config, "_attn_implementation", None))
    if torch.is_autocast_enabled():
        once("mixed_precision", str(torch.get_autocast_gpu_dtype()).replace("torch.", ""))


def _frozen(model):
    """The outermost modules and parameters that are not trained."""
    names, seen = [], set()

    def look(module, prefix):
        own = [(name, part) for name, part in module.named_parameters(recurse=False) if id(part) not in seen]
        seen.update(id(part) for _, part in own)
        names.extend(prefix + name for name, part in own if not part.requires_grad)
        for name, child in module.named_children():
            parts = [part for part in child.parameters() if id(part) not in seen]
            if parts and not any(part.requires_grad for part in parts):
                names.append(prefix + name)
                seen.update(map(id, parts))
            elif parts:
                look(child, prefix + name + ".")

    look(model, "")
    return names


def _note_images(args, kwargs):
    """Where the class is given some: how many and how large, as its processor was shown them; nothing where that was another process's."""
    shape = _ids_shape(args, kwargs)
    if kwargs.get("pixel_values") is not None and shape is not None:
        once("images", pictures.in_each(shape[0]) or [])


_outputs = None  # of the last forward pass, a weak reference
_went_back = False  # since then


def _note_outputs(outputs):
    """A loop's `outputs = model(...)` has those of the last micro-batch until this pass has ended, unless it let them go."""
    global _outputs, _went_back
    if _went_back:
        once("outputs_kept", _outputs() is not None)
    # A tuple has no weak reference, and a tensor may outlive its variable in the graph.
    _outputs = weakref.ref(outputs) if hasattr(outputs, "to_tuple") else None
    _went_back = False


def backward_begins():
    global _went_back
    if _outputs is not None and not _went_back:
        once("outputs_held", _outputs() is not None)
        _went_back = True


def watch_models(base):
    import torch

    call = base.__call__
    within = []  # models that run: a part of one is no model of its own

    @functools.wraps(call)
    def __call__(self, *args, **kwargs):
        # What from_pretrained returns is in its mode for inference, and is trained so by who forgets it.
        trains = torch.is_grad_enabled() and not within
        if trains:
            if "model" not in _said:
                _note_model(self, args, kwargs)
            _note_images(args, kwargs)
            _note_batch(_ids_shape(args, kwargs))
        within.append(self)
        try:
            outputs = call(self, *args, **kwargs)
        finally:
            within.pop()
        if trains:
            _note_outputs(outputs)
        return outputs

    base.__call__ = __call__


# --- engines and adapters


def deepspeed_engine(engine):
    """The trained model's takes the place of a reference's, which TRL makes first and which has no optimizer."""
    if getattr(engine, "basic_optimizer", None) is not None and "trained engine" not in _said:
        _said.add("trained engine")
        _said.difference_update(("engine", "ds_config", "micro_batch_size", "gradient_accumulation_steps"))
    once("engine", "deepspeed")
    once("ds_config", getattr(engine._config, "_param_dict", None))
    once("micro_batch_size", engine.train_micro_batch_size_per_gpu())
    once("gradient_accumulation_steps", engine.gradient_accumulation_steps())


def skipped_steps(count):
    """By a loss scaler, for an overflow that nobody computed: should be none."""
    if count:
        records.write("fact", name="skipped_steps", value=count)  # the last that is said counts


_made = None  # the first optimizer


def optimizer(made):
    """The constructor of a class above may not be through: _note_optimizer() has the last word."""
    global _made
    if _made is None:
        _made = weakref.ref(made)
        _note_optimizer()


def _note_optimizer():
    """bitsandbytes has one class for 8 and 32 bits, and for states in paged memory."""
    made = _made and _made()
    if made is None:
        return
    name = type(made).__name__
    if type(made).__module__.startswith("bitsandbytes"):
        if getattr(getattr(made, "args", None), "optim_bits", 32) == 8 and "8bit" not in name:
            name += "8bit"
        if getattr(made, "is_paged", False):
            once("paged", True)
    records.write("fact", name="optimizer", value=name)  # the last that is said counts


def _watch_constructor(owner, note):
    original = owner.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        note(self, args, kwargs)
        original(self, *args, **kwargs)

    owner.__init__ = __init__


def watch_engine(owner, name):
    _watch_constructor(owner, lambda *_: once("engine", name))


def _note_mixed_precision(policy):
    dtype = getattr(policy, "param_dtype", None)
    if dtype is not None:
        once("mixed_precision", str(dtype).replace("torch.", ""))


def watch_fsdp(module):
    def note(wrapped, args, kwargs):
        once("engine", "fsdp")
        _note_mixed_precision(kwargs.get("mixed_precision"))
        strategy = getattr(kwargs.get("sharding_strategy"), "name", "FULL_SHARD")
        once("fsdp_stage", {"NO_SHARD": 0, "SHARD_GRAD_OP": 2}.get(strategy, 3))
        once("fsdp_offload", bool(getattr(kwargs.get("cpu_offload"), "offload_params", False)))

    _watch_constructor(module.FullyShardedDataParallel, note)
    original = getattr(module, "fully_shard", None)
    if original is None:  # before torch 2.6
        return

    @functools.wraps(original)
    def fully_shard(*args, **kwargs):
        once("engine", "fsdp2")
        _note_mixed_precision(kwargs.get("mp_policy"))
        once("fsdp_stage", 2 if kwargs.get("reshard_after_forward") is False else 3)
        once("fsdp_offload", "CPU" in type(kwargs.get("offload_policy")).__name__)
        return original(*args, **kwargs)

    module.fully_shard = fully_shard


_KINDS = {"DPOTrainer": "dpo", "KTOTrainer": "kto", "GRPOTrainer": "grpo", "PPOTrainer": "ppo", "GKDTrainer": "gkd"}
# What a scenario's `trainer` has of each configuration of TRL.
_SETTINGS = {
    "dpo": {"beta": "beta", "precompute_reference": "precompute_ref_log_probs"},
    "kto": {"beta": "beta", "precompute_reference": "precompute_ref_log_probs"},
    "grpo": {"beta": "beta", "completion_length": "max_completion_length", "completions": "num_generations",
             "generation_batches": "steps_per_generation", "gathers_model": "ds3_gather_for_generation"},
    "ppo": {"beta": "kl_coef", "completion_length": "response_length", "epochs": "num_ppo_epochs",
            "rollout_rows": "local_rollout_forward_batch_size", "mini_batches": "num_mini_batches",
            "gathers_model": "ds3_gather_for_generation"},
    "gkd": {"beta": "beta", "lmbda": "lmbda", "completion_length": "max_new_tokens", "seq_kd": "seq_kd"},
}


def _note_trl(made, arguments):
    """A trainer of pairs, rewards or rollouts: its model gets other rows than the configuration counts."""
    kind = next((_KINDS[each.__name__] for each in type(made).__mro__ if each.__name__ in _KINDS), None)
    if kind is None or arguments is None:
        return
    said = {ours: getattr(arguments, theirs, None) for ours, theirs in _SETTINGS[kind].items()}
    said = {name: value for name, value in said.items() if value is not None}
    if getattr(arguments, "use_vllm", False):
        said["generation"] = "colocated" if getattr(arguments, "vllm_mode", "") == "colocate" else "server"
    once("trainer", {kind: said})
    once("per_device_batch", getattr(arguments, "per_device_train_batch_size", None))


def watch_trainer(trainer):
    def note(made, args, kwargs):
        once("frontend", "hf-trainer")
        arguments = kwargs.get("args", args[1] if len(args) > 1 else None)
        _note_trl(made, arguments)
        for name, dtype in (("bf16", "bfloat16"), ("fp16", "float16")):
            if getattr(arguments, name, False):
                once("mixed_precision", dtype)
        accumulation = getattr(getattr(arguments, "accelerator_config", None), "gradient_accumulation_kwargs", None)
        once("sync_each_batch", bool((accumulation or {}).get("sync_each_batch")))

    _watch_constructor(trainer, note)


def watch_distillation(trainer):
    """The teacher is there when the first step begins; programs look at what the constructor takes."""
    original = trainer.training_step

    @functools.wraps(original)
    def training_step(self, *args, **kwargs):
        teacher = getattr(self.teacher_model, "module", self.teacher_model)
        once("teacher", teacher.config.to_dict())
        return original(self, *args, **kwargs)

    trainer.training_step = training_step


def watch_lightning(module):
    """Automatic optimization: zero_grad() between forward and backward, and training_step() returns the loss alone. All of
    a step's last micro-batch runs within the optimizer's step(), so Lightning is asked how many there are."""
    loop = module._AutomaticOptimization
    original = loop.run

    @functools.wraps(original)
    def run(self, *args, **kwargs):
        once("frontend", "lightning")
        once("gradient_accumulation_steps", int(self.trainer.accumulate_grad_batches))
        return original(self, *args, **kwargs)

    loop.run = run


def watch_peft(module):
    """After it was made: peft writes the names in the place of "all-linear"."""
    original = module.PeftModel.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        config = kwargs.get("peft_config", args[1] if len(args) > 1 else None)
        original(self, *args, **kwargs)
        targets = getattr(config, "target_modules", None)
        rank = getattr(config, "r", None)
        if rank is not None:
            dropout = getattr(config, "lora_dropout", 0.0)
            names = targets if isinstance(targets, str) else sorted({name.rsplit(".", 1)[-1] for name in targets or ()})
            once("lora", {"rank": rank, "targets": names or None, "dropout": dropout})

    module.PeftModel.__init__ = __init__
