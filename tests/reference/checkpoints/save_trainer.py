"""Rank 0 of two under the Trainer: saves as it does by itself, and lists what lies on the disk then.

usage: zeroplan rehearse --gpu A100-80G --ranks 2 --rank 0 --steps 0 -- python save_trainer.py FOLDER LINES.jsonl

Adds a line a run: like record.py's, of rank 0's files alone, and "calls" of engine.save_checkpoint. Stage 3 with and without
stage3_gather_16bit_weights_on_model_save, stage 2, and LoRA.
"""
import functools
import json
import os
import sys

import torch
import transformers

import runs
from record import software
from save_rank import files_of

CALLS = []


def line_of(name, stage, gather, lora):
    zero = {"stage": stage, "stage3_gather_16bit_weights_on_model_save": gather}
    ds_config = {"bf16": {"enabled": True}, "zero_optimization": zero, "train_micro_batch_size_per_gpu": "auto",
                 "gradient_accumulation_steps": "auto"}
    workload = {"sequence_length": 16, "micro_batch_size": 1, "gradient_accumulation_steps": 1, "precision": "bf16",
                "method": {"lora": {"rank": 3, "targets": ["q_proj", "v_proj"]}} if lora else "full",
                "optimizer": "adamw", "engine": "deepspeed", "frontend": "hf-trainer"}
    return {"device": "cuda", "software": software(), "id": name, "ranks": 2,
            "scenario": {"model": runs.LLAMA, "cluster": "1x2xA100-80G", "workload": workload, "ds_config": ds_config}}


def count_calls():
    import deepspeed

    saves = deepspeed.DeepSpeedEngine.save_checkpoint

    @functools.wraps(saves)  # the Trainer reads its parameters
    def counted(self, *arguments, **more):
        CALLS.append(sorted(more))
        return saves(self, *arguments, **more)

    deepspeed.DeepSpeedEngine.save_checkpoint = counted


def train(line, folder):
    settings = transformers.TrainingArguments(
        output_dir=folder, max_steps=2, save_steps=2, per_device_train_batch_size=1, bf16=True, report_to=[],
        deepspeed=line["scenario"]["ds_config"], logging_strategy="no")
    config = transformers.AutoConfig.for_model(**runs.LLAMA)
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    method = line["scenario"]["workload"]["method"]
    if isinstance(method, dict):
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(r=method["lora"]["rank"], task_type="CAUSAL_LM",
                                                           target_modules=method["lora"]["targets"]))
    samples = [{"input_ids": torch.arange(16), "labels": torch.arange(16)} for _ in range(16)]
    transformers.Trainer(model=model, args=settings, train_dataset=samples).train()


def main(folder, lines):
    count_calls()
    for name, stage, gather, lora in (("stage2", 2, False, False), ("stage3", 3, False, False),
                                      ("stage3-gathered", 3, True, False), ("stage3-lora", 3, False, True)):
        CALLS.clear()
        line = line_of(name, stage, gather, lora)
        train(line, os.path.join(folder, name))
        line.update(calls=len(CALLS), files=files_of(os.path.join(folder, name, "checkpoint-2")))
        with open(lines, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
