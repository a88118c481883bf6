"""zeroplan plans LLM training under DeepSpeed ZeRO: does it fit, how fast is a step, which ds_config.json.

>>> import zeroplan
>>> plan = zeroplan.fit("qwen3-8b", "8xH100", seq=4096)
>>> plan.fits, plan.recommended.stage
(True, 2)

The calls are the command line's commands, with its flags as keyword arguments, and return its documents as dataclasses.
"""

from __future__ import annotations

from . import _notebook as _notebook
from ._commands import (
    compare_versions,
    explain,
    fit,
    lint,
    reach,
    rehearse,
    report,
    scenario,
    simulate,
    tune,
    validate,
    which_gpu,
)
from ._errors import InputError, Interrupted, ZeroplanError
from ._program import program
from .results import (
    Candidate,
    Checkpoint,
    Explanation,
    Finding,
    Fit,
    Job,
    Lint,
    ParetoPoint,
    Reach,
    Rehearsal,
    Report,
    Simulation,
    Strategy,
    Tuning,
    Validation,
    Versions,
    WhichGpu,
)

__all__ = [
    "Candidate",
    "Checkpoint",
    "Explanation",
    "Finding",
    "Fit",
    "InputError",
    "Interrupted",
    "Job",
    "Lint",
    "ParetoPoint",
    "Reach",
    "Rehearsal",
    "Report",
    "Simulation",
    "Strategy",
    "Tuning",
    "Validation",
    "Versions",
    "WhichGpu",
    "ZeroplanError",
    "compare_versions",
    "explain",
    "fit",
    "lint",
    "program",
    "reach",
    "rehearse",
    "report",
    "scenario",
    "simulate",
    "tune",
    "validate",
    "which_gpu",
]


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("zeroplan")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
