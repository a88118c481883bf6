"""One rank: trains two steps of each run, saves it as its line says, and lists what lies on the disk then.

usage: save_rank.py RUNS.json FOLDER LISTING.json    (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are the launcher's)

RUNS.json is a list of objects as record.py makes them. A program as users write it: under `zeroplan rehearse` it runs
on emulated GPUs, else on CPU ranks by gloo.
"""
import contextlib
import json
import os
import shutil
import sys
import zipfile

import torch
import transformers

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SCALAR_BYTES = 8  # a step count is a tensor, too


def files_of(folder):
    """Of each file its bytes; of what torch.save wrote also those of its storages."""
    listed = []
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            entry = {"path": os.path.relpath(path, folder), "bytes": os.path.getsize(path)}
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    sizes = [i.file_size for i in archive.infolist() if "/data/" in i.filename]
                large = [size for size in sizes if size > SCALAR_BYTES]
                entry.update(storage_bytes=sum(large), storages=len(large), scalars=len(sizes) - len(large))
            listed.append(entry)
    return sorted(listed, key=lambda entry: entry["path"])


def adapters(model, lora, dtype):
    import peft

    config = peft.LoraConfig(r=lora["rank"], target_modules=lora["targets"], task_type="CAUSAL_LM")
    return peft.get_peft_model(model, config, autocast_adapter_dtype=dtype == torch.float32)


def built_model(run):
    workload = run["scenario"]["workload"]
    dtype = DTYPES[workload["precision"]]
    config = transformers.AutoConfig.for_model(**run["scenario"]["model"])
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(config, **run["dtype_argument"](dtype))
    method = workload.get("method", "full")
    return adapters(model, method["lora"], dtype) if isinstance(method, dict) else model


def dtype_argument(dtype):
    newer = int(transformers.__version__.split(".")[0]) >= 5
    return {"dtype" if newer else "torch_dtype": dtype}


def engine_of(run):
    import deepspeed

    ds_config = json.loads(json.dumps(run["scenario"]["ds_config"]))
    stage3 = ds_config.get("zero_optimization", {}).get("stage") == 3
    where = deepspeed.zero.Init(config_dict_or_path=ds_config) if stage3 else contextlib.nullcontext()
    with where:
        model = built_model(run)
    trained = [p for p in model.parameters() if p.requires_grad]
    if run["optimizer"] == "torch":
        optimizer = torch.optim.AdamW(trained, lr=1e-3)
        return deepspeed.initialize(model=model, optimizer=optimizer, config=ds_config)[0]
    return deepspeed.initialize(model=model, model_parameters=trained, config=ds_config)[0]


def train(engine, run, steps=2):
    vocabulary = run["scenario"]["model"]["vocab_size"]
    for step in range(steps):
        torch.manual_seed(step)
        tokens = torch.randint(0, vocabulary, (1, 16)).to(engine.device)
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()


def save(engine, run, folder):
    engine.save_checkpoint(folder, exclude_frozen_parameters=run["exclude_frozen"])
    if run.get("sixteen_bit"):
        engine.save_16bit_model(folder, exclude_frozen_parameters=run["exclude_frozen"])


def main(runs_file, folder, listing):
    import deepspeed

    with open(runs_file, encoding="utf-8") as file:
        runs = json.load(file)
    on_gpu = torch.cuda.is_available()
    deepspeed.init_distributed("nccl" if on_gpu else "gloo")
    lines = []
    for run in runs:
        run["dtype_argument"] = dtype_argument
        where = os.path.join(folder, run["id"])
        resumed = run.get("resume_from")
        engine = engine_of(run)
        if resumed:
            lines.append({"id": run["id"], "resume": outcome_of(engine, os.path.join(folder, "..", resumed))})
            continue
        if torch.distributed.get_rank() == 0 and not on_gpu:
            shutil.rmtree(where, ignore_errors=True)
        torch.distributed.barrier()
        train(engine, run)
        save(engine, run, where)
        torch.distributed.barrier()
        lines.append({"id": run["id"], "files": files_of(where)})
        with contextlib.suppress(AttributeError):
            engine.destroy()
        del engine
    with open(f"{listing}.rank{torch.distributed.get_rank()}", "w", encoding="utf-8") as file:
        json.dump(lines, file)


def outcome_of(engine, folder):
    """ "resumed", or the class of what was raised with its first line."""
    try:
        path, _ = engine.load_checkpoint(folder)
        return "resumed" if path else "not found"
    except Exception as error:  # what DeepSpeed and torch raise is the answer
        return f"{type(error).__name__}: {str(error).strip()[:160]}".split("\n")[0].removesuffix(": ")


if __name__ == "__main__":
    main(*sys.argv[1:])
