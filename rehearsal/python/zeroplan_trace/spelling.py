"""Other words in which configs say the kinds of their layers: those of older releases, or a text with a letter for each layer; and lists
that are said as one text."""

import inspect
import re
import string

from .config_keys import is_size, last

_LAYERS = 4
_BETWEEN = "|"


def spellings(known):
    """Of each list of kinds, by its key: what words stand for which kind, which key has the text of letters, which key is the list's length, both of the same part; or what stands between
the values of a list that is one text."""
    usual = known.flat(known.config({known.layers_key: _LAYERS}))
    found = {}
    for key, kinds in usual.items():
        if not isinstance(kinds, list) or len(kinds) != usual[known.layers_key] or not all(isinstance(kind, str) for kind in kinds):
            continue
        row = {"words": _older_words(known, key)}
        for text, letters in _letters(known, key):
            row["letters"] = text
            row["words"].update(letters)
        for numbers, kinds_of in _numbers(known, key):
            row.update(numbers=numbers, layers=known.layers_key)
            row["words"].update(kinds_of)
        for first in _first(known, key):
            row.update(first=first, layers=known.layers_key)
        if key.startswith(known.text) and _is_counted(known):
            row["count"] = last(known.layers_key)
        if row != {"words": {}}:
            found[key] = row
    for key in usual:
        if "." not in key and (usual[key] is None or isinstance(usual[key], list)) and _is_separated(known, key):
            found[key] = {"words": {}, "between": _BETWEEN}
    return found


def tables(known):
    """Of each table of what layers of one kind have otherwise, by its key: the list that says the kinds, the kind, and the keys that say the same for all of them."""
    usual, found = known.flat(known.config({})), {}
    for key, table in usual.items():
        part = key[:-len(last(key))]
        if not isinstance(table, dict) or not table or not all(str(i).isdigit() and isinstance(row, dict) for i, row in table.items()):
            continue
        for name, kinds in usual.items():
            own = isinstance(kinds, list) and name.startswith(part) and {kind for i, kind in enumerate(kinds) if i in set(map(int, table))}
            keys = _said_for_all(known, key, part) if own and len(own) == 1 else {}
            if keys and [i for i, kind in enumerate(kinds) if kind in own] == sorted(map(int, table)):
                found[key] = {"list": last(name), "kind": own.pop(), "keys": keys}
    return found


def _said_for_all(known, table, part):
    keys, number = {}, 96
    for other in sorted(key for key, value in known.defaults.items() if key.startswith(part) and (value is None or is_size(key, value))):
        try:
            rows = known.flat(known.config({other: number})).get(table).values()
        except Exception:  # a key that takes no such number
            continue
        for name in {name for row in rows for name, value in row.items() if value == number}:
            if all(row.get(name) == number for row in rows):
                keys[name] = last(other)
    return keys


def _is_separated(known, key):
    """Whether the class makes a list of a text with bars in it."""
    try:
        return known.flat(known.config({key: "a%sb" % _BETWEEN})).get(key) == ["a", "b"]
    except Exception:
        return False


def _of_text(known):
    """The class of the config that has the text's keys."""
    return type(getattr(known.config({}), known.text[:-1])) if known.text else known.config_class


def _is_counted(known):
    return isinstance(getattr(_of_text(known), last(known.layers_key), None), property)


def _kind(known, key, said):
    """The kind that all layers have of a config that says this; None: there are several."""
    kinds = known.list_without(key, {known.layers_key: _LAYERS, **said})
    return kinds[0] if len(kinds) == _LAYERS and len(set(kinds)) == 1 else None


def _older_words(known, key):
    from transformers import configuration_utils

    words = getattr(configuration_utils, "_LEGACY_LAYER_TYPE_REMAP", {})
    kinds = {word: _kind(known, key, {key: [word] * _LAYERS}) for word in words}
    return {word: kind for word, kind in kinds.items() if kind not in (None, word)}


def _other_names(known):
    """Keys that the class takes and keeps nowhere."""
    names = re.findall(r'kwargs\.pop\("(\w+)"', inspect.getsource(known.config_class))
    return [name for name in names if name not in known.defaults]


def _numbers(known, key):
    """Lists that have a number for each layer's kind: one that stands in the code of the class's configs."""
    numbers = sorted({int(word) for word in re.findall(r"\b\d+\b", inspect.getsource(inspect.getmodule(known.config_class)))})
    for name in _other_names(known):
        kinds = {str(number): _kind(known, key, {name: [number] * _LAYERS}) for number in numbers}
        if len(set(kinds.values()) - {None}) > 1:
            yield name, {number: kind for number, kind in kinds.items() if kind is not None}


def _first(known, key):
    """Numbers of layers that are of one kind, before those of another."""
    for name in _other_names(known):
        lists = [known.list_without(key, {known.layers_key: _LAYERS, name: count}) for count in range(_LAYERS + 1)]
        kinds = lists[-1][:1] + lists[0][:1]
        if len(set(kinds)) == 2 and all(kind == kinds[:1] * count + kinds[1:] * (_LAYERS - count) for count, kind in enumerate(lists)):
            yield {"by": name, "kinds": kinds}


def _letters(known, key):
    part = key[:-len(last(key))]
    for text in re.findall(r'"(\w+)" in kwargs', inspect.getsource(_of_text(known))) if part == known.text else ():
        kinds = {letter: _kind(known, key, {part + text: letter * _LAYERS}) for letter in string.ascii_letters + string.punctuation}
        if len(set(kinds.values()) - {None}) > 1:  # a key that is none of letters changes nothing
            yield text, {letter: kind for letter, kind in kinds.items() if kind is not None}
