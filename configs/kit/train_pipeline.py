#!/usr/bin/env python3
"""Trains a causal language model in DeepSpeed pipeline stages, as scenario.json says, and records the run."""

import json

import deepspeed
import torch
from common import DS_CONFIG, Sequences, parser, read_scenario, read_tokens, steps_of_loop
from measurement import Recorder
from native import explicit
from pipeline import Stack, pipeline_of
from weights import save


def micro_batches(data, workload, rank, ranks):
    """Tokens and labels for one data-parallel rank; every stage of it reads the same."""
    sample = rank
    while True:
        batch = []
        for _ in range(workload["micro_batch_size"]):
            batch.append(data[sample])
            sample += ranks
        yield tuple(torch.stack([one[key] for one in batch]) for key in ("input_ids", "labels"))


def main():
    arguments = parser(__doc__).parse_args()
    scenario = read_scenario(arguments.scenario)
    workload = scenario["workload"]
    # What the plan deals out to stages, and whether layers are checkpointed.
    planned = json.loads(DS_CONFIG.read_text(encoding="utf-8"))["pipeline"]
    deepspeed.init_distributed()
    stack = Stack(arguments, scenario)
    module = pipeline_of(stack, planned)
    replicas = torch.distributed.get_world_size() // planned["stages"]
    ds_config = {**explicit(arguments, scenario["ds_config"], replicas), "pipeline": planned}
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    engine, *_ = deepspeed.initialize(model=module, model_parameters=parameters, config=ds_config)
    vocabulary = stack.model.config.vocab_size
    tokens = read_tokens(arguments, vocabulary)
    data = Sequences(workload["sequence_length"], 1 << 30, vocabulary, arguments.seed, tokens)
    batches = micro_batches(data, workload, engine.grid.get_data_parallel_id(), replicas)
    recorder = Recorder()
    for step in range(steps_of_loop(arguments, workload, replicas, tokens)):
        recorder.step_begins()
        loss = engine.train_batch(batches)
        recorder.step_ends()
        if torch.distributed.get_rank() == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}, {recorder.seconds[-1]:.3f} s", flush=True)
    if arguments.save:
        save(module, arguments.model, arguments.output)
    recorder.write(arguments.measure, scenario, "native")


if __name__ == "__main__":
    main()
