"""Numbers that differ between samples of a class, as sums of products of its config's keys."""

import itertools
import re
from fractions import Fraction

_MOST_TERMS = 3
_MOST_KEYS, _MOST_KEYS_ALONE = 3, 4  # of a product in a sum, and of one that is the whole size
_BETWEEN = r"[|(),]"  # keys within a factor


class Differs(Exception):
    """Samples that are no one document; `keys`: of the config, on which the size depends that is no sum of products."""

    def __init__(self, text, keys=()):
        super().__init__(text)
        self.keys = list(keys)


def _exact(number):
    return Fraction(number).limit_denominator(10**7) if isinstance(number, float) else number


def value_of(formula, values):
    """What a sum of products is at a config's values, exactly: the inverse of Formulas.of(), without its first letter."""
    total = Fraction(0)
    for sign, term in re.findall(r"([+-]?)((?:[^+(-]|\([^)]*\))+)", formula):
        product = Fraction(1 if sign != "-" else -1)
        for over, word in re.findall(r"(^|[*/])((?:[^*/(]|\([^)]*\))+)", term):
            number = _factor(word, values)
            product = product / number if over == "/" else product * number
        total += product
    return total


def _factor(word, values):
    if word.isdigit():
        return Fraction(word)
    if "(" in word:
        size, above, below, unit = word[len("up("):-1].split(",")
        return Fraction(-(-(_exact(values[size]) * int(above) // int(below)) // values[unit]) * values[unit])
    over, _, under = word.partition("|")
    return Fraction(_exact(values[over]) // values[under] if under else _exact(values[over]))


def keys_in(formula):
    """The keys of the config that a formula reads."""
    return set(re.findall(r"[A-Za-z_][\w.]*", formula.replace("up(", "(")))


class Known:
    """Formulas that other documents of a class have: what a few samples, in which all keys have other values, choose among."""

    def __init__(self, formulas, samples, symbols):
        symbols, self.whole, self.shares = set(symbols), {}, {}
        for formula in sorted(formulas):
            if keys_in(formula) <= symbols:
                key = tuple(value_of(formula[1:], sample.values) for sample in samples)
                (self.shares if formula.startswith("~") else self.whole).setdefault(key, []).append(formula)

    def has(self, numbers):
        """Whether one formula, and no other, gives those numbers."""
        return len(self._found(numbers)) == 1

    def of(self, numbers):
        return self._found(numbers)[0]

    def _found(self, numbers):
        key = tuple(Fraction(_exact(number)) for number in numbers)
        return self.whole.get(key) or self.shares.get(key) or []


class Formulas:
    """Of the keys in `symbols`; those in `heads` may divide those in `widths` and each other; `tiles`: (side, side of a tile), of which whole
    ones count; `rounded`: (size, unit of which it or two thirds of it become a multiple)."""

    def __init__(self, samples, symbols, heads, widths, tiles, rounded):
        self.samples, self.heads, self.widths, self.tiles, self.rounded = samples, heads, widths, tiles, rounded
        self.found = {}
        self.vectors = {key: [_exact(sample.values[key]) for sample in samples] for key in symbols}

    def of(self, numbers):
        key = tuple(numbers)
        if key not in self.found:
            self.found[key] = self._search([Fraction(_exact(number)) for number in numbers])
        if self.found[key] is None:
            raise Differs("a size that is no sum of products of the config's keys: %s" % (list(numbers[:6]),), self._depends_on(list(numbers)))
        return self.found[key]

    def _depends_on(self, numbers):
        first = numbers[0]
        keys = []
        for sample, number in zip(self.samples, numbers):
            if sample.changed in self.vectors and number != first and sample.changed not in keys:
                keys.append(sample.changed)
        return keys

    def _products(self, keys, most):
        """(text, values) of every product of so many keys, of quotients of two too, the simplest first."""
        factors = [((key,), (), self.vectors[key]) for key in keys]
        wide = [key for key in keys if key in self.widths]
        heads = [key for key in keys if key in self.heads]
        for over, under in itertools.product(wide, heads):
            factors.append(((over,), (under,), [Fraction(a, b) for a, b in zip(self.vectors[over], self.vectors[under])]))
        for over, under in itertools.permutations(heads, 2):
            factors.append(((over,), (under,), [Fraction(a, b) for a, b in zip(self.vectors[over], self.vectors[under])]))
        for over, under in self.tiles:
            if over in keys and under in keys:
                factors.append((("%s|%s" % (over, under),), (), [a // b for a, b in zip(self.vectors[over], self.vectors[under])]))
        for size, unit in self.rounded:
            for above, below in ((1, 1), (2, 3)) if size in keys and unit in keys else ():
                values = [-(-(a * above // below) // b) * b for a, b in zip(self.vectors[size], self.vectors[unit])]
                factors.append((("up(%s,%d,%d,%s)" % (size, above, below, unit),), (), values))
        products = [((), (), [Fraction(1)] * len(self.samples))]
        for count in range(1, most + 1):
            for chosen in itertools.combinations_with_replacement(factors, count):
                above = tuple(itertools.chain.from_iterable(factor[0] for factor in chosen))
                below = tuple(itertools.chain.from_iterable(factor[1] for factor in chosen))
                if set(above) & set(below) or len(below) > 1:
                    continue
                values = [Fraction(1)] * len(self.samples)
                for factor in chosen:
                    values = [a * b for a, b in zip(values, factor[2])]
                products.append((above, below, values))
        return products

    def _search(self, numbers):
        keys = self._depends_on(numbers)
        if not keys:
            return None
        products = self._products(keys, _MOST_KEYS)
        longer = self._products(keys, _MOST_KEYS_ALONE) if len(keys) <= _MOST_KEYS_ALONE else products
        points = len({tuple(self.vectors[key][i] for key in keys) for i in range(len(numbers))})
        most = min(_MOST_TERMS, points - 1)  # with as many terms as points every number is a sum
        def share(counts):  # so many of the experts
            for key in keys:
                over = self._sum(products, [number * value for number, value in zip(numbers, self.vectors[key])], counts, set(keys) - {key})
                if over:
                    return "~" + "+".join("%s/%s" % (term, key) for term in over.split("+"))
            return None

        def whole(products, counts):
            found = self._sum(products, numbers, counts, set(keys))
            return found and ("=" if all(number.denominator == 1 for number in numbers) else "~") + found

        one, more = range(1, min(most, 1) + 1), range(2, most + 1)
        # As few terms as give the numbers.
        return whole(longer, one) or share(one) or whole(products, more) or share(more)

    @staticmethod
    def _sum(products, numbers, counts, needed):
        """The first sum of so many products that gives the numbers and has all keys that are needed."""
        read = [frozenset(key for word in above + below for key in re.split(_BETWEEN, word)) for above, below, _ in products]
        for places in itertools.chain.from_iterable(itertools.combinations(range(len(products)), count) for count in counts):
            if not needed <= frozenset().union(*(read[i] for i in places)):
                continue
            chosen = [products[i] for i in places]
            factors = _solve([[values[i] for _, _, values in chosen] for i in range(len(numbers))], numbers)
            if factors and all(f != 0 and _is_plain(f.denominator) and abs(f.numerator) <= 4096 for f in factors):
                return "+".join(_term(factor, above, below) for factor, (above, below, _) in zip(factors, chosen)).replace("+-", "-")
        return None


def _is_plain(denominator):
    """Whether a class divides by it: a small number, or a power of two (tokens of a block)."""
    return denominator <= 16 or denominator <= 4096 and denominator & (denominator - 1) == 0


def _term(factor, above, below):
    words = ([str(factor.numerator)] if factor.numerator != 1 or not above else []) + list(above)
    under = ([str(factor.denominator)] if factor.denominator != 1 else []) + list(below)
    return "*".join(words) + "".join("/" + word for word in under)


def _solve(rows, numbers):
    """The factors with which every row gives its number, exactly; None where there are none, or more than one choice."""
    count = len(rows[0])
    kept = []  # rows in echelon form
    for row, number in zip(rows, numbers):
        row = list(row) + [number]
        for pivot, other in kept:
            if row[pivot] != 0:
                share = row[pivot]
                row = [a - share * b for a, b in zip(row, other)]
        pivot = next((i for i in range(count) if row[i] != 0), None)
        if pivot is None:
            if row[count] != 0:
                return None
            continue
        row = [a / row[pivot] for a in row]
        kept = [(p, [a - o[pivot] * b for a, b in zip(o, row)]) for p, o in kept]
        kept.append((pivot, row))
    if len(kept) < count:
        return None
    kept.sort()
    return [row[count] for _, row in kept]
