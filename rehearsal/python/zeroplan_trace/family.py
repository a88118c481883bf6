"""zeroplan.family/1: what a class's documents have in common, with sizes as formulas over the keys of its config.

The class is traced at a small config, at that config with one key changed, for each key, and at some with all changed. A key
that changes nothing is free, one that changes numbers is a symbol, one that changes more is fixed to the value that was recorded.
A size that is no sum of products of symbols is a Problem, never an approximation.
"""

import ast
import collections
import copy
import inspect
import itertools
import json
import random
import re

from .config_keys import (BEFORE_5, LATENT_HEADS, LAYERS, POSITIONS, POWERS, RELEASED, ROPE, ROPE_SORTS, SIZES, SPARE, WHOLE_BLOCKS, is_dropout, is_first, is_name, is_period, is_size, is_stack, is_window,
                          is_wide, kinds_of_times, last, nested, others, repeated, sizes_of, switched, tokens_of, wide_sizes_of)
from .family_layers import asked_list, by_keys, folded, has_own_numbers, holds, put_numbers_of_layers, running, told
from .formulas import Differs, Formulas
from .loops import folded_loops
from .merging import like, merged, numbers_of
from .models import text_of
from .problem import Problem
from .spelling import spellings

_BATCHES, _SEQUENCES = (2, 3, 5), (128, 256, 512)
_JOINT_TRIES = 96


class TooFewLayers(Problem):
    """Twice as many layers have other kinds than these, or follow another rule."""


class Sample:
    """A config and the numbers of the class's document at it; `changed`: the one key in which it is not the first."""

    def __init__(self, values, changed, numbers):
        self.values, self.changed, self.numbers = values, changed, numbers


# A variant's document with formulas, that at its base, the base, the sample in which all keys have other values, and what the keys are.
Whole = collections.namedtuple("Whole", "document first base joint roles symbols more rope")


