"""A training by Lightning's Trainer that is watched: under `zeroplan rehearse`, or on CPU ranks."""

import argparse
import sys

import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

parser = argparse.ArgumentParser()
parser.add_argument("--package", default="lightning.pytorch")
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--hidden", type=int, default=1024)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--accumulation", type=int, default=1)
parser.add_argument("--devices", type=int, default=2)
parser.add_argument("--accelerator", default="cuda")
parser.add_argument("--strategy", default="deepspeed")
parser.add_argument("--precision", default="bf16-mixed")
parser.add_argument("--cluster")
parser.add_argument("--output", required=True)
parser.add_argument("--on-misfit", default="warn")
parser.add_argument("--fail-at", type=int, default=-1)
said = parser.parse_args()

if said.package == "lightning.pytorch":
    import lightning.pytorch as pl
    from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy
else:
    import pytorch_lightning as pl
    from pytorch_lightning.strategies import DeepSpeedStrategy, FSDPStrategy

from zeroplan.lightning import PlanCallback  # noqa: E402

SEQUENCE = 512


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        ids = torch.zeros(SEQUENCE, dtype=torch.long)
        return {"input_ids": ids, "labels": ids}


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        config = LlamaConfig(
            hidden_size=said.hidden,
            intermediate_size=2 * said.hidden,
            num_hidden_layers=said.layers,
            num_attention_heads=8,
            num_key_value_heads=8,
            vocab_size=32000,
            max_position_embeddings=SEQUENCE,
            use_cache=False,
        )
        self.model = AutoModelForCausalLM.from_config(config)

    def training_step(self, batch, index):
        if index == said.fail_at:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.25 GiB of which 1.10 GiB "
                "is free. Including non-PyTorch memory, this process has 78.14 GiB memory in use. Of the allocated memory "
                "75.00 GiB is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch but unallocated."
            )
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def strategy():
    if said.strategy.startswith("deepspeed"):
        stage = int((said.strategy.split("_") + ["2"])[1] if "_" in said.strategy else 2)
        return DeepSpeedStrategy(stage=stage)
    if said.strategy == "fsdp":
        return FSDPStrategy(auto_wrap_policy={LlamaDecoderLayer})
    return FSDPStrategy() if said.strategy == "fsdp_whole" else said.strategy


watched = PlanCallback(said.cluster, on_misfit=said.on_misfit, measurements=said.output + "/watched.jsonl")
trainer = pl.Trainer(
    accelerator=said.accelerator,
    devices=said.devices,
    strategy=strategy(),
    precision=said.precision,
    accumulate_grad_batches=said.accumulation,
    max_steps=4,
    callbacks=[watched],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Module(), torch.utils.data.DataLoader(Tokens(), batch_size=said.batch))
print("trained", watched.watch.prediction is not None, watched.watch.measured is not None, file=sys.stderr)
