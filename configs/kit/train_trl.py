#!/usr/bin/env python3
"""Trains with TRL's DPOTrainer, KTOTrainer, GRPOTrainer, PPOTrainer or GKDTrainer as scenario.json and ds_config.json say,
and records the run.

--data is .jsonl as TRL reads it: prompt, chosen and rejected (DPO), prompt, completion and label (KTO), prompt (GRPO, PPO),
messages (GKD).
Without it samples are made up that fill the planned sequence.
"""

import importlib
import importlib.util
import os
from pathlib import Path

from common import ATTENTION, DS_CONFIG, DTYPES, HERE, adapters_of, build_model, has_weights, parser, read_scenario, steps_of, trainer_choices
from measurement import Recorder, timer

MADE_UP_WORDS = 1000
ROWS = 256


def read_trainer(workload):
    """The trainer's name, and what the plan says of it."""
    said = workload["trainer"]
    return (said, {}) if isinstance(said, str) else next(iter(said.items()))


def own_class(name):
    """Of TRL, or of its experimental part, to which releases move some."""
    import trl

    if hasattr(trl, name):
        return getattr(trl, name)
    kind = name.replace("Trainer", "").replace("Config", "").lower()
    return getattr(importlib.import_module(f"trl.experimental.{kind}"), name)


def read_tokenizer(arguments, vocabulary):
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    folder = arguments.tokenizer or arguments.model
    if arguments.tokenizer or (Path(folder) / "tokenizer_config.json").is_file():
        found = AutoTokenizer.from_pretrained(folder)
        if found.pad_token is None:
            found.pad_token = found.eos_token
        return found
    if arguments.data:
        raise SystemExit(f"{folder} has no tokenizer, which --data needs: name its folder with --tokenizer")
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = ["<pad>", "<s>", "</s>", "<unk>"]
    count = min(MADE_UP_WORDS, vocabulary - len(special))
    words = {word: i for i, word in enumerate(special + [f"w{i}" for i in range(count)])}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
                                   unk_token="<unk>")


def text(words):
    return " ".join(f"w{i % MADE_UP_WORDS}" for i in range(max(1, words)))


def added_tokens():
    """Of TRL to a row: an end, and by releases before 1.4 a beginning."""
    import trl

    return 1 if tuple(int(part) for part in trl.__version__.split(".")[:2]) >= (1, 4) else 2


