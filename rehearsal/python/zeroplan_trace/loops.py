"""Loops of a recorded class: what a block does for one expert after the other stands once, with how often it runs.

Numbers of tensors that go on from pass to pass are {"at": of the first pass, "step": n}, names that count {"text": "experts.{}", "at": of the first pass}.
Lists in which such numbers or rows follow each other have one row, with "repeat".
"""

import itertools
import operator
import re

from .problem import Problem

_FEWEST, _SHORTEST = 4, 6  # passes, and events of one
_DIGITS = re.compile(r"\d+")
_NUMBERS = ("in", "out", "saves", "drop")  # lists of an event that are of tensors


def folded_loops(document):
    """The document with the loops of its blocks and the modules that they run standing once."""
    blocks = [_folded_block(block) for block in document["blocks"]]
    if all(own is block for own, block in zip(blocks, document["blocks"])):
        return document
    return dict(document, blocks=blocks, modules=_folded_modules(document["modules"]))


def _folded_block(block):
    loop = _loop(block["events"], block["tensors"])
    if loop is None:
        return block
    begin, period, count = loop
    events = block["events"]
    passes = [events[begin + i * period:begin + (i + 1) * period] for i in range(count)]
    body = [_one_of(list(same)) for same in zip(*passes)]
    around = [[_with_ranges(event) for event in part] for part in (events[:begin], events[begin + count * period:])]
    return dict(block, events=around[0] + [{"repeat": count, "events": body}] + around[1], tensors=_folded_rows(block["tensors"], "tensors"))


def _loop(events, tensors):
    """(its first event, events of a pass, passes) of the longest loop in a list of events; None: there is none."""
    signs = {}
    marks = [signs.setdefault(_sign(event, tensors), len(signs)) for event in events]
    best = None
    for period in range(_SHORTEST, len(marks) // _FEWEST + 1):
        at = 0
        for same, group in itertools.groupby(map(operator.eq, marks, marks[period:])):
            length = sum(1 for _ in group)
            if same and length >= (_FEWEST - 1) * period and (best is None or length + period > best[0]):
                if (found := _passes(events, at, period, length // period + 1)) is not None:
                    best = (length + period, *found)
            at += length
    return best and best[1:]


def _passes(events, begin, period, count):
    """The loop without first passes that are another than those that follow; None where too few are left."""
    while count >= _FEWEST:
        try:
            for j in range(period):
                _one_of([events[begin + i * period + j] for i in range(count)])
            return begin, period, count
        except Problem:
            begin, count = begin + period, count - 1
    return None


def _sign(event, tensors):
    """What an event does, whichever tensors it has."""
    made = [(tensors[number]["dtype"], str(tensors[number]["shape"])) for number in event.get("out", ())]
    return _DIGITS.sub("#", repr(event)) + repr(made)


def _one_of(values):
    """One value for those of all passes; a Problem where they do not go on alike."""
    first = values[0]
    if all(value == first and type(value) is type(first) for value in values):
        return first
    if isinstance(first, dict) and all(value.keys() == first.keys() for value in values):
        return {key: _one_of([value[key] for value in values]) for key in first}
    if isinstance(first, list) and all(len(value) == len(first) for value in values):
        return [_one_of(list(same)) for same in zip(*values)]
    if isinstance(first, int) and not isinstance(first, bool):
        step = values[1] - first
        if step and all(value == first + i * step for i, value in enumerate(values)):
            return {"at": first, "step": step}
    if isinstance(first, str):
        parts = [_DIGITS.findall(value) for value in values]
        moving = [i for i, same in enumerate(zip(*parts)) if len(set(same)) > 1]
        if len(moving) == 1 and all(int(part[moving[0]]) == int(parts[0][moving[0]]) + i for i, part in enumerate(parts)):
            at = list(_DIGITS.finditer(first))[moving[0]]
            text = first[:at.start()] + "{}" + first[at.end():]
            if all(value == text.replace("{}", part[moving[0]]) for value, part in zip(values, parts)):
                return {"text": text, "at": int(parts[0][moving[0]])}
    raise Problem("passes of a loop that go on alike", str(values[:3]), "")


def _with_ranges(event):
    """An event around a loop: of numbers that follow each other, of what each pass takes, stand the first and how many."""
    found = {}
    for key in _NUMBERS:
        if len(event.get(key, ())) > _FEWEST:
            found[key] = _ranges(event[key])
    return dict(event, **found)


def _ranges(numbers):
    rows, at = [], 0
    while at < len(numbers):
        end = at + 1
        while end < len(numbers) and isinstance(numbers[at], int) and numbers[end] == numbers[end - 1] + 1:
            end += 1
        rows += [{"repeat": end - at, "at": numbers[at], "step": 1}] if end - at > _FEWEST else numbers[at:end]
        at = end
    return rows


def _folded_rows(rows, name):
    """A list of rows in which those that repeat stand once."""
    marks = [_DIGITS.sub("#", repr(row)) for row in rows]
    result, at = [], 0
    while at < len(rows):
        found = _rows_from(rows, marks, at)
        if found is None:
            result.append(rows[at])
            at += 1
        else:
            period, count, body = found
            result.append({"repeat": count, name: body})
            at += period * count
    return result


def _rows_from(rows, marks, at):
    """(rows of a pass, passes, one of them) of what repeats from there on; None where nothing does."""
    mark = marks[at]
    for other in range(at + 1, len(marks)):
        period = other - at
        if at + period * (_FEWEST + 1) > len(marks):
            return None
        if marks[other] != mark or marks[at:other] != marks[other:other + period]:
            continue
        count = 2
        while marks[at:other] == marks[at + count * period:at + (count + 1) * period]:
            count += 1
        while count > _FEWEST:
            try:
                return period, count, [_one_of([rows[at + i * period + j] for i in range(count)]) for j in range(period)]
            except Problem:
                count -= 1
    return None


def _folded_modules(rows):
    """The modules of a document, those of a list within a layer once: named as the first, what is in it behind that."""
    lists = [row["name"] for row in rows if row["type"] == "ModuleList"]
    within = [name for name in lists if any(name.startswith(other + ".") for other in lists)]
    result, at = [], 0
    while at < len(rows):
        own = next((name for name in within if rows[at]["name"] == name + ".0"), None)
        parts = _children(rows, at, own) if own else []
        if len(parts) > _FEWEST and all(part == parts[0] for part in parts):
            result.append({"name": own + ".0", "type": rows[at]["type"], "repeat": len(parts), "modules": parts[0]})
            at += sum(map(len, parts))
        else:
            result.append(rows[at])
            at += 1
    return result


def _children(rows, at, own):
    """The modules of each entry of that list, the first of which begins there, by their names behind its own."""
    parts = []
    while at < len(rows) and rows[at]["name"] == "%s.%d" % (own, len(parts)):
        stem = rows[at]["name"]
        end = next((i for i in range(at + 1, len(rows)) if not rows[i]["name"].startswith(stem + ".")), len(rows))
        parts.append([dict(row, name=row["name"][len(stem):]) for row in rows[at:end]])
        at = end
    return parts
