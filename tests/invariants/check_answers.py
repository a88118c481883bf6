#!/usr/bin/env python3
"""What holds of every answer: check_answers.py PROGRAM [--full] [--seed N] [--only PART]

  random    random scenarios, and for many of them one that differs in one thing: rules.py; answers with one job and
            with two are the same bytes
  pairs     all pairs of SETTINGS on a few models: an answer by the rules, or an error; no defect, no signal
  models    every model with every setting of MODEL_SETTINGS: the same

A sample runs in `./check`, of another seed each day; --full is all of it.
"""

import argparse
import copy
import itertools
import json
import random
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import rules  # noqa: E402
from asking import DEFECT, Program, Report  # noqa: E402

HUGE = re.compile("405b|deepseek-v|maverick|176b|235b|gpt-oss|scout|180b|480b|671b|122b|coder-v2|397b|1t|kimi|8x22b")
SETTINGS = [
    *[{"trainer": name} for name in ("dpo", "kto", "grpo", "ppo")], {"method": "lora"}, {"method": "qlora"},
    {"precision": "fp16"}, {"precision": "fp32"},
    *[{"optimizer": name} for name in ("lion", "adafactor", "sgd", "adamw8bit", "muon")], {"optimizer": "muon", "zero": {"stage": 2}}, {"attention": "eager"}, {"attention": "flash"},
    {"activation_checkpointing": "full"}, {"activation_checkpointing": "selective"},
    {"activation_checkpointing": "full", "activation_offload": "cpu"},
    {"engine": "fsdp"}, {"engine": "fsdp", "fsdp_version": 2}, {"engine": "ddp"}, {"engine": "embedded"}, {"frontend": "native"},
    {"fused_loss": True}, {"tiled_mlp": True}, {"compile": True}, {"use_cache": True}, {"outputs_held": True},
    {"gradients_held": True}, {"outputs_kept": True}, {"optimizer_implementation": "for-loop"}, {"evaluation": "loss"}, {"evaluation": "logits"},
    {"sequence_parallel": 2}, {"tensor_parallel": 2}, {"pipeline_parallel": 2, "gradient_accumulation_steps": 4},
    {"gradient_accumulation_steps": 4}, *[{"implementation": name} for name in ("litgpt", "composer", "fms", "megatron")],
    {"dataset": {"samples": 100, "mean_tokens": 30, "tokens_sd": 9}},
    {"dataset": {"samples": 100, "lengths": [1, 30, 64], "padding": "packed"}},
    {"models": [{"role": "teacher", "model": "gpt2"}]}, {"models": [{"role": "reward", "model": "gpt2", "placement": "sharded"}]},
    {"micro_batch_size": 3}, {"sequence_length": 1},
    *[{"zero": key} for key in ({"stage": 0}, {"stage": 1}, {"stage": 2}, {"offload_optimizer": {"device": "cpu"}},
                                {"offload_param": {"device": "cpu"}}, {"mics_shard_size": 2}, {"zero_hpz_partition_size": 2},
                                {"zero_quantized_weights": True}, {"zero_quantized_gradients": True},
                                {"contiguous_gradients": False}, {"overlap_comm": True}, {"ignore_unused_parameters": False})],
    {"software": {"deepspeed": "0.14.2", "torch": "2.2.0", "transformers": "4.40.2"}},
    {"software": {"deepspeed": "0.16.4", "torch": "2.6.0", "transformers": "4.50.3"}}, {"cluster": "3xA100-80G"},
]
MODEL_SETTINGS = [
    *[{"trainer": name} for name in ("dpo", "kto", "grpo", "ppo")],
    *[{"trainer": name, "method": "lora"} for name in ("dpo", "kto", "grpo", "ppo")],
    *[{"trainer": name, "evaluation": "logits"} for name in ("sft", "dpo", "ppo")],
    {"trainer": "gkd", "models": [{"role": "teacher"}]}, {"trainer": "gkd", "models": [{"role": "teacher"}], "method": "lora", "zero": {"stage": 2}},
    {"trainer": "ppo", "zero": {"stage": 0}}, {"trainer": "grpo", "zero": {"stage": 2}}, {"trainer": "dpo", "zero": {"stage": 0}},
    {"trainer": "ppo", "activation_checkpointing": "full"}, {"trainer": "dpo", "engine": "fsdp"}, {"trainer": "grpo", "engine": "ddp"},
    {"method": "lora"}, {"method": "qlora"}, {"engine": "fsdp"}, {"engine": "ddp"}, {"engine": "fsdp", "fsdp_version": 2},
    {"frontend": "native"}, {"fused_loss": True}, {"tiled_mlp": True}, {"activation_checkpointing": "selective"},
    {"activation_checkpointing": "full", "activation_offload": "cpu"}, {"attention": "eager"}, {"precision": "fp32"},
    {"optimizer": "adafactor"}, {"optimizer": "muon", "zero": {"stage": 1}}, {"use_cache": True}, {"outputs_held": True, "frontend": "native"}, {"sequence_parallel": 2},
    {"pipeline_parallel": 2, "gradient_accumulation_steps": 4, "frontend": "native", "zero": {"stage": 0}},
    {"models": [{"role": "teacher", "model": "gpt2"}]}, {"evaluation": "logits"}, {"evaluation": "loss"}, {"zero": {"stage": 1}},
    {"zero": {"stage": 0}}, {"engine": "embedded"}, {"implementation": "litgpt", "frontend": "native"},
    {"implementation": "composer", "frontend": "native"}, {"implementation": "fms", "frontend": "native", "engine": "fsdp"},
    {"implementation": "megatron", "frontend": "native", "tensor_parallel": 2, "zero": {"stage": 1}},
]
PAIR_MODELS = ("gpt2", "llama-3.2-1b", "qwen2.5-0.5b", "mixtral-8x7b", "bloom-560m")


