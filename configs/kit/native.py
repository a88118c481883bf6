"""A training loop on deepspeed.initialize alone, for the scripts that bring a model class and samples."""

import time

import deepspeed
import torch
from common import build_model, data_of, read_scenario, steps_of_loop
from measurement import Recorder
from transformers.integrations import HfDeepSpeedConfig


def explicit(arguments, ds_config, ranks):
    """The scenario's ds_config, whose batch keys must agree with the ranks that were started, with the rate that was
    said."""
    planned = ds_config.get("train_batch_size")
    batch = ds_config["train_micro_batch_size_per_gpu"] * ds_config["gradient_accumulation_steps"] * ranks
    if planned is not None and planned != batch:
        print(f"planned for {planned} samples a step, started with {ranks} ranks: {batch} samples a step")
    optimizer = ds_config.get("optimizer")
    if optimizer:
        optimizer = {**optimizer, "params": {**optimizer.get("params", {}), "lr": arguments.learning_rate}}
        ds_config = {**ds_config, "optimizer": optimizer}
    return {**ds_config, "train_batch_size": batch}


def own_optimizer(workload, ds_config, parameters, rate):
    """An optimizer that DeepSpeed does not make by its name; None where the file names one that it does."""
    if ds_config.get("optimizer"):
        return None
    if workload["optimizer"] == "adamw8bit":
        from bitsandbytes.optim import AdamW8bit

        return AdamW8bit(parameters, lr=rate)
    if workload["optimizer"] == "adafactor":
        from transformers.optimization import Adafactor

        return Adafactor(parameters, lr=rate, scale_parameter=False, relative_step=False)
    raise SystemExit(f"ds_config.json names no optimizer, and this script makes no {workload['optimizer']}")


def train(arguments, model_class, prepare=None):
    """prepare(sample, index, model config) changes a sample."""
    scenario = read_scenario(arguments.scenario)
    workload = scenario["workload"]
    deepspeed.init_distributed()
    ranks = torch.distributed.get_world_size()
    ds_config = explicit(arguments, scenario["ds_config"], ranks)
    stage = ds_config.get("zero_optimization", {}).get("stage", 0)
    # transformers enters zero.Init by it while it lives, and gathers the weights that it draws or reads; in a zero.Init of
    # ours it would draw into empty shards, and fail at an embedding's row of padding.
    partitions = HfDeepSpeedConfig(ds_config) if stage == 3 else None
    model = build_model(arguments, scenario, model_class)
    del partitions
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = own_optimizer(workload, ds_config, parameters, arguments.learning_rate)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=parameters, optimizer=optimizer, config=ds_config)
    config = engine.module.config
    data = data_of(arguments, scenario, engine.module)
    read = data.read()
    samples = data.sequences(1 << 30, arguments.seed, read)
    # Ranks that share AutoTP's layers read the same samples.
    sharing = ds_config.get("tensor_parallel", {}).get("autotp_size", 0) or 1
    readers = ranks // sharing
    steps = steps_of_loop(arguments, workload, readers, read)
    recorder = Recorder()
    losses = []
    sample = torch.distributed.get_rank() // sharing
    for _ in range(steps):
        recorder.step_begins()
        spent = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}
        for _ in range(workload["gradient_accumulation_steps"]):
            batch = []
            for _ in range(workload["micro_batch_size"]):
                one = samples[sample]
                batch.append(prepare(one, sample, config) if prepare else one)
                sample += readers
            inputs = {key: value.to(engine.device) for key, value in data.collate(batch).items()}
            began = time.perf_counter()
            outputs = engine(**inputs)
            loss = outputs.loss
            if not workload.get("outputs_held", True):
                outputs = None
            recorder.synchronize()
            forward = time.perf_counter()
            engine.backward(loss)
            if not workload.get("outputs_kept", False):
                outputs = None
            recorder.synchronize()
            backward = time.perf_counter()
            engine.step()
            recorder.synchronize()
            spent["forward"] += forward - began
            spent["backward"] += backward - forward
            spent["optimizer"] += time.perf_counter() - backward
        recorder.step_ends()
        for phase, seconds in spent.items():
            recorder.phase(phase, seconds)
        losses.append(loss.item())
        if torch.distributed.get_rank() == 0:
            print(f"step {len(losses)}: loss {losses[-1]:.4f}, {recorder.seconds[-1]:.3f} s", flush=True)
    if arguments.save:
        engine.save_checkpoint(arguments.output)
    recorder.write(arguments.measure, scenario, "native")
    return losses
