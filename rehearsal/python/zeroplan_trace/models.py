"""From what the user names to a model on the meta device, and example inputs of any size."""

import importlib.util
import inspect
import json
import os
import sys
from unittest import mock

import torch

from .config_keys import OWN_KERNELS
from .problem import Problem


class Traced:
    def __init__(self, model, inputs_of, source, loss=None, config=None, images=None):
        self.model, self.inputs_of, self.source, self.loss, self.config, self.images = model, inputs_of, source, loss, config, images


def _heads():
    return (
        ("ForCausalLM", "AutoModelForCausalLM"),
        ("ForConditionalGeneration", None),
        ("LMHeadModel", "AutoModelForCausalLM"),
        ("ForMaskedLM", "AutoModelForMaskedLM"),
        ("ForSequenceClassification", "AutoModelForSequenceClassification"),
        ("ForTokenClassification", "AutoModelForTokenClassification"),
        ("ForQuestionAnswering", "AutoModelForQuestionAnswering"),
        ("ForImageClassification", "AutoModelForImageClassification"),
    )


def _transformers():
    try:
        import transformers
    except ImportError as error:
        raise Problem("transformers in the Python that traces", str(error),
                      "pip install transformers, or give the model as --code FILE.py:FUNCTION")
    return transformers


def _read_config(transformers, name, remote):
    try:
        return transformers.AutoConfig.from_pretrained(name, trust_remote_code=remote)
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise Problem("a config.json, a folder with one, or a name that transformers knows", "%s: %s" % (name, text),
                      "a newer transformers knows more model types; --code FILE.py:FUNCTION takes any module")


def _class_of(transformers, config, asked):
    if asked:
        found = getattr(transformers, asked, None)
        if found is None:
            raise Problem("a class of transformers %s" % transformers.__version__, asked, "")
        return found
    names = getattr(config, "architectures", None) or []
    if names:
        found = getattr(transformers, names[0], None)
        if found is not None:
            return found
    # Some have a class without them, too, which no checkpoint names.
    towers = any(getattr(config, key, None) is not None for key in ("vision_config", "vq_config"))
    usual = ["AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModelForSeq2SeqLM", "AutoModelForSpeechSeq2Seq", "AutoModelForMaskedLM"]
    if towers:
        usual.insert(0, "AutoModelForImageTextToText")
    elif getattr(config, "is_encoder_decoder", False):
        usual = usual[2:] + usual[1:2]  # its decoder has a class of its own
    else:
        usual.insert(0, "AutoModelForMaskedLM")  # what has both is an encoder, which its config may make a decoder
    for auto in usual:
        found = getattr(transformers, auto, None)
        if found is not None and type(config) in found._model_mapping:
            return found
    raise Problem("a model with a loss", type(config).__name__, "name its class with --class")


def text_of(config):
    """The config of the model of text: itself in most classes, and in all before transformers 4.42."""
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def class_of(config, options):
    """The class itself, where transformers chooses one by the config."""
    kind = _class_of(_transformers(), config, options.class_name)
    return kind._model_mapping[type(config)] if hasattr(kind, "_model_mapping") else kind


def class_that_scores(config_class):
    """The name of the class whose head gives sequences a score; None: there is none."""
    known = _transformers().AutoModelForSequenceClassification._model_mapping
    return known[config_class].__name__ if config_class in known else None


def name_of_none(config_class, class_name):
    """The name that checkpoints of a type say whose config alone is its own: ExaoneForCausalLM of exaone, whose class is LlamaForCausalLM. None: the class is of the type."""
    transformers = _transformers()
    package, _, _ = getattr(transformers, class_name).__module__.rpartition(".")
    name = config_class.__name__.removesuffix("Config") + class_name[class_name.find("For"):]
    is_other = "For" in class_name and not config_class.__module__.startswith(package + ".")
    return name if is_other and not hasattr(transformers, name) else None


def from_transformers(name, options):
    transformers = _transformers()
    path = os.path.dirname(name) or "." if os.path.isfile(name) and os.path.basename(name) == "config.json" else name
    if os.path.isfile(path):
        with open(path) as file:
            said = json.load(file)
        if "model_type" not in said:
            raise Problem("model_type in %s" % path, "no such key", "a config.json of transformers names it")
        config = transformers.AutoConfig.for_model(**said)
    else:
        config = _read_config(transformers, path, options.trust_remote_code)
    return of_config(config, options, path if os.path.isdir(path) else "")


# Kinds of layers whose cache is more than keys and values.
_WITH_STATES = {"linear_attention", "hybrid", "hybrid_sliding", "deepseek_sparse_attention", "indexed_attention", "qwen_sparse_attention", "compressed_sparse_attention",
                "heavily_compressed_attention"}


def flash_attn_func(query, key, value, dropout_p=0.0, softmax_scale=None, causal=False, **windows):
    """Stands for the package's function, which the recorder knows by this name and takes as one operation."""
    return query.new_empty(*query.shape[:-1], value.shape[-1])