def scenario_of(model, cluster, *settings):
    """Later settings win; "zero" adds to ZeRO's section."""
    workload, zero = {"sequence_length": 64, "micro_batch_size": 1}, {"stage": 3}
    scenario = {"model": model, "cluster": cluster}
    for setting in settings:
        for key, value in setting.items():
            if key == "zero":
                zero |= value
            elif key in ("cluster", "software"):
                scenario[key] = value
            else:
                workload[key] = value
    return {**scenario, "workload": workload, "ds_config": {"zero_optimization": zero}}


# --- random scenarios

def random_config(draw):
    width = draw.choice((64, 128, 256, 512, 768, 1000, 1024, 2048, 4096))
    heads = draw.choice([n for n in (1, 2, 4, 8, 10, 16, 32) if width % n == 0 and width // n % 2 == 0])
    kind = draw.choice(("llama", "mistral", "qwen2", "gpt2", "bert", "opt"))
    layers, vocabulary = draw.choice((1, 2, 3, 8, 24, 40)), draw.choice((17, 1000, 50257, 152064, 256000))
    common = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": vocabulary,
              "max_position_embeddings": 8192}
    if kind == "gpt2":
        return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": width, "n_layer": layers, "n_head": heads,
                "n_positions": 8192, "vocab_size": vocabulary}
    if kind == "bert":
        return {"model_type": "bert", "architectures": ["BertForMaskedLM"], **common, "intermediate_size": 4 * width}
    if kind == "opt":
        return {"model_type": "opt", "architectures": ["OPTForCausalLM"], **common, "word_embed_proj_dim": width,
                "ffn_dim": 4 * width}
    name = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2"}[kind]
    return {"model_type": kind, "architectures": [f"{name}ForCausalLM"], **common,
            "intermediate_size": draw.choice((width, 2 * width, 11008, 4 * width)), "rms_norm_eps": 1e-6,
            "num_key_value_heads": draw.choice([n for n in (1, 2, 4, 8, heads) if heads % n == 0]),
            "tie_word_embeddings": draw.random() < 0.5}


