"""The plan inside a training program of Lightning (`lightning` and `pytorch_lightning`).

>>> from zeroplan.lightning import PlanCallback
>>> trainer = L.Trainer(..., callbacks=[PlanCallback(sequence_length=4096)])
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Dict, Optional

from ._lightning import cluster_of, flags_of_trainer, loader_of, transformers_model
from ._watch import DoesNotFit, Watch, WatchingCallback, releases
from ._words import question

if TYPE_CHECKING:
    Callback = object
elif "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

__all__ = ["DoesNotFit", "PlanCallback"]


class PlanCallback(WatchingCallback, Callback):
    """Says before the first step whether this very run fits, after the third how far the prediction was off, and what
    an out-of-memory error was.

    cluster: "2x8xH100"; else the GPUs that the trainer has. sequence_length: in tokens; else that of the longest of
    512 samples. model: a name, path or configuration; else that of the transformers model within the module.
    micro_batch_size: else the data loader's. on_misfit: "warn", or "raise" to stop before the first step (DoesNotFit,
    on every rank). measurements: a file that gets a line for `zeroplan validate` and `calibrate`. Other keywords are
    flags of `zeroplan.simulate`, and count over what the run says.
    """

    def __init__(
        self,
        cluster: Optional[str] = None,
        *,
        sequence_length: Optional[int] = None,
        model: Any = None,
        on_misfit: str = "warn",
        measurements: Optional[str] = None,
        **flags: Any,
    ) -> None:
        super().__init__(cluster, sequence_length, on_misfit, measurements, flags)
        self._model = model
        self._steps = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Everything is set up, and no batch was read: predicts."""
        module = transformers_model(pl_module)
        self._steps = int(trainer.global_step)
        self.watch = Watch(
            lambda: self._flags(trainer, pl_module, module),
            pl_module,
            on_misfit=self._on_misfit,
            measurements=self._measurements,
        )
        self.watch.before()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Counts optimizer steps: with accumulation there are fewer than batches."""
        done = int(trainer.global_step)
        if self.watch is not None and done != self._steps:
            self._steps = done
            self.watch.step()

    def on_train_end(self, *_: Any) -> None:
        if self.watch is not None:
            self.watch.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Explains an out-of-memory error; Lightning raises it behind this."""
        if self.watch is not None and type(exception).__name__ == "OutOfMemoryError":
            print(self.watch.explain(exception), file=sys.stderr, flush=True)

    def _flags(self, trainer: Any, pl_module: Any, module: Any) -> Dict[str, Any]:
        model = module if self._model is None else self._model
        if model is None:
            raise TypeError(
                "the LightningModule has no model with a configuration of transformers; say PlanCallback(model=...)"
            )
        run: Dict[str, Any] = {**releases(), **flags_of_trainer(trainer), "cluster": cluster_of(trainer)}
        recomputes = bool(run.pop("recomputes", False))
        checkpoints = recomputes or bool(getattr(module, "is_gradient_checkpointing", False))
        run["activation_checkpointing"] = "full" if checkpoints else "none"
        self._add_lengths(run, loader_of(trainer))
        return question(model, None, run, self._said)
