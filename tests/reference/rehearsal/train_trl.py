"""TRL's trainers on a scenario's model: what train.py runs where `workload.trainer` names one.

Samples are tokens without meaning: a prompt of `prompt_length` tokens, a quarter of the sequence where nobody says, and
completions that fill the sequence. DPO's rejected answer is a sixteenth of the sequence shorter than the chosen one, so
that rows are padded; the prompt is as much shorter that both have as many tokens as the scenario says.
"""
import json
import os
import sys
import tempfile
import time

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


def as_launched(run):
    """What `accelerate launch --config_file` says to a process. PPOTrainer makes an Accelerator of its own, which reads
    that alone, and nothing of the arguments' `deepspeed` and `bf16`."""
    precision = run.workload["precision"]
    os.environ["ACCELERATE_MIXED_PRECISION"] = "no" if precision == "fp32" else precision
    if run.engine != "deepspeed":
        return
    place = os.path.join(tempfile.mkdtemp(), "ds_config.json")
    with open(place, "w") as file:
        json.dump(run.ds, file)
    os.environ.update(ACCELERATE_USE_DEEPSPEED="true", ACCELERATE_DEEPSPEED_CONFIG_FILE=place,
                      ACCELERATE_DEEPSPEED_ZERO3_INIT=str(run.ds["zero_optimization"]["stage"] == 3).lower())


def scoring_model(run, dtype):
    """A value or a reward model: the trained model's layers and one number a token."""
    config = transformers.AutoConfig.for_model(**run.scenario["model"])
    config.num_labels, config.use_cache = 1, False
    try:
        made = transformers.AutoModelForSequenceClassification.from_config(config, dtype=dtype)
    except TypeError:  # before transformers 4.56
        made = transformers.AutoModelForSequenceClassification.from_config(config, torch_dtype=dtype)
    return made.train()


def variance_of_any_mask(masked_mean):
    """TRL's masked_var, which stops where a mask is empty: what is drawn in a rehearsal has no values, so that all are."""
    def masked_var(values, mask, unbiased=True):
        centred = values - masked_mean(values, mask)
        variance, count = masked_mean(centred**2, mask), mask.sum()
        return variance * (count / (count - 1))

    return masked_var


def ppo_trainer(run, said):
    """PPO, whose completions are all as long as they may be: no token ends them (stop_token None)."""
    try:
        from trl import PPOConfig, PPOTrainer
    except ImportError:
        from trl.experimental.ppo import PPOConfig, PPOTrainer

    as_launched(run)
    whitens = sys.modules[sys.modules[PPOTrainer.__module__].masked_whiten.__module__]
    whitens.masked_var = variance_of_any_mask(whitens.masked_mean)
    given = arguments(run, "ppo", said)
    for name in ("deepspeed", "max_steps", "gradient_checkpointing", "gradient_checkpointing_kwargs"):
        given.pop(name, None)
    args = PPOConfig(**given, gradient_checkpointing=False, response_length=said["completion_length"],
                     local_rollout_forward_batch_size=said["rollout_rows"], num_ppo_epochs=said["epochs"],
                     num_mini_batches=said["mini_batches"], total_episodes=1 << 16, num_sample_generations=0,
                     ds3_gather_for_generation=said.get("gathers_model", True))
    dtype = run.dtype if run.engine == "deepspeed" or run.lora else torch.float32
    more = {}
    adapters, run.lora = run.lora, None
    if adapters:
        import peft

        more["peft_config"] = peft.LoraConfig(r=adapters["rank"], target_modules=adapters["targets"], task_type="CAUSAL_LM")
    policy, value, reward = run.model(dtype), scoring_model(run, dtype), scoring_model(run, dtype)
    copy = None if adapters else run.model(dtype)
    run.lora = adapters
    words = tokenizer()
    words.padding_side, words.pad_token = "left", "<unk>"  # what is drawn in a rehearsal is word 0, which is no padding then
    rows = [{"input_ids": words(row["prompt"])["input_ids"]} for row in samples(run, "ppo", said)]
    data = datasets.Dataset.from_list(rows)
    return PPOTrainer(args=args, processing_class=words, model=policy, ref_model=copy, reward_model=reward,
                      value_model=value, train_dataset=data, eval_dataset=data, **more)


def teacher_model(run, dtype):
    """The scenario's teacher as from_pretrained makes it: with a cache of keys and values, which a config asks for."""
    config = transformers.AutoConfig.for_model(**run.workload["teacher"])
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype,
                                                         attn_implementation=run.workload.get("attention", "sdpa"))


class WaitAfterSteps(transformers.TrainerCallback):
    """NCCL's watchdog looks every 100 ms which collectives have ended; until then the first step's bucket of all gradients
    lives on. A step takes longer on a GPU."""

    def on_step_end(self, *_, **__):
        time.sleep(0.3)


def distilling_trainer(run, said):
    """GKD on samples that are tokenised: every second one is shorter, so that rows are padded on the left. What the student
    generates is as long as it may be: the drawn word 0 ends nothing."""
    from trl.experimental.gkd import GKDConfig, GKDTrainer

    tokens, prompt, rows = run.batch[1], said["prompt_length"], []
    for less in (0, 8) * 64:
        answer = tokens - prompt
        rows.append({"prompt": text(prompt - less), "input_ids": [4 + i % WORDS for i in range(tokens - less)],
                     "attention_mask": [1] * (tokens - less), "completion_mask": [0] * (prompt - less) + [1] * answer})
    args = GKDConfig(**arguments(run, "gkd", said), lmbda=said["lmbda"], beta=said["beta"], max_length=tokens,
                     max_new_tokens=said.get("completion_length", tokens - prompt), train_sampling_strategy="sequential")
    dtype = run.dtype if run.engine == "deepspeed" or run.lora else torch.float32
    more = {"callbacks": [WaitAfterSteps()]} if run.engine == "ddp" else {}
    if run.lora:
        import peft

        more["peft_config"] = peft.LoraConfig(r=run.lora["rank"], target_modules=run.lora["targets"], task_type="CAUSAL_LM")
    adapters, run.lora = run.lora, None
    model = run.model(dtype)
    run.lora = adapters
    return GKDTrainer(model=model, teacher_model=teacher_model(run, run.dtype), args=args,
                      train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer(), **more)


def train(run):
    kind, said = settings(run)
    if kind == "ppo":
        ppo_trainer(run, said).train()
        return
    if kind == "gkd":
        distilling_trainer(run, said).train()
        return
    made = generating_trainer(run, said) if kind == "grpo" else preference_trainer(run, kind, said)
    made.train()
