"""A training loop of DeepSpeed's own that is watched; runs under `zeroplan rehearse`."""

import argparse
import sys

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import deepspeed
import zeroplan.deepspeed

parser = argparse.ArgumentParser()
parser.add_argument("--output", required=True)
parser.add_argument("--stage", type=int, default=3)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--leak", type=int, default=0, help="MiB that each step leaves behind")
parser.add_argument("--on-misfit", default="warn")
said = parser.parse_args()

SEQUENCE, BATCH, ACCUMULATION = 512, 2, 2
config = LlamaConfig(
    hidden_size=1024,
    intermediate_size=2048,
    num_hidden_layers=said.layers,
    num_attention_heads=8,
    num_key_value_heads=8,
    vocab_size=32000,
    max_position_embeddings=SEQUENCE,
    use_cache=False,
)
ds_config = {
    "train_micro_batch_size_per_gpu": BATCH,
    "gradient_accumulation_steps": ACCUMULATION,
    "zero_optimization": {"stage": said.stage},
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
}
deepspeed.init_distributed()
model = AutoModelForCausalLM.from_config(config)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=ds_config)
watch = zeroplan.deepspeed.watch(
    engine, sequence_length=SEQUENCE, on_misfit=said.on_misfit, measurements=said.output + "/watched.jsonl"
)
left = []
for batch in range(said.steps * ACCUMULATION):
    ids = torch.zeros(BATCH, SEQUENCE, dtype=torch.long, device=engine.device)
    loss = engine(input_ids=ids, labels=ids).loss
    engine.backward(loss)
    engine.step()
    if said.leak and (batch + 1) % ACCUMULATION == 0:
        left.append(torch.zeros(said.leak << 20, dtype=torch.uint8, device=engine.device))
    watch.step()
watch.end()
print("trained", watch.prediction is not None, watch.measured is not None, file=sys.stderr)
