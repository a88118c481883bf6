"""The plan inside a training loop of DeepSpeed's own: two calls.

>>> engine, *_ = deepspeed.initialize(model=model, config=ds_config)
>>> watch = zeroplan.deepspeed.watch(engine, sequence_length=4096)
>>> for batch in batches:
...     loss = engine(**batch).loss; engine.backward(loss); engine.step()
...     watch.step()
"""

from __future__ import annotations

from typing import Any, Dict, Optional

from ._runs import finite
from ._watch import DoesNotFit, Watch, releases
from ._words import question

__all__ = ["DoesNotFit", "watch"]


class _EngineWatch(Watch):
    """Counts optimizer steps: the loop may call after every micro-batch."""

    def __init__(self, engine: Any, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._engine = engine
        self._seen = int(getattr(engine, "global_steps", 0))

    def step(self) -> None:
        done = int(getattr(self._engine, "global_steps", self._seen + 1))
        if done != self._seen:
            self._seen = done
            super().step()


def watch(
    engine: Any,
    *,
    sequence_length: Optional[int] = None,
    cluster: Optional[str] = None,
    model: Any = None,
    on_misfit: str = "warn",
    measurements: Optional[str] = None,
    **flags: Any,
) -> Watch:
    """Says whether the run that `engine` is set up for fits; call step() of what it returns behind engine.step().

    sequence_length: in tokens. cluster: "2x8xH100"; else the GPUs that the job has. model: a name, path or
    configuration; else engine.module's own. on_misfit="raise" raises DoesNotFit on every rank. measurements: a file
    that gets a line for `zeroplan validate`. Other keywords are flags of `zeroplan.simulate`.
    """
    module = engine.module
    said: Dict[str, Any] = {
        **releases(),
        "frontend": "native",
        "engine": "deepspeed",
        "ds_config": dict(_configuration(engine)),
        "cluster": cluster,
        "sequence_length": sequence_length,
        **flags,
    }
    watched = _EngineWatch(
        engine,
        flags=question(module if model is None else model, None, said, {}),
        model=module,
        on_misfit=on_misfit,
        measurements=measurements,
    )
    watched.before()
    return watched


def _configuration(engine: Any) -> Dict[str, Any]:
    """The ds_config that the engine was given, with its batch keys filled."""
    given = getattr(getattr(engine, "_config", None), "_param_dict", None)
    if given is None:
        given = engine.config
    return {
        **finite(given),
        "train_micro_batch_size_per_gpu": engine.train_micro_batch_size_per_gpu(),
        "gradient_accumulation_steps": engine.gradient_accumulation_steps(),
    }
