"""The plan inside a training program of transformers.

>>> from zeroplan.transformers import PlanCallback
>>> trainer = Trainer(..., callbacks=[PlanCallback()])
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Dict, Optional

from ._runs import read_run
from ._watch import DoesNotFit, Watch, WatchingCallback, releases
from ._words import question

if TYPE_CHECKING:
    TrainerCallback = object
else:
    from transformers import TrainerCallback

__all__ = ["DoesNotFit", "PlanCallback"]


class PlanCallback(WatchingCallback, TrainerCallback):
    """Says before the first step whether this very run fits, after the third how far the prediction was off, and what
    an out-of-memory error was.

    cluster: "2x8xH100"; else the GPUs that the job has. sequence_length: in tokens; else max_length of TRL's
    arguments, else the length of the longest of 512 samples. Where these differ in length, the prediction is of
    micro-batches padded to their longest sample. on_misfit: "warn", or "raise" to stop before the first step
    (DoesNotFit, on every rank). measurements: a file that gets a line for `zeroplan validate` and `calibrate`. Other
    keywords are flags of `zeroplan.simulate`, and count over what the run says.
    """

    def __init__(
        self,
        cluster: Optional[str] = None,
        *,
        sequence_length: Optional[int] = None,
        on_misfit: str = "warn",
        measurements: Optional[str] = None,
        **flags: Any,
    ) -> None:
        super().__init__(cluster, sequence_length, on_misfit, measurements, flags)
        self._hook: Optional[_Hook] = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = kwargs.get("model")
        flags = self._flags(args, model, kwargs.get("train_dataloader"))
        self.watch = Watch(
            flags,
            model,
            on_misfit=self._on_misfit,
            measurements=self._measurements,
            total_steps=int(getattr(state, "max_steps", 0)) or None,
        )
        self.watch.before()
        self._explain_what_ends_the_program()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.watch is not None:
            self.watch.step_begins()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.watch is not None:
            self.watch.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.watch is not None:
            self.watch.end()
        if self._hook is not None and sys.excepthook is self._hook:
            sys.excepthook = self._hook.before
        self._hook = None

    def _flags(self, args: Any, model: Any, loader: Any) -> Dict[str, Any]:
        run = read_run(args)
        self._add_lengths(run, loader)
        return question(model, None, {**releases(), **run}, self._said)

    def _explain_what_ends_the_program(self) -> None:
        """A callback hears of no exception; what nobody catches passes here."""
        if self.watch is not None:
            self._hook = _Hook(self.watch)
            sys.excepthook = self._hook


class _Hook:
    """sys.excepthook that explains, behind the one that was there before."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.before = sys.excepthook

    def __call__(self, kind: Any, error: BaseException, trace: Any) -> None:
        self.before(kind, error, trace)
        if kind.__name__ == "OutOfMemoryError":
            print(self._watch.explain(error), file=sys.stderr, flush=True)

