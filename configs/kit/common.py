"""What the training scripts of this folder share: the scenario, the model, the tokens.

Nothing is downloaded: models, tokenizers and data are local paths. Without weights in the model's folder
the model starts from random ones, without data it reads random tokens: memory and speed are the same.
"""

import argparse
import inspect
import json
import os
from fnmatch import fnmatchcase
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
DS_CONFIG = HERE.parent / "ds_config.json"
TRAINING = HERE / "training.json"  # of the run what no plan has: rates, schedule, epochs, where it writes
OPTIMIZERS = {
    "adamw": "adamw_torch",
    "adam": "adamw_torch",
    "adafactor": "adafactor",
    "sgd": "sgd",
    "lion": "lion_32bit",
    "adamw8bit": "adamw_bnb_8bit",
}
ATTENTION = {"eager": "eager", "sdpa": "sdpa", "flash": "flash_attention_2"}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def parser(description):
    flags = argparse.ArgumentParser(description=description)
    flags.add_argument("--scenario", default=str(HERE / "scenario.json"), help="what zeroplan planned")
    flags.add_argument("--model", default=str(HERE / "model"), help="folder with config.json, weights if any")
    run = json.loads(TRAINING.read_text(encoding="utf-8")) if TRAINING.is_file() else {}
    flags.add_argument("--tokenizer", default=run.pop("tokenizer", None),
                       help="folder of the tokenizer; bytes are tokens without one")
    flags.add_argument("--data", default=run.pop("data", None),
                       help=".txt, or rows of text, messages, prompt and completion in .jsonl, .json or .parquet "
                            "(samples.py); without a tokenizer of text alone; random tokens without it")
    flags.add_argument("--steps", type=int,
                       help="optimizer steps; without it the epochs of training.json, and 20 of random tokens")
    flags.add_argument("--seed", type=int, default=run.pop("seed", 1))
    flags.add_argument("--learning-rate", type=float, default=run.pop("learning_rate", 2e-5))
    flags.add_argument("--output", default=run.pop("output_dir", "out"), help="folder for checkpoints")
    flags.add_argument("--save", action="store_true", help="save the model at the end")
    flags.add_argument("--measure", default="measurements.jsonl", help="the run is appended here as one line")
    # The deepspeed launcher passes it; the rank stands in the environment all the same.
    flags.add_argument("--local_rank", "--local-rank", type=int, default=-1, help=argparse.SUPPRESS)
    flags.set_defaults(run=run)
    return flags


def steps_of(arguments):
    """Optimizer steps of the Trainer; None: as many as the epochs of the data have."""
    return 20 if arguments.steps is None and not arguments.data else arguments.steps


