"""Small training programs with the extensions that people use: extensions.py CASE, for tests/rehearsal/check_extensions.py.

Each trains a llama of two layers for a few steps, as somebody writes it who knows nothing of rehearsals.
"""
import os
import sys
import tempfile

import torch
import transformers

STEPS, SEQUENCE, VOCABULARY = 3, 512, 4096


def config(**more):
    return transformers.LlamaConfig(hidden_size=512, intermediate_size=1536, num_hidden_layers=2, num_attention_heads=8,
                                    vocab_size=VOCABULARY, **more)


def llama(**more):
    return transformers.LlamaForCausalLM(config(**more)).to(torch.bfloat16)


def local_rank():
    return int(os.environ.get("LOCAL_RANK", 0))


def begin_group():
    torch.cuda.set_device(local_rank())
    torch.distributed.init_process_group("nccl")


def ids(batch=2, sequence=SEQUENCE):
    return torch.randint(0, VOCABULARY, (batch, sequence), device="cuda")


def train(model, optimizer=None):
    optimizer = optimizer or torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    for _ in range(STEPS):
        tokens = ids()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def adam8bit():
    import bitsandbytes

    model = llama().cuda()
    train(model, bitsandbytes.optim.AdamW8bit(model.parameters(), lr=1e-4))


def paged_adam8bit():
    import bitsandbytes

    model = llama().cuda()
    train(model, bitsandbytes.optim.PagedAdamW8bit(model.parameters(), lr=1e-4))


def quantized(**more):
    kept = tempfile.mkdtemp()
    llama().save_pretrained(kept)
    return transformers.AutoModelForCausalLM.from_pretrained(
        kept, device_map={"": 0}, torch_dtype=torch.bfloat16, quantization_config=transformers.BitsAndBytesConfig(**more))


def adapters(model):
    import peft

    targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
    return peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=targets, task_type="CAUSAL_LM"))


def lora():
    train(adapters(llama().cuda()))


def qlora():
    import peft

    model = quantized(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                      bnb_4bit_compute_dtype=torch.bfloat16)
    train(adapters(peft.prepare_model_for_kbit_training(model)))


def int8_lora():
    import peft

    train(adapters(peft.prepare_model_for_kbit_training(quantized(load_in_8bit=True))))


def liger():
    from liger_kernel.transformers import apply_liger_kernel_to_llama

    apply_liger_kernel_to_llama()
    train(llama().cuda())


def compiled():
    train(torch.compile(llama().cuda()))


def flash_attention():
    train(llama(attn_implementation="flash_attention_2").cuda())


def ddp():
    begin_group()
    train(torch.nn.parallel.DistributedDataParallel(llama().cuda(), device_ids=[local_rank()]))


def fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel

    begin_group()
    train(FullyShardedDataParallel(llama(), device_id=local_rank(), use_orig_params=True))


def fsdp2():
    from torch.distributed.fsdp import fully_shard

    begin_group()
    model = llama().cuda()
    for layer in model.model.layers:
        fully_shard(layer)
    train(fully_shard(model))


# --- TRL


def texts(**columns):
    import datasets

    return datasets.Dataset.from_dict({name: [text] * 64 for name, text in columns.items()})


def tokenizer():
    import tokenizers

    words = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *("w%d" % i for i in range(1000))])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
                                                unk_token="<unk>")


def arguments(kind, **more):
    return kind(output_dir=tempfile.mkdtemp(), max_steps=STEPS, per_device_train_batch_size=2, bf16=True, report_to=[],
                save_strategy="no", **more)


WORDS = " ".join("w%d" % (i % 1000) for i in range(SEQUENCE))


def sft():
    import trl

    trl.SFTTrainer(model=llama(), args=arguments(trl.SFTConfig, max_length=SEQUENCE), train_dataset=texts(text=WORDS),
                   processing_class=tokenizer()).train()


def dpo():
    import trl

    data = texts(prompt=WORDS[:400], chosen=" " + WORDS[400:900], rejected=" " + WORDS[600:1100])
    trl.DPOTrainer(model=llama(), ref_model=llama(), args=arguments(trl.DPOConfig, max_length=SEQUENCE), train_dataset=data,
                   processing_class=tokenizer()).train()


def grpo():
    import trl

    def reward(completions, **_):
        return [float(len(text)) for text in completions]

    more = {"num_generations": 2, "max_completion_length": 32}
    trl.GRPOTrainer(model=llama(), args=arguments(trl.GRPOConfig, **more), train_dataset=texts(prompt=WORDS[:100]),
                    reward_funcs=reward, processing_class=tokenizer()).train()


# --- DeepSpeed


def zero3(**more):
    import deepspeed

    settings = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3, **more},
                "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
    model = llama()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    for _ in range(STEPS):
        tokens = ids()
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()


def zero3_offload(device="cpu", **more):
    to = {"device": device, "pin_memory": True, **more}
    zero3(offload_optimizer=to, offload_param=to)


def zero3_nvme():
    with tempfile.TemporaryDirectory() as folder:
        zero3_offload("nvme", nvme_path=folder)


def pipeline():
    import deepspeed

    deepspeed.init_distributed()
    torch.cuda.set_device(local_rank())
    layers = [torch.nn.Linear(1024, 1024) for _ in range(8)]
    model = deepspeed.pipe.PipelineModule(layers, num_stages=2, loss_fn=torch.nn.functional.mse_loss)
    settings = {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4,
                "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    batch = torch.zeros(8, 1024)
    for _ in range(STEPS):
        engine.train_batch(iter([(batch, batch)] * 4))


def ulysses():
    import deepspeed
    from deepspeed.sequence.layer import DistributedAttention
    from torch.distributed.device_mesh import init_device_mesh

    deepspeed.init_distributed()
    torch.cuda.set_device(local_rank())
    ranks = torch.distributed.get_world_size()
    mesh = init_device_mesh("cuda", (1, ranks), mesh_dim_names=("data_parallel", "sequence_parallel"))

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.project, self.out = torch.nn.Linear(512, 1536), torch.nn.Linear(512, 512)
            self.spread = DistributedAttention(self.attend, mesh.get_group("sequence_parallel"), scatter_idx=2, gather_idx=1)

        def attend(self, query, key, value, *_, **__):
            parts = [part.transpose(1, 2) for part in (query, key, value)]
            return torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2)

        def forward(self, hidden):
            parts = [part.unflatten(-1, (8, 64)) for part in self.project(hidden).chunk(3, -1)]
            return hidden + self.out(self.spread(*parts, 0).flatten(2))

    model = torch.nn.Sequential(Attention(), Attention())
    settings = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 1},
                "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings, mesh_param=(1, ranks))
    for _ in range(STEPS):
        hidden = torch.randn(1, SEQUENCE // ranks, 512, dtype=torch.bfloat16, device="cuda")
        engine.backward(engine(hidden).float().square().mean())
        engine.step()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("done", sys.argv[1])
