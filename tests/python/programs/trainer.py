"""A training by transformers' Trainer that is watched; runs under `zeroplan rehearse`."""

import argparse
import sys

from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments
from zeroplan.transformers import PlanCallback

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--hidden", type=int, default=1024)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--deepspeed")
parser.add_argument("--output", required=True)
parser.add_argument("--on-misfit", default="warn")
parser.add_argument("--local_rank")
said = parser.parse_args()

SEQUENCE = 512


class Tokens:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        import torch

        ids = torch.zeros(SEQUENCE, dtype=torch.long)
        return {"input_ids": ids, "labels": ids}


settings = TrainingArguments(
    output_dir=said.output,
    per_device_train_batch_size=said.batch,
    gradient_accumulation_steps=1,
    bf16=True,
    max_steps=4,
    save_strategy="no",
    report_to=[],
    logging_steps=100,
    deepspeed=said.deepspeed,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
)
config = LlamaConfig(
    hidden_size=said.hidden,
    intermediate_size=2 * said.hidden,
    num_hidden_layers=said.layers,
    num_attention_heads=8,
    num_key_value_heads=8,
    vocab_size=32000,
    max_position_embeddings=SEQUENCE,
)
model = AutoModelForCausalLM.from_config(config)
watched = PlanCallback(on_misfit=said.on_misfit, measurements=said.output + "/watched.jsonl")
Trainer(model=model, args=settings, train_dataset=Tokens(), callbacks=[watched]).train()
print("trained", watched.watch.prediction is not None, watched.watch.measured is not None, file=sys.stderr)
