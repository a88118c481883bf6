"""Layers of a class: each kind once, and the rule by which the config tells a layer's kind."""

import itertools
import json
from collections import Counter

from .config_keys import is_first, is_last, is_period, is_size
from .problem import Problem


def folded(graph, config, base, layers_key, stacks=()):
    """Layers of one kind stand once: a kind is what a layer's modules and calls are. `stacks`: other numbers of layers. Returns the kinds of each
    stack that runs by its number, too."""
    put_slots_again(graph)
    called, kinds_of = called_layers(graph), {}
    for key in (layers_key, *stacks):
        mark = {"layers": True} if key == layers_key else {"stack": key}
        if prefix := _named(key, [prefix for prefix, calls in called.items() if base[key] in (calls, _count(graph, prefix))]):
            del called[prefix]
        elif key == layers_key:
            raise Problem("layers that are called once each", str(dict(called)), "")
        else:
            prefix = _tower(graph, key, base[key])
        stack, kinds_of[key] = _folded_stack(graph, config, base, key, prefix, mark)
        if key == layers_key:
            graph["layers"] = stack
        else:
            graph.setdefault("stacks", []).append(stack)
    if called:
        raise Problem("numbers of layers in the config", "none of %s" % dict(called), "")
    return graph, kinds_of


def put_slots_again(graph):
    """A slot is given again when its last user has run: what layers pass on to some that follow has one slot, however many times they do."""
    taken = {slot: i for i, call in enumerate(graph["calls"]) for slot, _ in graph["blocks"][call["block"]].get("takes", ())}
    names, free, blocks = {}, [], []
    graph["slots"] = 0
    for i, call in enumerate(graph["calls"]):
        block = dict(graph["blocks"][call["block"]])
        takes, gives = block.get("takes", ()), block.get("gives", ())
        if takes:
            block["takes"] = [[names[slot], tensor] for slot, tensor in takes]
        free.extend(sorted(names.pop(slot) for slot, _ in takes if taken[slot] == i))
        for slot, _ in gives:
            names[slot] = min(free, default=graph["slots"])
            if free:
                free.remove(names[slot])
            else:
                graph["slots"] += 1
        if gives:
            block["gives"] = [[names[slot], tensor] for slot, tensor in gives]
        if block not in blocks:
            blocks.append(block)
        call["block"] = blocks.index(block)
    graph["blocks"] = blocks


def running(graph):
    """The stacks of a folded graph that run, by their numbers of layers."""
    return {stack["count"]: stack for stack in (graph["layers"], *graph.get("stacks", ())) if "rules" in stack}


def put_numbers_of_layers(graph):
    """The numbers of layers of a folded graph's shape, as numbers of the config."""
    called = [graph["layers"]["count"] if "layers" in call else call["stack"] for call in graph["calls"] if "block" not in call]
    graph["shape"].update({name: "=" + key for name, key in zip(("layers", "encoder_layers"), reversed(called))})


def _folded_stack(graph, config, base, key, prefix, mark):
    """The stack of those layers, which the mark stands for in the graph, and the kind of each layer. Layers of a tower are not called, nor are those
    that batches of text alone skip."""
    count = base[key]
    order = [call["prefix"] for call in graph["calls"] if call.get("layer") and call["prefix"].startswith(prefix)]
    if count > 1 and order == [prefix + "0."] * count:
        return _called_again(graph, key, prefix, mark), [0] * count
    if order != [name for i in range(count) if (name := "%s%d." % (prefix, i)) in order]:
        raise Problem("layers that are called once each, in their order", ", ".join(order[:8]), "")
    kinds, kind_of = [], []
    for i in range(count):
        own = "%s%d" % (prefix, i)
        modules = [dict(row, name=row["name"][len(own):]) for row in graph["modules"] if _is_of(row, own)]
        calls = [dict(call, prefix="") for call in graph["calls"] if call.get("prefix") == own + "."]
        buffers = {name[len(own):]: row for name, row in graph["buffers"].items() if name.startswith(own + ".")}
        kind = {"modules": modules, "calls": calls, "buffers": buffers}
        if kind not in kinds:
            kinds.append(kind)
        kind_of.append(kinds.index(kind))
    if order or len(kinds) > 1:
        graph["buffers"] = {name: row for name, row in graph["buffers"].items() if not name.startswith(prefix)}
    graph["modules"] = _marked(graph["modules"], lambda row: row.get("name", "").startswith(prefix) and row["name"] != prefix, mark)
    if not order and len(kinds) == 1:
        return {"count": key, "prefix": prefix, "modules": kinds[0]["modules"]}, kind_of
    if order:
        graph["calls"] = _marked(graph["calls"], lambda call: call.get("prefix", "").startswith(prefix), mark)
    return {"rules": _rules(kind_of, _facts(config, base, count)), "count": key, "prefix": prefix, "kinds": kinds}, kind_of


def _called_again(graph, key, prefix, mark):
    """The stack of one layer that is called as often as the config says; its modules and buffers stay in the graph."""
    calls = [dict(call, prefix="") for call in graph["calls"] if call.get("prefix") == prefix + "0."]
    if any(call != calls[0] for call in calls):
        raise Problem("calls of one layer that are all alike", prefix, "")
    graph["calls"] = _marked(graph["calls"], lambda call: call.get("prefix", "").startswith(prefix), mark)
    kind = {"modules": [], "calls": calls[:1], "buffers": {}}
    return {"rules": _rules([0] * len(calls), {}), "count": key, "prefix": prefix, "again": True, "kinds": [kind]}


