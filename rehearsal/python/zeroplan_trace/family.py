"""zeroplan.family/1: what a class's documents have in common, with sizes as formulas over the keys of its config.

The class is traced at a small config, at that config with one key changed, for each key, and at some with all changed. A key
that changes nothing is free, one that changes numbers is a symbol, one that changes more is fixed to the value that was recorded.
A size that is no sum of products of symbols is a Problem, never an approximation.
"""

import copy
import itertools
import json
import random

from .formulas import Differs, Formulas
from .problem import Problem

# A config's keys by what must divide what: one value and others, by the first pattern that is in the key's name.
_SIZES = (
    (("num_key_value_heads", "num_kv_heads", "multi_query_group_num"), (3, 2, 1)),
    (("linear_num_key_heads",), (3, 6, 2)),
    (("linear_num_value_heads",), (6, 18, 36)),
    (("num_attention_heads", "n_head", "num_heads"), (12, 24, 36)),
    (("qk_rope_head_dim",), (16, 32, 48)),
    (("qk_nope_head_dim",), (24, 40, 56)),
    (("v_head_dim",), (32, 88, 104)),
    (("head_dim",), (48, 80, 112)),
    (("lora_rank",), (94, 106, 118)),
    (("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"), (136, 152, 184)),
    (("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff"), (664, 712, 776)),
    (("experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"), (2, 3, 5)),
    (("n_shared_experts", "num_shared_experts"), (1, 2, 3)),
    (("num_experts", "n_routed_experts", "num_local_experts"), (16, 32, 8)),
    (("hidden_size", "n_embd", "d_model"), (1728, 2880, 4032)),
    (("vocab_size",), (1009, 1013, 1019)),
    (("max_position_embeddings", "n_positions"), (8209, 8219, 8221)),
)
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_WINDOWS = ("window", "attention_chunk_size")
_FIRST = ("first_k_dense", "num_dense_layers", "moe_layer_start_index", "dense_layers")
_PERIODS = ("interval", "pattern", "_step", "layer_freq", "every_n")
# Keys that name no size and no operation.
_NAMES = ("token_id", "_name_or_path", "transformers_version", "architectures", "model_type", "dtype", "torch_dtype", "id2label", "label2id",
          "problem_type", "return_dict", "output_hidden_states", "output_attentions", "use_cache", "chunk_size_feed_forward", "is_encoder_decoder",
          "initializer", "pretraining_tp", "keys_to_ignore", "tokenizer_class", "finetuning_task")
# Of latent attention: values as wide as queries take other kernels.
_LATENT_HEADS = ("v_head_dim", "qk_nope_head_dim", "qk_rope_head_dim")
_ROPE = ("rope_parameters", "rope_scaling", "rope_theta")
_ROPE_SORTS = {
    "linear": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 2048, "beta_fast": 32.0, "beta_slow": 1.0, "attention_factor": 1.1},
    "llama3": {"factor": 8.0, "original_max_position_embeddings": 2048, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}


class Sample:
    """A config and the class's document at it; `changed`: the one key in which it is not the first."""

    def __init__(self, values, changed=None):
        self.values, self.changed, self.document = values, changed, None


def _sizes_of(key):
    for names, sizes in _SIZES:
        if any(name in key for name in names):
            return sizes
    return None


def _is_size(key, value):
    return isinstance(value, int) and not isinstance(value, bool) and not any(name in key for name in _NAMES)


def _is_first(key):
    return any(name in key for name in _FIRST)


def _is_window(key):
    return any(name in key for name in _WINDOWS) and not any(name in key for name in ("layers", *_PERIODS))


# --- documents

def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _merged(values, formulas, path=""):
    """One document for all: `formulas` says what a number is that differs."""
    first = values[0]
    if all(isinstance(value, dict) for value in values):
        if any(value.keys() != first.keys() for value in values):
            raise Differs("%s has other members" % path)
        return {key: _merged([value[key] for value in values], formulas, "%s/%s" % (path, key)) for key in first}
    if all(isinstance(value, list) for value in values):
        if any(len(value) != len(first) for value in values):
            raise Differs("%s has another length" % path)
        return [_merged([value[i] for value in values], formulas, "%s/%d" % (path, i)) for i in range(len(first))]
    if all(value == first and type(value) is type(first) for value in values):
        return first
    if all(_is_number(value) for value in values):
        try:
            return formulas(values)
        except Differs as error:
            raise Differs("%s at %s" % (error, path))
    raise Differs("%s is %s, and %s" % (path, str(first)[:60], next(str(v)[:60] for v in values if v != first)))