class Class:
    """A model type of transformers: its config's keys, and its document at any values of them."""

    def __init__(self, options, released=None):
        """`released`: what checkpoints have in place of the class's defaults, as RELEASED has it."""
        import transformers
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        key, unit, fewest = WHOLE_BLOCKS.get(options.family, ("", 0, 0))
        self.every = transformers.PretrainedConfig().to_dict()
        self.whole_blocks = {"key": key, "tokens": unit, "fewest": fewest} if key else None
        self.sequences = tuple(fewest + times * unit for times in (0, 1, 3)) if key else _SEQUENCES
        self.options, self.loops = options, False  # whether blocks have loops that stand once
        self.layers_more = 0  # than show the kinds of its lists
        self.released = {key: value for key, value in (released or {}).items() if not isinstance(value, tuple)}
        self.repeated = {key: value for key, value in (released or {}).items() if isinstance(value, tuple)}  # over the layers
        if options.family not in CONFIG_MAPPING:
            raise Problem("a model type of transformers %s" % transformers.__version__, options.family, "")
        self.config_class = CONFIG_MAPPING[options.family]
        usual = self.usual_config()
        self.parts = sorted(getattr(usual, "sub_configs", None) or ())  # configs inside it
        self.chosen_types = [part + ".model_type" for part in self.parts if usual.sub_configs[part].__name__ == "AutoConfig"]  # which class a part has
        text = next((part for part in self.parts if getattr(usual, part, None) is text_of(usual)), None)
        self.text = text + "." if text else ""  # what keys of the text model begin with
        self.defaults = self.flat(usual)
        self.times = [key for key, value in self.defaults.items() if kinds_of_times(value)]  # kinds of layers with how often they follow each other
        stacks = [key for key, value in self.defaults.items() if is_stack(key, self.text) and (value is None or is_size(key, value))]
        self.layers_key = next((self.text + key for key in LAYERS if self.text + key in self.defaults and self._is_settable(self.text + key)), next(iter(stacks), None))
        if self.layers_key is None:
            raise Problem("a config with a number of layers", options.family, "")
        usual = self.flat(self.config({}))  # a part that is said has its class's defaults, another perhaps those of the whole
        self.defaults = {**self.released, **{key: value for key, value in usual.items() if not last(key).startswith("_") and not self._is_sum(key)}}
        self.stacks = [key for key in self.defaults if is_stack(key, self.text) and key != self.layers_key and self._is_free_count(key)]
        if options.class_name:
            self.layers_key, *self.stacks = filter(self._is_built, (self.layers_key, *self.stacks))
        self.few = self._few()
        self.kv_key = next((part + key for part in ("attn_config.", self.text) for key in SIZES[0][0] if part + key in self.defaults), None)
        self.heads_key = next((key for key in self.defaults if key.startswith(self.text) and sizes_of(key) == sizes_of("num_attention_heads")), None)
        self.tie_keys = [key for key in ("tie_word_embeddings", self.text + "tie_word_embeddings") if isinstance(self.defaults.get(key), bool)]
        self.tie_keys = self._tie_keys()
        self.ties = tuple(tied for tied in (False, True) if self._is_config({key: tied for key in self.tie_keys})) if self.tie_keys else (None,)
        self.grouped = self.kv_key is not None and self.defaults[self.kv_key] not in (None, self.defaults.get(self.heads_key))
        self.all_windows = [key for key, value in self.defaults.items() if key.startswith(self.text) and is_window(key) and is_size(key, value) and value > 0]
        self.windows = self.all_windows  # those that matter to an implementation of attention
        heads = [self.defaults.get(self.text + key) for key in LATENT_HEADS]
        self.wide_values = None if None in heads else heads[0] == heads[1] + heads[2]
        self.defaults.update(self._unsaid())
        self.made = self._made()
        self.follows = self._follows()
        self.same = self._same()
        self.makes_head_dim, self.reads_head_dim = self._makes_head_dim(), self._reads_head_dim()
        self.wholes = {}  # a variant without its ties -> Whole
        self.roles = {}  # key -> "free", "symbol" or "fixed": the same in every document
        self.small = {}  # key -> the size that a document's config has where not all can be small
        self.kept = self._share_of_head()  # keys that are recorded at the class's own value alone
        self.alike = {}  # key -> the other of a pair of sizes whose being equal decides which modules there are
        self.powers = set()  # keys whose sizes are powers of two
        self.width_of_heads = None  # hidden_size / heads, where the class runs with its own alone
        self.joint = []  # changes of several keys at once with which the class ran
        self.of_towers = {}  # key of a tower that is not run -> what other values change, the same in every document

    def _is_settable(self, key):
        """Whether a config can say that key: of an encoder and a decoder some have it as a sum."""
        try:
            self.config_class(**nested({key: self.defaults[key]}))
        except NotImplementedError:
            return False
        except Exception:
            pass
        return True

    def _is_config(self, values):
        """Whether the class has a config that says those values: some refuse tied embeddings."""
        try:
            return self.config(values) is not None
        except Exception:
            return False

    def _is_free_count(self, key):
        """Whether the class has a config of another number of those layers: of a tower whose lists have one entry for each it has none."""
        return any(self._is_config({key: count}) for count in (3, 2, 1) if count != self.defaults[key])

    def _is_sum(self, key):
        """Whether a key is the class's sum of the numbers of layers of two stacks, which no config says."""
        return key == LAYERS[0] != self.layers_key and isinstance(getattr(self.config_class, key, None), property)

    def is_of_every(self, key):
        """Whether a key of a config within another is one that every config has, and decides nothing: some take no such."""
        return "." in key and is_name(key) and last(key) != "model_type" and last(key) in self.every

    def _is_built(self, stack):
        """Whether the class has those layers: of an encoder and a decoder one that is not the usual may have the decoder alone."""
        from .models import of_config

        counts = [len(list(of_config(self.config({stack: count}), self.options).model.modules())) for count in (2, 3)]
        return counts[0] != counts[1]

    def _few(self):
        """One layer of each stack, or as many as the class is built with."""
        from .models import of_config

        for stacks, count in itertools.product(({key: 1 for key in self.stacks}, {}) if self.stacks else ({},), (1, 4, self.layers())):
            try:
                few = {**stacks, self.layers_key: count}
                of_config(self.config(few), self.options)
                return few
            except Exception:
                continue
        return {}

    def _tie_keys(self):
        """Of keys of the config and of the text's in it the one that ties embeddings, or both."""
        for key in self.tie_keys if len(self.tie_keys) > 1 else ():
            try:
                tied = [self._is_tied({other: (other == key) == alone for other in self.tie_keys}) for alone in (True, False)]
            except Exception:
                continue
            if tied == [True, False]:
                return [key]
        return self.tie_keys

    def _is_tied(self, values):
        model = self._traced({**self.defaults, **values, **self.few}, {*self.few, *values}).model
        return model.get_output_embeddings().weight is model.get_input_embeddings().weight

    def _unsaid(self):
        """True-or-false keys that the class reads and its default config lacks; each with the value that leaves the modules as they are without it."""
        from transformers import PretrainedConfig

        from .models import of_config

        asked = set()

        def missing(config, name):
            asked.update((part + "." if part else "") + name for part, whole in wholes if config is whole)
            raise AttributeError(name)

        def modules(said):
            nonlocal wholes
            config = self.config({**self.few, **said})
            wholes = [("", config)] + [(part, getattr(config, part, None)) for part in self.parts]
            return [(name, [tuple(one.shape) for one in module.parameters(recurse=False)]) for name, module in of_config(config, self.options).model.named_modules()]

        wholes = []
        PretrainedConfig.__getattr__ = missing
        try:
            usual = modules({})
        except Exception:  # of a class that wants a value in the place of a null, or another one than its default
            return {}
        finally:
            del PretrainedConfig.__getattr__
        found = {}
        for key in sorted(key for key in asked if not last(key).startswith("_") and not is_name(key) and key not in self.defaults):
            try:
                ways = {value: modules({key: value}) for value in (False, True)}
            except Exception:
                continue
            if ways[False] != ways[True] and usual in ways.values():
                found[key] = next(value for value, way in ways.items() if way == usual)
        return found

    def usual_config(self):
        try:
            return self.config_class(**nested(self.released))
        except Exception:  # it makes lists of those values
            count = getattr(self.config_class(), LAYERS[0])
            return self.config_class(**nested({**self.released, **{key: repeated(kinds, count) for key, kinds in self.repeated.items()}}))

    def class_values(self):
        """The class's own values of switches that the checkpoints of this way have otherwise: a config that is silent has the class's."""
        try:
            own = self.flat(self.config_class())
        except Exception:  # it has no defaults
            return {}
        return {key: own[key] for key, value in self.released.items() if isinstance(value, bool) and isinstance(own.get(key), bool) and own[key] != value}

    def flat(self, config):
        """A config's values, those of configs inside it behind their names."""
        from transformers import PretrainedConfig

        values = {}
        # Keys of every config before transformers 5, by two names.
        generating = getattr(PretrainedConfig, "_get_global_generation_defaults", getattr(PretrainedConfig, "_get_generation_defaults", dict))()
        for key, value in config.to_dict().items():
            if isinstance(value, dict):
                value = {name: inner for name, inner in value.items() if name not in generating}
            if key in generating:
                continue
            if key in self.parts and isinstance(value, dict):
                values.update({"%s.%s" % (key, name): inner for name, inner in value.items()})
            else:
                values[key] = value
        texts = [(part + ".", text) for part in self.parts if (text := getattr(config, part, None)) is text_of(config)]
        for part, own in [("", config), *texts]:
            if isinstance(getattr(type(own), LAYERS[0], None), property):  # the length of a list
                values[part + LAYERS[0]] = getattr(own, LAYERS[0])
        if (self.options.class_name or "").endswith("Classification"):
            values["num_labels"] = config.num_labels  # the length of a table of names
        return values

    def config(self, values, with_lists=True):
        """The config that says those values, and what checkpoints have in place of defaults, of lists of layers where they are wanted."""
        count = values.get(self.layers_key, self.defaults[self.layers_key])
        lists = {key: repeated(kinds, count) for key, kinds in self.repeated.items()} if with_lists else {}
        lists.update({key: [[repeated(kinds_of_times(self.defaults[key]), count), 1]] for key in self.times})
        values = {**self.released, **lists, **values}
        said = {key: value for key, value in values.items() if "." not in key}
        for part in self.parts:
            inner = {key[len(part) + 1:]: value for key, value in values.items() if key.startswith(part + ".")}
            type_key = part + ".model_type"
            if self.defaults.get(type_key) and (inner or type_key in self.chosen_types):
                inner.setdefault("model_type", self.defaults[type_key])
            if inner:
                said[part] = inner
        made = self.config_class(**copy.deepcopy(said))
        # T5's config is tied whatever it is told from transformers 5 on; a checkpoint's own head stays.
        made._has_own_head = said.get("tie_word_embeddings") is False and made.tie_word_embeddings
        return made

    def of(self, values, said, like=None, at=0):
        """(document, shapes, config) at those of `values` that are in `said`; `like`, `at`: as in document_and_shapes."""
        from .document import document_and_shapes

        traced = self._traced(values, said)
        try:
            document, shapes = document_and_shapes(traced, self.options, _BATCHES, self.sequences, like, at)
        except Problem:
            if like is None or not self.loops:  # in which another number of passes has other tensors
                raise
            document, shapes = document_and_shapes(traced, self.options, _BATCHES, self.sequences)
        run = tuple(call["prefix"] for call in document["calls"] if call["prefix"])
        for row in document["modules"] if self.parts else ():
            if "parameters" not in row and "act" in last(row["name"]) and not row["name"].startswith(run):
                row["type"] = "Activation"  # of towers, which are not run: all are one
        once = folded_loops(document)
        self.loops = self.loops or once is not document
        return once, shapes, traced.config

    def error(self, values, said):
        """Why the class does not run with those values; None: it does."""
        from .passes import record

        try:
            traced = self._traced(values, said)
            record(traced.model.train(), traced.inputs_of(_BATCHES[0], self.sequences[0]), None)
        except Exception as error:
            return error

    def _traced(self, values, said):
        from .models import of_config

        made = {key: value for key, value in values.items() if key in said}
        for key, value in self.defaults.items():
            marks = self.text and last(key).endswith(("token_id", "token_index"))  # of images and more: no text has them
            if isinstance(value, int) and (marks or last(key) == "pad_token_id"):  # a row of the table
                made[key] = 0 if marks or not 0 <= value < 4 else value  # of a small one, too
        for key, value in self.defaults.items():  # one type for all layers, by default
            if isinstance(value, list) and len(value) == self.defaults[self.layers_key] and value.count(value[0]) == len(value):
                made[key] = value[:1] * values[self.layers_key]
        return of_config(self.config(made), self.options)

    def record(self):
        from .models import class_that_scores, name_of_none

        usual, *more = self._attentions()
        if self.kv_key and not self._reads_groups():
            self.kv_key, self.grouped = None, False
        self.alike = self._alike()
        switches = 1 if self.released or self.options.class_name else 2
        rows = self._rows_of_enough_layers(usual, switches)
        for attention in more:
            try:
                rows += self._rows(attention, 1)
            except Exception:  # a class need not run what it says that it supports
                continue
        first = rows[0]["graph"]
        own = self.options.class_name or getattr(self.config_class(), "is_encoder_decoder", False)  # whose head is not in the place of the usual one
        scores = None if own else class_that_scores(type(self.config_class()))
        return {
            "schema": "zeroplan.family/1",
            "model_type": self.options.family,
            "class": first["name"],
            **({"named": named} if (named := name_of_none(type(self.config_class()), first["name"])) else {}),
            **({"scores": scores} if scores and not first["name"].endswith("MaskedLM") else {}),
            **({"aliases": aliases} if (aliases := self._aliases()) else {}),
            **({"spelling": spelling} if (spelling := spellings(self)) else {}),
            "software": first["software"],
            "attention": first.get("attention", ""),
            "documents": rows,
        }

    def _rows_of_enough_layers(self, attention, switches):
        """_rows() with as few layers more than show the kinds of its lists as all follow a rule."""
        fewest = self.layers()
        for self.layers_more in range(fewest + 1):
            try:
                return self._rows(attention, switches)
            except TooFewLayers as error:
                too_few = error
        raise too_few

    def _alike(self):
        """Sizes whose being the hidden size decides which modules there are, each with it: embeddings of another width are projected."""
        first = Variant(self, self.grouped, self.ties[0], False, {})
        handled = {self.kv_key, self.layers_key, *self.stacks, *self.same, *(self.text + key for key in LATENT_HEADS)}
        sizes = [key for key in sorted(first.said - handled) if is_size(key, first.base[key])]
        widths = [key for key in sizes if sizes_of(key) == sizes_of("hidden_size")]

        def modules(changes):
            model = self._traced(first.changed(changes), first.said).model
            return [(name, type(module), [own for own, _ in module.named_parameters(recurse=False)]) for name, module in model.named_modules()]

        usual, found = modules({}), {}
        for key, width in itertools.product(sizes, widths):
            if key in widths or key.rpartition(".")[0] != width.rpartition(".")[0]:
                continue
            try:  # a count is not tried at a width: that many modules take minutes
                if usual == modules({key: others(key, first.base[key])[0]}) == modules({key: 2 * first.base[width]}) != modules({key: first.base[width]}):
                    found[key] = width
            except Exception:  # a class need not run with equal sizes
                continue
        return found

    def _aliases(self):
        """Other names under which configs say a key: the class's map, and names that it takes for another key."""
        usual, found = self.config({}), {}
        for part, config in [("", usual)] + [(part + ".", getattr(usual, part, None)) for part in self.parts]:
            names = getattr(config, "attribute_map", None) or {}
            taken = dict(re.findall(r'kwargs\.(?:pop|get)\("(\w+)", *self\.(\w+)\)', inspect.getsource(type(config)))) if config is not None else {}
            found.update({part + alias: part + key for alias, key in {**names, **taken}.items() if part + key in self.defaults})
        return {**found, **self._aliases_of_parts()}

    def _aliases_of_parts(self):
        """Other names under which configs of released checkpoints say a part."""
        found = {}
        for name in sorted(set(re.findall(r'"(\w+_config)"', inspect.getsource(self.config_class))) - {*self.parts, *self.defaults}):
            for part in self.parts:
                sizes = [key for key, value in self.defaults.items() if key.startswith(part + ".") and is_size(key, value) and value > 0 and key not in self.made]
                inner = {"model_type": self.defaults[part + ".model_type"]} if part + ".model_type" in self.defaults else {}
                for key in sizes:
                    try:
                        made = self.flat(self.config_class(**{name: {**inner, last(key): 2 * self.defaults[key]}}))
                    except Exception:  # sizes that must be as others
                        continue
                    if made.get(key) == 2 * self.defaults[key]:
                        found[name] = part
                    break
        return found

    def _attentions(self):
        """The implementations of attention that the class has, its own choice first."""
        from .models import class_of

        kind = class_of(self.config_class(), self.options)
        names = (["sdpa"] if getattr(kind, "_supports_sdpa", False) else []) + ["eager"]
        own_kernels = getattr(kind, "_compatible_flash_implementations", None)
        flash = getattr(kind, "_supports_flash_attn", getattr(kind, "_supports_flash_attn_2", False))  # before 4.54
        names += ["flash_attention_2"] if flash and not own_kernels else []
        return [name for name in names if self._is_built_with(name)]

    def _is_built_with(self, attention):
        """Whether the class has that implementation of attention; a tower may lack what the whole says it has."""
        from .models import of_config

        before, self.options.attention = self.options.attention, attention
        try:
            of_config(self.config(self.few), self.options)
        except ValueError:
            return False
        except Exception:  # of its defaults, under every attention
            return True
        finally:
            self.options.attention = before
        return True

    def _rows(self, attention, switches):
        """The documents of an implementation of attention, with so many switches; what a key is to one it need not be to another."""
        self.options.attention, self.roles, self.small, self.wholes = attention, {}, {}, {}
        self.windows = self._windows()
        rows = []
        for grouped in (True, False) if self.kv_key else (False,):
            try:
                rows += [Variant(self, grouped, tied, long, {}, alike).row() for alike in self._ways_alike() for tied in self.ties for long in self._lengths()]
            except Exception:  # latent attention has no heads that share keys
                if grouped == self.grouped:
                    raise
        return rows + self._switched(rows[0]["fixed"], switches)

    def _reads_groups(self):
        """Whether it matters how many heads share keys."""
        try:
            first = Variant(self, True, self.ties[0], False, {})
            documents = [self.of(dict(first.base, **{self.kv_key: count}), first.said)[0] for count in (1, first.base[self.heads_key])]
        except Exception:
            return True
        return documents[0] != documents[1]

    def _windows(self):
        """The windows on whose two sides the class does something else; all of them where it does not run with its own sizes."""
        def document(longer):
            values = {key: 61 // tokens_of(key, first.base) if key == longer else 4099 for key in self.all_windows}
            return self.of(dict(first.base, **values), first.said)[0]

        self.windows = self.all_windows
        if not self.all_windows:
            return []
        try:
            first = Variant(self, self.grouped, self.ties[0], False, {})
            within = document(None)
            return [key for key in self.all_windows if document(key) != within]
        except Exception:
            return self.all_windows

    def usually_alike(self):
        """The sizes that decide by being alike, which are by the class's defaults."""
        return {key: other for key, other in self.alike.items() if self.follows.get(key) == other or self.defaults[key] in (None, self.defaults[other])}

    def _ways_alike(self):
        return [self.usually_alike()] + [{} if self.usually_alike() else self.alike] * bool(self.alike)

    def _lengths(self, without=()):
        return (False, True) if set(self.windows) - set(without) else (False,)

    def _switched(self, fixed, most):
        """The documents of one switch, up to so many, that are not as by default, with the class's usual heads; two with its usual embeddings."""
        from transformers import PretrainedConfig

        every = PretrainedConfig().to_dict()  # what every config has: no checkpoint says another value
        ways = {key: switched(key, value, fixed.get(key)) for key, value in sorted(self.defaults.items()) if key not in self.released and last(key) not in every}
        rows, usual, own = [], self.roles, (set(self.kept), self.width_of_heads)
        for count in range(1, most + 1):
            for chosen in itertools.combinations([(key, value) for key, values in ways.items() for value in values], count):
                self.wholes = {}
                # Another way reads keys that the usual one does not.
                self.kept, self.width_of_heads = set(own[0]), own[1]
                self.roles = dict(usual) if all(isinstance(value, bool) for _, value in chosen) else {}
                ties = self.ties if count < most else (self.defaults[self.tie_keys[0]] if self.tie_keys else None,)
                # Texts of released configs of several share heads of keys, whatever their class's default is.
                groups = {self.grouped, True} if self.text and self.kv_key and count < most else {self.grouped}
                try:
                    rows += [Variant(self, grouped, tied, long, dict(chosen)).row()
                             for grouped in sorted(groups) for tied in ties for long in self._lengths(dict(chosen))]
                except Exception:  # a class need not have every pair
                    continue
        self.kept, self.width_of_heads = own
        return rows

    def _made(self):
        """Keys that the config makes of its numbers of layers, or of its sizes where a word ("auto") stands for them."""
        stacks = (self.layers_key, *self.stacks)
        worked_out = {key for key, value in self.defaults.items() if is_size(key, value) and isinstance(getattr(self.config_class, key, None), str)}
        return worked_out | {*self.times, *(key for stack in stacks for key in self._made_of(stack))} - set(stacks)

    def _made_of(self, stack):
        for count in range(2, 9):
            try:
                other = self.flat(self.config({stack: count}))
            except Exception:
                continue
            return {key for key, value in self.defaults.items() if key in other and other[key] != value}
        return {key for key, value in self.defaults.items() if isinstance(value, list) and len(value) == self.defaults[stack]}

    def _follows(self):
        """Keys that take another key's value where a config does not say them; each with the other."""
        found = {}
        for other in [key for key, value in self.defaults.items() if is_size(key, value)]:
            try:
                changed = self.flat(self.config({other: 2 * self.defaults[other]}))
            except Exception:
                continue
            if other not in changed:  # it is kept in a config that is made of it
                continue
            own = [key for key, value in self.defaults.items() if key not in (other, self.kv_key) and is_size(key, value) and value == self.defaults[other]]
            found.update({key: other for key in own if changed.get(key) == changed[other] != self.defaults[key]})
        return found

    def _same(self):
        """Of those the keys with whose own values the class does not run."""
        def runs(key):
            values = {**self.defaults, **{count: 1 for count in self.stacks}, **self.few}
            return self.error(dict(values, **{key: values[key] + 1}), set(values) - self.made) is None

        asked = set(self.follows) - {self.layers_key, *self.stacks} - self.made
        return {key: self.follows[key] for key in asked if not runs(key) and self.follows[key] not in asked} | self._said_twice() | self._agreeing()

    def _said_twice(self):
        """Sizes of a config of several that its text says, too, and that must be the same in both for the class to run."""
        def runs(*keys):
            values = {**self.defaults, **{count: 1 for count in self.stacks}, **self.few}
            values.update({**{key: 2 * values[key] for key in keys}, **{key: False for key in self.tie_keys}})  # a tied head is as wide as the embeddings, whatever is said of it
            return self.error(values, set(values) - self.made) is None

        twice = {key: self.text + key for key, value in self.defaults.items() if self.text and "." not in key and is_size(key, value) and value == self.defaults.get(self.text + key)}
        return {key: other for key, other in twice.items() if key not in self.made and not runs(key) and runs(key, other)}

    def _agreeing(self):
        """Sizes of parts that are not the text's and must be as another size for the class to have a config: what an adapter gives is as wide as the text."""
        def agree(*keys):
            return self._is_config({key: 2 * self.defaults[key] for key in keys})

        sizes, found = {key: value for key, value in self.defaults.items() if is_size(key, value) and value > 0 and key not in self.made}, {}
        for key in sorted(key for key in sizes if self.text and "." in key and not key.startswith(self.text)):
            others = [other for other, value in sizes.items() if value == sizes[key] and other != key and other not in found] if not agree(key) else ()
            if other := next((other for other in others if not agree(other) and agree(key, other)), None):
                found[key] = other
        return found

    def _turned(self):
        """What the class makes of another size of what is turned of a head: {key: the values at two sizes}; nothing where it makes no config of it."""
        turned = self.text + "qk_rope_head_dim"
        if turned not in self.defaults:
            return {}
        try:
            made = [self.flat(self.config({turned: size})) for size in (16, 32)]
        except Exception:
            return {}
        return {key: (one, made[1].get(key)) for key, one in made[0].items()}

    def _makes_head_dim(self):
        """Whether head_dim is what is turned of a head, another key's."""
        own = self._turned().get(self.text + "head_dim", (None, None))
        return self.text + "qk_rope_head_dim" in self.defaults and (own[0] is None or own[0] != own[1])

    def _share_of_head(self):
        """The keys of which the class makes the share of a head that is turned: recorded at their own values."""
        own = self._turned().get(self.text + "rope_parameters", (None, None))
        return {self.text + key for key in ("head_dim", "qk_rope_head_dim")} if own[0] != own[1] and not self.makes_head_dim else set()

    def _reads_head_dim(self):
        """Whether the class reads a head_dim that its config does not have by default."""
        width = self.defaults.get(self.text + "hidden_size")
        if self.text + "head_dim" in self.defaults or self.text + "qk_rope_head_dim" in self.defaults or not width:
            return False
        modules = []
        for said in ({}, {self.text + "head_dim": width // 4}):
            values = {**self.defaults, **self.few, **said}
            try:
                modules.append(self.of(values, {*self.few, *said})[0]["modules"])
            except Exception:
                return False
        return modules[0] != modules[1]

    def layers(self):
        """As few as show every kind that the class has by its defaults, twice where there are so many (the last may be another), and whatever follows it."""
        def kinds(config):
            values = self.flat(config)
            count = values[self.layers_key]
            lists = {key: list(map(str, value)) for key, value in values.items() if isinstance(value, list) and len(value) == count}
            layers = list(zip(*lists.values()))
            return {key: {(kind, value.count(kind) > 1) for kind in value} for key, value in lists.items()}, set(zip(layers, layers[1:]))

        usual = kinds(self.config({}) if self.repeated else self.usual_config())
        for count in range(3, 17):
            try:
                if kinds(self.config({self.layers_key: count})) == usual:
                    return count
            except Exception:
                continue
        return 4

    def list_without(self, key, said):
        """What the class makes of a config that says only this, as a list; none where it makes none."""
        try:
            value = self.flat(self.config(said, with_lists=False)).get(key)
        except Exception:
            return []
        return value if isinstance(value, list) else []

    def read_for(self, key):
        """Keys that the config's class takes by name without keeping them, where they change that list; each with its usual value."""
        whole = self.config({})
        owner = getattr(whole, self.text[:-1]) if self.text else whole
        usual, read = self.list_without(key, {}), {}
        for name, otherwise in re.findall(r'kwargs\.(?:pop|get)\("(\w+)"(?:, *([^()]*?))?\)', inspect.getsource(type(owner))):
            if self.text + name in self.defaults:
                continue
            value = ast.literal_eval(otherwise) if otherwise and re.fullmatch(r"None|\d+", otherwise) else None
            tried = [number for number in (1, 2, 3, 5) if number != value]
            if any(self.list_without(key, {self.text + name: number}) not in (usual, []) for number in tried):
                read[self.text + name] = value
        return read

    def of_null(self, key):
        """What the class takes for a size that is null, as so many times its width: "=4*n_embd"; None where it is nothing of that kind."""
        from .models import of_config

        def modules(values):
            return [tuple(one.shape) for one in of_config(self.config({**self.few, **values}), self.options).model.parameters()]

        part = key[:-len(last(key))]
        words = part + "vocab_size"
        if key != words and last(key).endswith("vocab_size") and self.defaults.get(words):
            return "=" + words
        heads = self.defaults.get(self.heads_key) or 1
        sizes = (1728, 2880) if 1728 % heads == 2880 % heads == 0 else (64 * heads, 128 * heads)
        for width in [other for other in self.defaults if other.startswith(part) and sizes_of(other) == sizes_of("hidden_size") and is_size(other, self.defaults[other])]:
            try:
                usual = [modules({width: size, key: None}) for size in sizes]
                same = [times for times in range(1, 9) if usual == [modules({width: size, key: times * size}) for size in sizes]]
                if len(same) == 1:  # of a size that changes nothing all are
                    return "=%d*%s" % (same[0], width)
            except Exception:  # a class that takes no null
                continue
        return None

    def usual(self, keys):
        """Values of keys that a config does not say, "=KEY" for another key's; null where the class makes them of others in another way."""
        usual = {key: "=" + self.follows[key] if key in self.follows else self.defaults.get(key) for key in keys}
        usual.update({key: made for key in keys if self.defaults.get(key, 0) is None and (made := self.of_null(key))})
        for other in [key for key in keys if is_size(key, self.defaults.get(key)) and key != self.layers_key]:
            try:
                changed = self.flat(self.config({other: 2 * self.defaults[other]}))
            except Exception:
                continue
            for key in keys:
                if key != other and key not in self.follows and changed.get(key) != self.defaults.get(key) and usual[key] == self.defaults.get(key):
                    usual[key] = self.of_null(key) if is_size(key, usual[key]) else None
        return usual


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
            return (61 // tokens_of(key, self.base),) if self.long else (4099,)
        if is_dropout(key, value):
            return (value or 0.1,)  # what drops nothing is no operation
        sizes = POWERS if key in self.known.powers else None if "multiple_of" in key else wide_sizes_of(key, value)
        if value is None and last(key) not in (*ROPE, *SPARE):
            return sizes
        if not is_size(key, value):
            return None
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
        asked = {key[1:] for rule in rules for key in rule["by"] if key[0] in "<%^@" and key != "<1"}
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
            row["fixed"].update({key: known.defaults[key] for key in known.chosen_types})
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
        more = self._more_layers(running(graph))
        for key, stack in running(graph).items():
            if not any(holds(rule, more[1][key], *more[2:4], more[3][key]) for rule in stack["rules"]):
                raise TooFewLayers("layers whose kinds the config tells", "%s, with twice as many" % more[1][key])
        self.samples = [self.first]
        counted = self._around(graph) != self._around(more[0])  # sizes that grow with the number of layers
        if counted:
            self.samples.append(self._sample_of_layers(graph, kinds_of, more, known.layers_key))
        self._find_free()
        roles = {key: self._role(key) for key in sorted(self.base) if self._is_asked(key)}
        if not self._is_recorded_as_usual(key for key, role in roles.items() if role == "fixed" and not is_period(key)):
            return None
        symbols = [key for key, role in roles.items() if role == "symbol"] + [known.layers_key] * counted
        width = known.text + "hidden_size"
        if known.defaults.get(width) and roles.get(width, "free") == "free" and not known.width_of_heads:
            raise Problem("sizes that follow %s" % width, "none", "")
        self._add_joint([key for key, role in roles.items() if role != "fixed"])
        joint = self.samples[-1]
        if counted:
            self._add_joint_of_layers(graph, kinds_of)
        try:
            of_all = merged(self.document, [sample.numbers for sample in self.samples], self._formulas(symbols).of)
        except Differs as error:
            of_towers = bool(known.text) and not any(key.startswith(known.text) for key in error.keys)
            if set(error.keys) == {known.heads_key} and self._takes_powers():
                return None
            if not error.keys or len(error.keys) > 1 and not of_towers or any(key in known.kept or known.defaults.get(key) is None for key in error.keys):
                raise Problem("sizes that are sums of products of the config's keys", str(error), "")
            self._keep(error.keys)  # it is rounded, or cut at another size: the class's own value alone is recorded
            return None
        whole = Whole(of_all, self.document, self.base, joint, roles, symbols, more, self._rope())
        known.wholes[self._but_ties()] = whole
        return whole

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
        known, base = self.known, self.base
        own = {key for key in fixed if is_size(key, base[key]) and key not in self.switched and known.defaults.get(key) is not None}
        width = known.text + "hidden_size"
        own_dim = known.text + "head_dim"
        if own >= {width, known.heads_key} and (own_dim in own or own_dim not in known.defaults) and not known.width_of_heads:
            known.width_of_heads = known.defaults[width] // known.defaults[known.heads_key]
            known.kept -= {width, known.heads_key}
            known.roles.pop(known.heads_key)
            return False
        kept = {key for key in own if base[key] != known.defaults.get(key)} - known.kept
        if known.heads_key in kept and self._takes_powers():
            return False
        self._keep(kept)
        return not kept

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

    def _more_layers(self, stacks, changes=None):
        """The folded document with twice as many layers in those stacks, their kinds, what tells them, and the document itself."""
        base = self._with(self.base, changes or {})
        base = dict(base, **{key: 2 * base[key] for key in stacks})
        document, _, config = self.known.of(base, self.said)
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
        return dict(first, blocks=blocks, modules=modules, buffers={name: document["buffers"][there(name)] for name in first["buffers"]})

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
        if key not in self.said or is_name(key) or is_first(key) or last(key) in ROPE or key in (known.layers_key, *known.stacks, *known.tie_keys, *self.same):
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
        known_as = (key, self.long) if key in self.known.windows else key  # a size where sequences are longer alone
        if roles.get(known_as) not in ("fixed", "free"):
            roles[known_as] = self._found_role(key, 1 if known_as in roles else 2, known_as in roles)
        return roles[known_as]

    def _found_role(self, key, wanted, is_known):
        seen = [sample for other, changes in self.known.of_towers.get(key, ())[:wanted] if (sample := self._changed(key, other, changes))]
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
            kept.append((sample.values[key], changes))
        self.known.of_towers[key] = kept

    @staticmethod
    def _rows_of(document, part):
        rows = document[part]
        return rows if isinstance(rows, dict) else {row["name"]: row for row in rows}

    def _changed(self, key, value, changes):
        """The sample, from what the key changed in another document; None where that has other rows."""
        document = dict(self.document)
        for part, rows in changes.items():
            own = self._rows_of(document, part)
            if any(own.get(name) != before for name, (before, _) in rows.items()):
                return None
            after = {name: rows[name][1] if name in rows else row for name, row in own.items()}
            document[part] = after if isinstance(document[part], dict) else list(after.values())
        try:
            return Sample(dict(self.base, **{key: value}), key, numbers_of(self.document, document))
        except Differs:
            return None

    def _add_joint(self, keys):
        """Samples in which all keys have other values, which the formulas must meet, too."""
        sizes = [None, 4, 4, 4]  # one run at all sizes, others at the largest
        for changes in self._joint_changes(keys):
            sample = self._sample(changes, at=sizes[-1])
            if sample is not None:
                self.samples.append(sample)
                sizes.pop()
                if changes not in self.known.joint:
                    self.known.joint.append(changes)
            if not sizes:
                return
        raise Problem("a class that runs with several keys changed at once", "%d of %d configs" % (4 - len(sizes), _JOINT_TRIES), "")

    def _joint_changes(self, keys):
        """Those with which another document was made come first, as far as they are of these keys: a class need not run with most that are drawn."""
        draw, values = random.Random(1), {key: [self.base[key]] + [other for other in self._others(key) if (key, other) not in self.failed] for key in keys}
        for known in list(self.known.joint):
            yield {key: known[key] if known.get(key) in values[key] else draw.choice(values[key]) for key in keys}
        for _ in range(_JOINT_TRIES):
            yield {key: draw.choice(values[key]) for key in keys}

    def _rope(self):
        """The sorts of rotary embedding under which the document is the same, and the share of the heads that is turned."""
        key = next((key for name in ROPE if (key := self.known.text + name) in self.base and name != "rope_theta"), None)
        said = self.base.get(key)
        if key and said is None and last(key) == "rope_scaling":  # before transformers 5 what is not as by default
            said = {}
        if not isinstance(said, dict):
            return {"types": ["default"]}
        nested = bool(said) and all(isinstance(part, dict) for part in said.values())
        same = sorted({part.get("rope_type", "default") for part in (said.values() if nested else [said])})
        for sort, more in ROPE_SORTS.items():
            changed = copy.deepcopy(said)
            for part in changed.values() if nested else [changed]:
                part.update(more, rope_type=sort)
            sample = self._sample({key: changed})
            if sample is not None and sample.numbers == self.first.numbers:
                same.append(sort)
        named = said if nested else {"": said}
        shares = {name: part["partial_rotary_factor"] for name, part in named.items() if "partial_rotary_factor" in part}
        return dict({"types": same}, **({"partial": shares if nested else shares[""]} if shares else {}))

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


def _pooled(recorded):
    """Most documents have most blocks and kinds of layers, most blocks most tensors and events."""
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
    return dict(recorded, **{name: pool.rows for name, pool in pools.items()})


def _whole(recorded):
    """The documents of a recording with what _pooled made numbers of; the recording is used up."""
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


def _beside(recorded, known):
    """The recording with another's documents of other releases; the newer says what stands outside of documents."""
    newer, older = (recorded, known) if _release(recorded["software"]) >= _release(known["software"]) else (known, recorded)
    own = recorded["software"]["transformers"]
    kept = [document for document in _whole(known) if document["graph"]["software"]["transformers"] != own]
    documents = sorted(recorded["documents"] + kept, key=lambda document: _release(document["graph"]["software"]), reverse=True)
    aliases = dict(older.get("aliases", {}), **newer.get("aliases", {}))
    return dict({key: value for key, value in newer.items() if key not in _POOLS}, documents=documents, **({"aliases": aliases} if aliases else {}))


def family(options):
    from transformers import __version__

    besides = BEFORE_5.get(options.family, {}) if int(__version__.partition(".")[0]) < 5 else {}
    first, *more = (dict(besides, **released) for released in RELEASED.get(options.family, ({},)))
    recorded = Class(options, first).record()
    for released in more:
        options.attention = None  # not that of the last document
        other = Class(options, released).record()
        recorded["documents"] += other["documents"]
        if aliases := dict(other.get("aliases", {}), **recorded.get("aliases", {})):
            recorded["aliases"] = aliases
    if options.beside:
        with open(options.beside) as file:
            recorded = _beside(recorded, json.load(file))
    return _pooled(recorded)
