"""One table of questions through every door: the command line, the calls, documents as dicts and as files, a batch's
line. Each door gives the same JSON."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import zeroplan

STAGE2 = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 1,
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    "bf16": {"enabled": True},
}
TINY = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 8000,
    "max_position_embeddings": 2048,
}
LORA = {"lora": {"rank": 8, "targets": ["q_proj", "v_proj"]}}

# name, words of the command line, the call; tiny.json and stage2.json are the documents above.
CASES = [
    (
        "simulate",
        ["simulate", "7B", "8xA100-80G", "--seq", "4096", "--mbs", "2", "--ckpt", "full"],
        lambda: zeroplan.simulate("7B", "8xA100-80G", seq="4k", micro_batch_size=2, activation_checkpointing=True),
    ),
    (
        "does not fit",
        ["simulate", "13B", "2xRTX-4090", "--ds-config", '{"zero_optimization": {"stage": 1}}'],
        lambda: zeroplan.simulate("13B", "2xRTX-4090", ds_config={"zero_optimization": {"stage": 1}}),
    ),
    (
        "documents as files",
        ["simulate", "tiny.json", "4xA100-40G", "--ds-config", "stage2.json", "--frontend", "native"],
        lambda: zeroplan.simulate(
            Path("tiny.json"), "4xA100-40G", ds_config=Path("stage2.json"), frontend="native"
        ),
    ),
    (
        "documents as dicts",
        ["simulate", json.dumps(TINY), "4xA100-40G", "--ds-config", json.dumps(STAGE2), "--frontend", "native"],
        lambda: zeroplan.simulate(TINY, "4xA100-40G", ds_config=STAGE2, frontend="native"),
    ),
    (
        "an adapter",
        ["simulate", "llama-2-7b", "2xA100-40G", "--method", json.dumps(LORA), "--engine", "ddp"],
        lambda: zeroplan.simulate("llama-2-7b", "2xA100-40G", method=LORA, engine="ddp"),
    ),
    (
        "fit",
        ["fit", "tiny.json", "2xRTX-4090", "--global-batch", "32", "--host-memory", "64G"],
        lambda: zeroplan.fit(Path("tiny.json"), "2xRTX-4090", global_batch=32, host_memory="64G"),
    ),
    (
        "nothing fits",
        ["fit", "70B", "1xRTX-4090", "--seq", "1024", "--mbs", "1", "--gas", "1"],
        lambda: zeroplan.fit("70B", "1xRTX-4090", seq=1024, mbs=1, gas=1),
    ),
    (
        "which GPU",
        ["fit", "tiny.json", "--clusters", "2xRTX-4090,1xA100-80G", "--tokens", "1B"],
        lambda: zeroplan.which_gpu(Path("tiny.json"), ["2xRTX-4090", "1xA100-80G"], tokens="1B"),
    ),
    (
        "releases",
        ["fit", "tiny.json", "2xRTX-4090", "--compare-versions", "0.16.4/2.6/4.50,0.19.6/2.11/5.17"],
        lambda: zeroplan.compare_versions(
            Path("tiny.json"), "2xRTX-4090", ["0.16.4/2.6/4.50", "0.19.6/2.11/5.17"]
        ),
    ),
    (
        "tune",
        ["tune", "tiny.json", "2xRTX-4090", "--fix", "stage=2", "--fix", "gradient_accumulation_steps=2"]
        + ["--search", "micro_batch_size=1..4"],
        lambda: zeroplan.tune(
            Path("tiny.json"),
            "2xRTX-4090",
            fix={"stage": 2, "gradient_accumulation_steps": 2},
            search={"micro_batch_size": (1, 4)},
        ),
    ),
    (
        "lint",
        ["lint", "--gpus", "8", "--", "stage2.json"],
        lambda: zeroplan.lint("stage2.json", gpus=8),
    ),
    (
        "explain",
        ["explain", "--model", "tiny.json", "--cluster", "4xA100-40G", "--", "stage2.json"],
        lambda: zeroplan.explain("stage2.json", model=Path("tiny.json"), cluster="4xA100-40G"),
    ),
    (
        "a file of another tool",
        ["simulate", "4xA100-40G", "--from", "run.sh"],
        lambda: zeroplan.simulate(cluster="4xA100-40G", from_="run.sh"),
    ),
    (
        "scenario",
        ["scenario", "llama-2-7b", "2x4xA800-80G", "--precision", "fp16"],
        lambda: zeroplan.scenario("llama-2-7b", "2x4xA800-80G", precision="fp16"),
    ),
    (
        "validate",
        ["validate", "--worst", "1", "--", "measurements.jsonl"],
        lambda: zeroplan.validate("measurements.jsonl", worst=1),
    ),
]

# How long a search took differs from run to run.
CLOCK = ("seconds",)


def without_clock(document):
    return {key: value for key, value in document.items() if not (key in CLOCK and "evaluated" in document)}


class Doors(unittest.TestCase):
    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        line = {
            "id": "one",
            "source": "test",
            "scenario": {
                "model": TINY,
                "cluster": "2xA100-40G",
                "workload": {"sequence_length": 1024, "micro_batch_size": 1},
            },
            "measured": {"peak_allocated_bytes": 1_000_000_000},
        }
        cls.before = os.getcwd()
        os.chdir(cls.folder.name)
        Path("tiny.json").write_text(json.dumps(TINY))
        Path("stage2.json").write_text(json.dumps(STAGE2, indent=2))
        Path("run.sh").write_text(
            "torchrun --nproc_per_node 4 train.py --model_name_or_path tiny.json --max_length 512 \\\n"
            "  --per_device_train_batch_size 2 --bf16 --use_peft --lora_r 8 --lora_target_modules q_proj v_proj\n"
        )
        Path("measurements.jsonl").write_text(json.dumps(line) + "\n")

    @classmethod
    def tearDownClass(cls):
        os.chdir(cls.before)
        cls.folder.cleanup()

    def from_command_line(self, words):
        command = [zeroplan.program(), words[0], "--json", *words[1:]]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertIn(ended.returncode, (0, 3), ended.stderr.decode())
        return json.loads(ended.stdout.decode())

    def test_every_door_gives_the_same_document(self):
        for name, words, call in CASES:
            with self.subTest(name):
                expected = self.from_command_line(words)
                found = call()
                document = found if isinstance(found, dict) else found.to_dict()
                self.assertEqual(without_clock(expected), without_clock(document))

    def test_what_was_read_of_another_tools_file_is_logged(self):
        with self.assertLogs("zeroplan", "INFO") as said:
            zeroplan.simulate(cluster="4xA100-40G", from_="run.sh", lang="en")
        lines = [record.getMessage() for record in said.records]
        self.assertIn("run.sh:2: per_device_train_batch_size: 2 -> --micro-batch-size 2", lines)

    def test_a_line_of_a_batch_gives_the_same_document(self):
        for name, words, call in CASES:
            if words[0] != "simulate":
                continue
            with self.subTest(name):
                scenario = self.from_command_line(["scenario", *words[1:]])
                ended = subprocess.run(
                    [zeroplan.program(), "simulate", "--batch", "-"],
                    input=(json.dumps(scenario) + "\n").encode(),
                    stdout=subprocess.PIPE,
                )
                answer = json.loads(ended.stdout.decode())
                expected = self.from_command_line(words)
                # The resolved document states what was assumed.
                for key in ("gpu", "host", "step", "fits", "fit_probability", "parameters"):
                    self.assertEqual(expected[key], answer[key], key)

    def test_a_dict_that_is_longer_than_a_word_may_be(self):
        padded = {**TINY, "note": "x" * 200_000}
        self.assertEqual(
            zeroplan.simulate(TINY, "2xA100-40G").gpu, zeroplan.simulate(padded, "2xA100-40G").gpu
        )
        padded["hidden_size"] = "wide"
        with self.assertRaises(zeroplan.InputError) as caught:
            zeroplan.simulate(padded, "2xA100-40G")
        self.assertEqual("model", caught.exception.file)
        self.assertIn("hidden_size", caught.exception.pointer)


if __name__ == "__main__":
    unittest.main()
