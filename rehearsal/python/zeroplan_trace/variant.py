"""One document of a class: what its config's keys do to it, and its sizes as formulas over those that change them.

A key that changes nothing is free, one that changes numbers is a symbol, one that changes more is fixed to the value that was recorded.
A size that is no sum of products of symbols is a Problem, never an approximation.
"""

import collections
import copy
import itertools
import json
import random

from .config_keys import (LATENT_HEADS, POSITIONS, POWERS, ROPE, ROPE_SORTS, SPARE, is_dropout, is_first, is_last, is_name, is_period, is_size, is_window, is_wide, last,
                          others, sizes_of, tokens_of, wide_sizes_of)
from .family_layers import asked_list, asked_number, by_keys, folded, has_own_numbers, holds, put_numbers_of_layers, running, told
from .formulas import Differs, Formulas, Known, keys_in
from .merging import at_point, like, merged, numbers_of
from .problem import Problem

BATCHES = (2, 3, 5)
_JOINT_TRIES, _KNOWN_JOINT_TRIES = 96, 4


class TooFewLayers(Problem):
    """Twice as many layers have other kinds than these, or follow another rule."""


class Sample:
    """A config and the numbers of the class's document at it; `changed`: the one key in which it is not the first."""

    def __init__(self, values, changed, numbers):
        self.values, self.changed, self.numbers = values, changed, numbers


# A variant's document with formulas, that at its base, the base, the sample in which all keys have other values, and what the keys are.
Whole = collections.namedtuple("Whole", "document first base joint roles symbols more rope")


def _formulas_in(value):
    """The formulas of a document."""
    if isinstance(value, (dict, list)):
        return {formula for inner in (value.values() if isinstance(value, dict) else value) for formula in _formulas_in(inner)}
    return {value} if isinstance(value, str) and value[:1] in ("=", "~") else set()


