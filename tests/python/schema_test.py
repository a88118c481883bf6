"""The JSON Schema of ds_config.json by a validator: it is a schema, and judges users' files as DeepSpeed's reader does.

Needs the package jsonschema; skipped aloud without it. ZEROPLAN_CORPUS names the folder of users' files.
"""

import json
import os
import unittest
from pathlib import Path

import zeroplan
from zeroplan import _program

try:
    import jsonschema
except ImportError:
    jsonschema = None

# What `lint` notes of a value that DeepSpeed takes and a strict reader does not.
MILDER = {
    "quoted-value",
    "quotes-refused",
    "number-for-boolean",
    "value-spelling",
    "spelling-refused",
    "null-value",
    "null-refused",
    "rounded-number",
    "exponent-sign",
    "auto-section",
    "section-refused",
    "auto-unresolved",
    "auto-left-over",
    "rejected-key",
    "removed-key",
    "added-key",
}


def schema(release=None):
    words = ["knobs", "--json-schema"] + (["--deepspeed", release] if release else [])
    return json.loads(_program.run(words).out)


@unittest.skipIf(jsonschema is None, "skipped: the package jsonschema is not installed")
class Schema(unittest.TestCase):
    def validator(self, release=None):
        made = schema(release)
        jsonschema.Draft7Validator.check_schema(made)
        return jsonschema.Draft7Validator(made)

    def test_defaults_and_examples_are_valid(self):
        def walk(node, path):
            for key, one in node.get("properties", {}).items():
                for value in [one["default"]] if "default" in one else []:
                    self.assertTrue(jsonschema.Draft7Validator(one).is_valid(value), (path, key, value))
                for value in one.get("examples", []):
                    self.assertTrue(jsonschema.Draft7Validator(one).is_valid(value), (path, key, value))
                self.assertIn("description" if "properties" not in one else "type", one, (path, key))
                walk(one, path + [key])

        for release in ("0.12.6", "0.14.2", "0.16.4", "0.19.6"):
            walk(schema(release), [])

    def test_releases_differ(self):
        offload = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": True}}}
        self.assertFalse(self.validator("0.14.2").is_valid(offload))
        self.assertTrue(self.validator("0.19.6").is_valid(offload))
        self.assertTrue(self.validator("0.19.6").is_valid({"sparse_gradients": False}))
        self.assertFalse(self.validator("0.19.8").is_valid({"sparse_gradients": False}))

    def test_what_is_wrong_is_refused(self):
        judge = self.validator()
        for wrong in (
            {"zero_optimization": {"stage": 4}},
            {"zero_optimization": {"stage": "two"}},
            {"zero_optimization": {"stge": 2}},
            {"train_batch_size": 0},
            {"fp16": {"enabled": "yes"}},
            {"zero_optimization": {"offload_param": {"device": "disk"}}},
            [],
        ):
            self.assertFalse(judge.is_valid(wrong), wrong)
        for right in (
            {},
            {"train_batch_size": "auto", "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8}},
            {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}}},
            {"unknown_at_the_top": 1},
            {"bf16": {"enabled": "auto"}, "communication_data_type": "bfloat16"},
        ):
            self.assertEqual([], [one.message for one in judge.iter_errors(right)])

    def test_what_fit_writes_is_valid(self):
        for plan in (zeroplan.fit("gpt2", "2xRTX-4090", seq=256, global_batch=8),):
            for row in plan.strategies:
                self.assertEqual([], [one.message for one in self.validator().iter_errors(row.ds_config)])

    def test_users_files(self):
        corpus = os.environ.get("ZEROPLAN_CORPUS")
        if not corpus:
            self.skipTest("skipped: ZEROPLAN_CORPUS names no folder")
        judge = self.validator()
        agreed = 0
        for path in sorted(Path(corpus).glob("*.json")):
            try:
                document = json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                continue  # comments and commas: not what a validator reads
            valid = judge.is_valid(document)
            try:
                codes = {one.code for one in zeroplan.lint(path).findings}
            except zeroplan.InputError:
                self.assertFalse(valid, f"{path.name}: the reader refuses it")
                agreed += 1
                continue
            with self.subTest(path.name):
                why = [f"{list(one.path)}: {one.message[:100]}" for one in judge.iter_errors(document)]
                self.assertTrue(valid or codes & MILDER, why)
                agreed += 1
        self.assertGreater(agreed, 100)
        print(f"{agreed} files of users judged as the reader judges them")


if __name__ == "__main__":
    unittest.main()