def random_ds_config(draw):
    stage = draw.choice((0, 1, 2, 3, 3, 3))
    zero = {"stage": stage}
    for key, least, share in (("offload_optimizer", 1, 0.3), ("offload_param", 3, 0.25)):
        if stage >= least and draw.random() < share:
            zero[key] = {"device": draw.choice(("cpu", "cpu", "nvme")), "pin_memory": draw.random() < 0.5, "nvme_path": "/nvme"}
    knobs = {"reduce_bucket_size": (1, 1000, 5e5, 5e8, 2e9), "allgather_bucket_size": (1000, 5e7, 2e9),
             "overlap_comm": (True, False), "contiguous_gradients": (True, False), "stage3_max_live_parameters": (0, 1e6, 1e9),
             "stage3_prefetch_bucket_size": (0, 1e6, 5e8), "stage3_param_persistence_threshold": (0, 1e5, 1e9),
             "stage3_max_reuse_distance": (0, 1e9), "sub_group_size": (1e6, 1e9), "round_robin_gradients": (True, False),
             "reduce_scatter": (True, False), "zero_hpz_partition_size": (1, 2, 4)}
    zero |= {key: draw.choice(values) for key, values in knobs.items() if draw.random() < 0.15}
    config = {"zero_optimization": zero}
    precision = draw.choice(("bf16", "fp16", None, "bf16"))
    if precision:
        config[precision] = {"enabled": True}
    if draw.random() < 0.2:
        config["gradient_clipping"] = draw.choice((0, 0.5, 1.0))
    if draw.random() < 0.1:
        config["communication_data_type"] = draw.choice(("fp16", "bf16", "fp32"))
    return config


def random_workload(draw):
    workload = {"sequence_length": draw.choice((1, 7, 16, 128, 500, 512, 1024, 2048, 2048, 4096)),
                "micro_batch_size": draw.choice((1, 1, 2, 3, 4, 8, 16, 33))}
    choices = {"gradient_accumulation_steps": (0.4, (1, 2, 3, 8, 64)), "activation_checkpointing": (0.4, ("none", "full", "selective")),
               "attention": (0.3, ("eager", "sdpa", "flash")), "optimizer": (0.3, ("adamw", "adam", "lion", "adafactor", "sgd", "adamw8bit")),
               "method": (0.25, ("lora", "qlora", {"lora": {"rank": 1}}, {"lora": {"rank": 256}}, {"qlora": {"rank": 16, "quant": "fp4"}})),
               "engine": (0.2, ("deepspeed", "fsdp", "ddp", "embedded")), "frontend": (0.2, ("hf-trainer", "native")),
               "fused_loss": (0.1, (True,)), "tiled_mlp": (0.05, (True,)), "sequence_parallel": (0.1, (2, 4)),
               "trainer": (0.1, ("dpo", "kto", "grpo", "ppo")), "evaluation": (0.08, ("loss", "logits")),
               "precision": (0.1, ("bf16", "fp16", "fp32")),
               "dataset": (0.15, ({"samples": 20000, "epochs": 3, "mean_tokens": 60}, {"samples": 1000, "mean_tokens": 50, "padding": "max"},
                                  {"samples": 100, "mean_tokens": 100, "tokens_sd": 50, "padding": "longest"},
                                  {"samples": 10, "lengths": [1, 5, 100, 300], "padding": "packed"}))}
    workload |= {key: draw.choice(values) for key, (share, values) in choices.items() if draw.random() < share}
    more = ({"activation_offload": "cpu", "activation_checkpointing": "full"}, {"tensor_parallel": 2, "implementation": "megatron"},
            {"pipeline_parallel": draw.choice((2, 4)), "gradient_accumulation_steps": 8})
    for one in more:
        if draw.random() < 0.06:
            workload |= one
    return workload


def random_questions(draw, count, models, gpus):
    """(scenario, GPUs, how it differs, from which) each; most stand alone."""
    questions = []
    sizes = [f"{n}B" for n in (0.1, 0.5, 1, 3, 7, 13, 30, 70)]
    for number in range(count):
        kind = draw.random()
        model = draw.choice(models) if kind < 0.6 else draw.choice(sizes) if kind < 0.75 else random_config(draw)
        nodes, in_node, gpu = draw.choice((1, 1, 1, 2, 3, 4, 8, 16, 64)), draw.choice((1, 2, 3, 4, 4, 8, 8, 8)), draw.choice(gpus)
        scenario = {"id": str(number), "model": model, "cluster": f"{nodes}x{in_node}x{gpu}", "workload": random_workload(draw)}
        if draw.random() < 0.7 and scenario["workload"].get("engine") != "ddp":
            scenario["ds_config"] = random_ds_config(draw)
        first = len(questions)
        questions.append((scenario, nodes * in_node, None, None))
        other = copy.deepcopy(scenario)
        other["id"] += " changed"
        workload, chance, all_gpus = other["workload"], draw.random(), nodes * in_node
        if chance < 0.25:
            how = "twice the sequence"
            workload["sequence_length"] *= 2
        elif chance < 0.4:
            how = "a larger micro-batch"
            # Liger's loss cuts its tokens in chunks of powers of two: of three sequences fewer than of two.
            fused = workload.get("fused_loss")
            workload["micro_batch_size"] += workload["micro_batch_size"] if fused else draw.choice((1, 4))
        elif chance < 0.65:
            if all_gpus == 1 and workload.get("engine") == "ddp":  # alone it has no buckets
                continue
            how = "twice the nodes"
            other["cluster"], all_gpus = f"{2 * nodes}x{in_node}x{gpu}", 2 * all_gpus
        elif chance < 0.75:
            how = "twice the accumulation"
            workload["gradient_accumulation_steps"] = 2 * workload.get("gradient_accumulation_steps", 1)
        else:
            continue
        questions.append((other, all_gpus, how, first))
    return questions


