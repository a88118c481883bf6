"""The events of one pass as blocks: the layers of lists of modules, and what runs between them. Equal blocks are written once."""

import json
import sys

import torch

_ALIASES = ("view", "_unsafe_view", "transpose", "t", "permute", "unsqueeze", "squeeze", "expand", "slice", "select", "split",
            "split_with_sizes", "unbind", "detach", "alias", "contiguous", "reshape", "as_strided", "lift_fresh", "unfold", "diagonal",
            "movedim", "narrow", "chunk", "view_as", "swapaxes", "_reshape_alias", "_conj", "view_as_real", "view_as_complex")

_DTYPES = {"float32": "fp32", "float16": "fp16", "float64": "fp64", "int64": "int64", "int32": "int32", "int16": "int16",
           "int8": "int8", "uint8": "uint8", "bool": "bool", "bfloat16": "bf16", "complex64": "complex64"}


def dtype_name(dtype, model_dtype):
    return "model" if dtype == model_dtype else _DTYPES.get(str(dtype).rsplit(".", 1)[-1], str(dtype).rsplit(".", 1)[-1])


def _checkpointed(model):
    """The class of what transformers checkpoints; any module where the model has none of it."""
    layers = sys.modules.get("transformers.modeling_layers")
    kind = getattr(layers, "GradientCheckpointingLayer", torch.nn.Module)
    return kind if any(isinstance(module, kind) for module in model.modules()) else torch.nn.Module


def layer_names(model):
    """Modules that are called one after the other: children of the outermost lists of modules, as far as the class checkpoints them."""
    found = []
    layer = _checkpointed(model)
    for name, module in model.named_modules():
        kind = type(module).__name__
        if kind not in ("ModuleList", "Sequential") or any(name.startswith(layer + ".") for layer in found):
            continue
        children = list(module.named_children())
        whole = [child for _, child in children if next(child.children(), None) is not None and isinstance(child, layer)]
        if len(whole) != len(children) or len(children) < (1 if kind == "ModuleList" else 2):
            continue
        prefix = name + "." if name else ""
        found.extend(prefix + child for child, _ in children)
    return found


class Segment:
    def __init__(self, layer):
        self.layer = layer  # name of the module, None between layers
        self.events = []


def segments(events, layers):
    layers = set(layers)
    result, depth, current = [], None, Segment(None)
    for event in events:
        if depth is None and event[0] == "enter" and event[1] in layers:
            result.append(current)
            current, depth = Segment(event[1]), event[1]
        current.events.append(event)
        if event[0] == "leave" and event[1] == depth:
            result.append(current)
            current, depth = Segment(None), None
    result.append(current)
    return result


def _drop_spanning(events):
    """Modules that begin or end in another segment own no parameters that are used alone: no events."""
    open_, spans = [], set()
    for i, event in enumerate(events):
        if event[0] == "enter":
            open_.append(i)
        elif event[0] == "leave":
            if open_ and events[open_[-1]][1] == event[1]:
                open_.pop()
            else:
                spans.add(i)
    spans.update(open_)
    return [event for i, event in enumerate(events) if i not in spans]


