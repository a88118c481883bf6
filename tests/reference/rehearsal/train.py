#!/usr/bin/env python3
"""Trains what a measurement line describes: train.py LINE.json, with the scenario of docs/contract.md section 1.

A program as users write it: it knows nothing of rehearsals. What a scenario cannot say stands under "program" of the
line: {"fsdp": 2} for fully_shard, "fused" for the optimizer, "steps" (4), "lengths": tokens of the micro-batches
before the longest, which come last; "padded": all rows but the first end in padding.
"""
import contextlib
import inspect
import json
import os
import re
import sys
import tempfile
import types

import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


class Run:
    def __init__(self, line):
        self.scenario, self.program = line["scenario"], line.get("program", {})
        self.workload = self.scenario["workload"]
        self.ds = self.scenario.get("ds_config", {})
        self.engine = self.workload["engine"]
        self.dtype = DTYPES[self.workload["precision"]]
        self.batch = self.workload["micro_batch_size"], self.workload["sequence_length"]
        self.micro_batches = self.workload.get("gradient_accumulation_steps", 1)
        self.lengths = iter(self.program.get("lengths", []))
        self.steps = self.program.get("steps", 4)
        self.keeps_outputs = self.workload.get("outputs_kept", False)  # else a loop by hand drops them behind backward
        method = self.workload["method"] if isinstance(self.workload["method"], dict) else {}
        self.four_bits = method.get("qlora")
        self.lora = method.get("lora") or self.four_bits
        self.images, self.has_images = None, "images" in self.workload
        if self.has_images:  # a model with them is named by its traced document, and fed as by a kit
            sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "configs", "kit"))
            with open(os.path.join(HERE, "matrix", self.scenario["model"])) as file:
                self.scenario["model"] = json.load(file)
        self.config = transformers.AutoConfig.for_model(**self.scenario["model"].get("config", self.scenario["model"]))
        self.config.use_cache = self.config.get_text_config().use_cache = False
        # Before anything of stage 3 is set up, under which weights would be saved in parts.
        self.checkpoint_folder = self.save_weights() if self.four_bits else None

    def save_weights(self):
        folder = tempfile.mkdtemp()
        transformers.AutoModelForCausalLM.from_config(self.config).to(self.dtype).save_pretrained(folder)
        return folder

    def kind(self):
        """As the config names its class: some have one of text alone, too, which AutoModelForCausalLM takes."""
        name = (self.config.architectures or [""])[0]
        if "ForMaskedLM" in name:
            return transformers.AutoModelForMaskedLM
        if self.config.is_encoder_decoder:
            text = type(self.config) in transformers.AutoModelForSeq2SeqLM._model_mapping
            return transformers.AutoModelForSeq2SeqLM if text else transformers.AutoModelForSpeechSeq2Seq
        several = "ForConditionalGeneration" in name and hasattr(self.config, "vision_config")
        return transformers.AutoModelForImageTextToText if several or self.has_images else transformers.AutoModelForCausalLM

    def model(self, dtype):
        kind = self.kind()

        def made(**more):
            try:
                return kind.from_config(self.config, dtype=dtype, **more)
            except TypeError:  # before transformers 4.56
                return kind.from_config(self.config, torch_dtype=dtype, **more)

        if self.four_bits:
            return self.with_adapters(self.prepared(self.quantized(dtype))).train()
        if self.has_images:
            from images import draw_nothing_of_nothing

            draw_nothing_of_nothing()
        try:
            model = made(attn_implementation=self.workload.get("attention", "sdpa"))
        except ValueError:  # a class without that attention
            model = made(attn_implementation="eager")
        if self.has_images:
            self.freeze(model)
            self.images = self.with_images(model)
        return self.with_adapters(model).train() if self.lora else model.train()

    def quantized(self, dtype):
        """transformers quantises what it loads from a checkpoint. Stage 3 of DeepSpeed takes no device_map."""
        quant, storage = self.four_bits["quant"], DTYPES.get(self.program.get("quant_storage"), torch.uint8)
        how = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type=quant, bnb_4bit_use_double_quant=self.four_bits["double_quant"],
            bnb_4bit_compute_dtype=self.dtype, bnb_4bit_quant_storage=storage)
        stage = self.ds.get("zero_optimization", {}).get("stage") if self.engine == "deepspeed" else 0
        where = {} if stage == 3 else {"device_map": {"": int(os.environ.get("LOCAL_RANK", 0))}}
        return transformers.AutoModelForCausalLM.from_pretrained(
            self.checkpoint_folder, torch_dtype=dtype, quantization_config=how,
            attn_implementation=self.workload.get("attention", "sdpa"), **where)

    def prepared(self, model):
        """As TRL before 0.29 does beside bf16 ("norms"), or peft alone ("all")."""
        import peft

        upcast = self.four_bits.get("upcast", "none")
        if upcast == "none":
            return model
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        for name, module in model.named_modules():
            if upcast == "norms" and "norm" not in type(module).__name__.lower() and hasattr(module, "weight"):
                if module.weight is not None and module.weight.dtype == torch.float32:
                    module.to(self.dtype)
        return model

    def with_adapters(self, model):
        import peft

        if self.workload.get("activation_checkpointing") == "full" and self.workload.get("checkpoint_reentrant"):
            model.enable_input_require_grads()
        adapters = peft.LoraConfig(r=self.lora["rank"], target_modules=self.lora["targets"],
                                   lora_dropout=self.lora.get("dropout", 0.0), task_type="CAUSAL_LM")
        if self.program.get("adapters") == "peft":  # as its release makes them
            return peft.get_peft_model(model, adapters)
        # Since peft 0.12; adapters of those before stay in the model's type by themselves.
        named = inspect.signature(peft.get_peft_model).parameters
        stays = {"autocast_adapter_dtype": False} if "autocast_adapter_dtype" in named else {}
        model = peft.get_peft_model(model, adapters, **stays)
        dtype = DTYPES[self.lora.get("dtype", self.workload["precision"])]
        for parameter in model.parameters():
            if parameter.requires_grad and not hasattr(parameter, "ds_id"):
                parameter.data = parameter.data.to(dtype)
        return model

    def checkpoint(self, model):
        if self.workload.get("activation_checkpointing") == "full":
            reentrant = bool(self.workload.get("checkpoint_reentrant"))
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            if reentrant:
                model.enable_input_require_grads()

    def with_images(self, model):
        """Rows of a kit, whose pictures are blank."""
        from images import TextWithImages

        folder = tempfile.mkdtemp()
        for name, said in (("config", self.config.to_diff_dict()), ("preprocessor_config", self.scenario["model"]["preprocessor_config"])):
            with open(os.path.join(folder, name + ".json"), "w") as file:
                json.dump(said, file)
        return TextWithImages(types.SimpleNamespace(model=folder, data=None), self.scenario, model)

    def freeze(self, model):
        parts = {"vision": ("vis", "merger|projector|connector"), "projector": ("merger|projector|connector", "")}
        for name, parameter in model.named_parameters():
            for said in filter(None, self.workload.get("freeze", "").split(",")):
                within, without = parts[said]
                if re.search(within, name) and not (without and re.search(without, name)):
                    parameter.requires_grad_(False)

    def inputs(self):
        rows, tokens = self.batch
        if self.images:
            made = self.images.sequences(rows, 0, None)
            return {name: value.cuda() for name, value in self.images.collate([made[i] for i in range(rows)]).items()}
        shape = rows, next(self.lengths, tokens)
        text = self.config.get_text_config()
        ids = torch.randint(0, text.vocab_size, shape, dtype=torch.int64).cuda()
        given = {"input_ids": ids, "labels": ids}
        if self.config.is_encoder_decoder and hasattr(self.config, "num_mel_bins"):  # Whisper's 30 s
            sound = torch.zeros(rows, self.config.num_mel_bins, 2 * self.config.max_source_positions, dtype=self.dtype)
            given = {"input_features": sound.cuda(), "labels": ids}
        if text is not self.config:  # batches of text alone, as a processor makes them
            given["attention_mask"] = torch.ones(shape, dtype=torch.int64).cuda()
            takes = inspect.signature(self.kind()._model_mapping[type(self.config)].forward).parameters
            given.update({name: torch.zeros(shape, dtype=torch.int64).cuda() for name in ("token_type_ids", "mm_token_type_ids") if name in takes})
        if self.scenario["model"]["model_type"] in ("opt", "bloom", "gemma2", "gemma3_text", "cohere2", "starcoder2",
                                                    "llama4_text", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"):
            # The first two would make a mask of fp32 ones themselves, the others make masks of windows and chunks, whose
            # size depends on it, or look for padding.
            given["attention_mask"] = torch.ones(shape, dtype=torch.int64).cuda()
        if self.program.get("padded"):
            mask = torch.ones(shape, dtype=torch.int64)
            mask[1:, shape[1] * 3 // 4:] = 0
            given["attention_mask"] = mask.cuda()
        return given

    # --- loops by hand

    def deepspeed(self):
        import deepspeed
        from transformers.integrations import HfDeepSpeedConfig

        deepspeed.init_distributed()
        stage = self.ds.get("zero_optimization", {}).get("stage", 0)
        keep = HfDeepSpeedConfig(self.ds) if stage == 3 else None  # noqa: F841  from_config enters zero.Init
        torch.set_default_dtype(self.dtype)
        model = self.model(self.dtype)
        torch.set_default_dtype(torch.float32)
        self.checkpoint(model)
        trained = [p for p in model.parameters() if p.requires_grad]
        engine, *_ = deepspeed.initialize(model=model, model_parameters=trained, config=self.ds)
        for _ in range(self.steps * self.micro_batches):
            given = self.inputs()
            out = engine(**given)
            loss = out.loss
            engine.backward(loss)
            if not self.keeps_outputs:
                del out, loss
            engine.step()

    def shard_modules(self, model, blocks):
        """FSDP2."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = init_device_mesh("cuda", (torch.distributed.get_world_size(),))
        policy = MixedPrecisionPolicy(param_dtype=self.dtype, reduce_dtype=self.reduce_dtype())
        if self.lora and not self.lora.get("autocast"):
            policy = MixedPrecisionPolicy()
        for part in (*blocks, model):
            fully_shard(part, mesh=mesh, mp_policy=policy)
        return model

    def wrap_modules(self, model, blocks):
        """FSDP1; stage 2 of the scenario keeps gathered weights between the passes. Adapters as accelerate does it."""
        from functools import partial

        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
        from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

        keeps = self.ds.get("zero_optimization", {}).get("stage") == 2
        policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={type(blocks[0])})
        mixed = MixedPrecision(self.dtype, self.reduce_dtype(), self.dtype)
        if self.lora:
            from peft.utils.other import fsdp_auto_wrap_policy

            policy = fsdp_auto_wrap_policy(model)
            mixed = mixed if self.lora.get("autocast") else None
        return FullyShardedDataParallel(
            model, auto_wrap_policy=policy, mixed_precision=mixed, use_orig_params=True,
            sharding_strategy=ShardingStrategy.SHARD_GRAD_OP if keeps else ShardingStrategy.FULL_SHARD,
            device_id=torch.cuda.current_device(), limit_all_gathers=True)

    def optimizer_options(self):
        """None: PyTorch's own choice, which is foreach on a GPU; fused=False would be a loop over the tensors."""
        return {"fused": True} if self.program.get("fused") else {}

    def reduce_dtype(self):
        return DTYPES[self.ds.get("communication_data_type", self.workload["precision"])]

    def parallel(self, model):
        """The model for its engine, on its GPU."""
        if self.engine == "fsdp":
            blocks = next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList))
            return (self.shard_modules if self.program.get("fsdp") == 2 else self.wrap_modules)(model, blocks)
        model = model.cuda()
        if not torch.distributed.is_initialized():
            return model
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])

    def torch_engine(self):
        if int(os.environ.get("WORLD_SIZE", 1)) > 1:
            torch.distributed.init_process_group("nccl")
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        low = self.ds.get("bf16", {}).get("bf16_master_weights_and_grads") or self.lora
        model = self.model(self.dtype if low else torch.float32)
        self.checkpoint(model)
        mixes = not low and self.dtype is not torch.float32 and self.engine == "ddp"
        mixes = mixes or bool(self.lora and self.lora.get("autocast"))
        model = self.parallel(model)
        if self.workload.get("compile"):
            model.compile()
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-5, **self.optimizer_options())
        for _ in range(self.steps):
            for i in range(self.micro_batches):
                given = self.inputs()
                # FSDP reduces in every micro-step, as loops of one's own usually let it.
                waits = i + 1 < self.micro_batches and self.engine == "ddp" and hasattr(model, "no_sync")
                with model.no_sync() if waits else contextlib.nullcontext():
                    with torch.autocast("cuda", dtype=self.dtype) if mixes else contextlib.nullcontext():
                        out = model(**given)
                    loss = out.loss
                    loss.backward()
                if not self.keeps_outputs:
                    del out, loss
            optimizer.step()
            optimizer.zero_grad()

    # --- the Trainer

    def trainer(self):
        rows, length = 1 << 16, self.batch[1]
        vocabulary = self.config.get_text_config().vocab_size

        class Tokens(torch.utils.data.Dataset):
            def __len__(self):
                return rows

            def __getitem__(self, index):
                ids = torch.randint(0, vocabulary, (length,))
                return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}

        more = {"deepspeed": self.ds} if self.engine == "deepspeed" else {}
        if self.workload["precision"] != "fp32" and not (self.lora and self.lora.get("autocast") is False):
            more[self.workload["precision"]] = True
        if self.workload.get("activation_checkpointing") == "full":
            reentrant = bool(self.workload.get("checkpoint_reentrant"))
            more.update(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        if self.lora:
            more["label_names"] = ["labels"]
        arguments = transformers.TrainingArguments(
            remove_unused_columns=not self.has_images,
            output_dir=self.program.get("output", "trainer_output"), per_device_train_batch_size=self.batch[0],
            gradient_accumulation_steps=self.micro_batches, max_steps=self.steps, report_to=[], save_strategy="no",
            logging_steps=100, **more)
        model = self.model(self.dtype if self.engine == "deepspeed" or self.lora else torch.float32)
        data = self.images.sequences(rows, 0, None) if self.images else Tokens()
        collator = {"data_collator": self.images.collate} if self.images else {}
        transformers.Trainer(model=model, args=arguments, train_dataset=data, **collator).train()


def main():
    torch.manual_seed(0)
    with open(sys.argv[1]) as file:
        run = Run(json.load(file))
    if run.workload.get("trainer", "sft") != "sft":
        import train_trl

        train_trl.train(run)
    elif run.workload["frontend"] == "hf-trainer":
        run.trainer()
    elif run.engine == "deepspeed":
        run.deepspeed()
    else:
        run.torch_engine()


if __name__ == "__main__":
    main()