# --- judging

class Judge:
    def __init__(self, program, report):
        self.program, self.report = program, report

    def ask(self, scenarios, jobs=2):
        answers, fault = self.program.batch(scenarios, jobs)
        self.report.asked += len(scenarios)
        if fault:
            self.report.fail("ends", fault)
        return answers

    def read(self, text, scenario):
        """The answer, or None for an error."""
        said = json.dumps(scenario)

        def refuse(constant):
            raise ValueError(constant)
        try:
            answer = json.loads(text, parse_constant=refuse)
        except ValueError as error:
            self.report.fail("json", f"{error}: {said}")
            return None
        if "error" in answer:
            if DEFECT in text:
                self.report.fail("defect", f"{answer['error']['got']}: {said}")
            return None
        for rule in rules.OF_ONE:
            for what in rule(answer):
                self.report.fail(rule.__name__, f"{what}: {said}")
        return answer

    def alone(self, scenarios):
        texts = self.ask(scenarios)
        answers = [self.read(text, scenario) for text, scenario in zip(texts, scenarios)]
        return sum(answer is not None for answer in answers)

    def random(self, questions):
        scenarios = [question[0] for question in questions]
        texts = self.ask(scenarios, 1)
        if texts != self.ask(scenarios, 2):
            self.report.fail("jobs", "two jobs answer otherwise than one")
        answers = []
        for (scenario, gpus, how, first), text in zip(questions, texts):
            answer = self.read(text, scenario)
            answers.append(answer)
            if answer is None:
                continue
            if answer.get("id") != scenario["id"]:
                self.report.fail("id", f"{answer.get('id')}: {json.dumps(scenario)}")
            for what in rules.rates_follow(scenario, gpus, answer):
                self.report.fail("rates_follow", f"{what}: {json.dumps(scenario)}")
            if how is None or answers[first] is None:
                continue
            for what in rules.BETWEEN[how](answers[first], answer):
                self.report.fail(how, f"{what}: {json.dumps(scenario)}")
        return sum(answer is not None for answer in answers)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--full", action="store_true", help="all pairs, all models, thousands of random lines: many minutes")
    parser.add_argument("--seed", type=int, default=int(time.time() // 86400))
    parser.add_argument("--only", default="", help="parts whose name begins so")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    program, report = Program(options.program), Report()
    models = [name for name in program.names("models") if not HUGE.search(name)]
    gpus = program.names("gpus")
    pairs = [scenario_of(model, "2x2xA100-80G", a, b) for model in PAIR_MODELS
             for a, b in itertools.combinations(SETTINGS, 2)]
    settings = [scenario_of(model, "4xA100-80G", setting) for model in models for setting in MODEL_SETTINGS]
    small = [model for model in models if re.search(r"0\.[0-9]b|1b|2b|base|small|gpt2$|350m|560m|125m|160m", model)]
    if not options.full:
        pairs, settings = draw.sample(pairs, 120), draw.sample(settings, 80)
    judge = Judge(program, report)
    parts = {"random": lambda: judge.random(random_questions(draw, 2000 if options.full else 60,
                                                             models if options.full else small, gpus)),
             "pairs": lambda: judge.alone(pairs), "models": lambda: judge.alone(settings)}
    print(f"seed {options.seed}, {len(models)} models, {len(gpus)} GPUs")
    for name, part in parts.items():
        if not name.startswith(options.only):
            continue
        asked, begun = report.asked, time.monotonic()
        answers = part()
        print(f"{name}: {report.asked - asked} questions, {answers} answers, {time.monotonic() - begun:.0f} s", flush=True)
    report.end()


if __name__ == "__main__":
    main()