def _named(key, prefixes):
    """Of the prefixes of stacks the one that has the key's own word in it, or the first."""
    words = [word for word in ("encoder", "decoder", key.split(".")[0].removesuffix("_config")) if word in key]
    return next((prefix for prefix in prefixes if any(word in prefix for word in words)), next(iter(prefixes), None))


def called_layers(graph):
    """How many layers run of each stack, by what their names begin with."""
    return Counter(call["prefix"].rstrip(".").rpartition(".")[0] + "." for call in graph["calls"] if call["layer"])


def _count(graph, prefix):
    """How many modules a list has."""
    count = 0
    names = {row["name"] for row in graph["modules"] if "name" in row}
    while "%s%d" % (prefix, count) in names:
        count += 1
    return count


def _tower(graph, key, count):
    """What names of the layers of a tower begin with, which is not run."""
    firsts = [row["name"][:-1] for row in graph["modules"] if row.get("name", "").endswith(".0")]
    found = [stem for stem in firsts if _count(graph, stem) == count and not any(call.get("prefix", "").startswith(stem) for call in graph["calls"])]
    if not (stem := _named(key, found)):
        raise Problem("layers of %s" % key, "no modules of so many", "")
    return stem


def _is_of(row, own):
    return row.get("name") == own or row.get("name", "").startswith(own + ".")


def _marked(rows, is_layers, mark):
    """The rows of layers, which stand together, as one mark."""
    at = [i for i, row in enumerate(rows) if is_layers(row)]
    if at != list(range(at[0], at[-1] + 1)):
        raise Problem("layers that follow each other", "something between them", "")
    return rows[: at[0]] + [mark] + rows[at[-1] + 1:]


def _facts(config, base, count):
    """What a config says of each layer: in its lists, by a number of layers that come first ("<key"; "<1": the first one, ">1": the last), by a
    period ("%key": its last, "^key": its first), by whether it is the last of its value in a list ("$key"), by what a list says of the next layer ("+key"; "": none),
    by whether a list has its number ("@key"), by whether it is one of a number of layers that come last, or the last of its value in a list before them
    ("-key:list": "last", "before" or "")."""
    facts = {key: value for key, value in config.items() if isinstance(value, list) and len(value) == count and not has_own_numbers(value)}
    lasts = [key for key in base if is_last(key) and is_size(key, base[key])]
    for key in list(facts):
        for number in lasts:
            facts["-%s:%s" % (number, key)] = _places(facts[key], count - base[number])
        facts["$" + key] = [value not in facts[key][i + 1:] for i, value in enumerate(facts[key])]
        facts["+" + key] = [*facts[key][1:], ""]
    for key in sorted(base):
        if is_first(key) and is_size(key, base[key]):
            facts["<" + key] = [i < base[key] for i in range(count)]
        if is_period(key) and is_size(key, base[key]) and base[key] > 0:
            facts["%" + key] = [(i + 1) % base[key] == 0 for i in range(count)]
            facts["^" + key] = [i % base[key] == 0 for i in range(count)]
        if key in config and _has_numbers(config[key]):
            facts["@" + key] = [i in config[key] for i in range(count)]
    facts["<1"], facts[">1"] = [i == 0 for i in range(count)], [i == count - 1 for i in range(count)]
    return facts


def _places(kinds, before):
    return [""] * len(kinds) if before >= len(kinds) else ["last" if i >= before else "" if kind in kinds[i + 1:max(0, before)] else "before" for i, kind in enumerate(kinds)]


def has_own_numbers(value):
    """Whether a list says each layer's own number, which tells no layer's kind."""
    return len(value) > 2 and value == list(range(len(value)))


def _has_numbers(value):
    return isinstance(value, list) and bool(value) and all(isinstance(one, int) and not isinstance(one, bool) for one in value)


def told(rule, config, base, count):
    """The kind of each layer by a rule; None where it says none."""
    facts, known = _facts(config, base, count), {json.dumps(row): kind for row, kind in rule["values"]}
    return [known.get(json.dumps([facts[key][i] for key in rule["by"]])) if rule["by"] else 0 for i in range(count)]


def holds(rule, kind_of, config, base, count):
    """Whether a rule tells the kinds of other layers, which may have other numbers."""
    same = {}
    return all(kind is not None and same.setdefault(kind, other) == other for kind, other in zip(told(rule, config, base, count), kind_of))


def asked_list(key):
    """The list of the config that a rule's key asks; None where it asks a number."""
    return key.partition(":")[2] if key[0] == "-" else key.lstrip("$+") if key[0] not in "<>%^@" else None


def asked_number(key):
    """The key of the config that a rule's key asks besides a list of layers; None where it asks none."""
    return key[1:].partition(":")[0] if key[0] in "<%^@-" and key != "<1" else None


def by_keys(rules):
    """Of several rules those by what a config says of the layer itself, where there are some; not by which layer is the last, nor by the next one."""
    return [rule for rule in rules if not any(key[0] in "$+" or key[1:] == "1" for key in rule["by"])] or rules


def _rules(kind_of, facts):
    """Which layer is of which kind, by as few of the facts as tell it."""
    if len(set(kind_of)) == 1:
        return [{"by": [], "values": []}]
    lists = sorted(key for key in facts if key[0] not in "<>%^$+@-")
    rules = []
    for number in (1, 2, 3):
        for keys in itertools.combinations(lists + sorted(key for key in facts if key not in lists), number):
            kinds, rows = {}, list(zip(*(facts[key] for key in keys)))
            if all(kinds.setdefault(json.dumps(row), kind) == kind for row, kind in zip(rows, kind_of)):
                rules.append({"by": list(keys), "values": [[json.loads(row), kind] for row, kind in kinds.items()]})
        if rules:
            return rules
    raise Problem("layers whose kinds the config tells", "%s with %s" % (kind_of, sorted(facts)), "")
