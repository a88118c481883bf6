#!/usr/bin/env python3
"""Trains with the Hugging Face Trainer as scenario.json and ds_config.json say, and records the run."""

from common import (
    build_model,
    data_of,
    environment,
    held_out,
    parser,
    read_scenario,
    steps_of,
    trainer_choices,
    unit_of,
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
    data = data_of(arguments, scenario, model)
    rows, trained, evaluated = held_out(workload, data.read())
    a_step = workload["micro_batch_size"] * workload["gradient_accumulation_steps"] * environment("WORLD_SIZE", 1)
    steps = steps_of(arguments)
    samples = a_step * steps if steps is not None else len(trained) // unit_of(workload)
    trainer = Trainer(model=model, args=settings, train_dataset=data.sequences(samples, arguments.seed, trained),
                      data_collator=data.collate, callbacks=[timer(recorder)])
    trainer.train()
    if arguments.save:
        trainer.save_model(arguments.output)
    recorder.write(arguments.measure, scenario, "hf-trainer")
    if rows:  # behind the measurement, which is of training alone
        print(trainer.evaluate(data.sequences(rows, arguments.seed + 1, evaluated)))


if __name__ == "__main__":
    main()