class Blocks:
    def __init__(self, recorder, shapes, loss, held, layers, model_dtype, vocabulary, types):
        self.recorder, self.rows, self.shapes = recorder, recorder.rows, shapes
        self.loss, self.held = loss, set(held)
        self.model_dtype, self.vocabulary, self.types = model_dtype, vocabulary, types
        self.makers = {}  # number of a tensor -> the event that made it
        for event in recorder.events:
            if event[0] == "op":
                for number in event[1]["out"]:
                    self.makers[number] = event[1]
        self.parts = self._merge([part for part in segments(recorder.events, layers)])
        self._places()
        self._flows()
        self.blocks, self.calls = [], []
        self._write()

    # --- what belongs together

    def _makes(self, part):
        """Whether a storage comes of it: views are made again where they are used."""
        return any(event[0] == "op" and any(self._root(number) == number for number in event[1]["out"]) for event in part.events)

    def _merge(self, parts):
        """Between layers nothing runs often, or views are made: such a part is none. Releases there belong to the layer before."""
        kept = []
        for part in parts:
            part.events = _drop_spanning(part.events) if part.layer is None else part.events
            if part.layer is None and not self._makes(part):
                if kept:
                    kept[-1].events.extend(event for event in part.events if event[0] == "drop")
                continue
            kept.append(part)
        return kept

    def _root(self, number):
        return self.rows[number].root

    def _named(self, number):
        return self.recorder.names.get(number)

    def _places(self):
        self.made_in = {}  # root -> part
        for i, part in enumerate(self.parts):
            for event in part.events:
                if event[0] == "op":
                    for number in event[1]["out"]:
                        root = self._root(number)
                        if root == number and root not in self.recorder.names:
                            self.made_in[root] = i

    def _whole(self, number):
        """Is it the storage's first tensor, or that again after an operation in place?"""
        return self.rows[number].place[1:] == self.rows[self._root(number)].place[1:]

    def _chain(self, number):
        """The operations that make a view out of its storage's first tensor, the first first."""
        chain, name = [], number  # what a view of the same place, or an operation in place, gives has the name of what that made
        while not self._whole(number) and self._root(number) != number:
            maker = self.makers.get(number)
            if maker is None or not maker["in"]:
                break
            source = next((n for n in maker["in"] if n is not None and self._root(n) == self._root(number)), None)
            if source is None or source == number:
                break
            if self.rows[source].place[1:] != self.rows[number].place[1:]:
                chain.append((maker, name, source))
                name = source
            number = source
        chain.reverse()
        return chain

    def _flows(self):
        """Which storages a part takes from earlier ones, which one of them is its input, and what goes through slots."""
        self.uses = []  # part -> {root: number first used}
        users = {}  # root -> parts
        for i, part in enumerate(self.parts):
            used = {}
            for event in part.events:
                if event[0] != "op":
                    continue
                for number in event[1]["in"]:
                    if number is None:
                        continue
                    root = self._root(number)
                    if self.made_in.get(root, i) != i:
                        used.setdefault(root, number)
            self.uses.append(used)
            for root in used:
                users.setdefault(root, []).append(i)
        self.users = users
        self.input_of, self.slot_of = {}, {}
        for i in range(1, len(self.parts)):
            alone = [root for root in self.uses[i] if users[root] == [i] and self.made_in[root] == i - 1 and root != self._root(self.loss)]
            floats = [root for root in alone if self.rows[root].dtype.is_floating_point]
            if floats:
                floats.sort(key=lambda root: (self.rows[root].grad, self._elements(root)))
                self.input_of[i] = floats[-1]
        taken = set(self.input_of.values())
        for root in sorted(users):
            if root not in taken:
                self.slot_of[root] = len(self.slot_of)
        last = len(self.parts) - 1
        self.output_of = {}
        for i in range(len(self.parts)):
            if i == last:
                self.output_of[i] = self.loss
                continue
            if i + 1 in self.input_of:
                self.output_of[i] = self.input_of[i + 1]
                continue
            mine = [root for root in self.slot_of if self.made_in[root] == i]
            if not mine:
                mine = [root for root, part in self.made_in.items() if part == i and self.rows[root].dtype.is_floating_point]
                if mine:
                    self.slot_of[mine[-1]] = len(self.slot_of)
            self.output_of[i] = mine[-1] if mine else None

    def _elements(self, root):
        count = 1
        for size in self.rows[root].shape:
            count *= size
        return count

    # --- writing

    def _write(self):
        known = {}
        for i, part in enumerate(self.parts):
            block, prefix = Writer(self, i, part).write()
            key = json.dumps(block, sort_keys=True)
            if key not in known:
                known[key] = len(self.blocks)
                self.blocks.append(block)
            self.calls.append({"block": known[key], "prefix": prefix, "layer": part.layer is not None})


