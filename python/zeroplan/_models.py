"""What users have of a model, as the command line takes it: a name, a size, a path, or its configuration."""

from __future__ import annotations

import os
from typing import Any, Dict, NamedTuple

# Keys of a saved configuration that say where it came from and how it was loaded, and nothing of the model.
_OF_LOADING = ("_name_or_path", "transformers_version", "quantization_config")


class Model(NamedTuple):
    """A model, and what its object says of the training (an adapter's rank, an attention implementation)."""

    value: Any
    flags: Dict[str, Any]


def model_of(model: Any) -> Model:
    """Takes a name or size ("qwen3-8b", "10B"), a path, a dict, a transformers configuration, or a model.

    Raises TypeError for anything else.
    """
    if isinstance(model, (str, os.PathLike)):
        return Model(os.fspath(model), {})
    if isinstance(model, dict):
        return Model(model, {})
    flags: Dict[str, Any] = {}
    adapters = getattr(model, "peft_config", None)
    if isinstance(adapters, dict) and adapters:
        flags.update(adapter_flags(next(iter(adapters.values()))))
        base = getattr(model, "get_base_model", None)
        if callable(base):
            model = base()
    config = getattr(model, "config", model)  # a model has one, a configuration is one
    if isinstance(config, dict):
        return Model(config, flags)
    if not callable(getattr(config, "to_dict", None)):
        raise TypeError(
            "a model is a name or size, a path, a dict, a transformers configuration or a model with one; "
            f"this is a {type(model).__module__}.{type(model).__qualname__}"
        )
    attention = getattr(config, "_attn_implementation", None)
    if attention in _ATTENTION:
        flags["attention"] = _ATTENTION[attention]
    return Model(_plain(config.to_dict()), flags)


_ATTENTION = {"eager": "eager", "sdpa": "sdpa", "flash_attention_2": "flash"}


def adapter_flags(adapter: Any) -> Dict[str, Any]:
    """The flag `method` of a LoRA configuration of peft. Raises TypeError for other adapters."""
    rank = getattr(adapter, "r", None)
    if rank is None:
        kind = getattr(adapter, "peft_type", type(adapter).__name__)
        raise TypeError(f"of peft's adapters LoRA is planned; this is {getattr(kind, 'value', kind)}")
    lora: Dict[str, Any] = {"rank": int(rank)}
    targets = getattr(adapter, "target_modules", None)
    if isinstance(targets, (list, tuple, set, frozenset)) and targets:
        lora["targets"] = sorted(str(target) for target in targets)
    return {"method": {"lora": lora}}


def _plain(config: Dict[str, Any]) -> Dict[str, Any]:
    """What JSON takes of a configuration: dtypes are named, what only says how it was loaded goes."""
    kept = {key: _json(value) for key, value in config.items() if key not in _OF_LOADING}
    return {key: value for key, value in kept.items() if not key.startswith("_")}


def _json(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): _json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(_json(one) for one in value)
    if callable(getattr(value, "to_dict", None)):
        return _json(value.to_dict())
    text = str(value)  # torch.bfloat16 is "torch.bfloat16", as config.json has it without its module
    return text[len("torch.") :] if text.startswith("torch.") else text