def steps_of_loop(arguments, workload, replicas, tokens):
    steps = steps_of(arguments)
    if steps is not None:
        return steps
    a_step = workload["micro_batch_size"] * workload["gradient_accumulation_steps"] * replicas
    samples = arguments.run.get("num_train_epochs", 1) * (len(tokens) // unit_of(workload))
    return max(1, int(samples // a_step))


def read_scenario(path):
    manifest = HERE.parent / ".zeroplan-kit.json"
    if manifest.is_file() and not json.loads(manifest.read_text(encoding="utf-8")).get("complete", True):
        raise SystemExit(f"{HERE.parent}: this kit was not written to its end: write it again")
    scenario = json.loads(Path(path).read_text(encoding="utf-8"))
    if isinstance(scenario.get("ds_config"), str):
        scenario["ds_config"] = json.loads((Path(path).parent / scenario["ds_config"]).read_text())
    return scenario


def has_weights(folder):
    patterns = ("*.safetensors", "pytorch_model*.bin")
    return any(True for pattern in patterns for _ in Path(folder).glob(pattern))


def engine_of(workload):
    return workload.get("engine", "deepspeed")


def method_of(workload):
    """The method's name and its settings."""
    method = workload.get("method", "full")
    return next(iter(method.items())) if isinstance(method, dict) else (method, {})


def mixes_precision(scenario):
    """Whether arithmetic in 16 bits stands beside trained weights in fp32; DeepSpeed's engine always keeps such."""
    workload = scenario["workload"]
    if workload["precision"] == "fp32":
        return False
    if engine_of(workload) == "deepspeed":
        return True
    method, settings = method_of(workload)
    if method != "full":
        return settings.get("autocast", False)
    if "weights_dtype" in workload:
        return workload["weights_dtype"] == "fp32"
    config = scenario.get("ds_config", {})
    halves = any(config.get(kind, {}).get(f"{kind}_master_weights_and_grads") for kind in ("bf16", "fp16"))
    return not halves


def has_own_code(folder):
    """Whether the model's class stands in files beside its config and not in transformers. Those of its
    repository have to be there; nothing is downloaded."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    places = [place for place in config.get("auto_map", {}).values() if isinstance(place, str)]
    if not places or config.get("model_type") in CONFIG_MAPPING:
        return False
    elsewhere = [place for place in places if "--" in place]
    if elsewhere:
        raise SystemExit(f"{folder}/config.json takes code from elsewhere ({elsewhere[0]}): copy it and name the file")
    files = sorted({place.split(".")[0] + ".py" for place in places})
    missing = [name for name in files if not (Path(folder) / name).is_file()]
    if missing:
        raise SystemExit(f"{folder} lacks {', '.join(missing)}: copy the .py files of the model's repository there")
    return True


def model_settings(arguments, scenario):
    """The model's configuration, and what its class is told: own code, dtype, attention."""
    from transformers import AutoConfig

    workload = scenario["workload"]
    code = {"trust_remote_code": True} if has_own_code(arguments.model) else {}
    config = AutoConfig.from_pretrained(arguments.model, **code)
    masters = engine_of(workload) != "deepspeed" and method_of(workload)[0] == "full" and mixes_precision(scenario)
    settings = {**code, "torch_dtype": torch.float32 if masters else DTYPES[workload["precision"]]}
    if not code:
        settings["attn_implementation"] = ATTENTION[workload["attention"]]
    return config, settings


# Of FSDP: gradients are sharded after every micro-step.
SYNC_EACH_BATCH = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}


def evaluation_of(workload):
    """The plan's evaluation as its kind, "loss" or "logits", and its settings; None without one."""
    said = workload.get("evaluation", "none")
    return None if said == "none" else next(iter(said.items()))


def evaluation_choices(workload):
    """The evaluation as keywords of TrainingArguments."""
    evaluation = evaluation_of(workload)
    if evaluation is None:
        return {}
    kind, said = evaluation
    return {"per_device_eval_batch_size": said["batch_size"], "prediction_loss_only": kind == "loss",
            "eval_accumulation_steps": said.get("accumulation_steps")}


def held_out(workload, tokens):
    """How many sequences are evaluated, tokens to train with and tokens to evaluate with: the data's end."""
    evaluation = evaluation_of(workload)
    if evaluation is None:
        return 0, tokens, None
    said = evaluation[1]
    rows = said.get("samples", said["batch_size"] * environment("WORLD_SIZE", 1))
    if tokens is None:
        return rows, None, None
    end = rows * unit_of(workload)
    return rows, tokens[:-end], tokens[-end:]


def trainer_choices(arguments, scenario):
    """What TrainingArguments, and the classes made of it, are told."""
    workload = scenario["workload"]
    deepspeed = engine_of(workload) == "deepspeed"
    mixes = mixes_precision(scenario)
    steps = steps_of(arguments)
    from transformers import TrainingArguments

    choices = {name: value for name, value in arguments.run.items() if name in TrainingArguments.__dataclass_fields__}
    for name in sorted(set(arguments.run) - set(choices)):
        print(f"training.json: this release of transformers does not know {name}")
    if deepspeed:
        choices["deepspeed"] = str(DS_CONFIG)
    if not deepspeed or not scenario.get("ds_config", {}).get("optimizer"):
        fused = workload["optimizer"] in ("adamw", "adam") and workload["optimizer_implementation"] == "fused"
        choices["optim"] = OPTIMIZERS[workload["optimizer"]] + ("_fused" if fused else "")
    return choices | dict(
        output_dir=arguments.output,
        per_device_train_batch_size=workload["micro_batch_size"],
        gradient_accumulation_steps=workload["gradient_accumulation_steps"],
        bf16=mixes and workload["precision"] == "bf16",
        fp16=mixes and workload["precision"] == "fp16",
        **({"accelerator_config": SYNC_EACH_BATCH} if workload.get("sync_each_batch") else {}),
        gradient_checkpointing=workload["activation_checkpointing"] != "none",
        gradient_checkpointing_kwargs=checkpointing_of(workload),
        **evaluation_choices(workload),
        learning_rate=arguments.learning_rate,
        max_steps=choices.get("max_steps", -1) if steps is None else steps,
        save_strategy=choices.get("save_strategy", "no"),
        logging_steps=choices.get("logging_steps", 1),
        seed=arguments.seed,
        report_to=[],
    )


def freeze(model, workload):
    """What the plan does not train: modules, parameters, and patterns of their names."""
    for said in filter(None, workload.get("freeze", "").split(",")):
        for name, parameter in model.named_parameters():
            if fnmatchcase(name, said) or name.startswith(said + "."):
                parameter.requires_grad_(False)


def auto_class(config):
    """Of transformers' automatic classes the one that builds what the config names; where it names nothing, one that
    sees before one of text alone, and an encoder's and a decoder's before the decoder's own."""
    import transformers

    both = getattr(config, "is_encoder_decoder", False)
    of_two = ["Seq2SeqLM", "SpeechSeq2Seq"]
    names = ["ImageTextToText", *([*of_two, "CausalLM"] if both else ["CausalLM", *of_two]), "MaskedLM"]
    if any(name.endswith("ForPreTraining") for name in config.architectures or ()):
        names.insert(0, "MaskedLM")  # of it the head that reads labels alone
    autos = [getattr(transformers, "AutoModelFor" + name, None) for name in names]
    found = [auto for auto in autos if auto is not None and type(config) in auto._model_mapping]
    named = [auto for auto in found if auto._model_mapping[type(config)].__name__ in (config.architectures or ())]
    return (named or found or [transformers.AutoModelForCausalLM])[0]


def build_model(arguments, scenario, model_class, adapters=True):
    """The model on its class's rules; under an active ZeRO-3 configuration it is born partitioned. Without `adapters`
    somebody else adds them."""
    import transformers

    workload = scenario["workload"]
    config, settings = model_settings(arguments, scenario)
    if model_class is transformers.AutoModelForCausalLM:
        model_class = auto_class(config)
    if method_of(workload)[0] == "qlora":
        model = four_bit_model(arguments, scenario, model_class, config, settings)
    elif has_weights(arguments.model):
        model = model_class.from_pretrained(arguments.model, **settings)
    else:
        torch.manual_seed(arguments.seed)
        if "images" in workload:
            from images import draw_nothing_of_nothing

            draw_nothing_of_nothing()
        model = model_class.from_config(config, **settings)
    if workload.get("fused_loss"):
        fuse_loss(model)
    if workload.get("tiled_mlp"):
        tile_feed_forward(model)
    model.config.use_cache = bool(workload.get("use_cache")) and workload["activation_checkpointing"] == "none"
    if "images" in workload:
        model.config.get_text_config().use_cache = model.config.use_cache
    freeze(model, workload)
    if workload["activation_checkpointing"] != "none":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=checkpointing_of(workload))
    return with_adapters(model, workload) if adapters else model


def four_bits(scenario):
    """BitsAndBytesConfig of the plan. FSDP shards what stores the bits as the type of the rest."""
    from transformers import BitsAndBytesConfig

    workload = scenario["workload"]
    said, dtype = workload["method"]["qlora"], DTYPES[workload["precision"]]
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=said["quant"],
                              bnb_4bit_use_double_quant=said["double_quant"], bnb_4bit_compute_dtype=dtype,
                              bnb_4bit_quant_storage=dtype if engine_of(workload) == "fsdp" else torch.uint8)