class Writer:
    """One part as a block with numbers and names of its own."""

    def __init__(self, blocks, index, part):
        self.all, self.index, self.part = blocks, index, part
        self.rows = blocks.rows
        self.local = {}  # number -> local number
        self.tensors = []
        self.events = []
        self.prefix = self._prefix()

    def _prefix(self):
        if self.part.layer is None:
            return ""
        prefix = self.part.layer + "."
        for event in self.part.events:
            if event[0] != "op":
                continue
            for number in event[1]["in"]:
                named = None if number is None else self.all._named(self.all._root(number))
                if named is not None and named[0] == "parameter" and not named[1].startswith(prefix):
                    return ""
        return prefix

    def _name(self, name):
        if self.prefix and name + "." == self.prefix:
            return ""
        return name[len(self.prefix):] if self.prefix and name.startswith(self.prefix) else name

    def _new(self, number):
        self.local[number] = len(self.tensors)
        row = self.rows[number]
        tensor = {"dtype": dtype_name(row.dtype, self.all.model_dtype), "shape": self.all.shapes[number]}
        root = self.all._root(number)
        if root != number:
            tensor["of"] = self._reference(root)
        self.tensors.append(tensor)
        return self.local[number]

    def _reference(self, number):
        """Of a tensor that the block's operations read: a local number, or a name."""
        if number is None:
            return None
        if number in self.local:
            return self.local[number]
        named = self.all._named(number)
        if named is not None:
            kind, name = named
            if kind == "buffer" and self.prefix and name.startswith(self.prefix):
                return "own:" + self._name(name)
            return kind + ":" + (self._name(name) if kind == "parameter" else name)
        # Made in an earlier part: the storage comes from there, views of it are made again.
        for maker, made, source in self.all._chain(number):
            if made not in self.local:
                self._operation(maker)
                self.local.update((made, self.local[out]) for out in maker["out"] if self.rows[out].place == self.rows[made].place)
        if number not in self.local:
            root = self.all._root(number)
            if root in self.local:
                self.local[number] = self.local[root]
            elif root == number:
                self._new(number)
            else:
                self.local[number] = self._reference(root)
        return self.local[number]

    def _operation(self, row):
        written = {key: value for key, value in row.items() if key not in ("in", "out", "saves")}
        written["in"] = [self._reference(number) for number in row["in"]]
        outs = []
        for number in row["out"]:
            if number not in self.local:
                self._new(number)
            outs.append(self.local[number])
        written["out"] = outs
        if row.get("saves"):
            saves = []
            for number in row["saves"]:
                reference = self._reference(number) if number in self.local or self.all._named(number) else None
                if reference is not None and reference not in saves:
                    saves.append(reference)
            if saves:
                written["saves"] = saves
        self.events.append(written)

    def _logits_begin(self):
        """Where the vocabulary's logits begin: at the module that makes the first tensor as wide as it."""
        if self.index != len(self.all.parts) - 1 or not self.all.vocabulary:
            return None
        entered = None
        for i, event in enumerate(self.part.events):
            if event[0] == "enter":
                entered = i
            if event[0] == "op":
                for number in event[1]["out"]:
                    row = self.rows[number]
                    if row.dtype.is_floating_point and len(row.shape) >= 2 and row.shape[-1] == self.all.vocabulary:
                        return entered if entered is not None and self.part.events[entered][0] == "enter" else i
        return None

    def write(self):
        owner = self.all
        takes, gives = [], []
        if self.index in owner.input_of:
            self._new(owner.input_of[self.index])
        for root in sorted(owner.uses[self.index]):
            if root in owner.slot_of:
                takes.append([owner.slot_of[root], self._new(root)])
        logits = self._logits_begin()
        for i, event in enumerate(self.part.events):
            if i == logits:
                self.events.append({"category": "logits"})
            if event[0] == "op":
                self._operation(event[1])
            elif event[0] == "drop":
                self._drop(event[1])
            else:
                number = event[2]
                known = number is not None and (number in self.local or owner._root(number) in self.local)
                row = {event[0]: self._name(event[1])}
                if known:
                    row["tensor"] = self._reference(number)
                self.events.append(row)
        while self.events and "drop" in self.events[-1]:
            self.events.pop()  # the end of the block lets go of everything
        for root, slot in sorted(owner.slot_of.items(), key=lambda item: item[1]):
            if owner.made_in[root] == self.index:
                gives.append([slot, self._reference(self._newest(root))])
        held = [self._reference(root) for root in sorted(owner.held) if owner.made_in.get(root) == self.index and root not in owner.slot_of]
        block = {"name": self._title(), "tensors": self.tensors, "events": self.events}
        if self.index in owner.input_of:
            block["input"] = self.local[owner.input_of[self.index]]
        output = owner.output_of[self.index]
        if output is not None:
            block["output"] = self._returned(self._reference(self._newest(output)))
        for key, value in (("takes", takes), ("gives", gives), ("held", held)):
            if value:
                block[key] = value
        return block, self.prefix

    def _newest(self, root):
        """The tensor of that storage that stands for it at the end of the part: after operations in place, and module ends."""
        newest = root
        for event in self.part.events:
            if event[0] == "op":
                for number in event[1]["out"]:
                    if self.all._root(number) == self.all._root(root) and self.all._whole(number) and number in self.local:
                        if self.rows[number].grad >= self.rows[newest].grad:
                            newest = number
        return newest if root != self.all.loss else root

    def _returned(self, output):
        """The output as the layer's own module returns it, which may be a view of what it computed last (OPT): DeepSpeed's hooks are on what is returned."""
        def storage(tensor):
            return storage(self.tensors[tensor]["of"]) if "of" in self.tensors[tensor] else tensor

        last = self.events[-1] if self.events else {}
        is_view = last.get("leave") == "" and "tensor" in last and storage(last["tensor"]) == storage(output)
        return last["tensor"] if is_view else output

    def _drop(self, roots):
        local = [self.local[root] for root in roots if root in self.local and root not in self.all.slot_of
                 and root != self.all.output_of[self.index]]
        if local:
            self.events.append({"drop": local})

    def _title(self):
        if self.part.layer is not None:
            return self.all.types[self.part.layer]
        if self.index == 0:
            return "inputs"
        return "head" if self.index == len(self.all.parts) - 1 else "between"
