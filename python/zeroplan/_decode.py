"""JSON documents as dataclasses: fields by name, unknown keys left in the document."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import typing
from typing import Any, Callable, Dict, Tuple, Type, TypeVar, Union

T = TypeVar("T", bound="Result")

# How a result is shown: "text", "html" and "frame", of _notebook.py, which knows the kinds of results.
_tables: Dict[str, Callable[[Any], Any]] = {}


def shown_by(**tables: Callable[[Any], Any]) -> None:
    """Says how results are shown from now on."""
    _tables.update(tables)


class Result:
    """What every result has beside its fields: the document that the program printed."""

    _document: Dict[str, Any] = {}

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.__repr__ = Result.__repr__  # type: ignore[method-assign]  # a dataclass makes its own where there is none

    def __repr__(self) -> str:
        """The fields, one line: of what is nested its kind and size. print() gives str(): the tables."""
        values = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(typing.cast(Any, self)))
        return f"{type(self).__name__}({', '.join(f'{name}={_short(value)}' for name, value in values)})"

    def __str__(self) -> str:
        return str(_tables["text"](self))

    def to_dict(self) -> Dict[str, Any]:
        """The JSON document of the command line, key by key (docs/contract.md section 5)."""
        return copy.deepcopy(self._document)

    def _repr_html_(self) -> str:
        return str(_tables["html"](self))

    def df(self) -> Any:
        """The result's rows as a pandas DataFrame. Raises ImportError where pandas is not installed."""
        return _tables["frame"](self)


def _short(value: Any) -> str:
    if isinstance(value, Result):
        return f"{type(value).__name__}(...)"
    if isinstance(value, (list, dict)) and len(value) > 0:
        return f"[{len(value)} items]" if isinstance(value, list) else f"{{{len(value)} keys}}"
    return repr(value)


def decode(kind: Type[T], document: Dict[str, Any]) -> T:
    """`document` as a `kind`. A key that is missing is the field's default; one without a field stays in to_dict()."""
    values = {}
    for name, hint in _hints(typing.cast(Any, kind)):
        if name in document:
            values[name] = _value(hint, document[name])
    made = kind(**values)
    object.__setattr__(made, "_document", document)
    return made


@functools.lru_cache(maxsize=None)
def _hints(kind: Any) -> Tuple[Tuple[str, Any], ...]:
    hints = typing.get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in dataclasses.fields(kind))


def _value(hint: Any, value: Any) -> Any:
    if value is None:  # a number that nobody can say
        return math.nan if hint is float else None
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is Union:  # Optional
        return _value(next(one for one in arguments if one is not type(None)), value)
    if origin is list:
        return [_value(arguments[0], one) for one in value]
    if origin is tuple:
        return tuple(value)
    if origin is dict:
        return dict(value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return decode(typing.cast("Type[Result]", hint), value)
    return float(value) if hint is float else value
