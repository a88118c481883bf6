"""TRL's trainers on a scenario's model: what train.py runs where `workload.trainer` names one.

Samples are tokens without meaning: a prompt of `prompt_length` tokens, a quarter of the sequence where nobody says, and
completions that fill the sequence. DPO's rejected answer is a sixteenth of the sequence shorter than the chosen one, so
that rows are padded; the prompt is as much shorter that both have as many tokens as the scenario says.
"""
import tempfile

import datasets
import tokenizers
import torch
import transformers

WORDS = 1000


def tokenizer():
    words = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *("w%d" % i for i in range(WORDS))])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", bos_token="<s>",
                                                eos_token="</s>", unk_token="<unk>")


def text(words):
    return " ".join("w%d" % (i % WORDS) for i in range(words))


def settings(run):
    """The trainer's name, and what the scenario says of it."""
    said = run.workload["trainer"]
    return next(iter(said.items())) if isinstance(said, dict) else (said, {})


def samples(run, kind, said):
    tokens = run.batch[1]
    prompt = said.get("prompt_length") or tokens - said.get("completion_length", tokens - tokens // 4)
    answer = tokens - prompt - 1
    if kind == "dpo":
        less = min(tokens // 32, prompt - 1)
        row = {"prompt": text(prompt - less) + " ", "chosen": text(answer + less) + " </s>",
               "rejected": text(answer - less) + " </s>"}
        rows = [row] * 64
    elif kind == "kto":
        rows = [{"prompt": text(prompt) + " ", "completion": text(answer) + " </s>", "label": i % 2 == 0} for i in range(64)]
    else:
        rows = [{"prompt": text(prompt - 8 * (i % 2))} for i in range(64)]  # of two lengths
    return datasets.Dataset.from_list(rows)


def arguments(run, kind, said):
    more = {"deepspeed": run.ds} if run.engine == "deepspeed" else {}
    if run.engine == "fsdp":
        more["fsdp"] = "full_shard auto_wrap"
        more["fsdp_config"] = {"transformer_layer_cls_to_wrap": [run.program["block"]]}
    if run.workload["precision"] != "fp32":
        more[run.workload["precision"]] = True
    checkpoints = run.workload.get("activation_checkpointing") == "full"
    more["gradient_checkpointing"] = checkpoints
    if checkpoints:
        more["gradient_checkpointing_kwargs"] = {"use_reentrant": bool(run.workload.get("checkpoint_reentrant"))}
    if kind in ("dpo", "kto"):
        more["max_length"] = run.batch[1]
        more["precompute_ref_log_probs"] = bool(said.get("precompute_reference"))
    return dict(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=run.batch[0], max_steps=run.steps,
                gradient_accumulation_steps=run.micro_batches, report_to=[], save_strategy="no", logging_steps=100, **more)


def reference(run, dtype, said):
    """A copy of the trained model, as TRL would load it; none where it switches adapters off."""
    if run.lora or said.get("precompute_reference"):
        return None
    return run.model(dtype)


def preference_trainer(run, kind, said):
    import trl

    trainer, config = {"dpo": (trl.DPOTrainer, trl.DPOConfig), "kto": (trl.KTOTrainer, trl.KTOConfig)}[kind]
    given = arguments(run, kind, said)
    known = {field for field in config.__dataclass_fields__}
    dtype = run.dtype if run.engine == "deepspeed" or run.lora or run.program.get("dtype") == "low" else torch.float32
    more = {}
    if run.lora:
        import peft

        more["peft_config"] = peft.LoraConfig(r=run.lora["rank"], target_modules=run.lora["targets"],
                                              lora_dropout=run.lora.get("dropout", 0.0), task_type="CAUSAL_LM")
    args = config(**{name: value for name, value in given.items() if name in known})
    adapters, run.lora = run.lora, None  # TRL adds them
    model = run.model(dtype)
    run.lora = adapters
    name = "processing_class" if "processing_class" in trainer.__init__.__code__.co_varnames else "tokenizer"
    return trainer(model=model, ref_model=reference(run, dtype, said), args=args, train_dataset=samples(run, kind, said),
                   **{name: tokenizer()}, **more)


def count_tokens(completions, **_):
    return [float(len(completion)) for completion in completions]


def generating_trainer(run, said):
    """GRPO, whose completions are all as long as they may be: no end token is drawn before."""
    import trl

    length = said["completion_length"]
    given = arguments(run, "grpo", said)
    # In their order: each micro-batch has prompts of both lengths, and so rows that are padded.
    given.update(shuffle_dataset=False, max_completion_length=length, num_generations=said["completions"], beta=said["beta"],
                 ds3_gather_for_generation=said.get("gathers_model", True), generation_kwargs={"min_new_tokens": length})
    dtype = run.dtype if run.engine == "deepspeed" or run.lora else torch.float32
    more = {}
    if run.lora:
        import peft

        more["peft_config"] = peft.LoraConfig(r=run.lora["rank"], target_modules=run.lora["targets"], task_type="CAUSAL_LM")
    adapters, run.lora = run.lora, None
    model = run.model(dtype)
    if said["beta"] > 0 and not adapters:  # TRL loads the reference from where the model's config says it is
        import trl.trainer.grpo_trainer as grpo

        grpo.create_model_from_path = lambda *_, **__: run.model(dtype)
        grpo.get_config_model_id = lambda config: "model"
    run.lora = adapters
    return trl.GRPOTrainer(model=model, reward_funcs=count_tokens, args=trl.GRPOConfig(**given),
                           train_dataset=samples(run, "grpo", said), processing_class=tokenizer(), **more)


def train(run):
    kind, said = settings(run)
    made = generating_trainer(run, said) if kind == "grpo" else preference_trainer(run, kind, said)
    made.train()
