"""zeroplan.family/1: what a class's documents have in common, with sizes as formulas over the keys of its config.

The class is traced at a small config, at that config with one key changed, for each key, and at some with all changed.
"""

import ast
import copy
import functools
import inspect
import itertools
import json
import os
import re
import sys

from .config_keys import (BEFORE_5, LATENT_HEADS, LAYERS, RELEASED, SIZES, WHOLE_BLOCKS, is_last, is_name, is_size, is_stack, is_window, kinds_of_times, last, nested, others,
                          repeated, sizes_of, switched, tokens_of)
from .formulas import Differs
from .loops import folded_loops
from .merging import numbers_of
from .models import text_of
from .pools import beside, pooled
from .problem import Problem
from .spelling import spellings, tables
from .variant import BATCHES, TooFewLayers, Variant

_SEQUENCES = (128, 256, 512)


def _left_out(error, *document):
    """Says which document a class lacks, and why, to those who record."""
    if os.environ.get("ZEROPLAN_TRACE_DEBUG"):
        print("left out:", *document, "(%s: %s)" % (type(error).__name__, str(error)[:200]), file=sys.stderr)


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
        self.fewest = next((value for key, value in (released or {}).items() if last(key) in LAYERS), None)  # layers that show every kind
        self.released = {key: value for key, value in (released or {}).items() if not isinstance(value, tuple) and last(key) not in LAYERS}
        self.repeated = {key: value for key, value in (released or {}).items() if isinstance(value, tuple)}  # over the layers
        if options.family not in CONFIG_MAPPING:
            raise Problem("a model type of transformers %s" % transformers.__version__, options.family, "")
        self.config_class = CONFIG_MAPPING[options.family]
        usual = self.usual_config()
        self.parts = sorted(getattr(usual, "sub_configs", None) or ())  # configs inside it
        self.repeats = ()  # sizes that the class says once for each layer
        self.chosen_types = [part + ".model_type" for part in self.parts if usual.sub_configs[part].__name__ == "AutoConfig"]  # which class a part has
        text = next((part for part in self.parts if getattr(usual, part, None) is text_of(usual)), None)
        self.text = text + "." if text else ""  # what keys of the text model begin with
        self.defaults = self.flat(usual)
        self.times = [key for key, value in self.defaults.items() if kinds_of_times(value)]  # kinds of layers with how often they follow each other
        stacks = [key for key, value in self.defaults.items() if is_stack(key, self.text) and (value is None or is_size(key, value))]
        self.layers_key = next((self.text + key for key in LAYERS if self.text + key in self.defaults and self._is_settable(self.text + key)), next(iter(stacks), None))
        if self.layers_key is None:
            raise Problem("a config with a number of layers", options.family, "")
        self.repeats = tuple(key for key, value in self.defaults.items() if self._repeats(key, value))
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
        self.known_roles, self.known_formulas, self.ropes = {}, set(), {}  # of every document so far: what the next most likely has, too
        self.small = {}  # key -> the size that a document's config has where not all can be small
        self.kept = self._share_of_head()  # keys that are recorded at the class's own value alone
        self.alike = {}  # key -> the other of a pair of sizes whose being equal decides which modules there are
        self.powers = set()  # keys whose sizes are powers of two
        self.width_of_heads = None  # hidden_size / heads, where the class runs with its own alone
        self.joint = []  # changes of several keys at once with which the class ran
        self.of_towers = {}  # key of a tower that is not run -> what other values change, the same in every document

    def _repeats(self, key, value):
        """Whether a list is one size, which the class takes as a number and says once for each layer."""
        if not isinstance(value, list) or len(value) != self.defaults[self.layers_key] or len(set(map(str, value))) != 1 or not is_size(key, value[0]):
            return False
        try:
            return self.flat(self.config_class(**nested({key: value[0]}))).get(key) == value
        except Exception:
            return False

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
        """The class's own values of switches, and of layers that come last, that the checkpoints of this way have otherwise: a config that is silent has the class's."""
        try:
            own = self.flat(self.config_class())
        except Exception:  # it has no defaults
            return {}
        return {key: own[key] for key, value in self.released.items() if (isinstance(value, bool) and isinstance(own.get(key), bool) or is_last(key)) and own[key] != value}

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
        values.update({key: values[key][0] for key in self.repeats if isinstance(values.get(key), list) and len(set(values[key])) == 1})
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

    def of(self, values, said, like=None, at=0, points=None):
        """(document, shapes, config) at those of `values` that are in `said`; `like`, `at`: as in document_and_shapes; `points`: batches and sequences."""
        from .document import document_and_shapes

        traced, (batches, sequences) = self._traced(values, said), points or (BATCHES, self.sequences)
        try:
            document, shapes = document_and_shapes(traced, self.options, batches, sequences, like, at)
        except Problem:
            if like is None or not self.loops:  # in which another number of passes has other tensors
                raise
            document, shapes = document_and_shapes(traced, self.options, batches, sequences)
        run = tuple(call["prefix"] for call in document["calls"] if call["prefix"])
        for row in document["modules"] if self.parts else ():
            if "parameters" not in row and "act" in last(row["name"]) and not row["name"].startswith(run):
                row["type"] = "Activation"  # of towers, which are not run: all are one
        once = folded_loops(document)
        self.loops = self.loops or once is not document
        return once, shapes, traced.config

    def point(self):
        """A batch and a sequence of which one run tells what does not hang on them."""
        return BATCHES[:1], self.sequences[-1:]

    def error(self, values, said):
        """Why the class does not run with those values; None: it does."""
        from .passes import record

        try:
            traced = self._traced(values, said)
            record(traced.model.train(), traced.inputs_of(BATCHES[0], self.sequences[0]), None)
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
            except Exception as error:  # a class need not run what it says that it supports
                _left_out(error, attention)
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
            **({"tables": said} if (said := tables(self)) else {}),
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
            except Exception as error:  # latent attention has no heads that share keys
                if grouped == self.grouped:
                    raise
                _left_out(error, attention, "heads that share keys" if grouped else "as many keys as heads")
        fixed, one = rows[0]["fixed"], []
        if self.kv_key and self._is_another_with_one():
            one = [Variant(self, True, tied, long, {self.kv_key: 1}, alike).row() for alike in self._ways_alike() for tied in self.ties for long in self._lengths()]
        rows += self._switched(fixed, switches)
        for row in rows if one else ():
            row["heads"]["several"] = True
        return rows + one

    def _reads_groups(self):
        """Whether it matters how many heads share keys."""
        try:
            first = Variant(self, True, self.ties[0], False, {})
            documents = [self.of(dict(first.base, **{self.kv_key: count}), first.said, points=self.point())[0] for count in (1, first.base[self.heads_key])]
        except Exception:
            return True
        return documents[0] != documents[1]

    def _is_another_with_one(self):
        """Whether one head of keys for all is another document than a few: what repeats it makes a view, and copies several."""
        try:
            first = Variant(self, True, self.ties[0], False, {})
            one, few = (self.of(dict(first.base, **{self.kv_key: count}), first.said, points=self.point())[0] for count in (1, first.base[self.kv_key]))
        except Exception:
            return False
        try:
            numbers_of(one, few)
        except Differs:
            return first.base[self.kv_key] > 1
        return False

    def _windows(self):
        """The windows on whose two sides the class does something else; all of them where it does not run with its own sizes."""
        def document(longer):
            values = {key: self.size_of_window(key, key == longer, first.base) for key in self.all_windows}
            return self.of(dict(first.base, **values), first.said, points=self.point())[0]

        self.windows = self.all_windows
        if not self.all_windows:
            return []
        try:
            first = Variant(self, self.grouped, self.ties[0], False, {})
            within = document(None)
            return [key for key in self.all_windows if document(key) != within]
        except Exception:
            return self.all_windows

    def size_of_window(self, key, longer, values):
        """A window within which the sequences are, or longer ones are not; a multiple of what it must be one of."""
        sizes = [size // tokens_of(key, values) for size in (61, 48)] if longer else (4099, 4096)
        return next((size for size in sizes if self._is_config({key: size})), sizes[0])

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
                except Exception as error:  # a class need not have every pair
                    _left_out(error, self.options.attention, dict(chosen))
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
            changed = self._with_doubled(other) or {}
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
                modules.append(self.of(values, {*self.few, *said}, points=self.point())[0]["modules"])
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

        if self.fewest is not None:
            return self.fewest
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

    @functools.lru_cache(maxsize=None)
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

    @functools.lru_cache(maxsize=None)
    def _with_doubled(self, key):
        """The class's values where that size is twice its own; None: it has no such config."""
        try:
            return self.flat(self.config({key: 2 * self.defaults[key]}))
        except Exception:
            return None

    def usual(self, keys):
        """Values of keys that a config does not say, "=KEY" for another key's; null where the class makes them of others in another way."""
        usual = {key: "=" + self.follows[key] if key in self.follows else self.defaults.get(key) for key in keys}
        usual.update({key: made for key in keys if self.defaults.get(key, 0) is None and (made := self.of_null(key))})
        for other in [key for key in keys if is_size(key, self.defaults.get(key)) and key != self.layers_key]:
            changed = self._with_doubled(other)
            for key in keys if changed else ():
                if key != other and key not in self.follows and changed.get(key) != self.defaults.get(key) and usual[key] == self.defaults.get(key):
                    usual[key] = self.of_null(key) if is_size(key, usual[key]) else None
        return usual


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
            recorded = beside(recorded, json.load(file))
    return pooled(recorded)
