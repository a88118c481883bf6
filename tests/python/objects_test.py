"""Models and runs that are objects: what is read of them. The classes here have the attributes of transformers', peft's
and accelerate's; watched_test.py runs the Trainers themselves."""

import unittest
from enum import Enum
from types import SimpleNamespace

import zeroplan
from zeroplan._lightning import flags_of_trainer
from zeroplan._models import model_of
from zeroplan._runs import read_run, world_cluster


class Dtype:
    def __str__(self):
        return "torch.bfloat16"


class Config:
    def __init__(self, **keys):
        self.keys = keys
        self._attn_implementation = "flash_attention_2"

    def to_dict(self):
        return {**self.keys, "torch_dtype": Dtype(), "_name_or_path": "/somewhere", "transformers_version": "4.50"}


TINY = dict(
    model_type="llama",
    architectures=["LlamaForCausalLM"],
    hidden_size=512,
    intermediate_size=1376,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=4,
    vocab_size=8000,
    max_position_embeddings=2048,
)


class Optim(Enum):
    ADAMW = "adamw_torch"
    PAGED = "paged_lion_32bit"


def arguments(**changes):
    values = dict(
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        bf16=True,
        fp16=False,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        deepspeed=None,
        fsdp="",
        optim=Optim.ADAMW,
    )
    return SimpleNamespace(**{**values, **changes})


class Models(unittest.TestCase):
    def test_a_configuration_gives_the_answer_of_its_dict(self):
        plain = zeroplan.simulate(TINY, "2xA100-40G", attention="flash")
        of_config = zeroplan.simulate(Config(**TINY), "2xA100-40G")
        of_model = zeroplan.simulate(SimpleNamespace(config=Config(**TINY)), "2xA100-40G")
        self.assertEqual(plain.gpu, of_config.gpu)
        self.assertEqual(plain.step, of_model.step)

    def test_what_is_said_counts_over_the_object(self):
        eager = zeroplan.simulate(Config(**TINY), "2xA100-40G", attention="eager")
        self.assertEqual(zeroplan.simulate(TINY, "2xA100-40G", attention="eager").gpu, eager.gpu)

    def test_an_adapter_comes_with_its_model(self):
        adapter = SimpleNamespace(r=16, target_modules={"v_proj", "q_proj"}, peft_type="LORA")
        base = SimpleNamespace(config=Config(**TINY))
        wrapped = SimpleNamespace(peft_config={"default": adapter}, get_base_model=lambda: base, config=None)
        found = model_of(wrapped)
        self.assertEqual({"lora": {"rank": 16, "targets": ["q_proj", "v_proj"]}}, found.flags["method"])
        self.assertLess(zeroplan.simulate(wrapped, "2xA100-40G").parameters.trainable, 200_000)

    def test_other_adapters_are_refused_by_name(self):
        prompt = SimpleNamespace(peft_config={"default": SimpleNamespace(peft_type="PROMPT_TUNING")})
        with self.assertRaisesRegex(TypeError, "PROMPT_TUNING"):
            model_of(prompt)


class Runs(unittest.TestCase):
    def test_arguments_of_the_trainer(self):
        flags = read_run(arguments())
        self.assertEqual(
            dict(
                frontend="hf-trainer",
                micro_batch_size=4,
                gradient_accumulation_steps=2,
                precision="bf16",
                activation_checkpointing="full",
                checkpoint_reentrant=False,
                engine="ddp",
                optimizer="adamw",
                optimizer_implementation="foreach",
            ),
            flags,
        )
        said = zeroplan.simulate(TINY, "2xA100-40G", run=arguments())
        spelled = zeroplan.simulate(TINY, "2xA100-40G", **flags)
        self.assertEqual(said.gpu, spelled.gpu)

    def test_a_flag_counts_over_the_run(self):
        found = zeroplan.scenario(TINY, "2xA100-40G", run=arguments(), mbs=1)
        self.assertEqual(1, found["workload"]["micro_batch_size"])
        self.assertEqual(2, found["workload"]["gradient_accumulation_steps"])

    def test_deepspeed_with_the_trainers_filled_configuration(self):
        config = {
            "train_micro_batch_size_per_gpu": 4,
            "gradient_accumulation_steps": 2,
            "zero_optimization": {"stage": 2},
            "bf16": {"enabled": True},
            "optimizer": {"type": "Adam", "params": {"lr": 1e-4}},
            "steps_per_print": float("inf"),  # as accelerate says that nothing is printed
        }
        run = arguments(deepspeed="ds.json", hf_deepspeed_config=SimpleNamespace(config=config))
        flags = read_run(run)
        del config["steps_per_print"]
        self.assertEqual(config, flags["ds_config"])
        self.assertNotIn("optimizer", flags)  # the file's counts
        self.assertTrue(zeroplan.simulate(TINY, "2xA100-40G", run=run).fits)

    def test_fsdp(self):
        flags = read_run(arguments(fsdp="full_shard auto_wrap", fsdp_config={"version": 2}))
        self.assertEqual(("fsdp", 2), (flags["engine"], flags["fsdp_version"]))

    def test_lengths_of_trl(self):
        self.assertEqual(1024, read_run(arguments(max_length=1024))["sequence_length"])
        self.assertEqual(512, read_run(arguments(max_seq_length=512))["sequence_length"])

    def test_an_optimizer_that_is_not_planned_is_refused_by_its_name(self):
        with self.assertRaises(zeroplan.InputError) as caught:
            zeroplan.simulate(TINY, "2xA100-40G", run=arguments(optim=Optim.PAGED))
        self.assertEqual("--optimizer", caught.exception.pointer)
        self.assertIn("paged", str(caught.exception))

    def test_a_trainer_brings_its_model(self):
        trainer = SimpleNamespace(
            args=arguments(), train_dataset=None, model=SimpleNamespace(config=Config(**TINY))
        )
        self.assertEqual(
            zeroplan.simulate(
                {**TINY, "torch_dtype": "bfloat16"}, "2xA100-40G", run=arguments(), attention="flash"
            ).gpu,
            zeroplan.simulate(None, "2xA100-40G", run=trainer).gpu,
        )

    def test_an_accelerator(self):
        plugin = SimpleNamespace(hf_ds_config=SimpleNamespace(config={"zero_optimization": {"stage": 3}}))
        accelerator = SimpleNamespace(
            gradient_accumulation_steps=4, mixed_precision="bf16", state=SimpleNamespace(deepspeed_plugin=plugin)
        )
        flags = read_run(accelerator)
        self.assertEqual((4, "bf16", "deepspeed"), (flags["gradient_accumulation_steps"], flags["precision"], flags["engine"]))
        self.assertEqual({"zero_optimization": {"stage": 3}}, flags["ds_config"])

    def test_what_is_no_run(self):
        with self.assertRaises(TypeError):
            read_run(3)

    def test_the_cluster_of_a_job(self):
        self.assertEqual("2x8xH100", world_cluster(16, "H100", 8))
        self.assertEqual("1x3xH100", world_cluster(3, "H100", 2))
        self.assertIsNone(world_cluster(8, None))


