#!/usr/bin/env python3
"""Trains with the Hugging Face Trainer as scenario.json and ds_config.json say, and records the run."""

from common import (
    Sequences,
    build_model,
    environment,
    parser,
    read_scenario,
    read_tokens,
    trainer_choices,
)
from measurement import Recorder, timer


def main():
    arguments = parser(__doc__).parse_args()
    scenario = read_scenario(arguments.scenario)
    workload = scenario["workload"]

    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    recorder = Recorder()
    # Before the model: ZeRO-3's zero.Init is switched on by it.
    settings = TrainingArguments(remove_unused_columns=False, **trainer_choices(arguments, scenario))
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
    trainer = Trainer(model=model, args=settings, train_dataset=data, callbacks=[timer(recorder)])
    trainer.train()
    if arguments.save:
        trainer.save_model(arguments.output)
    recorder.write(arguments.measure, scenario, "hf-trainer")


if __name__ == "__main__":
    main()
