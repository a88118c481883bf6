"""What a run that is set up by Lightning says of itself, as flags. Nothing of Lightning is imported: its objects are read."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ._runs import world_cluster


def transformers_model(module: Any) -> Any:
    """The first module within that has a configuration of transformers, or peft's adapters; None without one."""
    for one in module.modules():
        if callable(getattr(getattr(one, "config", None), "to_dict", None)):
            return one
    return None


def flags_of_trainer(trainer: Any) -> Dict[str, Any]:
    """What a Lightning Trainer says of the run, as flags. Raises TypeError for a strategy that is not planned."""
    flags: Dict[str, Any] = {
        "frontend": "native",
        "outputs_held": False,  # training_step() returns the loss: its other tensors are gone before backward
        "gradient_accumulation_steps": int(trainer.accumulate_grad_batches),
        "micro_batch_size": _micro_batch(trainer),
    }
    flags.update(_precision(str(trainer.precision)))
    flags.update(_strategy(trainer))
    flags.update(_optimizer(trainer))
    # Lightning's closure drops gradients behind the next forward pass (loops/optimization/automatic.py Closure.closure);
    # DeepSpeed's engine drops its own. In manual optimization the module decides, mostly before its forward pass.
    if flags["engine"] != "deepspeed" and getattr(trainer.lightning_module, "automatic_optimization", True):
        flags["gradients_held"] = True
    return flags


def _precision(name: str) -> Dict[str, Any]:
    """Of Trainer(precision=...): "bf16-mixed", "16-true", "32-true", ..."""
    known = {"bf16": "bf16", "16": "fp16", "32": "fp32"}
    bits, _, kind = name.partition("-")
    if bits not in known:
        raise TypeError(f"precision {name} is not planned")
    flags: Dict[str, Any] = {"precision": known[bits]}
    if kind == "true" and bits != "32":  # weights and states as well
        flags["ds_config"] = {known[bits]: {"enabled": True, f"{known[bits]}_master_weights_and_grads": True}}
    return flags


def _strategy(trainer: Any) -> Dict[str, Any]:
    strategy = trainer.strategy
    kinds = [kind.__name__ for kind in type(strategy).__mro__]
    if "DeepSpeedStrategy" in kinds:
        config = {**strategy.config, "train_micro_batch_size_per_gpu": _micro_batch(trainer)}
        config.pop("train_batch_size", None)
        return {"engine": "deepspeed", "ds_config": config}
    if "FSDPStrategy" in kinds:
        if _units(strategy) == 1:
            raise TypeError("one unit of FSDP for the whole model is not planned; give FSDPStrategy an auto_wrap_policy")
        return _fsdp(strategy, trainer)
    if "ModelParallelStrategy" in kinds:
        sizes = (getattr(strategy, "_tensor_parallel_size", 1), getattr(strategy, "_data_parallel_size", "auto"))
        if sizes[0] not in (1, "auto"):
            raise TypeError("tensor-parallel ranks of ModelParallelStrategy are not planned")
        return {"engine": "fsdp", "fsdp_version": 2}
    if "DDPStrategy" in kinds or "SingleDeviceStrategy" in kinds:
        return {"engine": "ddp", **_half_weights(trainer)}
    raise TypeError(f"{type(strategy).__name__} is not planned: DeepSpeed, FSDP, DDP and one device are")


def _half_weights(trainer: Any) -> Dict[str, Any]:
    return {name: value for name, value in _precision(str(trainer.precision)).items() if name == "ds_config"}


def _units(strategy: Any) -> int:
    """How many modules FSDP wraps; 0 where that is not seen."""
    modules = getattr(getattr(strategy, "model", None), "modules", None)
    if modules is None:
        return 0
    return sum(type(one).__name__ == "FullyShardedDataParallel" for one in modules())


def _fsdp(strategy: Any, trainer: Any) -> Dict[str, Any]:
    """FSDP as zeroplan has it: a stage, groups, offload (docs/contract.md section 1)."""
    sharding = str(getattr(strategy.sharding_strategy, "name", strategy.sharding_strategy))
    stages = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "_HYBRID_SHARD_ZERO2": 2}
    zero: Dict[str, Any] = {"stage": stages.get(sharding, 3)}
    if "HYBRID" in sharding:
        zero["mics_shard_size"] = trainer.num_devices
    if getattr(strategy.cpu_offload, "offload_params", False):
        zero["offload_param"] = {"device": "cpu"}
    config = {**_half_weights(trainer).get("ds_config", {}), "zero_optimization": zero}
    flags: Dict[str, Any] = {"engine": "fsdp", "ds_config": config}
    if getattr(strategy, "_activation_checkpointing_kwargs", None):
        flags.update(recomputes=True, checkpoint_reentrant=False)
    return flags


# Classes of optimizers by the names that zeroplan has; DeepSpeed's own do as AdamW does.
_OPTIMIZERS = {
    "AdamW": "adamw",
    "Adam": "adam",
    "DeepSpeedCPUAdam": "adamw",
    "FusedAdam": "adamw",
    "SGD": "sgd",
    "Adafactor": "adafactor",
    "Lion": "lion",
    "DeepSpeedCPULion": "lion",
    "FusedLion": "lion",
    "AdamW8bit": "adamw8bit",
}


def _optimizer(trainer: Any) -> Dict[str, Any]:
    config = getattr(trainer.strategy, "config", None)
    if isinstance(config, dict) and config.get("optimizer"):
        return {}  # DeepSpeed makes it
    found = list(trainer.optimizers)
    if not found:
        return {}
    one = found[0]
    one = getattr(one, "optimizer", one)  # LightningOptimizer, and DeepSpeed's around the user's
    while type(one).__name__ not in _OPTIMIZERS and hasattr(one, "optimizer"):
        one = one.optimizer
    name = type(one).__name__
    flags: Dict[str, Any] = {"optimizer": _OPTIMIZERS.get(name, name)}
    defaults = getattr(one, "defaults", {})
    if defaults.get("fused"):
        flags["optimizer_implementation"] = "fused"
    elif defaults.get("foreach") is False:
        flags["optimizer_implementation"] = "for-loop"
    return flags


def loader_of(trainer: Any) -> Any:
    """The data loader; of several the first."""
    loader = trainer.train_dataloader
    while isinstance(loader, (dict, list, tuple)):
        several: List[Any] = list(loader.values()) if isinstance(loader, dict) else list(loader)
        loader = several[0] if several else None
    return loader


def _micro_batch(trainer: Any) -> Optional[int]:
    loader = loader_of(trainer)
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return None if size is None else int(size)


def cluster_of(trainer: Any) -> Optional[str]:
    """The GPUs that take part; None on other devices."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    if getattr(trainer.strategy.root_device, "type", "") != "cuda":
        return None
    name = torch.cuda.get_device_name().replace(" ", "-")
    return world_cluster(int(trainer.world_size), name, int(trainer.num_devices))
