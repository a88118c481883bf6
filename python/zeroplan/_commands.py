"""The calls: one for each command, the same words, the same answers."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Sequence, Type, TypeVar, Union

from . import results as r
from ._decode import Result, decode
from ._errors import InputError, Interrupted
from ._program import document
from ._words import Words, question

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._flags import FitFlags, LintFlags, Question, ReportFlags, SimulateFlags, TuneFlags

T = TypeVar("T", bound=Result)
PathLike = Union[str, "os.PathLike[str]"]


def _answer(
    kind: Type[T], command: str, flags: Dict[str, Any], files: Any = None, progress: Optional[bool] = None
) -> T:
    with Words(command) as words:
        words.add_flags(flags)
        if files is not None:
            words.add_files(files)
        try:
            found, _ = document(words.list, progress=progress)
        except InputError as error:
            raise _as_called(error) from None
        except Interrupted as stopped:
            best = stopped.result
            raise Interrupted(decode(kind, best) if isinstance(best, dict) and "schema" in best else None) from None
        return decode(kind, found)


def _as_called(error: InputError) -> InputError:
    """The path of a document that was given as a dict and went through a file is the argument's name."""
    path = Path(error.file)
    if path.parent.name.startswith("zeroplan-") and str(path.parent.parent) == tempfile.gettempdir():
        return InputError(path.stem, error.pointer, error.expected, error.got, error.hint)
    return error


def fit(
    model: Any = None,
    cluster: Any = None,
    *,
    run: Any = None,
    progress: Optional[bool] = None,
    **flags: "Unpack[FitFlags]",
) -> r.Fit:
    """Does `model` train on `cluster`, and with which ds_config.json? As `zeroplan fit`.

    model: a name or size ("qwen3-8b", "10B"), a path, a dict, a transformers configuration, or a model.
    cluster: "8xH100", "2x4xA800-80G", a path, or a dict.
    run: a Trainer, TrainingArguments, an Accelerator: what it says counts where no flag says otherwise.
    flags: those of the command line, with underscores: seq=4096, mbs=2, precision="bf16", ds_config={...}.

    Raises InputError for what cannot be used.

    >>> plan = zeroplan.fit("qwen3-8b", "8xH100", seq=4096)
    >>> plan.fits
    True
    """
    return _answer(r.Fit, "fit", question(model, cluster, run, dict(flags)), progress=progress)


def which_gpu(
    model: Any,
    clusters: Union[str, Iterable[str]] = "all",
    *,
    run: Any = None,
    progress: Optional[bool] = None,
    **flags: "Unpack[FitFlags]",
) -> r.WhichGpu:
    """Which of several clusters train `model`: the smallest, the cheapest, the fastest. As `fit --clusters`.

    tokens="1B" gives hours and cost (docs/which_gpu.md).
    """
    said = {**question(model, None, run, dict(flags)), "clusters": clusters}
    return _answer(r.WhichGpu, "fit", said, progress=progress)


def compare_versions(
    model: Any,
    cluster: Any,
    sets: Union[str, Iterable[str]] = "all",
    *,
    run: Any = None,
    progress: Optional[bool] = None,
    **flags: "Unpack[FitFlags]",
) -> r.Versions:
    """The same run under several sets of releases, and what moves it. As `fit --compare-versions`.

    sets: "DEEPSPEED/TORCH/TRANSFORMERS" each; "all": those that were tried together (docs/software.md).
    """
    listed = sets if isinstance(sets, str) else ",".join(sets)
    said = {**question(model, cluster, run, dict(flags)), "compare_versions": listed}
    return _answer(r.Versions, "fit", said, progress=progress)


def reach(
    cluster: Any,
    model: Any = None,
    *,
    goal: str = "largest-model",
    progress: Optional[bool] = None,
    **flags: "Unpack[FitFlags]",
) -> r.Reach:
    """How far `cluster` reaches: the largest model, or of `model` what `goal` says.

    goal: longest-sequence, largest-micro-batch, largest-rank, most-completions or fewest-gpus (`--solve` of the program).
    """
    said = {**question(model, cluster, None, dict(flags)), "goal": goal}
    return _answer(r.Reach, "fit", said, progress=progress)


def simulate(
    model: Any = None, cluster: Any = None, *, run: Any = None, **flags: "Unpack[SimulateFlags]"
) -> r.Simulation:
    """Memory and time of one configuration, event by event. As `zeroplan simulate`; arguments as of `fit`.

    ds_config: a path or a dict; without one ZeRO stage 3.
    """
    return _answer(r.Simulation, "simulate", question(model, cluster, run, dict(flags)))


