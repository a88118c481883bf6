"""Results as tables: HTML for notebooks, text for print(), rows for pandas. Nothing is loaded from any network."""

from __future__ import annotations

import html
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from . import results as r
from ._decode import shown_by

GIB = 1 << 30

# The page's colours of categories (Okabe and Ito; configs/report/plots.js), which people with colour blindness can
# tell apart.
_CATEGORIES = {
    "parameters": ("parameters", "#0072b2"),
    "gradients": ("gradients", "#56b4e9"),
    "optimizer_states": ("optimizer states", "#009e73"),
    "activations": ("activations", "#e69f00"),
    "logits": ("logits", "#f0e442"),
    "communication_buffers": ("communication buffers", "#cc79a7"),
    "temporaries": ("temporaries", "#d55e00"),
    "cuda_context": ("CUDA context and NCCL", "#999999"),
    "fragmentation": ("fragmentation", "#555555"),
}


class _Table(NamedTuple):
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def _gib(count: Optional[float]) -> str:
    return "" if count is None else f"{count / GIB:.1f} GiB"


def _number(value: Optional[float], digits: int = 4) -> str:
    return "" if value is None else f"{value:.{digits}g}" if value < 10**digits else f"{value:,.0f}"


def _escaped_table(table: _Table) -> str:
    head = "".join(f"<th style='text-align:left'>{html.escape(column)}</th>" for column in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return (
        f"<table><caption style='text-align:left;caption-side:top'>{html.escape(table.caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _plain_table(table: _Table) -> str:
    """Columns side by side, the last one as long as it is."""
    rows = [[str(cell) for cell in row] for row in table.rows]
    if any(table.columns):
        rows.insert(0, list(table.columns))
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(len(table.columns))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([table.caption, *(f"  {line}" for line in lines)])


# --- one function a kind of result


def _bar(step: r.Simulation) -> str:
    """Memory at the peak, stacked by category; the whole width is the GPU, or the need where that is larger."""
    gpu = step.gpu
    whole = max(gpu.capacity_bytes, gpu.peak_total_bytes, 1)
    parts, words = [], []
    for key, (name, colour) in _CATEGORIES.items():
        count = gpu.breakdown_at_peak.get(key, 0)
        if count <= 0:
            continue
        label = f"{name} {_gib(count)}"
        parts.append(
            f"<div title='{html.escape(label)}' style='background:{colour};height:18px;width:{100 * count / whole:.3f}%'></div>"
        )
        words.append(f"<span style='white-space:nowrap'><span style='color:{colour}'>&#9632;</span> {html.escape(label)}</span>")
    described = html.escape(f"GPU memory at the peak: {_gib(gpu.peak_total_bytes)} of {_gib(gpu.capacity_bytes)}")
    return (
        f"<div role='img' aria-label='{described}' style='display:flex;max-width:720px;border:1px solid #888'>{''.join(parts)}</div>"
        f"<div style='max-width:720px'>{described}: {' '.join(words)}</div>"
    )


def _simulation(step: r.Simulation) -> List[_Table]:
    verdict = "fits" if step.fits else "does not fit"
    interval = step.intervals.peak_total_bytes
    rows: List[Sequence[Any]] = [
        ("probability that it fits", f"{step.fit_probability:.3f}"),
        ("GPU memory at the peak", f"{_gib(step.gpu.peak_total_bytes)} of {_gib(step.gpu.capacity_bytes)}, in {step.gpu.peak_phase}"),
        ("allocated, reserved", f"{_gib(step.gpu.peak_allocated_bytes)}, {_gib(step.gpu.peak_reserved_bytes)}"),
        ("host memory of a node", _gib(step.host.peak_bytes)),
        ("time of a step", f"{_number(step.step.seconds)} s, bound by {step.step.bound}"),
        ("speed", f"{_number(step.step.tokens_per_second_per_gpu)} tokens/s per GPU, {100 * step.step.mfu:.0f} % of the peak"),
    ]
    if interval is not None:
        rows.insert(2, ("90 % interval", f"{_gib(interval[0])} to {_gib(interval[1])}"))
    return [_Table(verdict, ("", ""), rows)]


def _strategy_row(row: Any) -> Sequence[Any]:
    return (
        f"ZeRO-{row.stage}",
        row.offload_optimizer,
        row.offload_param,
        row.activation_checkpointing,
        f"{row.micro_batch_size} x {row.gradient_accumulation_steps}",
        "yes" if row.fits else "no",
        f"{row.probability:.3f}",
        _gib(row.result.gpu.peak_total_bytes),
        _gib(row.result.host.peak_bytes),
        _number(row.result.step.tokens_per_second_per_gpu),
    )


_STRATEGY_COLUMNS = (
    "stage",
    "optimizer offload",
    "parameter offload",
    "checkpointing",
    "batch",
    "fits",
    "probability",
    "GPU memory",
    "host memory of a node",
    "tokens/s per GPU",
)


def _fit(fit: r.Fit) -> List[_Table]:
    best = fit.recommended
    caption = "nothing fits" if best is None else (
        f"fits: ZeRO-{best.stage}, micro-batch {best.micro_batch_size} x {best.gradient_accumulation_steps}, "
        f"probability {best.probability:.3f}"
    )
    tables = [_Table(caption, _STRATEGY_COLUMNS, [_strategy_row(row) for row in fit.strategies])]
    changes = [(remedy.change, _gib(remedy.result.gpu.peak_total_bytes) if remedy.result else "") for remedy in fit.remedies]
    if best is None and changes:
        tables.append(_Table("", ("what makes it fit", "GPU memory"), changes))
    return tables


def _tuning(found: r.Tuning) -> List[_Table]:
    if found.best is None:
        rows: List[Sequence[Any]] = [(one.get("reason", ""), one.get("count", "")) for one in found.tally]
        return [_Table("nothing fits", ("why not", "points"), rows)]
    caption = f"the best of {found.evaluated} simulations" + ("" if found.optimal else ", not proven to be the optimum")
    return [_Table(caption, ("", ""), sorted(found.best.workload.items())), *_simulation(found.best.result)]


def _lint(found: r.Lint) -> List[_Table]:
    rows = [(one.severity, one.pointer or "/", one.line or "", one.message, one.fix, one.code) for one in found.findings]
    return [_Table(f"{len(rows)} findings", ("severity", "key", "line", "finding", "fix", "code"), rows)]


def _report(report: r.Report) -> str:
    if not report.html:
        return ""
    # The page's own policy refuses every request; the frame may run its script and nothing else.
    return (
        f"<iframe srcdoc=\"{html.escape(report.html, quote=True)}\" sandbox='allow-scripts' title='zeroplan report' "
        "style='width:100%;height:900px;border:0'></iframe>"
    )


def _document(result: Any) -> List[_Table]:
    """Any other result: its plain values."""
    rows = [(key, value) for key, value in result.to_dict().items() if not isinstance(value, (dict, list))]
    return [_Table(type(result).__name__, ("", ""), rows)]


_TABLES: Dict[type, Callable[[Any], List[_Table]]] = {
    r.Simulation: _simulation,
    r.Fit: _fit,
    r.Tuning: _tuning,
    r.Lint: _lint,
}


def _tables_of(result: Any) -> List[_Table]:
    return _TABLES.get(type(result), _document)(result)


def _shown_step(result: Any) -> Optional[r.Simulation]:
    """Whose memory is drawn as a bar."""
    if isinstance(result, r.Fit):
        return None if result.recommended is None else result.recommended.result
    if isinstance(result, r.Tuning):
        return None if result.best is None else result.best.result
    return result if isinstance(result, r.Simulation) else None


def html_of(result: Any) -> str:
    """What a notebook shows."""
    if isinstance(result, r.Report):
        return _report(result)
    step = _shown_step(result)
    return "".join(_escaped_table(table) for table in _tables_of(result)) + ("" if step is None else _bar(step))


def text_of(result: Any) -> str:
    """What print() shows."""
    return "\n".join(_plain_table(table) for table in _tables_of(result))


# --- pandas

_ROWS: Dict[type, str] = {
    r.Fit: "strategies",
    r.WhichGpu: "clusters",
    r.Versions: "sets",
    r.Tuning: "pareto",
    r.Lint: "findings",
    r.Validation: "rows",
    r.Report: "trade_offs",
    r.Explanation: "moves",
    r.Rehearsal: "phases",
}


def frame_of(result: Any) -> Any:
    """The rows that a result has, nested objects as columns with dots; a result without rows is one row."""
    try:
        import pandas  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise ImportError("df() needs pandas: pip install pandas; to_dict() needs nothing") from error
    document = result.to_dict()
    rows = document.get(_ROWS.get(type(result), "")) if type(result) in _ROWS else [document]
    return pandas.json_normalize(rows or [])


shown_by(text=text_of, html=html_of, frame=frame_of)
