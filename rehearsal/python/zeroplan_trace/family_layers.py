"""Layers of a class: each kind once, and the rule by which the config tells a layer's kind."""

import itertools
import json

from .config_keys import is_first, is_period, is_size
from .problem import Problem


def folded(graph, config, base, layers_key, stacks=()):
    """Layers of one kind stand once: a kind is what a layer's modules and calls are. `stacks`: numbers of layers that no call is of."""
    if stacks:
        graph["stacks"] = [_stack(graph, key, base[key]) for key in stacks]
    count = base[layers_key]
    prefix = _prefix_of(graph, count)
    kinds, kind_of = [], []
    for i in range(count):
        own = "%s%d" % (prefix, i)
        modules = [dict(row, name=row["name"][len(own):]) for row in graph["modules"] if _is_of(row, own)]
        calls = [dict(call, prefix="") for call in graph["calls"] if call["prefix"] == own + "."]
        buffers = {name[len(own):]: row for name, row in graph["buffers"].items() if name.startswith(own + ".")}
        kind = {"modules": modules, "calls": calls, "buffers": buffers}
        if kind not in kinds:
            kinds.append(kind)
        kind_of.append(kinds.index(kind))
    graph["buffers"] = {name: row for name, row in graph["buffers"].items() if not name.startswith(prefix)}
    graph["modules"] = _marked(graph["modules"], lambda row: row.get("name", "").startswith(prefix) and row["name"] != prefix)
    graph["calls"] = _marked(graph["calls"], lambda call: call["prefix"].startswith(prefix))
    graph["layers"] = {"rules": _rules(kind_of, _facts(config, base, count)), "count": layers_key, "prefix": prefix, "kinds": kinds}
    return graph, kind_of


def _stack(graph, key, count):
    """Layers of a tower that is not run: one kind of modules."""
    part = key.split(".")[0].removesuffix("_config")
    firsts = [row["name"][:-1] for row in graph["modules"] if row["name"].endswith(".0")]
    found = [stem for stem in firsts if len(_layers_of(graph, stem)) == count and not any(call["prefix"].startswith(stem) for call in graph["calls"])]
    found = [stem for stem in found if part in stem] or found
    if not found:
        raise Problem("layers of %s" % key, "no modules of so many", "")
    stem = found[0]
    kinds = _layers_of(graph, stem)
    if any(kind != kinds[0] for kind in kinds):
        raise Problem("layers of one kind in %s" % stem, "several", "")
    graph["modules"] = _marked(graph["modules"], lambda row: row.get("name", "").startswith(stem) and row["name"] != stem, {"stack": key})
    return {"count": key, "prefix": stem, "modules": kinds[0]}


def _is_of(row, own):
    return row.get("name") == own or row.get("name", "").startswith(own + ".")


def _layers_of(graph, stem):
    layers = []
    while True:
        own = "%s%d" % (stem, len(layers))
        rows = [dict(row, name=row["name"][len(own):]) for row in graph["modules"] if _is_of(row, own)]
        if not rows:
            return layers
        layers.append(rows)


def _prefix_of(graph, count):
    prefixes = [call["prefix"] for call in graph["calls"] if call["layer"]]
    stem = prefixes[0].rsplit(".", 2)[0] + "." if prefixes else ""
    if prefixes != ["%s%d." % (stem, i) for i in range(count)]:
        raise Problem("layers that are called once each, in their order", ", ".join(prefixes[:8]), "")
    return stem


def _marked(rows, is_layers, mark=None):
    """The rows of layers, which stand together, as one mark."""
    at = [i for i, row in enumerate(rows) if is_layers(row)]
    if at != list(range(at[0], at[-1] + 1)):
        raise Problem("layers that follow each other", "something between them", "")
    return rows[: at[0]] + [mark or {"layers": True}] + rows[at[-1] + 1:]


def _facts(config, base, count):
    """What a config says of each layer: in its lists, by a number of layers that come first ("<key"; "<1": the first one, ">1": the last), by a
    period ("%key"), by whether it is the last of its value in a list ("$key")."""
    facts = {key: value for key, value in config.items() if isinstance(value, list) and len(value) == count}
    for key in list(facts):
        facts["$" + key] = [value not in facts[key][i + 1:] for i, value in enumerate(facts[key])]
    for key in sorted(base):
        if is_first(key) and is_size(key, base[key]):
            facts["<" + key] = [i < base[key] for i in range(count)]
        if is_period(key) and is_size(key, base[key]) and base[key] > 0:
            facts["%" + key] = [(i + 1) % base[key] == 0 for i in range(count)]
    facts["<1"], facts[">1"] = [i == 0 for i in range(count)], [i == count - 1 for i in range(count)]
    return facts


def holds(rule, kind_of, config, base, count):
    """Whether a rule tells the kinds of other layers, which may have other numbers."""
    facts, known, same = _facts(config, base, count), {json.dumps(row): kind for row, kind in rule["values"]}, {}
    for i, kind in enumerate(kind_of):
        told = known.get(json.dumps([facts[key][i] for key in rule["by"]])) if rule["by"] else 0
        if told is None or same.setdefault(told, kind) != kind:
            return False
    return True


def _rules(kind_of, facts):
    """Which layer is of which kind, by as few of the facts as tell it."""
    if len(set(kind_of)) == 1:
        return [{"by": [], "values": []}]
    lists = sorted(key for key in facts if key[0] not in "<>%$")
    rules = []
    for number in (1, 2, 3):
        for keys in itertools.combinations(lists + sorted(key for key in facts if key not in lists), number):
            kinds, rows = {}, list(zip(*(facts[key] for key in keys)))
            if all(kinds.setdefault(json.dumps(row), kind) == kind for row, kind in zip(rows, kind_of)):
                rules.append({"by": list(keys), "values": [[json.loads(row), kind] for row, kind in kinds.items()]})
        if rules:
            return [rule for rule in rules if not any(key[0] == "$" or key[1:] == "1" for key in rule["by"])] or rules
    raise Problem("layers whose kinds the config tells", "%s with %s" % (kind_of, sorted(facts)), "")
