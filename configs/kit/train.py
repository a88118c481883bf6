#!/usr/bin/env python3
"""Trains with the Hugging Face Trainer as scenario.json and ds_config.json say, and records the run."""

from common import (
    HERE,
    OPTIMIZERS,
    Sequences,
    build_model,
    checkpointing_of,
    engine_of,
    environment,
    mixes_precision,
    parser,
    read_scenario,
    read_tokens,
)
from measurement import Recorder


def main():
    arguments = parser(__doc__).parse_args()
    scenario = read_scenario(arguments.scenario)
    workload = scenario["workload"]

    from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

    recorder = Recorder()

    class Timer(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            recorder.step_begins()

        def on_step_end(self, args, state, control, **kwargs):
            recorder.step_ends()

    deepspeed = engine_of(workload) == "deepspeed"
    mixes = mixes_precision(scenario)
    choices = {}
    if deepspeed:
        choices["deepspeed"] = str(HERE / "ds_config.json")
    # Where nobody names Adam the Trainer takes torch's, fused from some releases on; so does the plan.
    named = scenario.get("ds_config", {}).get("optimizer")
    if not deepspeed or (not named and workload["optimizer"] not in ("adamw", "adam")):
        choices["optim"] = OPTIMIZERS[workload["optimizer"]]
    # Before the model: ZeRO-3's zero.Init is switched on by it.
    settings = TrainingArguments(
        output_dir=arguments.output,
        per_device_train_batch_size=workload["micro_batch_size"],
        gradient_accumulation_steps=workload["gradient_accumulation_steps"],
        bf16=mixes and workload["precision"] == "bf16",
        fp16=mixes and workload["precision"] == "fp16",
        gradient_checkpointing=workload["activation_checkpointing"] != "none",
        gradient_checkpointing_kwargs=checkpointing_of(workload),
        learning_rate=arguments.learning_rate,
        max_steps=arguments.steps,
        save_strategy="no",
        logging_steps=1,
        seed=arguments.seed,
        report_to=[],
        remove_unused_columns=False,
        **choices,
    )
    model = build_model(arguments, scenario, AutoModelForCausalLM)
    vocabulary = model.config.vocab_size
    samples = (
        arguments.steps
        * workload["micro_batch_size"]
        * workload["gradient_accumulation_steps"]
        * environment("WORLD_SIZE", 1)
    )
    data = Sequences(
        workload["sequence_length"], samples, vocabulary, arguments.seed, read_tokens(arguments, vocabulary)
    )
    trainer = Trainer(model=model, args=settings, train_dataset=data, callbacks=[Timer()])
    trainer.train()
    if arguments.save:
        trainer.save_model(arguments.output)
    recorder.write(arguments.measure, scenario, "hf-trainer")


if __name__ == "__main__":
    main()
