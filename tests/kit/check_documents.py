#!/usr/bin/env python3
"""Do the files of a kit agree with each other? check_documents.py FOLDER..."""

import json
import pathlib
import sys


FORMS = {
    "llamafactory.yaml": ("per_device_train_batch_size", "gradient_accumulation_steps", "cutoff_len"),
    "axolotl.yaml": ("micro_batch_size", "gradient_accumulation_steps", "sequence_len"),
    "trl.yaml": ("per_device_train_batch_size", "gradient_accumulation_steps", "max_length"),
}


def value(path, key):
    """The YAML files are flat enough to be read by their lines."""
    for line in path.read_text().splitlines():
        if line.strip().startswith(key + ":"):
            return line.split(":", 1)[1].strip()
    raise AssertionError(f"{path} has no {key}")


def check_tools(folder, workload):
    """What other tools are told. TRL's trainers of preferences are TRL's alone."""
    batch, accumulation, length = (workload[key] for key in ("micro_batch_size", "gradient_accumulation_steps", "sequence_length"))
    trainer = workload.get("trainer")
    if trainer:
        assert not any((folder / name).exists() for name in ("llamafactory.yaml", "axolotl.yaml", "trainer.json"))
        said = trainer.get("grpo")
        told = "max_completion_length" if said else "max_length"
        wanted = {"trl.yaml": ("per_device_train_batch_size", "gradient_accumulation_steps", told)}
        length = said["completion_length"] if said else length
    else:
        wanted = FORMS
    for name, keys in wanted.items():
        assert [int(value(folder / name, key)) for key in keys] == [batch, accumulation, length], name


def check(top):
    """On top lie three files that people see, everything else in kit/."""
    folder = top / "kit"
    on_top = sorted(path.name for path in top.iterdir() if not path.name.startswith("."))
    for script in folder.glob("*.py"):
        compile(script.read_text(encoding="utf-8"), str(script), "exec")
    scenario = json.loads((folder / "scenario.json").read_text())
    torch_engine = scenario["workload"]["engine"] in ("fsdp", "ddp")
    started = "accelerate.yaml" if torch_engine else "ds_config.json"
    assert on_top == sorted(["PLAN.md", "kit", "run.sh", started]), on_top
    written = json.loads(((folder if torch_engine else top) / "ds_config.json").read_text())
    json.loads((folder / "model" / "config.json").read_text())
    planned, workload, cluster = scenario["ds_config"], scenario["workload"], scenario["cluster"]
    assert planned["zero_optimization"]["stage"] == written["zero_optimization"]["stage"]
    assert planned["train_micro_batch_size_per_gpu"] == workload["micro_batch_size"]
    ranks = cluster["nodes"] * cluster["gpus_per_node"]
    accelerate, factory = (top if torch_engine else folder) / "accelerate.yaml", folder / "llamafactory.yaml"
    rates = {value(path, "learning_rate") for path in folder.glob("*.yaml") if path.name in (*FORMS, "trl.yaml")}
    rates.add(str(json.loads((folder / "training.json").read_text())["learning_rate"]))
    assert len({float(rate) for rate in rates}) == 1, f"learning rates {rates}"
    pipeline = workload["pipeline_parallel"]
    if pipeline > 1:  # neither accelerate nor LLaMA-Factory starts one
        assert not accelerate.exists() and not factory.exists()
        assert written["pipeline"] == planned["pipeline"] and written["pipeline"]["stages"] == pipeline
    else:
        assert int(value(accelerate, "num_processes")) == ranks
        assert int(value(accelerate, "num_machines")) == cluster["nodes"]
        if workload["frontend"] == "hf-trainer":
            check_tools(folder, workload)
        if workload["engine"] != "deepspeed":
            assert value(accelerate, "distributed_type") in ("FSDP", "MULTI_GPU")
    pins = dict(line.split("==") for line in (folder / "requirements.txt").read_text().splitlines() if "==" in line)
    for package, release in scenario["software"].items():
        assert pins.get(package, release) == release, f"{package} {pins}"
    assert ("deepspeed" in pins) == (workload["engine"] == "deepspeed")
    slots = [line.split("slots=")[1] for line in (folder / "hostfile").read_text().splitlines()]
    assert slots == [str(cluster["gpus_per_node"])] * cluster["nodes"]
    for line in (folder / ".deepspeed_env").read_text().splitlines():
        key, _ = line.split("=", maxsplit=1)
        assert key.isidentifier(), line


for name in sys.argv[1:]:
    check(pathlib.Path(name))