class DDPStrategy:
    pass


class DeepSpeedStrategy(DDPStrategy):
    root_device = SimpleNamespace(type="cpu")

    def __init__(self, **config):
        self.config = config


class FSDPStrategy:
    def __init__(self, sharding, offload=False, checkpointing=None):
        self.sharding_strategy = SimpleNamespace(name=sharding)
        self.cpu_offload = SimpleNamespace(offload_params=offload)
        self._activation_checkpointing_kwargs = checkpointing


class XLAStrategy:
    pass


class AdamW:
    def __init__(self, **defaults):
        self.defaults = defaults


def lightning(strategy, **changes):
    """With the attributes of a Lightning Trainer that has been set up."""
    values = dict(
        accumulate_grad_batches=2,
        precision="bf16-mixed",
        strategy=strategy,
        optimizers=[AdamW(foreach=None)],
        train_dataloader=SimpleNamespace(batch_size=4),
        world_size=8,
        num_devices=4,
        lightning_module=SimpleNamespace(automatic_optimization=True),
    )
    return SimpleNamespace(**{**values, **changes})


class Lightning(unittest.TestCase):
    def test_deepspeed(self):
        flags = flags_of_trainer(lightning(DeepSpeedStrategy(zero_optimization={"stage": 2}, bf16={"enabled": True})))
        self.assertEqual("deepspeed", flags["engine"])
        self.assertEqual("native", flags["frontend"])
        self.assertEqual(4, flags["ds_config"]["train_micro_batch_size_per_gpu"])
        self.assertEqual(2, flags["gradient_accumulation_steps"])
        self.assertEqual("adamw", flags["optimizer"])

    def test_fsdp(self):
        flags = flags_of_trainer(lightning(FSDPStrategy("HYBRID_SHARD", True, {"auto_wrap_policy": None})))
        self.assertEqual("fsdp", flags["engine"])
        zero = flags["ds_config"]["zero_optimization"]
        self.assertEqual({"stage": 3, "mics_shard_size": 4, "offload_param": {"device": "cpu"}}, zero)
        self.assertTrue(flags["recomputes"])
        flags = flags_of_trainer(lightning(FSDPStrategy("SHARD_GRAD_OP")))
        self.assertEqual({"zero_optimization": {"stage": 2}}, flags["ds_config"])

    def test_ddp_and_weights_in_16_bits(self):
        self.assertNotIn("ds_config", flags_of_trainer(lightning(DDPStrategy())))
        flags = flags_of_trainer(lightning(DDPStrategy(), precision="bf16-true"))
        self.assertTrue(flags["ds_config"]["bf16"]["bf16_master_weights_and_grads"])
        self.assertEqual("fp32", flags_of_trainer(lightning(DDPStrategy(), precision="32-true"))["precision"])
        fused = lightning(DDPStrategy(), optimizers=[AdamW(fused=True)])
        self.assertEqual("fused", flags_of_trainer(fused)["optimizer_implementation"])

    def test_gradients_that_stay_through_the_next_forward_pass(self):
        self.assertTrue(flags_of_trainer(lightning(DDPStrategy()))["gradients_held"])
        self.assertTrue(flags_of_trainer(lightning(FSDPStrategy("FULL_SHARD")))["gradients_held"])
        self.assertNotIn("gradients_held", flags_of_trainer(lightning(DeepSpeedStrategy())))
        by_hand = lightning(DDPStrategy(), lightning_module=SimpleNamespace(automatic_optimization=False))
        self.assertNotIn("gradients_held", flags_of_trainer(by_hand))

    def test_what_is_not_planned_is_refused_by_its_name(self):
        with self.assertRaisesRegex(TypeError, "XLAStrategy"):
            flags_of_trainer(lightning(XLAStrategy()))
        with self.assertRaisesRegex(TypeError, "transformer-engine"):
            flags_of_trainer(lightning(DDPStrategy(), precision="transformer-engine"))

    def test_an_optimizer_of_the_file_is_deepspeeds(self):
        flags = flags_of_trainer(lightning(DeepSpeedStrategy(optimizer={"type": "Lion"})))
        self.assertNotIn("optimizer", flags)


if __name__ == "__main__":
    unittest.main()
