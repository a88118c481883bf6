"""Documents of one structure as one: a number that differs between them becomes a formula."""

from .formulas import Differs
from .sizes import size_at


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def numbers_of(first, document):
    """The numbers of a document, in their order in the first; Differs where it has another structure, or something else in another place."""
    numbers = []
    _collect(first, document, numbers, ())
    return tuple(numbers)


def _collect(first, value, numbers, path):
    if isinstance(first, dict):
        if not isinstance(value, dict) or value.keys() != first.keys():
            raise Differs("%s has other members" % _said(path))
        for key, own in first.items():
            _collect(own, value[key], numbers, (path, key))
    elif isinstance(first, list):
        if not isinstance(value, list) or len(value) != len(first):
            raise Differs("%s has another length" % _said(path))
        for i, own in enumerate(first):
            _collect(own, value[i], numbers, (path, i))
    elif _is_number(first) and _is_number(value):
        numbers.append(value)
    elif value != first or type(value) is not type(first):
        raise Differs("%s is %s, and %s" % (_said(path), str(first)[:60], str(value)[:60]))


def _said(path):
    words = []
    while path:
        path, word = path
        words.append("/%s" % word)
    return "".join(reversed(words))


def merged(first, rows, formula):
    """The first document with `formula` of the numbers that differ between the rows, each of which has those of one document."""
    columns = zip(*rows)

    def made(value, path):
        if isinstance(value, dict):
            return {key: made(own, (path, key)) for key, own in value.items()}
        if isinstance(value, list):
            return [made(own, (path, i)) for i, own in enumerate(value)]
        if not _is_number(value):
            return value
        numbers = next(columns)
        if all(number == value and type(number) is type(value) for number in numbers):
            return value
        try:
            return formula(numbers)
        except Differs as error:
            raise Differs("%s at %s" % (error, _said(path)), error.keys)

    return made(first, ())


def at_point(document, batch, sequence):
    """A document whose sizes are those of one batch and sequence."""
    def row(own):
        return dict(own, shape=[int(size_at(size, batch, sequence)) if isinstance(size, list) else size for size in own["shape"]])

    blocks = [dict(block, tensors=[row(tensor) for tensor in block["tensors"]]) for block in document["blocks"]]
    return dict(document, blocks=blocks, **{part: {name: row(own) for name, own in document[part].items()} for part in ("inputs", "buffers")})


def like(document, first, other):
    """Another document with the formulas of `document`, which is the first with formulas, and where each of its numbers stands among those of the first. They
    may differ in parts without numbers; else Differs."""
    places = []

    def counted(value):
        if isinstance(value, (dict, list)):
            return sum(map(counted, value.values() if isinstance(value, dict) else value))
        return 1 if _is_number(value) else 0

    def made(formula, own, value, at, path):
        """The value with formulas; its first number is the first document's of that place."""
        if isinstance(own, dict) and isinstance(value, dict) and own.keys() == value.keys():
            result = {}
            for key, inner in own.items():
                result[key] = made(formula[key], inner, value[key], at, (path, key))
                at += counted(inner)
            return result
        if isinstance(own, list) and isinstance(value, list) and len(own) == len(value):
            result = []
            for i, inner in enumerate(own):
                result.append(made(formula[i], inner, value[i], at, (path, i)))
                at += counted(inner)
            return result
        if own == value and type(own) is type(value):
            if _is_number(own):
                places.append(at)
            return formula
        if counted(value):
            raise Differs("%s has other numbers" % _said(path))
        return value

    return made(document, first, other, 0, ()), places
