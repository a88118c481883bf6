"""A training program that is watched: predicted before its first step, measured in its third, compared.

Used by zeroplan.transformers, zeroplan.deepspeed and zeroplan.lightning; torch is imported when it is needed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Union

from . import _commands
from . import results as r
from ._errors import InputError, ZeroplanError
from ._program import run
from ._runs import world_cluster
from ._words import Words

MEASURED_STEP = 3  # the first two make optimizer states and warm caches
FIRST_LOOK = 16  # steps after which memory is looked at for growth, then after twice as many, and so on
MOST_SAMPLES = 256  # of a run, evenly spaced: of more every other one is dropped

GIB = 1 << 30


class DoesNotFit(RuntimeError):
    """The run would not fit. `prediction` says why."""

    def __init__(self, text: str, prediction: r.Simulation) -> None:
        super().__init__(text)
        self.prediction = prediction


class Measured(NamedTuple):
    """Of the rank that needed the most, over all ranks; bytes and seconds."""

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    static_allocated_bytes: int
    parameter_bytes: int
    step_seconds: Optional[float]


def cluster_of_job() -> Optional[str]:
    """The GPUs of this job, as torch and the launcher name them; None without a GPU."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    if not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name().replace(" ", "-")
    world = int(os.environ.get("WORLD_SIZE", "1"))
    return world_cluster(world, name, int(os.environ.get("LOCAL_WORLD_SIZE", str(world))))


def rank() -> int:
    """Of this process in the job; 0 outside of one."""
    distributed = _distributed()  # not every launcher sets RANK
    if distributed is not None:
        return int(distributed.get_rank())
    return int(os.environ.get("RANK", "0"))


_MOST_SAMPLES = 512


def first_lengths(loader: Any) -> List[int]:
    """Tokens of samples, evenly spread over data with indices, as they go into the collator; empty for others."""
    dataset = getattr(loader, "dataset", None)
    if dataset is None or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return []
    count = len(dataset)
    lengths = []
    for i in range(min(count, _MOST_SAMPLES)):
        sample = dataset[i * count // min(count, _MOST_SAMPLES)]
        ids: Any = None
        if isinstance(sample, (list, tuple)):  # TensorDataset and the like
            ids = sample[0] if sample else None
        elif hasattr(sample, "get"):
            ids = sample.get("input_ids")
        try:
            lengths.append(len(ids))
        except TypeError:
            return []
    return lengths


def check_misfit(on_misfit: str) -> str:
    """Raises ValueError for what is not one of its two words."""
    if on_misfit not in ("warn", "raise"):
        raise ValueError(f'on_misfit is "warn" or "raise", not {on_misfit!r}')
    return on_misfit


def from_first_rank(make: Callable[[], Any]) -> Any:
    """What rank 0 makes, on every rank: all of them go on, or none."""
    distributed = _distributed()
    if distributed is None:
        return make()
    held: List[Any] = [None]
    if distributed.get_rank() == 0:
        try:
            held = [make()]
        except (ZeroplanError, TypeError) as error:
            held = [error]
    device = None
    if distributed.get_backend() == "nccl":
        import torch

        device = torch.device("cuda", torch.cuda.current_device())
    distributed.broadcast_object_list(held, src=0, device=device)
    if isinstance(held[0], Exception):
        raise held[0]
    return held[0]


def _distributed() -> Any:
    import torch.distributed as distributed  # type: ignore[import-not-found,unused-ignore]

    ready = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    return distributed if ready else None


def _largest(values: List[float]) -> List[float]:
    """Elementwise over all ranks."""
    distributed = _distributed()
    if distributed is None:
        return values
    import torch

    on = torch.device("cuda", torch.cuda.current_device()) if distributed.get_backend() == "nccl" else None
    tensor = torch.tensor(values, dtype=torch.float64, device=on)
    distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX)
    return [float(value) for value in tensor.tolist()]


