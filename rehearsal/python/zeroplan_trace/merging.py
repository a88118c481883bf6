"""Documents of one structure as one: a number that differs between them becomes a formula."""

from .formulas import Differs


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
