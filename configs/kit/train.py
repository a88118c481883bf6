#!/usr/bin/env python3
"""Trains with the Hugging Face Trainer as scenario.json and ds_config.json say, and records the run."""

from common import HERE, OPTIMIZERS, Sequences, build_model, environment, parser, read_scenario, read_tokens
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

    # Before the model: ZeRO-3's zero.Init is switched on by it.
    settings = TrainingArguments(
        output_dir=arguments.output,
        deepspeed=str(HERE / "ds_config.json"),
        per_device_train_batch_size=workload["micro_batch_size"],
        gradient_accumulation_steps=workload["gradient_accumulation_steps"],
        bf16=workload["precision"] == "bf16",
        fp16=workload["precision"] == "fp16",
        gradient_checkpointing=workload["activation_checkpointing"] != "none",
        gradient_checkpointing_kwargs={"use_reentrant": workload.get("checkpoint_reentrant", True)},
        optim=OPTIMIZERS[workload["optimizer"]],
        learning_rate=arguments.learning_rate,
        max_steps=arguments.steps,
        save_strategy="no",
        logging_steps=1,
        seed=arguments.seed,
        report_to=[],
        remove_unused_columns=False,
    )
    model = build_model(arguments, workload, AutoModelForCausalLM)
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
