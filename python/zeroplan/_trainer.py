"""A plan as keyword arguments of transformers.TrainingArguments: what the kit's train.py passes (configs/kit)."""

from __future__ import annotations

import copy
from typing import Any, Dict

# Where ds_config.json names no optimizer. Adam is the Trainer's default.
_OPTIM = {"lion": "lion_32bit", "adafactor": "adafactor", "sgd": "sgd", "adamw8bit": "adamw_bnb_8bit"}


def training_arguments(document: Dict[str, Any]) -> Dict[str, Any]:
    """Of a strategy's or candidate's document. Raises ValueError where the Trainer has no argument for it."""
    work = document["workload"]
    config = document.get("ds_config")
    if work.get("frontend", "hf-trainer") != "hf-trainer":
        raise ValueError("the plan is for a loop of its own (frontend native), not for the Trainer")
    if any(work.get(degree) not in (None, 1) for degree in ("pipeline_parallel", "tensor_parallel", "sequence_parallel")):
        raise ValueError("the Trainer's arguments know no pipeline, tensor or sequence ranks")
    precision = work.get("precision")
    arguments: Dict[str, Any] = {
        "per_device_train_batch_size": work["micro_batch_size"],
        "gradient_accumulation_steps": work["gradient_accumulation_steps"],
        "bf16": precision == "bf16",
        "fp16": precision == "fp16",
        "gradient_checkpointing": work.get("activation_checkpointing", "none") != "none",
    }
    if arguments["gradient_checkpointing"]:
        arguments["gradient_checkpointing_kwargs"] = {"use_reentrant": bool(work.get("checkpoint_reentrant"))}
    if work.get("engine", "deepspeed") == "deepspeed" and config is not None:
        arguments["deepspeed"] = copy.deepcopy(config)
    optimizer = work.get("optimizer", "adamw")
    if optimizer in _OPTIM and not (config or {}).get("optimizer"):
        arguments["optim"] = _OPTIM[optimizer]
    if work.get("fused_loss"):
        arguments["use_liger_kernel"] = True
    return arguments