def four_bit_model(arguments, scenario, model_class, config, settings):
    """Weights of the model's folder are quantised as they are read, random ones layer by layer. Neither enters
    zero.Init: the model is whole on each GPU before stage 3 partitions it; before FSDP shards it, where the plan says."""
    settings = {**settings, "torch_dtype": DTYPES[scenario["workload"]["precision"]]}
    bits = four_bits(scenario)
    on_gpu = torch.cuda.is_available() and scenario["workload"].get("load_device") != "cpu"
    place = torch.device("cuda", environment("LOCAL_RANK", 0)) if on_gpu else "cpu"
    if has_weights(arguments.model):
        return model_class.from_pretrained(arguments.model, quantization_config=bits, device_map={"": place}, **settings)
    import bitsandbytes
    from transformers.integrations import deepspeed as hf_deepspeed

    known = hf_deepspeed._hf_deepspeed_config_weak_ref
    hf_deepspeed.unset_hf_deepspeed_config()
    try:
        torch.manual_seed(arguments.seed)
        model = model_class.from_config(config, **settings)
    finally:
        hf_deepspeed._hf_deepspeed_config_weak_ref = known
    for name, module in list(model.named_modules()):
        for child, layer in list(module.named_children()):
            if type(layer) is not torch.nn.Linear or not name:  # the head hangs from the root
                continue
            made = bitsandbytes.nn.Linear4bit(
                layer.in_features, layer.out_features, bias=layer.bias is not None,
                compute_dtype=bits.bnb_4bit_compute_dtype, compress_statistics=bits.bnb_4bit_use_double_quant,
                quant_type=bits.bnb_4bit_quant_type, quant_storage=bits.bnb_4bit_quant_storage)
            made.weight = bitsandbytes.nn.Params4bit(
                layer.weight.data, requires_grad=False, compress_statistics=bits.bnb_4bit_use_double_quant,
                quant_type=bits.bnb_4bit_quant_type, quant_storage=bits.bnb_4bit_quant_storage, module=made)
            made.bias = layer.bias
            setattr(module, child, made.to(place))
    model.is_loaded_in_4bit = True  # what from_pretrained says to peft
    model.config.quantization_config = bits
    return model.to(place)


