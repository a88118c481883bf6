"""Sizes as formulas: c + cb * batch + cs * sequence + cbs * batch * sequence, from runs of several sizes.

Four runs determine a formula, a fifth of another batch and sequence must agree with it. Of one batch alone two runs of three determine
c + cs * sequence. Of one run alone sizes are numbers.
"""

from fractions import Fraction


class DependsOnSize(Exception):
    """The model does something else at another size."""


class Grid:
    """The runs: batches b1 < b2 < b3 and sequences s1 < s2 < s3, at (b1, s1) (b2, s1) (b1, s2) (b2, s2) (b3, s3); of one of each a single run."""

    def __init__(self, batches, sequences):
        self.batches, self.sequences = list(batches), list(sequences)
        self.one_batch, self.points = False, [(*batches, *sequences)]
        if len(batches) == 1:
            return
        b1, b2, b3 = batches
        s1, s2, s3 = sequences
        self.one_batch = b1 == b3
        self.known = {}
        self.points = [(b1, s1), (b1, s2), (b1, s3)] if self.one_batch else [(b1, s1), (b2, s1), (b1, s2), (b2, s2), (b3, s3)]

    def formula(self, values):
        """None: no formula of this form gives these values. A plain number: it does not depend on either."""
        if all(value == values[0] for value in values):
            return values[0]
        key = tuple(values)
        if key not in self.known:
            self.known[key] = self._formula_of_sequence(values) if self.one_batch else self._formula_of_both(values)
        return self.known[key]

    def _formula_of_both(self, values):
        (b1, s1), (b2, _), (_, s2) = self.points[0], self.points[1], self.points[2]
        v11, v21, v12, v22 = values[:4]
        db, ds = b2 - b1, s2 - s1
        cbs = Fraction(v22 - v21 - v12 + v11, db * ds)
        cb = Fraction(v21 - v11, db) - cbs * s1
        cs = Fraction(v12 - v11, ds) - cbs * b1
        c = v11 - cb * b1 - cs * s1 - cbs * b1 * s1
        b3, s3 = self.points[4]
        if c + cb * b3 + cs * s3 + cbs * b3 * s3 != values[4]:
            return None
        return [_number(x) for x in (c, cb, cs, cbs)]

    def _formula_of_sequence(self, values):
        s1, s2, s3 = self.sequences
        cs = Fraction(values[1] - values[0], s2 - s1)
        c = values[0] - cs * s1
        return [_number(c), 0, _number(cs), 0] if c + cs * s3 == values[2] else None


def _number(x):
    return int(x) if x.denominator == 1 else float(x)


def _what(event):
    return event[1]["op"] if event[0] == "op" else event[0]


def _line(place):
    return ":".join(map(str, place))


def _same(a, b):
    if a[0] != b[0]:
        return False
    if a[0] != "op":
        return a[1:] == b[1:]
    return a[1] == b[1]


def check_same_events(grid, recorders):
    """Throws DependsOnSize, with the first line that does something else."""
    first = recorders[0]
    for point, other in zip(grid.points[1:], recorders[1:]):
        for i, (a, b) in enumerate(zip(first.events, other.events)):
            if not _same(a, b):
                raise DependsOnSize(
                    "batch %d, sequence %d: %s at %s" % (*grid.points[0], _what(a), _line(first.places[i]))
                    + "; batch %d, sequence %d: %s at %s" % (*point, _what(b), _line(other.places[i]))
                )
        if len(first.events) != len(other.events):
            raise DependsOnSize("%d operations and events at batch %d, sequence %d, %d at batch %d, sequence %d" % (
                len(first.events), *grid.points[0], len(other.events), *point))


def shape_formulas(grid, recorders):
    """Of every tensor, by number: a list of numbers and formulas."""
    shapes = []
    for number, row in enumerate(recorders[0].rows):
        rows = [recorder.rows[number] for recorder in recorders]
        shape = []
        for d in range(len(row.shape)):
            values = [other.shape[d] for other in rows]
            formula = grid.formula(values)
            if formula is None:
                raise DependsOnSize(
                    "a size that is no sum of batch, sequence and their product: "
                    + ", ".join("%d at batch %d and sequence %d" % (v, *p) for v, p in zip(values, grid.points)))
            shape.append(formula)
        shapes.append(shape)
    return shapes


def shapes_like(point, recorder, like):
    """shape_formulas of a run at one point, as multiples of those in `like`; None where they are no multiples."""
    if len(recorder.rows) != len(like):
        raise DependsOnSize("%d tensors, and %d" % (len(recorder.rows), len(like)))
    shapes, multiples = [], {}
    for row, known in zip(recorder.rows, like):
        if len(row.shape) != len(known):
            raise DependsOnSize("a tensor of %d sizes, and one of %d" % (len(row.shape), len(known)))
        shape = []
        for value, formula in zip(row.shape, known):
            if isinstance(formula, list):
                key = value, *formula
                if key not in multiples:
                    multiples[key] = _multiple(value, formula, point)
                value = multiples[key]
                if value is None:
                    return None
            shape.append(value)
        shapes.append(shape)
    return shapes


def size_at(formula, batch, sequence):
    """What a formula is at one batch and sequence, exactly."""
    return sum(Fraction(factor) * of for factor, of in zip(formula, (1, batch, sequence, batch * sequence)))


def _multiple(value, formula, point):
    """The formula times the share that gives the value; None where a sum would have factors that are not whole."""
    share = Fraction(value) / size_at(formula, *point)
    if share == 1:
        return formula
    factors = [Fraction(factor) * share for factor in formula]
    if sum(factor != 0 for factor in factors) > 1 and any(factor.denominator != 1 for factor in factors):
        return None
    return [_number(factor) for factor in factors]
