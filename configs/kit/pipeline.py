"""A causal language model of transformers as layers of DeepSpeed's PipelineModule.

The model is built without weights, and every stage makes those of its own layers only. Between stages go hidden
states alone: what else a layer is given (mask, position tables, ALiBi) is found out once by running the model's
own forward pass with layers that note their arguments, since all micro-batches have the same shape.
"""

import copy

import torch
import torch.nn.functional as functional
from common import model_settings, tile_feed_forward
from torch import nn
from weights import Weights

# model_type: the model without its head, its layers, the norm behind them, the head.
LLAMA = ("model", "model.layers", "model.norm", "lm_head")
GPT = ("transformer", "transformer.h", "transformer.ln_f", "lm_head")
GLM = ("transformer", "transformer.encoder.layers", "transformer.encoder.final_layernorm", "transformer.output_layer")
LAYOUTS = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "phi3", "baichuan", "internlm"), LLAMA),
    **dict.fromkeys(("bloom", "gpt_bigcode"), GPT),
    "chatglm": GLM,
}


class ReachedLayers(Exception):
    """Ends a forward pass where the layers begin or end; `hidden` is what they were given."""

    def __init__(self, hidden):
        super().__init__()
        self.hidden = hidden


class Noted(nn.Module):
    """Stands where a layer was, and notes what it is given beside hidden states."""

    def __init__(self, layer, notes, last):
        super().__init__()
        self.__dict__["layer"] = layer  # not a child: its weights are none of this one's
        self.notes, self.last = notes, last

    def __getattr__(self, name):  # models ask layers for their kind of attention
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["layer"], name)

    def forward(self, hidden, *others, **named):
        self.notes.append((others, named))
        if self.last:
            raise ReachedLayers(hidden)
        return hidden, None  # classes whose layers return tuples look into it, others hand it to the next


class Blank(nn.Module):
    """Stands for an embedding or a norm where only shapes and dtypes matter."""

    def __init__(self, width, dtype):
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.zeros(1, dtype=dtype))  # models ask for their dtype and device

    def forward(self, values):
        if values.is_floating_point():
            return values
        return torch.zeros((*values.shape, self.width), dtype=self.weight.dtype, device=values.device)


def replace(model, name, module):
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)


class Stack:
    """The model that is split: its parts without weights, and what its layers are given."""

    def __init__(self, arguments, scenario):
        from accelerate import init_empty_weights
        from transformers import AutoModelForCausalLM

        config, settings = model_settings(arguments, scenario)
        if config.model_type not in LAYOUTS:
            raise SystemExit(f"train_pipeline.py does not know the layers of {config.model_type}")
        config.use_cache = False
        with init_empty_weights(include_buffers=False):
            self.model = AutoModelForCausalLM.from_config(config, **settings).train()
        if scenario["workload"].get("tiled_mlp"):
            tile_feed_forward(self.model)
        self.dtype = settings["torch_dtype"]
        self.shape = (scenario["workload"]["micro_batch_size"], scenario["workload"]["sequence_length"])
        base, self.layers_name, self.norm_name, self.head_name = LAYOUTS[config.model_type]
        self.is_tied = bool(config.tie_word_embeddings)
        self.weights = Weights(arguments.model, self.model, base, arguments.seed)
        parts = {self.norm_name, self.head_name}
        self.layers = list(self.model.get_submodule(self.layers_name))
        self.parts = {name: self.model.get_submodule(name) for name in parts}
        self.parts.update({f"{self.layers_name}.{i}": layer for i, layer in enumerate(self.layers)})
        # What is left is what stands before the layers.
        for name in parts:
            replace(self.model, name, nn.Identity())
        replace(self.model, self.layers_name, nn.ModuleList())
        before = {name: part for name, part in self.model.named_modules() if part._parameters}
        words = self.model.get_input_embeddings()
        self.words_name = next(name for name, part in before.items() if part is words)
        self.embedding_names = [self.words_name, *(name for name in before if name != self.words_name)]
        self.parts.update(before)
        self.width = words.weight.shape[1]
        self.shadow = copy.deepcopy(self.model)
        for name in before:
            replace(self.shadow, name, Blank(self.width, self.dtype))
        self.base_name = base
        replace(self.model, self.layers_name, nn.ModuleList([Noted(self.layers[0], [], True)]))
        self.sequence_first = self.note_arguments((1, 2), "cpu")[1].shape[0] == 2
        self.arguments = None

    def made(self, name):
        """A part of the model, with its weights."""
        return self.weights.fill(name, self.parts[name])

    def note_arguments(self, shape, device):
        """What each layer is given beside hidden states, and what hidden states look like."""
        notes = []
        last = len(self.layers) - 1
        noted = [Noted(layer, notes, i == last) for i, layer in enumerate(self.layers)]
        replace(self.shadow, self.layers_name, nn.ModuleList(noted))
        self.shadow.to(device)
        try:
            with torch.no_grad():
                self.shadow.get_submodule(self.base_name)(
                    input_ids=torch.zeros(shape, dtype=torch.long, device=device), use_cache=False
                )
        except ReachedLayers as reached:
            hidden = reached.hidden
            while isinstance(hidden, tuple):
                hidden = hidden[0]
            return notes, hidden
        raise SystemExit("the model's forward pass does not run its layers one after the other")

    def arguments_of(self, layer, device):
        if self.arguments is None:
            self.arguments = self.note_arguments(self.shape, device)[0]
        return self.arguments[layer]

    def embed(self, tokens):
        """What the first layer is given."""
        base = self.model.get_submodule(self.base_name)
        for module in base.modules():  # position tables; parameters are those of the stage already
            for name, buffer in module._buffers.items():
                if buffer is not None and buffer.device != tokens.device:
                    module._buffers[name] = buffer.to(tokens.device)
        try:
            base(input_ids=tokens, use_cache=False)
        except ReachedLayers as reached:
            return reached.hidden
        raise SystemExit("the model's forward pass does not reach its layers")

    def logits(self, values):
        return values.transpose(0, 1).contiguous() if self.sequence_first else values


