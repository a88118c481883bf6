"""A recording's documents as they are kept: rows that many have stand once, beside those of other releases."""

import copy
import json
import re

from .family_layers import running

_POOLS = ("blocks", "kinds", "tensors", "events", "parts")
_PARTS = ("fixed", "defaults", "lists", "software", "inputs", "buffers", "modules", "stacks")  # of documents and their graphs


class _Pool:
    """Rows that stand once, and are named by their numbers."""

    def __init__(self):
        self.rows, self.numbers = [], {}

    def number(self, row):
        key = json.dumps(row, sort_keys=True)
        if key not in self.numbers:
            self.numbers[key] = len(self.rows)
            self.rows.append(row)
        return self.numbers[key]


def pooled(recorded):
    """Most documents have most blocks and kinds of layers, most blocks most tensors and events. Two released models that
    share a switch give it a document each: equal ones stand once."""
    pools = {name: _Pool() for name in _POOLS}
    for document in recorded["documents"]:
        graph = document["graph"]
        for stack in running(graph).values():
            stack["kinds"] = [pools["kinds"].number(kind) for kind in stack["kinds"]]
        for whole in (document, graph):
            whole.update({name: pools["parts"].number(whole[name]) for name in _PARTS if name in whole})
        for block in graph["blocks"]:
            for name in ("tensors", "events"):
                block[name] = [pools[name].number(row) for row in block[name]]
        graph["blocks"] = [pools["blocks"].number(block) for block in graph["blocks"]]
    documents = recorded["documents"]
    once = [document for place, document in enumerate(documents) if document not in documents[:place]]
    return dict(recorded, documents=once, **{name: pool.rows for name, pool in pools.items()})


def _whole(recorded):
    """The documents of a recording with what pooled made numbers of; the recording is used up."""
    for document in recorded["documents"]:
        graph = document["graph"]
        graph.setdefault("attention", recorded["attention"])  # what a class has by default changes with releases
        for whole in (document, graph):
            whole.update({name: copy.deepcopy(recorded["parts"][whole[name]]) for name in _PARTS if isinstance(whole.get(name), int)})
        for stack in running(graph).values():
            stack["kinds"] = [copy.deepcopy(recorded["kinds"][number]) for number in stack["kinds"]]
        graph["blocks"] = [copy.deepcopy(recorded["blocks"][number]) for number in graph["blocks"]]
        for block in graph["blocks"]:
            block.update({name: [recorded[name][number] for number in block[name]] for name in ("tensors", "events")})
    return recorded["documents"]


def _release(software):
    return [int(number) for number in re.findall(r"\d+", software["transformers"])[:3]]


def beside(recorded, known):
    """The recording with another's documents of other releases; the newer says what stands outside of documents."""
    newer, older = (recorded, known) if _release(recorded["software"]) >= _release(known["software"]) else (known, recorded)
    own = recorded["software"]["transformers"]
    kept = [document for document in _whole(known) if document["graph"]["software"]["transformers"] != own]
    documents = sorted(recorded["documents"] + kept, key=lambda document: _release(document["graph"]["software"]), reverse=True)
    aliases = dict(older.get("aliases", {}), **newer.get("aliases", {}))
    return dict({key: value for key, value in newer.items() if key not in _POOLS}, documents=documents, **({"aliases": aliases} if aliases else {}))
