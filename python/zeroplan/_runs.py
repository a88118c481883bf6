"""What a run that is set up in Python says of itself, as flags: a Trainer, TrainingArguments, accelerate."""

from __future__ import annotations

import json
import math
import os
from typing import Any, Dict, Mapping, Optional

from ._models import adapter_flags, model_of

# TrainingArguments.optim -> --optimizer. What is not here is said by its own name, and the program refuses it by that
# name.
_OPTIMIZERS = {
    "adamw_torch": "adamw",
    "adamw_hf": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_apex_fused": "adamw",
    "adamw_bnb_8bit": "adamw8bit",
    "adamw_8bit": "adamw8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
    "lion_32bit": "lion",
}
_IMPLEMENTATIONS = {"adamw_torch": "foreach", "adamw_torch_fused": "fused"}


def read_run(run: Any) -> Dict[str, Any]:
    """Flags of a transformers Trainer, TrainingArguments, an accelerate.Accelerator, its DeepSpeedPlugin, or a dict.

    A dict holds flags already, by their names in Python, or is TrainingArguments.to_dict(). Raises TypeError for
    anything else.
    """
    if isinstance(run, Mapping):
        return _of_arguments(_Keys(run)) if "per_device_train_batch_size" in run else dict(run)
    if hasattr(run, "args") and hasattr(run, "train_dataset"):
        return of_trainer(run)
    if hasattr(run, "per_device_train_batch_size"):
        return _of_arguments(run)
    if hasattr(run, "gradient_accumulation_steps") and hasattr(run, "mixed_precision"):
        return _of_accelerator(run)
    if hasattr(run, "hf_ds_config") and hasattr(run, "zero_stage"):
        return {"ds_config": _ds_config(run.hf_ds_config), "engine": "deepspeed", "frontend": "hf-trainer"}
    raise TypeError(
        "a run is a Trainer, TrainingArguments, an Accelerator, a DeepSpeedPlugin or a dict; "
        f"this is a {type(run).__module__}.{type(run).__qualname__}"
    )


class _Keys:
    """A dict with its keys as attributes."""

    def __init__(self, keys: Mapping[str, Any]) -> None:
        self.__dict__.update(keys)


def of_trainer(trainer: Any) -> Dict[str, Any]:
    """Flags of a Trainer: its arguments, its model, and the GPUs that take part."""
    flags = read_run(trainer.args)
    model = model_of(trainer.model)
    flags["model"] = model.value
    flags.update(model.flags)
    return flags


def _of_arguments(args: Any) -> Dict[str, Any]:
    """Flags of TrainingArguments, or of TRL's, which extend them."""
    flags: Dict[str, Any] = {
        "frontend": "hf-trainer",
        "micro_batch_size": int(args.per_device_train_batch_size),
        "gradient_accumulation_steps": int(getattr(args, "gradient_accumulation_steps", 1) or 1),
        "precision": "bf16" if getattr(args, "bf16", False) else "fp16" if getattr(args, "fp16", False) else "fp32",
    }
    flags.update(_checkpointing(args))
    flags.update(_engine(args))
    optim = getattr(args, "optim", None)
    # A ds_config that names an optimizer makes it; the argument's default says nothing then.
    if optim is not None and not _names_optimizer(flags.get("ds_config")):
        name = str(getattr(optim, "value", optim))
        flags["optimizer"] = _OPTIMIZERS.get(name, name)
        if name in _IMPLEMENTATIONS:
            flags["optimizer_implementation"] = _IMPLEMENTATIONS[name]
    # TRL's sequences: SFTConfig.max_length (max_seq_length before TRL 0.16).
    for name in ("max_length", "max_seq_length"):
        length = getattr(args, name, None)
        if isinstance(length, int) and length > 0:
            flags["sequence_length"] = length
            break
    if getattr(args, "use_liger_kernel", False) or getattr(args, "use_liger", False):
        flags["fused_loss"] = True
    if getattr(args, "torch_compile", False):
        flags["compile"] = True
    return flags


def _checkpointing(args: Any) -> Dict[str, Any]:
    if not getattr(args, "gradient_checkpointing", False):
        return {"activation_checkpointing": "none"}
    flags: Dict[str, Any] = {"activation_checkpointing": "full"}
    said = getattr(args, "gradient_checkpointing_kwargs", None)
    if isinstance(said, Mapping) and "use_reentrant" in said:
        flags["checkpoint_reentrant"] = bool(said["use_reentrant"])
    return flags


def _engine(args: Any) -> Dict[str, Any]:
    if getattr(args, "deepspeed", None):
        filled = getattr(args, "hf_deepspeed_config", None)
        return {"engine": "deepspeed", "ds_config": _ds_config(args.deepspeed if filled is None else filled)}
    if getattr(args, "fsdp", None):
        flags: Dict[str, Any] = {"engine": "fsdp"}
        said = getattr(args, "fsdp_config", None)
        version = said.get("version", said.get("fsdp_version")) if isinstance(said, Mapping) else None
        if version is not None:
            flags["fsdp_version"] = int(version)
        return flags
    return {"engine": "ddp"}


def _ds_config(said: Any) -> Any:
    """A path, or the configuration's keys. The Trainer's own object holds them in `config`, with "auto" filled."""
    if isinstance(said, (str, os.PathLike)):
        return os.fspath(said)
    return finite(said if isinstance(said, Mapping) else said.config)


def finite(config: Mapping[str, Any]) -> Dict[str, Any]:
    """Without the infinities that JSON has no word for: accelerate says "never print" by steps_per_print = inf."""
    return {
        key: finite(value) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if not (isinstance(value, float) and not math.isfinite(value))
    }


def _names_optimizer(config: Any) -> bool:
    if isinstance(config, str):
        try:
            with open(config, encoding="utf-8") as file:
                config = json.load(file)
        except (OSError, ValueError):
            return False  # the program says what is wrong with it
    return isinstance(config, Mapping) and bool(config.get("optimizer"))


def _of_accelerator(accelerator: Any) -> Dict[str, Any]:
    mixed = str(accelerator.mixed_precision)
    flags: Dict[str, Any] = {
        "gradient_accumulation_steps": int(accelerator.gradient_accumulation_steps),
        "precision": "fp32" if mixed == "no" else mixed,
    }
    plugin = getattr(getattr(accelerator, "state", None), "deepspeed_plugin", None)
    if plugin is not None:
        flags.update(engine="deepspeed", frontend="hf-trainer", ds_config=_ds_config(plugin.hf_ds_config))
    return flags


def world_cluster(world_size: int, gpu: Optional[str], per_node: Optional[int] = None) -> Optional[str]:
    """The cluster of a job that runs: NODESxGPUSxGPU. None where the GPU is not known."""
    if gpu is None:
        return None
    local = per_node or world_size
    if world_size % local != 0:
        local = world_size
    nodes = world_size // local
    return f"{nodes}x{local}x{gpu}"


__all__ = ["adapter_flags", "of_trainer", "read_run", "world_cluster"]