def _same_structure(a, b):
    try:
        _merged([a, b], lambda _: 0)
        return True
    except Differs:
        return False


# --- recording

class Recorder:
    def __init__(self, options):
        import transformers
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        self.options = options
        if options.family not in CONFIG_MAPPING:
            raise Problem("a model type of transformers %s" % transformers.__version__, options.family, "")
        self.config_class = CONFIG_MAPPING[options.family]
        self.defaults = {key: value for key, value in self.config_class().to_dict().items() if not key.startswith("_")}
        self.layers_key = next((key for key in _LAYERS if key in self.defaults), None)
        self.kv_key = next((key for key in _SIZES[0][0] if key in self.defaults), None)
        self.heads_key = next((key for key in self.defaults if _sizes_of(key) == _sizes_of("num_attention_heads")), None)
        if self.layers_key is None:
            raise Problem("a config with a number of layers", options.family, "configs that hold others are not recorded yet")

    def trace(self, values, sequences):
        from .document import document_of
        from .models import of_config

        made = {key: value for key, value in values.items() if key in self.said}
        if isinstance(self.defaults.get("pad_token_id"), int):  # a row of the table
            made["pad_token_id"] = 0
        for key, value in self.defaults.items():  # one type for all layers, by default
            if isinstance(value, list) and len(value) == self.defaults[self.layers_key] and value.count(value[0]) == len(value):
                made[key] = value[:1] * values[self.layers_key]
        config = self.config_class(**copy.deepcopy(made))
        traced = of_config(config, self.options)
        return document_of(traced, self.options, (2, 3, 5), sequences), config

    def record(self):
        documents, self.roles, self.switched = [], {}, {}
        heads = [self.defaults.get(key) for key in _LATENT_HEADS]
        self.wide_values = None if None in heads else heads[0] == heads[1] + heads[2]
        self.reads_head_dim = self._reads_head_dim()
        for self.grouped in (True, False) if self.kv_key else (False,):
            documents += [self._variant(tied, long) for tied in self._ties() for long in self._lengths()]
        documents += self._switched(documents[0]["fixed"])
        first = documents[0]
        return _pooled({
            "schema": "zeroplan.family/1",
            "model_type": self.options.family,
            "class": first["graph"]["name"],
            "software": first["graph"]["software"],
            "attention": first["graph"].get("attention", ""),
            "documents": documents,
        })

    def _switched(self, fixed):
        """The documents of one and of two switches that are not as by default, with the class's usual heads and embeddings."""
        switches = sorted(key for key, value in fixed.items() if isinstance(value, bool))
        heads, shared = self.defaults.get(self.heads_key), self.defaults.get(self.kv_key)
        self.grouped = bool(self.kv_key) and shared not in (None, heads)
        documents = []
        for count in (1, 2):
            for keys in itertools.combinations(switches, count):
                self.switched = {key: not fixed[key] for key in keys}
                try:
                    documents += [self._variant(self.defaults.get("tie_word_embeddings"), long) for long in self._lengths()]
                except Exception:  # a class need not have every pair
                    continue
        return documents

    def _reads_head_dim(self):
        """Whether the class reads a head_dim that its config does not have by default."""
        from .models import of_config

        usual = self.config_class()
        if "head_dim" in self.defaults or "qk_rope_head_dim" in self.defaults or not hasattr(usual, "hidden_size"):
            return False
        counts = set()
        for said in ({}, {"head_dim": usual.hidden_size // 4}):
            try:
                model = of_config(self.config_class(**{self.layers_key: 1}, **said), self.options).model
            except Exception:
                return False
            counts.add(sum(parameter.numel() for parameter in model.parameters()))
        return len(counts) == 2

    def _layers(self):
        """As few as show every kind that the class has by its defaults."""
        def kinds(config):
            count = getattr(config, self.layers_key)
            return {key: set(map(str, value)) for key, value in config.to_dict().items() if isinstance(value, list) and len(value) == count}

        usual = kinds(self.config_class())
        for count in range(4, 17):
            try:
                if kinds(self.config_class(**{self.layers_key: count})) == usual:
                    return count
            except Exception:
                continue
        return 4

    def _ties(self):
        return (False, True) if isinstance(self.defaults.get("tie_word_embeddings"), bool) else (None,)

    def _windows(self):
        return [key for key, value in self.defaults.items() if _is_window(key) and _is_size(key, value) and value > 0]

    def _lengths(self):
        return (False, True) if self._windows() else (False,)

    def _variant(self, tied, long):
        """One document: with tied embeddings or not, at sequences within the windows or longer than they are."""
        base = dict(self.defaults)
        self.said = {key for key, value in base.items() if key not in ("architectures", "dtype", "torch_dtype")}
        # What the class makes of its other keys: layers' types.
        self.said -= {key for key, value in base.items() if isinstance(value, list) and len(value) == base[self.layers_key]}
        if "qk_rope_head_dim" in base:  # what is turned: the class makes head_dim of it
            self.said.discard("head_dim")
        if self.reads_head_dim:
            base["head_dim"] = _sizes_of("head_dim")[0]
            self.said.add("head_dim")
        base[self.layers_key] = self._layers()
        for key, value in base.items():
            if not _is_size(key, value) or key == self.layers_key:
                continue
            sizes = _sizes_of(key)
            if _is_window(key):
                base[key] = 61 if long else 4099
            elif _is_first(key):
                base[key] = 1
            elif sizes and value > 0:
                base[key] = sizes[0]
        if "head_dim" in base and base["head_dim"] is None:
            base["head_dim"] = _sizes_of("head_dim")[0]
        if self.kv_key:
            base[self.kv_key] = _sizes_of(self.kv_key)[0]
        base = self._with(base, self.switched)
        if tied is not None:
            base["tie_word_embeddings"] = tied
        sequences = (128, 256, 512)
        first = Sample(base)
        first.document, config = self.trace(base, sequences)
        samples, fixed = [first], {}
        symbols = [self.layers_key]
        for key in sorted(base):
            if key == self.layers_key or key not in self.said or any(name in key for name in _NAMES) or key == "tie_word_embeddings":
                continue
            if key == self.kv_key and not self.grouped or key in _ROPE or _is_first(key) or key == "v_head_dim" and self.wide_values:
                continue
            role = self._role(first, key, sequences, samples)
            if role == "symbol":
                symbols.append(key)
            elif role == "fixed":
                fixed[key] = base[key]
        draw = random.Random(1)
        for _ in range(4):
            self._add_joint(draw, base, symbols, sequences, samples)
        heads = [key for key in symbols if _sizes_of(key) and "head" in key and "dim" not in key]
        widths = [key for key in symbols if _sizes_of(key) == _sizes_of("hidden_size")]
        formulas = Formulas(samples, [key for key in symbols if key != self.layers_key], heads, widths)
        try:
            merged = _merged([sample.document for sample in samples], formulas.of)
        except Differs as error:
            raise Problem("sizes that are sums of products of the config's keys", str(error), "")
        merged["shape"]["layers"] = "=" + self.layers_key
        graph = _folded(merged, config.to_dict(), base, self.layers_key)
        told = {key[1:] for rule in graph["layers"]["rules"] for key in rule["by"] if key[0] in "<%"}
        fixed = {key: value for key, value in fixed.items() if key not in told}
        asked = [*symbols, *sorted(told), *self._windows(), *self.switched, *(() if tied is None else ("tie_word_embeddings",))]
        row = {"when": {}, "fixed": fixed, "defaults": self._usual(asked), "graph": graph}
        row["lists"] = self._lists(config.to_dict(), graph["layers"]["rules"])
        row["rope"] = self._rope(first, sequences)
        if tied is not None:
            row["when"]["tie_word_embeddings"] = tied
        if self.wide_values is not None:
            row["wide_values"] = self.wide_values
        if self.kv_key:
            row["heads"] = {"key": self.kv_key, "of": self.heads_key, "grouped": self.grouped}
        if self._windows():
            row["windows"] = self._windows()
            row["longer"] = long
        return row

    def _role(self, first, key, sequences, samples):
        """What becomes of the document where `key` has another value; samples that show it are kept."""
        if self.roles.get(key) in ("fixed", "free"):  # in every document
            return self.roles[key]
        self.roles[key] = self._found_role(first, key, sequences, samples)
        return self.roles[key]

    def _found_role(self, first, key, sequences, samples):
        base = first.values
        seen = []
        for other in self._others(key, base[key]):
            sample = Sample(self._with(base, {key: other}), key)
            try:
                sample.document, _ = self.trace(sample.values, sequences)
            except Exception:
                continue
            if _same_structure(first.document, sample.document):
                seen.append(sample)
            if len(seen) == (1 if key in self.roles else 2):
                break
        if not seen:
            return "fixed"
        if all(sample.document == first.document for sample in seen):
            return "free"
        if not _is_size(key, base[key]):
            return "fixed"
        samples.extend(seen)
        return "symbol"

    def _rope(self, first, sequences):
        """The sorts of rotary embedding under which the document is the same, and the share of the heads that is turned."""
        said = first.values.get("rope_parameters")
        if not isinstance(said, dict):
            return {"types": ["default"]}
        nested = all(isinstance(part, dict) for part in said.values())
        same = ["default"]
        for sort, more in _ROPE_SORTS.items():
            changed = copy.deepcopy(said)
            for part in changed.values() if nested else [changed]:
                part.update(more, rope_type=sort)
            try:
                document, _ = self.trace(dict(first.values, rope_parameters=changed), sequences)
            except Exception:
                continue
            if document == first.document:
                same.append(sort)
        named = said if nested else {"": said}
        shares = {name: part["partial_rotary_factor"] for name, part in named.items() if "partial_rotary_factor" in part}
        return dict({"types": same}, **({"partial": shares if nested else shares[""]} if shares else {}))

    def _lists(self, config, rules):
        """What lists of layers that no rule asks say: other values may be other sizes."""
        asked = {key for rule in rules for key in rule["by"]}
        count = config[self.layers_key]
        lists = {key: value for key, value in config.items() if isinstance(value, list) and len(value) == count and key not in asked}
        return {key: sorted(set(value), key=str) for key, value in lists.items() if not any(isinstance(item, (list, dict)) for item in value)}

    def _usual(self, keys):
        """Values of keys that a config does not say; null where the class makes them of others."""
        usual = {key: self.defaults.get(key) for key in keys}
        for other in [key for key in keys if _is_size(key, self.defaults.get(key)) and key != self.layers_key]:
            try:
                changed = self.config_class(**{other: 2 * self.defaults[other]}).to_dict()
            except Exception:
                continue
            for key in keys:
                if key != other and changed.get(key) != self.defaults.get(key):
                    usual[key] = None
        return usual

    def _with(self, base, changes):
        values = dict(base, **changes)
        if self.wide_values:
            values["v_head_dim"] = values["qk_nope_head_dim"] + values["qk_rope_head_dim"]
        if not self.grouped and self.kv_key:
            values[self.kv_key] = values[self.heads_key]
        return values

    def _others(self, key, value):
        if isinstance(value, bool):
            return [not value]
        if _is_size(key, value):
            sizes = _sizes_of(key)
            if _is_window(key):
                return [value + 6, value + 10]
            if sizes and value == sizes[0]:
                return list(sizes[1:])
            return [value + 1, 2 * value, value + 2, value + 4]
        if isinstance(value, float):
            return [0.5 * value, 2.0 * value] if value else [0.1]
        return []

    def _add_joint(self, draw, base, symbols, sequences, samples):
        for _ in range(6):
            values = self._with(base, {key: draw.choice([base[key]] + self._others(key, base[key])) for key in symbols if key != self.layers_key})
            sample = Sample(values)
            try:
                sample.document, _ = self.trace(values, sequences)
            except Exception:
                continue
            if _same_structure(samples[0].document, sample.document):
                samples.append(sample)
                return


# --- layers

def _folded(graph, config, base, layers_key):
    """Layers of one kind stand once: a kind is what a layer's modules and calls are."""
    count = base[layers_key]
    prefix = _prefix_of(graph, count)
    kinds, kind_of = [], []
    for i in range(count):
        own = "%s%d" % (prefix, i)
        modules = [dict(row, name=row["name"][len(own):]) for row in graph["modules"] if row["name"] == own or row["name"].startswith(own + ".")]
        calls = [dict(call, prefix="") for call in graph["calls"] if call["prefix"] == own + "."]
        buffers = {name[len(own):]: row for name, row in graph["buffers"].items() if name.startswith(own + ".")}
        kind = {"modules": modules, "calls": calls, "buffers": buffers}
        if kind not in kinds:
            kinds.append(kind)
        kind_of.append(kinds.index(kind))
    graph["buffers"] = {name: row for name, row in graph["buffers"].items() if not name.startswith(prefix)}
    graph["modules"] = _marked(graph["modules"], lambda row: row["name"].startswith(prefix) and row["name"] != prefix)
    graph["calls"] = _marked(graph["calls"], lambda call: call["prefix"].startswith(prefix))
    graph["layers"] = {"rules": _rules(kind_of, config, base, count), "count": layers_key, "prefix": prefix, "kinds": kinds}
    return graph


def _prefix_of(graph, count):
    prefixes = [call["prefix"] for call in graph["calls"] if call["layer"]]
    stem = prefixes[0].rsplit(".", 2)[0] + "." if prefixes else ""
    if prefixes != ["%s%d." % (stem, i) for i in range(count)]:
        raise Problem("layers that are called once each, in their order", ", ".join(prefixes[:8]), "")
    return stem


def _marked(rows, is_layers):
    """The rows of layers, which stand together, as one mark."""
    at = [i for i, row in enumerate(rows) if is_layers(row)]
    if at != list(range(at[0], at[-1] + 1)):
        raise Problem("layers that follow each other", "something between them", "")
    return rows[: at[0]] + [{"layers": True}] + rows[at[-1] + 1:]


def _rules(kind_of, config, base, count):
    """Which layer is of which kind: by lists of the config, by a number of layers that come first ("<key"), by a period ("%key")."""
    if len(set(kind_of)) == 1:
        return [{"by": [], "values": []}]
    facts = {key: value for key, value in config.items() if isinstance(value, list) and len(value) == count}
    lists = sorted(facts)
    for key in sorted(base):
        if _is_first(key) and _is_size(key, base[key]):
            facts["<" + key] = [i < base[key] for i in range(count)]
        if any(name in key for name in _PERIODS) and _is_size(key, base[key]) and base[key] > 0:
            facts["%" + key] = [(i + 1) % base[key] == 0 for i in range(count)]
    rules = []
    for number in (1, 2):
        for keys in itertools.combinations(lists + sorted(key for key in facts if key not in lists), number):
            kinds, rows = {}, list(zip(*(facts[key] for key in keys)))
            if all(kinds.setdefault(json.dumps(row), kind) == kind for row, kind in zip(rows, kind_of)):
                rules.append({"by": list(keys), "values": [[json.loads(row), kind] for row, kind in kinds.items()]})
        if rules:
            return rules
    raise Problem("layers whose kinds the config tells", "%s with %s" % (kind_of, sorted(facts)), "")


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
    pools = {name: _Pool() for name in ("blocks", "kinds", "tensors", "events")}
    for document in recorded["documents"]:
        graph = document["graph"]
        for block in graph["blocks"]:
            for name in ("tensors", "events"):
                block[name] = [pools[name].number(row) for row in block[name]]
        graph["blocks"] = [pools["blocks"].number(block) for block in graph["blocks"]]
        graph["layers"]["kinds"] = [pools["kinds"].number(kind) for kind in graph["layers"]["kinds"]]
    return dict(recorded, **{name: pool.rows for name, pool in pools.items()})


def family(options):
    return Recorder(options).record()