def releases() -> Dict[str, Any]:
    """The releases that run here, as flags."""
    from importlib import metadata

    found = {}
    for package in ("torch", "transformers", "deepspeed"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def bytes_of_parameters(model: Any) -> int:
    """Of the weights that this rank's GPU holds between steps; of a weight that ZeRO-3 shards its part."""
    total, seen = 0, set()
    for parameter in model.parameters():
        tensor = getattr(parameter, "ds_tensor", parameter)
        if tensor.device.type != "cuda" or id(tensor) in seen:
            continue
        seen.add(id(tensor))
        total += tensor.numel() * tensor.element_size()
    return total


def _gib(count: float) -> str:
    return f"{count / GIB:.2f} GiB"


def _condition(step: r.Simulation) -> str:
    if step.host_condition is None:
        return ""
    return f", if a node has {_gib(step.host_condition.enough_bytes)} of host memory"


class Steps:
    """What this rank held between steps, evenly spaced over the run, as lines that `zeroplan watch` reads."""

    def __init__(self, total: Optional[int]) -> None:
        self._total = total
        self._stride = 1
        self._samples: List[Dict[str, Any]] = []
        self._last: Optional[float] = None

    def add(self, step: int) -> bool:
        """Whether there is something to measure. From the first step on: how many there are says what lies between."""
        import torch

        if not torch.cuda.is_available():
            return False
        if step % self._stride != 0:
            return True
        now = time.perf_counter()
        sample: Dict[str, Any] = {"zeroplan_step": step}
        if self._total is not None:
            sample["steps"] = self._total
        sample["allocated_bytes"] = torch.cuda.memory_allocated()
        sample["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
        sample["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
        if self._last is not None:
            sample["seconds"] = (now - self._last) / self._stride
        self._last = now
        self._samples.append(sample)
        if len(self._samples) > MOST_SAMPLES:
            self._stride *= 2
            self._samples = [one for one in self._samples if one["zeroplan_step"] % self._stride == 0]
        return True

    def seconds(self) -> Optional[float]:
        """Of a step, the median."""
        times = sorted(one["seconds"] for one in self._samples if "seconds" in one)
        return times[len(times) // 2] if times else None

    def text(self) -> str:
        return "".join(json.dumps(one) + "\n" for one in self._samples)


class Watch:
    """One run. `before()` predicts, `step()` after every optimizer step measures and compares, `end()` sums up."""

    def __init__(
        self,
        flags: Union[Dict[str, Any], Callable[[], Dict[str, Any]]],
        model: Any,
        *,
        on_misfit: str = "warn",
        measurements: Optional[str] = None,
        total_steps: Optional[int] = None,
        say: Optional[Callable[[str], None]] = None,
    ) -> None:
        check_misfit(on_misfit)
        self.flags: Dict[str, Any] = {} if callable(flags) else flags
        self._read = flags if callable(flags) else None
        self.prediction: Optional[r.Simulation] = None
        self.measured: Optional[Measured] = None
        self._model = model
        self._on_misfit = on_misfit
        self._measurements = measurements
        self._say = say if say is not None else lambda text: print(text, file=sys.stderr, flush=True)
        self._steps = 0
        self._began: Optional[float] = None
        self._lines = Steps(total_steps)
        self._growth: Optional[r.MemoryGrowth] = None
        self._id = f"watched-{int(time.time())}"

    def before(self) -> Optional[r.Simulation]:
        """Says whether this run fits and what its peak will be. Raises DoesNotFit where that is wanted.

        What cannot be planned is said, and the training goes on: None.
        """
        if self._read is not None:
            try:
                self.flags = self._read()
            except TypeError as error:
                self._tell(f"zeroplan: this run is not predicted: {error}")
                return None
        if self.flags.get("cluster") is None:
            self.flags["cluster"] = cluster_of_job()
        if self.flags["cluster"] is None:
            self._tell('zeroplan: no GPU here, so nothing is predicted; say cluster="8xH100" to predict for one')
            return None
        try:
            step: r.Simulation = from_first_rank(lambda: _commands.simulate(**self.flags))
        except (InputError, ZeroplanError) as error:
            self._tell(f"zeroplan: this run is not predicted: {error}")
            return None
        self.prediction = step
        text = (
            f"zeroplan: {'fits' if step.fits else 'DOES NOT FIT'}{_condition(step)} with probability {step.probability:.3f} on "
            f"{self.flags['cluster']}: peak {_gib(step.gpu.peak_total_bytes)} of {_gib(step.gpu.capacity_bytes)} in "
            f"{step.gpu.peak_phase} (allocated {_gib(step.gpu.peak_allocated_bytes)}), {step.step.seconds:.3g} s a step"
        )
        for limit in step.limits:
            text += f"\n  {limit.resource}: needs {_gib(limit.needed_bytes)} and a margin of {_gib(limit.margin_bytes)}, has {_gib(limit.available_bytes)}; the largest part: {limit.largest_term}"
            if limit.cheapest_change:
                text += f"; try: {limit.cheapest_change}"
        self._tell(text)
        if not step.fits and self._on_misfit == "raise":
            raise DoesNotFit(text, step)
        return step

    def step_begins(self) -> None:
        """Before an optimizer step, where the program has such a place."""
        if self._steps + 1 == MEASURED_STEP:
            self._synchronize()
            self._began = time.perf_counter()

    def step(self) -> None:
        """After every optimizer step; in the third it measures, compares, and appends the line.

        From then on it keeps what is held between steps, and says where that grows until the GPU is full.
        """
        self._steps += 1
        if rank() == 0 and self._lines.add(self._steps):
            if self._steps >= FIRST_LOOK and self._steps & (self._steps - 1) == 0:
                self._look_for_growth()
        if self._steps == MEASURED_STEP - 1 and self._began is None:
            self._synchronize()
            self._began = time.perf_counter()
        if self._steps != MEASURED_STEP:
            return
        self.measured = self._measure()
        if self.measured is None or rank() != 0:
            return
        if self.prediction is not None:
            self._tell(self._comparison(self.prediction, self.measured))
        if self._read is not None and not self.flags:
            return  # what runs is not known, and was said so
        if self._measurements is not None and self._lengths_vary():
            self._tell("zeroplan: no measurement is kept: lengths vary, and three steps show few of them")
        elif self._measurements is not None:
            self._append(self._measurements)

    def end(self) -> None:
        """Behind the last step, on every rank: the whole run beside its prediction, and its line for `validate`."""
        if self.measured is None or self._steps < FIRST_LOOK:
            return  # what was said after three steps is all there is
        whole = self._measure()
        if whole is None or rank() != 0:
            return
        self.measured = whole._replace(
            static_allocated_bytes=self.measured.static_allocated_bytes, step_seconds=self._lines.seconds()
        )
        self._look_for_growth()
        if self.prediction is not None:
            self._tell(f"zeroplan: after {self._steps} steps, " + self._peaks(self.prediction, self.measured))
        if self._measurements is not None and self.flags:
            self._append(self._measurements, f"the whole run, {self._steps} steps")

    def _look_for_growth(self) -> None:
        """As `zeroplan watch` sees it."""
        if self._read is not None and not self.flags:
            return
        try:
            growth = _commands.watch(self._lines.text(), **self.flags).growth
        except (InputError, ZeroplanError) as error:
            self._tell(f"zeroplan: growth of memory is not looked for: {error}")
            return
        known, self._growth = self._growth, growth
        if growth is None or (known is not None and abs(growth.bytes_a_step / known.bytes_a_step - 1) < 0.1):
            return
        text = f"zeroplan: memory grows by {growth.bytes_a_step / (1 << 20):.2f} MiB a step"
        self._tell(text if growth.full_at_step is None else f"{text}: the GPU is full at step {growth.full_at_step}")

    def explain(self, error: BaseException) -> str:
        """What an out-of-memory error was, as `zeroplan explain` says it with what is known of this run."""
        from ._words import question

        flags = question(self.flags.get("model"), self.flags.get("cluster"), None, self.flags)
        with Words("explain") as words:
            words.add_flags(flags)
            path = words.file("error.txt", f"{type(error).__module__}.{type(error).__name__}: {error}\n")
            words.add_files(path)
            ended = run(words.list, progress=False)
        return (ended.out or ended.log).replace(f"{path}: line 1: ", "")  # nobody else sees that file

    # --- measuring

    def _lengths_vary(self) -> bool:
        dataset = self.flags.get("dataset")
        return "lengths" in self.flags or (isinstance(dataset, dict) and "lengths" in dataset)

    def _tell(self, text: str) -> None:
        if rank() == 0:
            self._say(text)

    @staticmethod
    def _synchronize() -> None:
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def _measure(self) -> Optional[Measured]:
        import torch

        if not torch.cuda.is_available():
            return None
        self._synchronize()
        seconds = 0.0 if self._began is None else time.perf_counter() - self._began
        values = _largest(
            [
                float(torch.cuda.max_memory_allocated()),
                float(torch.cuda.max_memory_reserved()),
                float(torch.cuda.memory_allocated()),
                float(bytes_of_parameters(self._model)),
                seconds,
            ]
        )
        whole = [int(value) for value in values[:4]]
        return Measured(whole[0], whole[1], whole[2], whole[3], values[4] or None)

    def _comparison(self, predicted: r.Simulation, measured: Measured) -> str:
        gpu = predicted.gpu
        keeps = ", gradients" if self.flags.get("gradients_held") else ""
        parts = [
            ("peak allocated", gpu.peak_allocated_bytes, measured.peak_allocated_bytes),
            ("peak reserved", gpu.peak_reserved_bytes, measured.peak_reserved_bytes),
            (
                f"held between steps (weights, optimizer{keeps})",
                gpu.static_allocated_bytes,
                measured.static_allocated_bytes,
            ),
            (
                "beyond that at the peak (activations, gradients, buffers)",
                gpu.peak_allocated_bytes - gpu.static_allocated_bytes,
                measured.peak_allocated_bytes - measured.static_allocated_bytes,
            ),
        ]
        lines = ["zeroplan: after three steps, predicted and measured:"]
        off: List[Any] = []
        for name, before, after in parts:
            lines.append(f"  {name}: {_gib(before)}, {_gib(after)}{_error(before, after)}")
            off.append((abs(before - after), name))
        if measured.step_seconds is not None:
            before_s = predicted.step.seconds
            lines.append(f"  a step: {before_s:.3g} s, {measured.step_seconds:.3g} s{_error(before_s, measured.step_seconds)}")
        if self._lengths_vary():
            lines.append("  lengths vary: the longest micro-batches, of which the predicted peaks are, may come later")
            return "\n".join(lines)
        difference, name = max(off[2:])
        if difference > 0.05 * measured.peak_allocated_bytes:
            lines.append(f"  what is off: {name}")
        return "\n".join(lines)

    @staticmethod
    def _peaks(predicted: r.Simulation, measured: Measured) -> str:
        gpu = predicted.gpu
        parts = [
            f"{name} {_gib(after)}, predicted {_gib(before)}{_error(before, after)}"
            for name, before, after in (
                ("peak allocated", gpu.peak_allocated_bytes, measured.peak_allocated_bytes),
                ("reserved", gpu.peak_reserved_bytes, measured.peak_reserved_bytes),
            )
        ]
        if measured.step_seconds is not None:
            before = predicted.step.seconds
            error = _error(before, measured.step_seconds)
            parts.append(f"a step {measured.step_seconds:.3g} s, predicted {before:.3g} s{error}")
        return "; ".join(parts)

    def _append(self, path: str, notes: Optional[str] = None) -> None:
        assert self.measured is not None
        try:
            scenario = _commands.scenario(**self.flags)
        except (InputError, ZeroplanError) as error:
            self._tell(f"zeroplan: no measurement is kept: {error}")
            return
        values: Dict[str, Any] = {
            "peak_allocated_bytes": self.measured.peak_allocated_bytes,
            "peak_reserved_bytes": self.measured.peak_reserved_bytes,
            "static_allocated_bytes": self.measured.static_allocated_bytes,
            "fits": True,
        }
        if self.measured.step_seconds is not None:
            values["step_seconds"] = self.measured.step_seconds
        line = {"id": self._id, "source": "watched", "scenario": scenario, "measured": values}
        if notes is not None:
            line["notes"] = notes
        # One write of a whole line: several runs may append to one file.
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _error(predicted: float, measured: float) -> str:
    return "" if measured <= 0 else f" ({100 * (predicted - measured) / measured:+.1f} %)"


class WatchingCallback:
    """What the callbacks of the Trainer and of Lightning share: what was said, and the run that is watched."""

    def __init__(
        self,
        cluster: Optional[str],
        sequence_length: Optional[int],
        on_misfit: str,
        measurements: Optional[str],
        flags: Dict[str, Any],
    ) -> None:
        self.watch: Optional[Watch] = None
        """The watched run, once it has begun: `prediction`, `measured`."""
        self._said = {**flags, "cluster": cluster, "sequence_length": sequence_length}
        self._on_misfit = check_misfit(on_misfit)
        self._measurements = measurements

    def explain(self, error: BaseException) -> str:
        """What an out-of-memory error was: for programs that catch it, and notebooks."""
        if self.watch is None:
            raise ValueError("the training has not begun")
        return self.watch.explain(error)

    def _add_lengths(self, run: Dict[str, Any], loader: Any) -> None:
        """Of the loader's samples, where neither the run nor the caller says other ones."""
        lengths = first_lengths(loader)
        if lengths and run.get("sequence_length") is None:
            run["sequence_length"] = max(lengths)
        if len(set(lengths)) > 1 and "lengths" not in self._said:
            run.setdefault("dataset", {"samples": len(loader.dataset), "lengths": lengths, "padding": "longest"})