class Variant:
    """One document: heads that share keys or not, tied embeddings or not, sequences within the windows or longer, switches as said, sizes that are alike or not."""

    def __init__(self, known, grouped, tied, long, switched, alike=None):
        self.known, self.grouped, self.tied, self.long, self.switched = known, grouped, tied, long, switched
        self.alike = known.usually_alike() if alike is None else alike
        self.same = {**known.same, **self.alike}
        base = dict(known.defaults)
        self.said = {key for key in base if key not in known.made and last(key) not in ("architectures", "dtype", "torch_dtype") and not known.is_of_every(key)}
        own_dim = known.text + "head_dim"
        if known.makes_head_dim:
            self.said.discard(own_dim)
        if known.reads_head_dim:
            base[own_dim] = None
            self.said.add(own_dim)
        base[known.layers_key] = known.layers() + known.layers_more
        counts = {base[known.layers_key]}  # by which layers are told apart where their names do not say whose they are
        for key in known.stacks if not known.kept.intersection(known.stacks) else ():
            base[key] = self._layers_of_stack(key, base, counts)
            counts.add(base[key])
        base.update({key: tied for key in known.tie_keys if tied is not None})
        self.base = self._with(base, switched)
        self.base = self._small_config()
        self.failed = []  # keys with values with which the class did not run

    @staticmethod
    def _layers_of_stack(key, base, others_have):
        """Three, or more where another stack has as many; whole periods, two at least, where a config within the config has one: the last layer may be another."""
        part = key[:-len(last(key))]
        step = max([1] + [value for own, value in base.items() if part and own.startswith(part) and is_period(own) and is_size(own, value) and value < 4])
        return next(count for count in itertools.count(max(3, 2 * step) if step > 1 else 3, step) if count not in others_have)

    def _small_config(self):
        """The config with a small size for each key, or with as many of them as it runs with."""
        sizes = {key: found for key, value in self.base.items() if (found := self._small(key, value))}
        small = self._with(self.base, {key: found[0] for key, found in sizes.items()})
        error = self.known.error(small, self.said)
        if error is None:
            return small
        self.base = self._with(self.base, {key: found[0] for key, found in sizes.items() if is_window(key)})  # which sequences are within, or not
        sizes = {key: found for key, found in sizes.items() if not is_window(key)}
        if self.known.small:
            before = self._with(self.base, {key: size for key, size in self.known.small.items() if size in sizes.get(key, ())})
            if self.known.error(before, self.said) is None:
                return before
        values = self.base
        if self.known.error(values, self.said) is not None:
            nulls = {key: found for key, found in sizes.items() if values[key] is None}
            tried = (self._with(values, {key: found[i % len(found)] for key, found in nulls.items()}) for i in range(max(map(len, nulls.values()), default=0)))
            values = next((other for other in tried if self.known.error(other, self.said) is None), values)
        if self.known.error(values, self.said) is not None:
            values = self._with_part_turned(values) or values
        if self.known.error(values, self.said) is not None:
            raise error
        for key, found in sizes.items():
            tried = (self._with(values, {key: size}) for size in found)
            values = next((other for other in tried if self.known.error(other, self.said) is None), values)
        self.known.small = {key: values[key] for key in sizes}
        return values

    def _with_part_turned(self, values):
        """A share of the heads that is turned, where the class's own defaults lack it."""
        key = self.known.text + "rope_parameters"
        for share in (0.5, 0.25):
            tried = dict(values, **{key: dict(values.get(key) or {}, partial_rotary_factor=share)})
            if self.known.error(tried, self.said) is None:
                return tried

    def _small(self, key, value):
        """Sizes to take for a key, the first first; None: its own."""
        if key not in self.said or key == self.known.layers_key or key in self.known.stacks or key in self.known.kept or key in self.switched:
            return None
        if is_window(key) and is_size(key, value) and value > 0:
            return (self.known.size_of_window(key, self.long, self.base),)
        if is_dropout(key, value):
            return (value or 0.1,)  # what drops nothing is no operation
        sizes = POWERS if key in self.known.powers else None if "multiple_of" in key else wide_sizes_of(key, value)
        if value is None and last(key) not in (*ROPE, *SPARE):
            return sizes
        if not is_size(key, value):
            return None
        if is_last(key):
            return (value,)
        if is_first(key) or is_period(key) and value == 1:  # layers of both kinds
            return (1 if is_first(key) and not self.known.repeated else 2,)
        return sizes if value > 0 or key == self.known.kv_key else None

    def _others(self, key):
        return list(POWERS[1:]) if key in self.known.powers else others(key, self.base[key])

    def changed(self, changes):
        return self._with(self.base, changes)

    def _with(self, base, changes):
        known = self.known
        values = dict(base, **changes)
        if known.width_of_heads:
            values[known.text + "hidden_size"] = known.width_of_heads * values[known.heads_key]
        if known.wide_values:
            value, *turned = (known.text + key for key in LATENT_HEADS)
            values[value] = sum(values[key] for key in turned)
        values.update({key: values[other] for key, other in self.same.items()})
        if not self.grouped and known.kv_key:
            values[known.kv_key] = values[known.heads_key]
        return values

    def row(self):
        known = self.known
        self.document, self.shapes, config = known.of(self.base, self.said)
        self.first = Sample(self.base, None, numbers_of(self.document, self.document))
        whole = self._with_ties() or self._merged(config)
        if whole is None:  # with a key more that is kept
            return Variant(known, self.grouped, self.tied, self.long, self.switched, self.alike).row()
        roles, symbols, more = whole.roles, whole.symbols, whole.more
        graph, _ = folded(copy.deepcopy(whole.document), known.flat(config), self.base, known.layers_key, known.stacks)
        for key, stack in running(graph).items():
            stack["rules"] = by_keys([rule for rule in stack["rules"] if holds(rule, more[1][key], *more[2:4], more[3][key])])
            if not stack["rules"]:
                raise Problem("layers whose kinds the config tells", "%s, with twice as many" % more[1][key], "")
        put_numbers_of_layers(graph)
        rules = [rule for stack in running(graph).values() for rule in stack["rules"]]
        asked = {name for rule in rules for key in rule["by"] if (name := asked_number(key))}
        if not self._is_recorded_as_usual(key for key, role in roles.items() if role == "fixed" and key not in asked):
            return Variant(known, self.grouped, self.tied, self.long, self.switched, self.alike).row()
        for stack in running(graph).values():
            if absent := self._absent(stack):
                stack["absent"] = absent
        ties = () if self.tied is None else known.tie_keys
        row = {
            "when": {key: self.tied for key in ties},
            "fixed": {key: self.base[key] for key, role in roles.items() if role == "fixed" and key not in asked},
            "defaults": known.usual([known.layers_key, *known.stacks, *symbols, *sorted(asked), *known.windows, *self.switched, *ties, *([known.text + "hidden_size"] if known.width_of_heads else []),
                                     *([known.text + "tie_word_embeddings"] if known.text and ties else [])]),
            "graph": graph,
            "lists": self._lists(known.flat(config), running(graph)),
            "rope": whole.rope,
        }
        row["fixed"].update({key: "=" + other for key, other in self.same.items()})
        row["defaults"].update(known.class_values())
        if unlike := {key: other for key, other in known.alike.items() if key not in self.alike}:
            row["unlike"] = unlike
        if known.whole_blocks:
            row["whole_blocks"] = known.whole_blocks
        if known.wide_values is not None:
            row["wide_values"] = known.wide_values
        lengths = {key: len(self.base[key]) for key, role in roles.items() if role == "free" and isinstance(self.base[key], list)}
        if lengths:  # which layers of a tower: how many makes modules
            row["lengths"] = lengths
        if known.powers:
            row["powers"] = sorted(known.powers)
        if known.width_of_heads:
            row["width"] = {"key": known.text + "hidden_size", "of": known.heads_key, "times": known.width_of_heads}
        if known.text:
            row["text"] = known.text
            row["fixed"].update({key: known.defaults[key] for key in known.chosen_types if key in known.defaults})
        if wide := [key for key, value in self.base.items() if key.startswith(known.text) and is_wide(key, value)]:
            row["wide_heads"] = wide
        if known.kv_key:
            row["heads"] = {"key": known.kv_key, "of": known.heads_key, "grouped": self.grouped}
        windows = [key for key in known.windows if key not in self.switched]
        if windows:
            units = [tokens_of(key, self.base) for key in windows]
            row.update(windows=[key if unit == 1 else "=%d*%s" % (unit, key) for key, unit in zip(windows, units)], longer=self.long)
        return row

    def _merged(self, config):
        """The document with formulas; None where a key must be kept at the class's own value that was not."""
        known = self.known
        graph, kinds_of = self._folded(self.document, config, self.base)
        more, counted = self._more_layers_at_one(graph, kinds_of, config)
        for key, stack in running(graph).items():
            if not any(holds(rule, more[1][key], *more[2:4], more[3][key]) for rule in stack["rules"]):
                raise TooFewLayers("layers whose kinds the config tells", "%s, with twice as many" % more[1][key])
        for presumes in (True, False) if known.known_formulas and not counted else (False,):
            try:
                whole = self._with_formulas(graph, kinds_of, more, counted, presumes)
                break
            except (Problem, Differs):
                if not presumes:
                    raise
        if whole is not None:
            known.wholes[self._but_ties()] = whole
        return whole

    def _more_layers_at_one(self, graph, kinds_of, config):
        """_more_layers() and whether sizes beside the layers grow with their number; of a single run where that tells the same kinds and no size grows."""
        point = self.known.point()
        (batch,), (sequence,) = point
        first, kinds = self._folded(at_point(self.document, batch, sequence), config, self.base)
        if kinds == kinds_of:
            more = self._more_layers(running(graph), points=point)
            if self._around(first) == self._around(more[0]):
                return more, False
        more = self._more_layers(running(graph))
        return more, self._around(graph) != self._around(more[0])

    def _with_formulas(self, graph, kinds_of, more, counted, presumes):
        """The document with formulas; None where a key must be kept at the class's own value that was not. `presumes`: keys that were free or symbols in
        other documents are so here, too, with the formulas that others have, as far as samples in which all of them have other values are met."""
        known = self.known
        self.samples = [self.first]
        if counted:
            self.samples.append(self._sample_of_layers(graph, kinds_of, more, known.layers_key))
        presumed = self._presumed() if presumes else {}
        if not presumed:
            self._find_free()
        roles = {key: presumed.get(key) or self._role(key) for key in sorted(self.base) if self._is_asked(key)}
        if not self._is_recorded_as_usual(key for key, role in roles.items() if role == "fixed" and not is_period(key)) or self._takes_width_of_heads(roles):
            return None
        symbols = [key for key, role in roles.items() if role == "symbol"] + [known.layers_key] * counted
        width = known.text + "hidden_size"
        if known.defaults.get(width) and roles.get(width, "free") == "free" and not known.width_of_heads:
            raise Problem("sizes that follow %s" % width, "none", "")
        keys = [key for key, role in roles.items() if role != "fixed"]
        if presumed:
            joint = self._add_joint(keys, [1, 3, 4], _KNOWN_JOINT_TRIES)
            formula_of = self._known_formulas(keys, symbols, presumed)
        else:
            joint = self._add_joint(keys, [None, 4, 4, 4], _JOINT_TRIES)  # one run at all sizes, others at the largest
            if counted:
                self._add_joint_of_layers(graph, kinds_of)
            formula_of = self._formulas(symbols).of
        try:
            of_all = merged(self.document, [sample.numbers for sample in self.samples], formula_of)
        except Differs as error:
            if presumed:
                raise
            of_towers = bool(known.text) and not any(key.startswith(known.text) for key in error.keys)
            if set(error.keys) == {known.heads_key} and self._takes_powers():
                return None
            if not error.keys or len(error.keys) > 1 and not of_towers or any(key in known.kept or known.defaults.get(key) is None for key in error.keys):
                raise Problem("sizes that are sums of products of the config's keys", str(error), "")
            self._keep(error.keys)  # it is rounded, or cut at another size: the class's own value alone is recorded
            return None
        formulas = _formulas_in(of_all)
        read = {key for formula in formulas for key in keys_in(formula)}
        unread = {key: "free" for key, role in presumed.items() if role == "symbol" and key not in read}
        if len(self._free_of(list(unread))) < len(unread):
            raise Problem("keys that change sizes, or nothing", ", ".join(unread), "")
        roles.update(unread)
        known.roles.update({self._known_as(key): roles[key] for key in presumed})
        known.known_roles.update(known.roles)
        known.known_formulas.update(formulas)
        return Whole(of_all, self.document, self.base, joint, roles, [key for key in symbols if key not in unread], more, self._rope())

    def _presumed(self):
        """What keys do in documents before this, as far as other values of them are no other document, and those that were free are so here."""
        known = self.known
        asked = [key for key in sorted(self.base) if self._is_asked(key) and self._others(key) and key not in self.switched and key not in known.kept]
        roles = {key: known.known_roles.get(self._known_as(key)) for key in asked}
        free = self._free_of([key for key, role in roles.items() if role == "free"])
        return {key: role for key, role in roles.items() if role == "symbol" or key in free}

    def _known_formulas(self, keys, symbols, presumed):
        """Those of other documents that samples meet in which all keys have other values; where none does, keys that matter there are changed alone."""
        unchanged = [key for key in presumed if all(sample.values[key] == self.base[key] for sample in self.samples)]
        if unchanged:
            self.samples.append(self._other_sample(unchanged))
        known = Known(self.known.known_formulas, self.samples, symbols)
        columns = zip(*(sample.numbers for sample in self.samples))
        new = [i for i, numbers in enumerate(columns) if any(number != numbers[0] for number in numbers) and not known.has(numbers)]
        for key in self._that_change(new, list(presumed)) if new else ():
            self._found_role(key, 2, False)
        if new:
            known = Known(self.known.known_formulas, self.samples, symbols)
        formulas = self._formulas(symbols)
        return lambda numbers: known.of(numbers) if known.has(numbers) else formulas.of(numbers)

    def _other_sample(self, keys):
        for way in (0, -1):
            sample = self._sample({key: self._others(key)[way] for key in keys})
            if sample is not None:
                return sample
        raise Problem("a class that runs with other values of %s" % ", ".join(keys), "none", "")

    def _that_change(self, places, keys):
        """Those of the keys that change numbers at these places: halves of them have other values at once."""
        try:
            numbers = self._other_sample(keys).numbers
            if all(numbers[i] == self.first.numbers[i] for i in places):
                return []
        except Problem:
            if len(keys) == 1:
                raise
        half = len(keys) // 2
        return self._that_change(places, keys[:half]) + self._that_change(places, keys[half:]) if half else keys

    def _formulas(self, symbols):
        heads = [key for key in symbols if sizes_of(key) and "head" in key and "dim" not in key]
        widths = [key for key in symbols if sizes_of(key) == sizes_of("hidden_size")]
        rounded = [(size, unit) for unit in symbols if "multiple_of" in unit for size in symbols if sizes_of(size) == sizes_of("intermediate_size")]
        tiles = [(side, key) for side in symbols for key in symbols if last(side) == "image_size" and last(key) == "patch_size"]
        return Formulas(self.samples, symbols, heads, widths, tiles, rounded)

    def _but_ties(self):
        return json.dumps([self.known.options.attention, self.grouped, self.long, self.switched, self.alike], sort_keys=True)

    def _with_ties(self):
        """The document with the formulas of the one whose embeddings are tied in the other way, where all else is the same in both, and in one config in which all
        keys have other values; None: there is no such document."""
        known = self.known
        whole = known.wholes.get(self._but_ties())
        if whole is None or any(value != whole.base[key] for key, value in self.base.items() if key not in known.tie_keys):
            return None
        try:
            document, places = like(whole.document, whole.first, self.document)
        except Differs:
            return None
        joint = self._sample({key: value for key, value in whole.joint.values.items() if value != whole.base[key]}, at=4)
        if joint is None or joint.numbers != tuple(whole.joint.numbers[place] for place in places):
            return None
        return whole._replace(document=document)

    def _is_recorded_as_usual(self, fixed):
        """Whether sizes that are fixed have the class's own values; those that do not are kept at them from now on."""
        known, base, own = self.known, self.base, self._own_sizes(fixed)
        width = known.text + "hidden_size"
        own_dim = known.text + "head_dim"
        if own >= {width, known.heads_key} and (own_dim in own or own_dim not in known.defaults) and not known.width_of_heads:
            self._keep_width_of_heads()
            return False
        kept = {key for key in own if base[key] != known.defaults.get(key)} - known.kept
        if known.heads_key in kept and self._takes_powers():
            return False
        self._keep(kept)
        return not kept

    def _keep_width_of_heads(self):
        """From now on the hidden size is so many times the number of heads as the class has it."""
        known = self.known
        width = known.text + "hidden_size"
        known.width_of_heads = known.defaults[width] // known.defaults[known.heads_key]
        known.kept -= {width, known.heads_key}
        for key in (width, known.heads_key):
            known.roles.pop(key, None)

    def _takes_width_of_heads(self, roles):
        """Whether the class ran with one number of heads, and with hidden sizes alone of which heads of one width remain: no document of other widths."""
        known = self.known
        width, own_dim = known.text + "hidden_size", known.text + "head_dim"
        if roles.get(known.heads_key) != "fixed" or roles.get(width) != "symbol" or self.base.get(own_dim) is not None or known.width_of_heads:
            return False
        if known.heads_key in self.switched or len({sample.values[width] // sample.values[known.heads_key] for sample in self.samples}) > 1:
            return False
        self._keep_width_of_heads()
        return True

    def _own_sizes(self, keys):
        """Those that are sizes for which the class has a value of its own."""
        return {key for key in keys if is_size(key, self.base[key]) and key not in self.switched and self.known.defaults.get(key) is not None}

    def _keep(self, keys):
        """Those keys are recorded at the class's own values alone, powers of two or not."""
        self.known.kept.update(keys)
        self.known.powers.difference_update(keys)

    def _takes_powers(self):
        """Numbers of heads are powers of two from now on; whether they were not."""
        known = self.known
        if known.heads_key in known.powers:
            return False
        known.powers.add(known.heads_key)
        known.roles.pop(known.heads_key)
        return True

    def _absent(self, stack):
        """Of lists that rules ask: what the class repeats for a config without one, and keys that it reads for it and keeps nowhere, with their usual values."""
        known, rules, count = self.known, stack["rules"], stack["count"]
        layers, absent = known.defaults[count], {}
        needed = all(any(asked_list(key) for key in rule["by"]) for rule in rules)  # no rule goes without a list
        for key in sorted({name for rule in rules for key in rule["by"] if (name := asked_list(key))}):
            usual = [known.list_without(key, {count: number}) for number in (layers, layers + 1, layers + 3)]
            row = {}
            for first, length in itertools.product(range(4), range(1, layers // 2 + 1)) if needed else ():
                cycle = usual[0][first:first + length]
                if cycle and all(len(one) >= layers and one[:first] == usual[0][:first] and
                                 all(value == cycle[i % length] for i, value in enumerate(one[first:])) for one in usual):
                    row.update({"cycle": cycle, **({"first": usual[0][:first]} if first else {})})
                    break
            if read := known.read_for(key):
                row["by"] = read
            if row:
                absent[key] = row
        return absent

    def _folded(self, document, config, base):
        return folded(copy.deepcopy(document), self.known.flat(config), base, self.known.layers_key, self.known.stacks)

    @staticmethod
    def _around(graph):
        """What a document has beside its layers."""
        return graph["modules"], graph["buffers"], [graph["blocks"][call["block"]] for call in graph["calls"] if "block" in call]

    def _more_layers(self, stacks, changes=None, points=None):
        """The folded document with twice as many layers in those stacks, their kinds, what tells them, and the document itself."""
        base = self._with(self.base, changes or {})
        base = dict(base, **{key: 2 * base[key] for key in stacks})
        document, _, config = self.known.of(base, self.said, points=points)
        graph, kinds_of = self._folded(document, config, base)
        return graph, kinds_of, self.known.flat(config), base, document

    def _as_first(self, graph, kinds_of, more):
        """A document of more layers with as many as the first: one of each layer's kind in its place."""
        _, more_kinds, config, base, document = more
        first, place = self.document, {}
        for key, stack in running(graph).items():
            kinds = next((told(rule, config, base, base[key]) for rule in stack["rules"] if holds(rule, more_kinds[key], config, base, base[key])), [])
            if not set(kinds_of[key]) <= set(kinds):
                raise Problem("layers whose kinds the config tells", "%s, with twice as many" % more_kinds[key], "")
            place.update({"%s%d." % (stack["prefix"], i): "%s%d." % (stack["prefix"], kinds.index(kind)) for i, kind in enumerate(kinds_of[key])})
        stems = tuple(stack["prefix"] for stack in running(graph).values())
        layers = {call["prefix"]: call for call in document["calls"]}
        around = iter([call for call in document["calls"] if not call["prefix"].startswith(stems)])
        blocks = list(first["blocks"])
        for call in first["calls"]:
            other = layers[place[call["prefix"]]] if call["prefix"] in place else next(around)
            blocks[call["block"]] = document["blocks"][other["block"]]
        def there(name):
            stem = next((stem for stem in stems if name.startswith(stem)), "")
            own = stem + (name + ".")[len(stem):].partition(".")[0] + "."
            return (place[own] + (name + ".")[len(own):]).removesuffix(".") if own in place else name

        rows = self._rows_of(document, "modules")
        modules = [dict(rows[there(row["name"])], name=row["name"]) for row in first["modules"]]
        shape = dict(document["shape"], **{key: count for key, count in first["shape"].items() if key == "layers"})
        return dict(first, shape=shape, blocks=blocks, modules=modules, buffers={name: document["buffers"][there(name)] for name in first["buffers"]})

    def _add_joint_of_layers(self, graph, kinds_of):
        """A sample in which there are more layers and all keys of another are as in it, too."""
        changes = {key: value for key, value in self.samples[-1].values.items() if value != self.base[key]}
        self.samples.append(self._sample_of_layers(graph, kinds_of, self._more_layers(running(graph), changes), None))

    def _sample_of_layers(self, graph, kinds_of, more, changed):
        try:
            return Sample(more[3], changed, numbers_of(self.document, self._as_first(graph, kinds_of, more)))
        except Differs as error:
            raise Problem("a class whose layers are the same where there are more", str(error), "")

    def _is_asked(self, key):
        known = self.known
        if key not in self.said or is_name(key) or is_first(key) or is_last(key) or last(key) in ROPE or key in (known.layers_key, *known.stacks, *known.tie_keys, *self.same):
            return False
        if key == known.text + "hidden_size" and known.width_of_heads:
            return False
        return not (key == known.kv_key and not self.grouped) and not (key == known.text + "v_head_dim" and known.wide_values)

    def _sample(self, changes, changed=None, at=0):
        """A sample of the same structure; None where the class has none at those values. `at`: the size it is run at; None: all."""
        values = self._with(self.base, changes)
        try:
            document = self.known.of(values, self.said, None if at is None else self.shapes, at)[0]
            sample = Sample(values, changed, numbers_of(self.document, document))
        except Exception:
            return None
        if self._is_of_tower(changed):
            sample.document = document  # until what the key changes is known
        return sample

    def _find_free(self):
        """Roles of factors and lengths that change nothing: they are changed together, and by halves where some of them change something."""
        known = self.known
        keys = [key for key in sorted(self.base) if self._is_asked(key) and key not in known.roles and key not in known.kept and key not in self.switched]
        known.roles.update((key, "free") for key in self._free_of([key for key in keys if isinstance(self.base[key], float) or last(key) in POSITIONS]))

    def _free_of(self, keys):
        if not keys:
            return []
        tried = ({key: others(key, self.base[key])[way] for key in keys} for way in (0, -1))
        if all((sample := self._sample(changes)) is not None and sample.numbers == self.first.numbers for changes in tried):
            return keys
        half = len(keys) // 2
        return self._free_of(keys[:half]) + self._free_of(keys[half:]) if half else []

    def _role(self, key):
        """What becomes of the document where `key` has another value; samples that show it are kept."""
        roles = self.known.roles
        if key in self.switched or key in self.known.kept:
            return "fixed"
        known_as = self._known_as(key)
        if roles.get(known_as) not in ("fixed", "free"):
            roles[known_as] = self._found_role(key, 1 if known_as in roles else 2, known_as in roles)
        return roles[known_as]

    def _known_as(self, key):
        """What a key's role is kept by: a window is a size where sequences are longer alone."""
        return (key, self.long) if key in self.known.windows else key

    def _found_role(self, key, wanted, is_known):
        seen = [sample for kept in self.known.of_towers.get(key, ())[:wanted] if (sample := self._changed(key, *kept))]
        same = False
        for other in [] if seen else self._others(key):
            sample = self._sample({key: other}, key)
            if sample is None:
                self.failed.append((key, other))
                continue
            same = sample.numbers == self.first.numbers
            if not same or not is_known:  # of a size that is rounded one may be another
                seen.append(sample)
            if len(seen) == wanted:
                break
        if not seen:
            return "free" if same or self._is_overruled(key) else "fixed"
        if all(sample.numbers == self.first.numbers for sample in seen):
            return "free"
        if not is_size(key, self.base[key]) and not is_dropout(key, self.base[key]):
            return "fixed"
        if self._is_of_tower(key):
            self._keep_changes(key, seen)
        self.samples.extend(Sample(sample.values, sample.changed, sample.numbers) for sample in seen)
        return "symbol"

    def _is_of_tower(self, key):
        """Whether a key is of a tower, of which no document has yet shown what it changes."""
        return key is not None and "." in key and not key.startswith(self.known.text) and key not in self.known.of_towers

    def _is_overruled(self, key):
        """Whether a config keeps its null, whatever it is told: another key decides."""
        if self.base[key] is not None:
            return False
        try:
            return self.known.flat(self.known.config({key: 4096})).get(key) is None
        except Exception:
            return False

    def _keep_changes(self, key, samples):
        """What a key of a tower changes, where that is modules and buffers alone."""
        first, kept = self.document, []
        for sample in samples:
            if any(value != first[name] for name, value in sample.document.items() if name not in ("modules", "buffers")):
                return
            changes = {}
            for part in ("modules", "buffers"):
                before, after = self._rows_of(first, part), self._rows_of(sample.document, part)
                changes[part] = {name: (before[name], row) for name, row in after.items() if row != before[name]}
            kept.append((sample.values[key], changes, {part: set(self._rows_of(first, part)) for part in changes}))
        self.known.of_towers[key] = kept

    @staticmethod
    def _rows_of(document, part):
        rows = document[part]
        return rows if isinstance(rows, dict) else {row["name"]: row for row in rows}

    def _changed(self, key, value, changes, names):
        """The sample, from what the key changed in another document of rows of those names; None where this has other rows, or more."""
        document = dict(self.document)
        for part, rows in changes.items():
            own = self._rows_of(document, part)
            if own.keys() - names[part] or any(own.get(name) != before for name, (before, _) in rows.items()):
                return None
            after = {name: rows[name][1] if name in rows else row for name, row in own.items()}
            document[part] = after if isinstance(document[part], dict) else list(after.values())
        try:
            return Sample(dict(self.base, **{key: value}), key, numbers_of(self.document, document))
        except Differs:
            return None

    def _add_joint(self, keys, sizes, most):
        """Samples in which all keys have other values, which the formulas must meet, too: one at each of those sizes, the last first, of so many that are tried. The last of them."""
        wanted = len(sizes)
        for changes in self._joint_changes(keys, most):
            sample = self._sample(changes, at=sizes[-1])
            if sample is not None:
                self.samples.append(sample)
                sizes.pop()
                if changes not in self.known.joint:
                    self.known.joint.append(changes)
            if not sizes:
                return sample
        raise Problem("a class that runs with several keys changed at once", "%d of %d configs" % (wanted - len(sizes), most), "")

    def _joint_changes(self, keys, most):
        """Those with which another document was made come first, as far as they are of these keys: a class need not run with most that are drawn."""
        draw, values = random.Random(1), {key: [self.base[key]] + [other for other in self._others(key) if (key, other) not in self.failed] for key in keys}
        for known in list(self.known.joint):
            yield {key: known[key] if known.get(key) in values[key] else draw.choice(values[key]) for key in keys}
        for _ in range(most):
            yield {key: draw.choice(values[key]) for key in keys}

    def _rope(self):
        """The sorts of rotary embedding under which the document is the same, as in those before, and the share of the heads that is turned."""
        key = next((key for name in ROPE if (key := self.known.text + name) in self.base and name != "rope_theta"), None)
        said = self.base.get(key)
        if key and said is None and last(key) == "rope_scaling":  # before transformers 5 what is not as by default
            said = {}
        if not isinstance(said, dict):
            return {"types": ["default"]}
        nested = bool(said) and all(isinstance(part, dict) for part in said.values())
        asked = json.dumps(said, sort_keys=True)
        if asked not in self.known.ropes:
            self.known.ropes[asked] = self._same_ropes(key, said, nested)
        same = self.known.ropes[asked]
        named = said if nested else {"": said}
        shares = {name: part["partial_rotary_factor"] for name, part in named.items() if "partial_rotary_factor" in part}
        return dict({"types": same}, **({"partial": shares if nested else shares[""]} if shares else {}))

    def _same_ropes(self, key, said, nested):
        same = sorted({part.get("rope_type", "default") for part in (said.values() if nested else [said])})
        for sort, more in ROPE_SORTS.items():
            changed = copy.deepcopy(said)
            for part in changed.values() if nested else [changed]:
                part.update(more, rope_type=sort)
            sample = self._sample({key: changed})
            if sample is not None and sample.numbers == self.first.numbers:
                same.append(sort)
        return same

    def _lists(self, config, stacks):
        """What lists of layers that no rule asks say, and what the class says of single layers: other values may be other sizes."""
        asked = {key for stack in stacks.values() for rule in stack["rules"] for key in rule["by"]}
        counts = [config[key] for key in stacks]
        lists = {key: value for key, value in config.items() if isinstance(value, list) and len(value) in counts and key not in asked}
        lists.update({key: value for key, value in config.items() if isinstance(value, dict) and key in self.known.made})
        return {key: "own" if isinstance(value, list) and has_own_numbers(value) else self._unique(value.values() if isinstance(value, dict) else value)
                for key, value in lists.items()}

    @staticmethod
    def _unique(values):
        return [json.loads(text) for text in sorted({json.dumps(value, sort_keys=True) for value in values})]