def lora_of(workload):
    """The settings of adapters, whatever they stand beside; None where all weights are trained."""
    method, settings = method_of(workload)
    return None if method == "full" else settings


def checkpointing_of(workload):
    return {"use_reentrant": workload.get("checkpoint_reentrant", True)}


def fuse_loss(model):
    """Liger's patch of the class, as the Trainer's use_liger_kernel has it: head and loss in one, by pieces, so that
    the logits are never whole; and, where it has them, its norms, rotary positions and gated feed-forward."""
    try:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance
        from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN
    except ImportError as error:
        raise SystemExit("the plan has a fused loss: pip install liger-kernel") from error
    kind = model.config.model_type
    if kind not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        raise SystemExit(f"the plan has a fused loss, and Liger has none for {kind}")
    _apply_liger_kernel_to_instance(model=model)


def tile_feed_forward(model):
    """DeepSpeed's TiledMLP around every gated feed-forward: tokens over width tiles of the sequence."""
    from deepspeed.runtime.sequence_parallel.ulysses_sp import TiledMLP

    def of_a_tile(layer, tokens):
        return layer.down_proj(layer.act_fn(layer.gate_proj(tokens)) * layer.up_proj(tokens))

    def forward(layer, tokens):
        tiles = -(-tokens.shape[1] // tokens.shape[2])
        weights = [layer.down_proj.weight, layer.gate_proj.weight, layer.up_proj.weight]
        return TiledMLP.apply(of_a_tile, layer, tokens, tiles, weights)

    parts = ("gate_proj", "up_proj", "down_proj", "act_fn")
    classes = {type(module) for module in model.modules() if all(hasattr(module, part) for part in parts)}
    if not classes:
        raise SystemExit("the plan has a tiled feed-forward, and the model has no gated one")
    for kind in classes:
        kind.forward = forward


def adapters_of(model, workload):
    """peft's settings; None where all weights are trained."""
    lora = lora_of(workload)
    if lora is None:
        return None
    from peft import LoraConfig

    kind = "SEQ_2_SEQ_LM" if getattr(model.config, "is_encoder_decoder", False) else "CAUSAL_LM"
    if not hasattr(model, "prepare_inputs_for_generation"):
        kind = None  # masked words: peft's kinds that have a name generate
    rank, targets = lora.get("rank", 8), lora.get("targets") or []
    # A module around a linear layer (Gemma4ClippableLinear of Gemma 4's towers) has its name and no weight: peft refuses it.
    around = [name for name, module in model.named_modules() if name.rpartition(".")[2] in targets and not hasattr(module, "weight")]
    return LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=lora.get("dropout", 0.0), target_modules=targets or None, task_type=kind,
                      **({"exclude_modules": around} if around else {}))


