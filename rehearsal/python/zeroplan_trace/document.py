"""zeroplan.graph/1 of a model."""

import fnmatch
import json
import platform

import torch

from . import blocks as blocks_of
from .config_keys import LAYERS, POSITIONS
from .family_layers import called_layers
from .passes import NoLoss, record
from .problem import Problem
from .real_numbers import NoValue
from .sizes import DependsOnSize, Grid, check_same_events, shape_formulas, shapes_like


def _no_card():
    """There is none, and nobody must ask for it: transformers asks whether a stream is captured."""
    torch.cuda.is_current_stream_capturing = lambda: False


def _freeze(model, patterns):
    for pattern in patterns:
        found = False
        for name, parameter in model.named_parameters():
            if fnmatch.fnmatchcase(name, pattern) or name.startswith(pattern + "."):
                parameter.requires_grad_(False)
                found = True
        if not found:
            raise Problem("names of parameters or modules to freeze", pattern, "a name, or a pattern such as model.visual.*")


_WHOLE = 128  # tokens: chunks and what a class compresses are whole in sequences of so many


def _usual_sequences(shape, options):
    positions = shape.get("positions", 0) or options.longer_than + 1024  # at its full length a table of positions is not cut
    longest = min(positions, options.at_most + 1) if options.at_most else positions
    room = longest - options.longer_than
    if room < 8:
        raise Problem("a model with more than %d positions, which its images take" % options.longer_than, "%d" % longest, "fewer images, or smaller ones")
    begin = -(-options.longer_than // _WHOLE) * _WHOLE
    if longest - begin > 512:
        return tuple(begin + step for step in (128, 256, 512))
    return tuple(options.longer_than + room // share for share in (8, 4, 2))


def _record_all(traced, points):
    runs = []
    for batch, sequence in points:
        try:
            runs.append(_record(traced, batch, sequence))
        except NoLoss as error:
            raise Problem("a model that returns a loss", "%s, which returns none" % error,
                          "give the class that has a head with --class; with --code, return a function of the output that gives the loss as the third")
        except NoValue as error:
            raise Problem("operations that depend on sizes alone", "%s of a value that is not known before it runs, at %s" % (error, _line_of(error)),
                          "a model that branches on its activations cannot be traced")
    return runs


def _kept(model):
    """The forms of tensors that modules keep beside parameters and buffers: tables that a pass makes for the next."""
    return {(name, key): (value.dtype, value.shape, value.device) for name, module in model.named_modules() for key, value in vars(module).items()
            if isinstance(value, torch.Tensor)}


def _record(traced, batch, sequence):
    """A pass of the class as it repeats: the second where the first makes tables that stay."""
    before = _kept(traced.model)
    run = record(traced.model, traced.inputs_of(batch, sequence), traced.loss)
    return run if _kept(traced.model) == before else record(traced.model, traced.inputs_of(batch, sequence), traced.loss)


def _line_of(error):
    import os
    import traceback

    torch_folder, here = os.path.dirname(torch.__file__), os.path.dirname(os.path.abspath(__file__))
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((torch_folder, here))]
    return "%s:%d" % (frames[-1].filename, frames[-1].lineno) if frames else "an unknown line"


def _modules(model):
    first = {}
    rows = []
    for name, module in model.named_modules():
        row = {"name": name, "type": type(module).__name__}
        own = {}
        for short, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            full = (name + "." if name else "") + short
            if id(parameter) in first:
                own[short] = first[id(parameter)]
            else:
                first[id(parameter)] = full
                own[short] = list(parameter.shape) if parameter.requires_grad else {"shape": list(parameter.shape), "trainable": False}
        if own:
            row["parameters"] = own
        rows.append(row)
    return rows


def _config_value(config, names):
    for source in (config, getattr(config, "text_config", None)):
        for name in names:
            value = getattr(source, name, None) if source is not None else None
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return 0


def _before_the_first(model, positions):
    """Rows of a table of so many positions that stand before the first token's: those up to the padding's (RoBERTa)."""
    tables = (part for name, part in model.named_modules() if "position" in name and isinstance(part, torch.nn.Embedding))
    return max((table.padding_idx + 1 for table in tables if table.num_embeddings == positions and table.padding_idx is not None), default=0)


def _shape(config, model):
    if config is None:
        return {}
    text = config.get_text_config() if hasattr(config, "get_text_config") else config  # whose vocabulary the logits have
    positions = _config_value(config, POSITIONS)
    facts = {
        "hidden": _config_value(config, ("hidden_size", "n_embd", "d_model")),
        "layers": _config_value(config, LAYERS),
        "heads": _config_value(config, ("num_attention_heads", "n_head", "num_heads")),
        "vocabulary": _config_value(text, ("vocab_size",)) or _config_value(config, ("vocab_size",)),
        "positions": positions - _before_the_first(model, positions),
    }
    return {key: value for key, value in facts.items() if value}


def document(options):
    from .models import from_code, from_transformers

    traced = from_code(options.code, options) if options.code else from_transformers(options.model, options)
    return document_and_shapes(traced, options, options.batches, options.sequences)[0]


def _runs(traced, grid, like, at):
    """The recorder of a run, its loss and what it holds, and every tensor's shape."""
    if like is not None:
        runs = _record_all(traced, [grid.points[at]])
        shapes = shapes_like(grid.points[at], runs[0][0], like)
        if shapes is not None:
            return runs[0], shapes
    runs = _record_all(traced, grid.points)
    recorders = [run[0] for run in runs]
    check_same_events(grid, recorders)
    return runs[0], shape_formulas(grid, recorders)


def _runs_at(traced, grid, batch, like, at):
    """The grid that tells, and _runs() of it: of that batch alone where the class loops over the images of a batch."""
    try:
        try:
            return grid, _runs(traced, grid, like, at)
        except DependsOnSize:
            if traced.images is None or grid.one_batch:
                raise
            grid = Grid((batch,) * 3, grid.sequences)
            return grid, _runs(traced, grid, like, at)
    except DependsOnSize as error:
        raise Problem("the same operations at every size, with sizes that grow with batch and sequence", str(error),
                      "--batches and --sequences name other sizes")


def _converted(model):
    """Parts of names of parameters that from_pretrained makes of other tensors of a checkpoint, from transformers 5 on: experts stand one by one in files."""
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import Chunk, WeightConverter
    except ImportError:
        return []
    if model.config.model_type == "qwen3_5_moe":  # whose files have the experts as the class has them
        return []
    targets = set()
    for step in get_model_conversion_mapping(model):
        if isinstance(step, WeightConverter) and not all(isinstance(operation, Chunk) for operation in step.operations):
            targets.update(step.target_patterns)
    names = [name for name, _ in model.named_parameters()]
    return sorted(target for target in targets if any(target in name for name in names))


def _input_embeddings(model):
    """Modules whose output requires a gradient where adapters are trained beside checkpoints: towers have some, too, from some release on."""
    before = {name: len(module._forward_hooks) for name, module in model.named_modules()}
    model.enable_input_require_grads()
    names = [name for name, module in model.named_modules() if len(module._forward_hooks) > before[name]]
    model.disable_input_require_grads()
    return names


def document_and_shapes(traced, options, batches=None, sequences=None, like=None, at=0):
    """The document, and the shape of every tensor by its number; at the usual batches and sequences where none are given.

    `like`: shapes of another document; where these are multiples of them, one run tells, at the size whose number is `at`.
    """
    _no_card()
    model = traced.model
    model.train()
    _freeze(model, options.freeze)
    parameters = list(model.parameters())
    if not parameters:
        raise Problem("a model with parameters", "%s, which has none" % type(model).__name__)
    shape = _shape(traced.config, model)
    images = traced.images
    if images is not None:
        options.longer_than = max(options.longer_than, images.length)
    grid = Grid(batches or (2, 3, 5), sequences or _usual_sequences(shape, options))
    grid, ((recorder, loss, held), shapes) = _runs_at(traced, grid, options.batch, like, at)
    dtypes = {}
    for parameter in parameters:
        dtypes[parameter.dtype] = dtypes.get(parameter.dtype, 0) + parameter.numel()
    dtype = max(dtypes, key=dtypes.get)
    types = {name: type(module).__name__ for name, module in model.named_modules()}
    made = blocks_of.Blocks(recorder, shapes, loss, held, blocks_of.layer_names(model), dtype, shape.get("vocabulary", 0), types)
    inputs, buffers = {}, {}
    for number, (kind, name) in recorder.names.items():
        row = {"dtype": blocks_of.dtype_name(recorder.rows[number].dtype, dtype), "shape": shapes[number]}
        if kind == "input":
            inputs[name] = row
        elif kind == "buffer":
            buffers[name] = row
    result = {
        "schema": "zeroplan.graph/1",
        "name": type(model).__name__,
        "source": traced.source,
        "software": {"torch": torch.__version__, "python": platform.python_version()},
        "dtype": blocks_of._DTYPES.get(str(dtype).rsplit(".", 1)[-1], "bf16"),
        "traced": {"batches": grid.batches[:1] if grid.one_batch else grid.batches, "sequences": grid.sequences},
        "shape": shape,
        "inputs": inputs,
        "buffers": buffers,
        "modules": _modules(model),
        "slots": len(made.slot_of),
        "blocks": made.blocks,
        "calls": made.calls,
    }
    if images is not None:
        result["images"] = {"count": images.count, "width": images.size[0], "height": images.size[1], "tokens": images.tokens, "token": images.token}
        # What a kit's program builds the model and its batches of.
        result["embeddings"] = _input_embeddings(model)
        result["config"] = traced.config.to_diff_dict()
        result["preprocessor_config"] = json.loads(images.processor.to_json_string())
    elif len(called := called_layers(result)) == 2:  # of an encoder and of a decoder
        shape["encoder_layers"], shape["layers"] = called.values()
    elif list(called.values()) == [getattr(traced.config, "decoder_layers", None)]:  # of a decoder alone
        shape["layers"] = traced.config.decoder_layers
    if traced.config is not None:
        result["model_type"] = getattr(traced.config, "model_type", "")
        attention = getattr(traced.config, "_attn_implementation", None) or getattr(traced.config.get_text_config(), "_attn_implementation", None)
        if attention:
            result["attention"] = attention
        if not getattr(model, "supports_gradient_checkpointing", True):
            result["checkpoints"] = False  # gradient_checkpointing_enable() raises
        import transformers

        result["software"]["transformers"] = transformers.__version__
        converted = _converted(model)
        if converted:
            result["converted"] = converted
    return result, shapes