class Part(nn.Module):
    """Modules that one stage holds, with their names in the whole model."""

    def __init__(self, stack, names):
        super().__init__()
        self.__dict__["stack"] = stack
        self.names = names
        self.parts = nn.ModuleList(stack.made(name) for name in names)

    def named_weights(self):
        for name, part in zip(self.names, self.parts):
            for key, parameter in part.named_parameters():
                yield f"{name}.{key}", parameter


class EmbeddingLayer(Part):
    """What stands before the layers; on the last stage, where it is tied, its words alone."""

    def __init__(self, stack, is_first):
        super().__init__(stack, stack.embedding_names if is_first else stack.embedding_names[:1])

    def forward(self, tokens):
        return self.stack.embed(tokens)


class TransformerLayer(Part):
    def __init__(self, stack, index):
        super().__init__(stack, [f"{stack.layers_name}.{index}"])
        self.index = index

    def forward(self, hidden):
        others, named = self.stack.arguments_of(self.index, hidden.device)
        out = self.parts[0](hidden, *others, **named)
        return out[0] if isinstance(out, tuple) else out


class NormLayer(Part):
    def __init__(self, stack):
        super().__init__(stack, [stack.norm_name])

    def forward(self, hidden):
        return self.parts[0](hidden)


class HeadLayer(Part):
    def __init__(self, stack):
        super().__init__(stack, [stack.head_name])

    def forward(self, hidden):
        return self.stack.logits(self.parts[0](hidden))


def tied_head(embedding, hidden):
    return embedding.stack.logits(functional.linear(hidden, embedding.parts[0].weight))


def next_token_loss(logits, labels):
    """As transformers': each position guesses the token behind it, in fp32."""
    ahead = functional.pad(labels, (0, 1), value=-100)[:, 1:].reshape(-1)
    return functional.cross_entropy(logits.float().view(-1, logits.shape[-1]), ahead, ignore_index=-100)


def layers_of(stack, is_first):
    """The whole model as specifications; a stage builds its own."""
    from deepspeed.pipe import LayerSpec, TiedLayerSpec

    def embedding(**how):
        return TiedLayerSpec("words", EmbeddingLayer, stack, is_first, tied_weight_attr="parts.0.weight", **how)

    first = embedding() if stack.is_tied else LayerSpec(EmbeddingLayer, stack, True)
    head = embedding(forward_fn=tied_head) if stack.is_tied else LayerSpec(HeadLayer, stack)
    middle = [LayerSpec(TransformerLayer, stack, index) for index in range(len(stack.layers))]
    return [first, *middle, LayerSpec(NormLayer, stack), head]


def pipeline_of(stack, planned):
    """`planned`: the section "pipeline" of ds_config.json, which deals the layers out to stages."""
    from deepspeed.pipe import PipelineModule
    from deepspeed.runtime.pipe.topology import PipeDataParallelTopology

    stages, ranks = planned["stages"], torch.distributed.get_world_size()
    if ranks % stages:
        raise SystemExit(f"{ranks} ranks are no multiple of the plan's {stages} pipeline stages")
    topology = PipeDataParallelTopology(num_pp=stages, num_dp=ranks // stages)
    is_first = topology.get_coord(torch.distributed.get_rank()).pipe == 0
    return PipelineModule(
        layers_of(stack, is_first),
        topology=topology,
        loss_fn=next_token_loss,
        partition_method=planned["partition"],
        activation_checkpoint_interval=planned["activation_checkpoint_interval"],
        checkpointable_layers=[TransformerLayer.__name__],
    )