def tune(
    model: Any = None,
    cluster: Any = None,
    *,
    run: Any = None,
    progress: Optional[bool] = None,
    **flags: "Unpack[TuneFlags]",
) -> r.Tuning:
    """The best configuration, searched. As `zeroplan tune`; arguments as of `fit`.

    fix={"stage": 3}, search={"micro_batch_size": (1, 8)} (from, to) or a list of values.
    Ctrl-C raises Interrupted, whose `result` is the best so far.
    """
    return _answer(r.Tuning, "tune", question(model, cluster, run, dict(flags)), progress=progress)


def lint(ds_config: Any, *, model: Any = None, cluster: Any = None, run: Any = None, **flags: "Unpack[LintFlags]") -> r.Lint:
    """What DeepSpeed would refuse, ignore or make slow in a ds_config.json. As `zeroplan lint`.

    ds_config: a path or a dict. gpus=8 where no cluster is given.
    """
    return _with_document(r.Lint, "lint", ds_config, question(model, cluster, run, dict(flags)))


def explain(what: Any, *, model: Any = None, cluster: Any = None, run: Any = None, **flags: "Unpack[Question]") -> r.Explanation:
    """What uses the memory of a configuration, or what an out-of-memory error was. As `zeroplan explain`.

    what: the path of a ds_config.json or of a log, a ds_config as a dict, an exception, or a log's text (more than one
    line, or with a blank).
    """
    said = question(model, cluster, run, dict(flags))
    if isinstance(what, BaseException):
        what = f"{type(what).__module__}.{type(what).__name__}: {what}\n"
    if isinstance(what, str) and ("\n" in what or (" " in what and not Path(what).exists())):
        with Words("explain") as words:
            words.add_flags(said)
            words.add_files(words.file("text", what))
            try:
                return decode(r.Explanation, document(words.list)[0])
            except InputError as error:
                raise _as_called(error) from None
    return _with_document(r.Explanation, "explain", what, said)


def _with_document(kind: Type[T], command: str, config: Any, said: Dict[str, Any]) -> T:
    """A command that takes a file, which may be given as a dict."""
    if isinstance(config, (str, os.PathLike)):
        return _answer(kind, command, said, files=config)
    with Words(command) as words:
        words.add_flags(said)
        import json

        words.add_files(words.file("ds_config.json", json.dumps(config, indent=2)))
        try:
            return decode(kind, document(words.list)[0])
        except InputError as error:
            raise _as_called(error) from None


def validate(measurements: Union[PathLike, Sequence[PathLike]], **flags: Any) -> r.Validation:
    """Predictions against measurements, one or several files of lines. As `zeroplan validate`."""
    return _answer(r.Validation, "validate", flags, files=measurements)


def watch(log: str, **flags: "Unpack[Question]") -> r.Watched:
    """How far a run is, and whether its memory grows, from its log's text. As `zeroplan watch --once`."""
    with Words("watch") as words:
        words.list.append("--once")
        words.add_flags(question(None, None, None, dict(flags)))
        words.add_files(words.file("train.log", log))
        return decode(r.Watched, document(words.list, progress=False)[0])


def report(
    model: Any = None,
    cluster: Any = None,
    *,
    run: Any = None,
    progress: Optional[bool] = None,
    **flags: "Unpack[ReportFlags]",
) -> r.Report:
    """The trade-offs with their plots; a notebook shows the page. As `zeroplan report`."""
    said = question(model, cluster, run, dict(flags))
    with Words("report") as words:
        page = words.file("report.html", "")
        words.add_flags({**said, "output": page})
        found, _ = document(words.list, progress=progress)
        html = Path(page).read_text(encoding="utf-8")
    made = decode(r.Report, found)
    object.__setattr__(made, "html", html)
    return made


def rehearse(
    command: Sequence[PathLike],
    *,
    gpu: Optional[str] = None,
    ranks: Optional[int] = None,
    cluster: Optional[str] = None,
    show: bool = True,
    **flags: Any,
) -> r.Rehearsal:
    """Runs a training program of yours on GPUs that are not there. As `zeroplan rehearse` (docs/rehearsal.md).

    command: ["python", "train.py", ...]; a first word "python" is this interpreter. show: its output goes to sys.stderr.
    """
    if isinstance(command, str):
        raise TypeError('a command is a list of words: ["python", "train.py"]')
    program: List[str] = [os.fspath(word) for word in command]
    if program and program[0] in ("python", "python3"):
        program[0] = sys.executable
    with Words("rehearse") as words:
        words.add_flags({"gpu": gpu, "ranks": ranks, "cluster": cluster, **flags})
        words.list += ["--", *program]
        found, _ = document(words.list, progress=False, keep_log=not show)
    return decode(r.Rehearsal, found)


def scenario(model: Any = None, cluster: Any = None, *, run: Any = None, **flags: "Unpack[Question]") -> Dict[str, Any]:
    """The scenario document with every default filled in. As `zeroplan scenario`."""
    with Words("scenario") as words:
        words.add_flags(question(model, cluster, run, dict(flags)))
        return document(words.list)[0]