def upcast(model, settings):
    """What the plan has in fp32 beside a frozen model: norms, or all that is not in four bits."""
    wanted = settings.get("upcast", "none")
    for module in model.modules() if wanted != "none" else []:
        if wanted == "norms" and "norm" not in type(module).__name__.lower():
            continue
        for parameter in module.parameters(recurse=False):
            if parameter.dtype in (torch.float16, torch.bfloat16) and type(parameter).__name__ != "Params4bit":
                parameter.data = parameter.data.float()


def with_adapters(model, workload):
    settings = adapters_of(model, workload)
    if settings is None:
        return model
    from peft import get_peft_model

    lora = lora_of(workload)
    upcast(model, lora)
    if workload["activation_checkpointing"] != "none":
        model.enable_input_require_grads()
    # DeepSpeed casts adapters as its release does; elsewhere peft from 0.12 on makes them fp32 unless it is told not to.
    told = "autocast_adapter_dtype" in inspect.signature(get_peft_model).parameters
    casts = {"autocast_adapter_dtype": lora.get("dtype") == "fp32"} if told and engine_of(workload) != "deepspeed" else {}
    return get_peft_model(model, settings, **casts)


def read_samples(arguments, vocabulary):
    """Of each row of the data its tokens, and how many of them are a prompt; None without data."""
    if not arguments.data:
        return None
    if arguments.tokenizer and not arguments.data.endswith(".txt"):
        from samples import samples_of

        return samples_of(arguments.data, arguments.tokenizer)
    texts = [Path(arguments.data).read_text(encoding="utf-8")]
    if not arguments.data.endswith(".txt"):
        texts = [json.loads(line)["text"] for line in texts[0].split("\n") if line.strip()]
    if arguments.tokenizer:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer)
        return [(tokenizer(text)["input_ids"], 0) for text in texts]
    return [([byte % vocabulary for byte in text.encode("utf-8")], 0) for text in texts]


def read_tokens(arguments, vocabulary):
    """All tokens of the data, one after the other; None without data."""
    samples = read_samples(arguments, vocabulary)
    return None if samples is None else torch.tensor([token for ids, _ in samples for token in ids], dtype=torch.long)


def padding_of(workload):
    """How samples of the plan's data fill a micro-batch: "longest", "max" or "packed"."""
    return workload.get("dataset", {}).get("padding", "packed")


def unit_of(workload):
    """How much of the data a sample takes: so many tokens of packed text, else a row."""
    return 1 if "images" in workload or padding_of(workload) != "packed" else workload["sequence_length"]