def made_up(kind, said, sequence):
    """Rows that fill the sequence: a prompt of `prompt_length` tokens, a quarter where the plan says none. Rejected answers
    are shorter, so that rows are padded as real ones are."""
    answer = said.get("completion_length", sequence - (said.get("prompt_length") or sequence // 4))
    prompt = max(1, sequence - answer)
    if kind in ("grpo", "ppo"):
        return [{"prompt": text(prompt)} for _ in range(ROWS)]
    if kind == "gkd":
        return [of_tokens(prompt, prompt + answer - less, less) for less in (0, 8) * (ROWS // 2)]
    answer -= added_tokens()
    if kind == "kto":
        return [{"prompt": text(prompt), "completion": " " + text(answer), "label": i % 2 == 0} for i in range(ROWS)]
    row = {"prompt": text(prompt), "chosen": " " + text(answer), "rejected": " " + text(answer - sequence // 16)}
    return [row] * ROWS


def of_tokens(prompt, length, less):
    """What GKD's collator takes as it is: the shorter rows are padded on the left."""
    prompt = max(1, prompt - less)
    return {"prompt": text(prompt), "input_ids": [4 + i % MADE_UP_WORDS for i in range(length)],
            "attention_mask": [1] * length, "completion_mask": [0] * prompt + [1] * (length - prompt)}


def read_rows(arguments, kind, said, sequence):
    from datasets import Dataset, load_dataset

    if arguments.data:
        return load_dataset("json", data_files=arguments.data, split="train")
    return Dataset.from_list(made_up(kind, said, sequence))


def length_of_completion(completions, **_):
    return [float(len(completion)) for completion in completions]


def read_reward(place):
    """FILE.py:function, as GRPOTrainer calls it; without one the length of a completion is its reward."""
    if not place:
        return length_of_completion
    file, _, name = place.partition(":")
    spec = importlib.util.spec_from_file_location("reward", file)
    if spec is None or not name or not Path(file).is_file():
        raise SystemExit(f"--reward is FILE.py:function, got {place}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def generation_choices(said):
    choices = {
        "max_completion_length": said["completion_length"],
        "num_generations": said["completions"],
        "ds3_gather_for_generation": said.get("gathers_model", True),
    }
    if said.get("generation_batches"):
        choices["steps_per_generation"] = said["generation_batches"]
    how = said.get("generation", "trainer")
    if how != "trainer":
        choices.update(use_vllm=True, vllm_mode="colocate" if how == "colocated" else "server")
    if how == "colocated":
        choices.update(vllm_gpu_memory_utilization=said["memory_share"], vllm_enable_sleep_mode=said["sleeps"],
                       vllm_tensor_parallel_size=said["generation_tensor_parallel"])
    return choices


def rollout_choices(said, workload, steps):
    """PPO counts in episodes: so many samples that the rollouts make `steps` optimizer steps."""
    batch = workload["micro_batch_size"] * workload["gradient_accumulation_steps"] * int(os.environ.get("WORLD_SIZE", 1))
    return {
        "kl_coef": said["beta"],
        "response_length": said["completion_length"],
        "local_rollout_forward_batch_size": said["rollout_rows"],
        "num_ppo_epochs": said["epochs"],
        "num_mini_batches": said["mini_batches"],
        "ds3_gather_for_generation": said["gathers_model"],
        "total_episodes": -(-steps // said["epochs"]) * batch,
        "num_sample_generations": 0,
    }


def launch_by_environment(scenario):
    """PPOTrainer makes an Accelerator of its own. It reads what `accelerate launch` leaves in the environment, and nothing
    of the arguments' `deepspeed` and `bf16`."""
    workload = scenario["workload"]
    precision = workload["precision"]
    os.environ["ACCELERATE_MIXED_PRECISION"] = "no" if precision == "fp32" else precision
    if workload.get("engine", "deepspeed") != "deepspeed":
        return
    stage = scenario["ds_config"].get("zero_optimization", {}).get("stage", 0)
    os.environ.update(ACCELERATE_USE_DEEPSPEED="true", ACCELERATE_DEEPSPEED_CONFIG_FILE=str(DS_CONFIG),
                      ACCELERATE_DEEPSPEED_ZERO3_INIT=str(stage == 3).lower())


def scoring_models(arguments, scenario):
    """The reward model and, from the same weights, the value model that is trained. Without --reward-model both are random,
    of the policy's size."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    folder = arguments.reward_model or arguments.model
    dtype = DTYPES["fp32" if scenario["workload"].get("engine") == "ddp" and
                   scenario["workload"].get("method", "full") == "full" else scenario["workload"]["precision"]]
    made = {}
    for name in ("reward_model", "value_model"):
        if arguments.reward_model and has_weights(folder):
            made[name] = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, torch_dtype=dtype)
        else:
            config = AutoConfig.from_pretrained(folder, num_labels=1)
            made[name] = AutoModelForSequenceClassification.from_config(config, torch_dtype=dtype)
    return made


def prompts(rows, words):
    """Token ids alone, as PPOTrainer's collator takes them."""
    return rows.map(lambda row: {"input_ids": words(row["prompt"])["input_ids"]}, remove_columns=rows.column_names)


def choices_of(kind, said, workload, steps):
    """What each trainer's configuration has beside TrainingArguments."""
    if kind == "ppo":
        return rollout_choices(said, workload, steps)
    if kind == "gkd":
        return {"beta": said["beta"], "lmbda": said["lmbda"], "max_new_tokens": said["completion_length"],
                "max_length": workload["sequence_length"]}
    choices = {"beta": said["beta"]}
    if kind == "grpo":
        return {**choices, **generation_choices(said)}
    choices["max_length"] = workload["sequence_length"]
    choices["precompute_ref_log_probs"] = said.get("precompute_reference", False)
    return choices


def reference_of(arguments, scenario, kind, said, model_class):
    """The arguments with a copy that is trained no further; none where TRL has the reference without one."""
    workload = scenario["workload"]
    if workload.get("method", "full") != "full" or said.get("precompute_reference") or kind in ("grpo", "gkd"):
        return {}
    return {"ref_model": build_model(arguments, scenario, model_class)}


def teacher_model(arguments, scenario):
    """From its folder, in the plan's precision: as transformers loads the usual checkpoint. Its cache of keys and values stays
    on."""
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {"torch_dtype": DTYPES[scenario["workload"]["precision"]],
                "attn_implementation": ATTENTION[scenario["workload"]["attention"]]}
    if has_weights(arguments.teacher):
        return AutoModelForCausalLM.from_pretrained(arguments.teacher, **settings)
    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(arguments.teacher), **settings)


def has_own_reference(workload, kind, said):
    return kind == "grpo" and said["beta"] > 0 and workload.get("method", "full") == "full"


def main():
    flags = parser(__doc__)
    flags.add_argument("--reward", help="of GRPO: FILE.py:function; the length of a completion without it")
    flags.add_argument("--reward-model", help="of PPO: folder of a model that scores, the value model's first weights, too")
    flags.add_argument("--teacher", default=str(HERE / "teacher"), help="of GKD: folder of the teacher, weights if any")
    arguments = flags.parse_args()
    scenario = read_scenario(arguments.scenario)
    workload = scenario["workload"]
    kind, said = read_trainer(workload)

    from transformers import AutoModelForCausalLM

    name = {"dpo": "DPO", "kto": "KTO", "grpo": "GRPO", "ppo": "PPO", "gkd": "GKD"}[kind]
    configuration, trainer_class = own_class(name + "Config"), own_class(name + "Trainer")
    choices = {**trainer_choices(arguments, scenario), **choices_of(kind, said, workload, steps_of(arguments) or 20)}
    if kind == "ppo":
        launch_by_environment(scenario)
        choices = {key: value for key, value in choices.items() if key not in ("deepspeed", "max_steps")}
    unknown = sorted(set(choices) - set(configuration.__dataclass_fields__))
    if unknown:
        raise SystemExit(f"this release of TRL does not know {', '.join(unknown)} of {configuration.__name__}")
    recorder = Recorder()
    settings = configuration(**choices)  # before the model: ZeRO-3's zero.Init is switched on by it
    model = build_model(arguments, scenario, AutoModelForCausalLM, adapters=False)
    if has_own_reference(workload, kind, said):
        if not has_weights(arguments.model):
            raise SystemExit(f"beta is {said['beta']}: GRPOTrainer loads its reference from {arguments.model}, which has no weights")
        model.config._name_or_path = arguments.model
    given = reference_of(arguments, scenario, kind, said, AutoModelForCausalLM)
    adapters = adapters_of(model, workload)
    if adapters is not None:
        given["peft_config"] = adapters
    if kind == "grpo":
        given["reward_funcs"] = read_reward(arguments.reward)
    if kind == "gkd":
        given["teacher_model"] = teacher_model(arguments, scenario)
    takes = trainer_class.__init__.__code__.co_varnames
    words = read_tokenizer(arguments, model.config.vocab_size)
    given["processing_class" if "processing_class" in takes else "tokenizer"] = words
    rows = read_rows(arguments, kind, said, workload["sequence_length"])
    if kind == "ppo":
        words.padding_side = "left"
        rows = prompts(rows, words)
        given.update(scoring_models(arguments, scenario), eval_dataset=rows)
        given.setdefault("ref_model", None)
    trainer = trainer_class(model=model, args=settings, callbacks=[timer(recorder)], train_dataset=rows, **given)
    trainer.train()
    if arguments.save:
        trainer.save_model(arguments.output)
    recorder.write(arguments.measure, scenario, "hf-trainer")


if __name__ == "__main__":
    main()