def _allow_flash_attention(transformers, kind):
    """Its package, which is not called, needs a GPU: nobody looks whether it is there."""
    model, name = transformers.PreTrainedModel, "_check_and_adjust_attn_implementation"
    checked = getattr(model, name, None)
    if checked is None:  # before 4.54

        def enable(_, config, *rest, **named):
            config._attn_implementation = "flash_attention_2"
            return config

        model._check_and_enable_flash_attn_2 = classmethod(enable)
    elif not hasattr(checked, "allows"):

        def check(self, asked, *rest, **named):
            return asked if asked == "flash_attention_2" else checked(self, asked, *rest, **named)

        check.allows = True
        setattr(model, name, check)
    # Classes with an attention of their own take its function into their module where the package is there: before 4.43 the package's own.
    utilities = getattr(transformers, "modeling_flash_attention_utils", None)
    module = sys.modules.get(kind.__module__)
    if utilities is None:
        module.flash_attn_func = flash_attn_func
    elif not hasattr(module, "_flash_attention_forward"):
        module._flash_attention_forward = utilities._flash_attention_forward


def _take_format(model):
    """Tables that a class makes in fp32 (cosines of all positions, before 4.45) are in the model's format, as the engine hands them to the class."""
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_floating_point() and buffer.dim() > 1:
                module._buffers[name] = buffer.to(torch.get_default_dtype())


def _without_values():
    """Where weights are not initialized: on the meta device they have no values, and PyTorch works out in Python what filling them gives."""
    filling = [name for name, value in vars(torch.nn.init).items() if name.endswith("_") and not name.startswith("_") and callable(value)]
    return mock.patch.multiple(torch.nn.init, **{name: lambda tensor, *_, **__: tensor for name in filling})


def of_config(config, options, folder=""):
    if config.model_type in OWN_KERNELS:
        raise Problem("a class that runs without CUDA kernels of its own", config.model_type, "")
    transformers = _transformers()
    # A class recorded for all its configs has its cache, too, as an operation.
    text = text_of(config)
    config.use_cache = text.use_cache = bool(options.family) and _WITH_STATES.isdisjoint(getattr(text, "layer_types", None) or ())
    for key in ("pad_token_id", "decoder_start_token_id") if getattr(config, "is_encoder_decoder", False) else ():
        if getattr(config, key, None) is None:  # checkpoints say which, some classes have none by default
            setattr(config, key, 0)
    kind = _class_of(transformers, config, options.class_name)
    arguments = {}
    if options.attention:
        arguments["attn_implementation"] = options.attention
    if options.attention == "flash_attention_2":
        _allow_flash_attention(transformers, class_of(config, options))
    own = text if getattr(kind, "config_class", None) is type(text) else config  # a class of the text alone is made of its part, as AutoModelForCausalLM does it
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"), _without_values():
            if hasattr(kind, "from_config"):
                if options.trust_remote_code:
                    arguments["trust_remote_code"] = True
                model = kind.from_config(config, **arguments)
            else:
                model = kind._from_config(own, **arguments)
            if getattr(config, "_has_own_head", False):
                head = model.get_output_embeddings()
                head.weight = torch.nn.Parameter(torch.empty_like(head.weight))
        _take_format(model)
    finally:
        torch.set_default_dtype(before)
    from .images import Images
    from .inputs import inputs_for

    images = Images(model, config, folder, options.images, options.image_size) if options.images else None
    # Its own config says which attention it has: before 4.56 it is a copy. Of a class of the text alone it is the text's.
    whole = model.config if own is config and type(model.config) is type(config) else config
    return Traced(model, inputs_for(model, config, images), "transformers %s" % transformers.__version__, config=whole, images=images)


def from_code(place, options):
    file, _, function = place.rpartition(":")
    if not file or not function:
        raise Problem("--code FILE.py:FUNCTION", place, "the function returns a module and a function of batch and sequence that returns its inputs")
    if not os.path.isfile(file):
        raise Problem("a file of Python code", "%s, which is none" % file, "")

    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    spec = importlib.util.spec_from_file_location("zeroplan_traced_code", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, function, None)
    if not callable(found):
        raise Problem("a function %s in %s" % (function, file), "no such function", "")
    with torch.device("meta"):
        made = found()
    if not isinstance(made, (tuple, list)) or len(made) not in (2, 3) or not isinstance(made[0], torch.nn.Module):
        raise Problem("(module, inputs) or (module, inputs, loss) from %s" % function, type(made).__name__,
                      "inputs: a function of batch and sequence that returns the arguments of the module, loss: a function of what the module returns")
    inputs = made[1]
    if not callable(inputs):
        raise Problem("a function of batch and sequence as the second thing that %s returns" % function, type(inputs).__name__,
                      "def inputs(batch, sequence): return {\"input_ids\": torch.ones(batch, sequence, dtype=torch.int64), ...}")
    count = len(inspect.signature(inputs).parameters)
    if count not in (1, 2):
        raise Problem("inputs(batch) or inputs(batch, sequence)", "a function of %d arguments" % count, "")
    of = inputs if count == 2 else lambda batch, sequence: inputs(batch)
    return Traced(made[0], of, os.path.basename(file), loss=made[2] if len(made) == 3 else None, config=getattr(made[0], "config", None))