class Text:
    """The data as text that is packed: what is read, and sequences and micro-batches of it."""

    to_end = False  # whether rows are padded to the sequence's length, not to the longest

    def __init__(self, arguments, scenario, model):
        text = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
        self.arguments, self.vocabulary = arguments, text.vocab_size
        self.length = scenario["workload"]["sequence_length"]

    def read(self):
        return read_tokens(self.arguments, self.vocabulary)

    def sequences(self, count, seed, tokens):
        return Sequences(self.length, count, self.vocabulary, seed, tokens)

    def collate(self, rows):
        longest = self.length if self.to_end else max(len(row["input_ids"]) for row in rows)
        filled = [("input_ids", 0), ("labels", -100), ("attention_mask", 0)]
        for row in rows:
            row.setdefault("attention_mask", torch.ones_like(row["input_ids"]))
        return {key: torch.stack([torch.nn.functional.pad(row[key], (0, longest - len(row[key])), value=value)
                                  for row in rows]) for key, value in filled}


class Samples(Text):
    """Rows of the data, a sequence each, padded in their micro-batch as planned."""

    def __init__(self, arguments, scenario, model):
        super().__init__(arguments, scenario, model)
        said = scenario["workload"]["dataset"]
        self.to_end, self.drops = padding_of(scenario["workload"]) == "max", said.get("longer") == "drop"

    def read(self):
        samples = read_samples(self.arguments, self.vocabulary)
        if samples is None or not self.drops:
            return samples
        return [sample for sample in samples if len(sample[0]) <= self.length]

    def sequences(self, count, seed, rows):
        return Rows(self.length, rows) if rows else super().sequences(count, seed, rows)


def data_of(arguments, scenario, model):
    if "images" not in scenario["workload"]:
        packed = padding_of(scenario["workload"]) == "packed"
        return (Text if packed else Samples)(arguments, scenario, model)
    from images import TextWithImages

    return TextWithImages(arguments, scenario, model)


class Sequences(torch.utils.data.Dataset):
    """`count` sequences of `length` tokens, packed from `tokens` or drawn at random."""

    def __init__(self, length, count, vocabulary, seed, tokens=None):
        self.length, self.count, self.vocabulary, self.seed, self.tokens = length, count, vocabulary, seed, tokens
        if tokens is not None and len(tokens) < length:
            raise SystemExit(f"the data has {len(tokens)} tokens, a sequence needs {length}")

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.tokens is None:
            draw = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
            ids = torch.randint(0, self.vocabulary, (self.length,), generator=draw)
        else:
            start = (index * self.length) % (len(self.tokens) - self.length + 1)
            ids = self.tokens[start : start + self.length]
        return {"input_ids": ids, "labels": ids.clone()}


class Rows(torch.utils.data.Dataset):
    """Samples as they are, from the first again behind the last; a prompt's tokens are no labels."""

    def __init__(self, length, samples):
        self.length, self.samples = length, samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        ids, prompt = self.samples[index % len(self.samples)]
        ids = torch.tensor(ids[: self.length], dtype=torch.long)
        labels = ids.clone()
        labels[: min(prompt, len(ids) - 1)] = -100  # a cut answer leaves one token to learn
        return {"input_ids": ids, "labels": labels}


def mask_tokens(sample, vocabulary, mask_token, seed, share=0.15):
    """Masked language modelling: `share` of the tokens are to be guessed; 8 of 10 of them are hidden, one
    is replaced (Devlin et al. 2018, arXiv:1810.04805, section 3.1)."""
    draw = torch.Generator().manual_seed(seed)
    ids = sample["input_ids"].clone()
    chosen = torch.rand(ids.shape, generator=draw) < share
    labels = torch.where(chosen, ids, torch.full_like(ids, -100))
    how = torch.rand(ids.shape, generator=draw)
    ids[chosen & (how < 0.8)] = mask_token
    replaced = chosen & (how >= 0.8) & (how < 0.9)
    ids[replaced] = torch.randint(0, vocabulary, ids.shape, generator=draw)[replaced]
    return {"input_ids": ids, "labels": labels}


def environment(name, default):
    return int(os.environ.get(name, default))
