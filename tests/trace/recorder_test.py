"""What the recorder of rehearsal/python/zeroplan_trace makes of modules and classes: recorder_test.py ZEROPLAN PYTHON

PYTHON has torch and transformers; `zeroplan trace` runs the recorder in it.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "rehearsal" / "python"))

from zeroplan_trace.config_keys import others  # noqa: E402
from zeroplan_trace.formulas import Formulas, Known, keys_in, value_of  # noqa: E402
from zeroplan_trace.variant import Sample  # noqa: E402

ZEROPLAN, PYTHON = sys.argv[1:3]
MODELS = Path(__file__).resolve().parent / "models.py"
PHIMOE = {"model_type": "phimoe", "architectures": ["PhimoeForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "vocab_size": 128,
          "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "max_position_embeddings": 2048}
YOSO = {"model_type": "yoso", "architectures": ["YosoForMaskedLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "vocab_size": 128,
        "num_attention_heads": 4, "max_position_embeddings": 2050}


class SizesOfKeys(unittest.TestCase):
    """Sizes as sums of products of a config's keys."""

    FIRST = {"channels": 3, "frames": 2, "patch": 14, "width": 320}

    def samples(self, size):
        """Of single keys that change, and of all."""
        changed = [("channels", 5), ("channels", 7), ("frames", 3), ("frames", 5), ("patch", 28), ("patch", 42), ("width", 352), ("width", 416)]
        rows = [(self.FIRST, None)] + [(dict(self.FIRST, **{key: value}), key) for key, value in changed] + [({"channels": 5, "frames": 3, "patch": 42, "width": 416}, None)]
        return [Sample(values, key, (size(**values),)) for values, key in rows]

    def formula(self, size):
        samples = self.samples(size)
        return Formulas(samples, list(self.FIRST), [], ["width"], [], [("width", "frames")]).of([sample.numbers[0] for sample in samples])

    def test_product_of_four_keys(self):
        formula = self.formula(lambda channels, frames, patch, width: channels * frames * patch * patch)
        self.assertEqual(value_of(formula[1:], {"channels": 1, "frames": 2, "patch": 16}), 512)

    def test_value_is_the_inverse(self):
        for size in (lambda width, **_: 3 * width + 7, lambda width, patch, **_: width * patch // 2 - 4 * patch, lambda width, frames, **_: -(-(width * 2 // 3) // frames) * frames):
            formula = self.formula(size)
            for sample in self.samples(size):
                self.assertEqual(value_of(formula[1:], sample.values), sample.numbers[0], formula)
        self.assertEqual(keys_in("=2*text.width/3+image|patch-up(width,2,3,frames)"), {"text.width", "image", "patch", "width", "frames"})

    def test_of_known_formulas_one_must_fit_alone(self):
        first = self.samples(lambda width, **_: width)[0]
        known = Known({"=width", "=5*patch*patch-660"}, [first], self.FIRST)
        self.assertFalse(known.has([320]))
        self.assertTrue(Known({"=width", "=5*patch"}, [first], self.FIRST).has([320]))
        self.assertFalse(Known({"=width"}, [first], ["patch"]).has([320]))


class Recorder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.output, self.config = Path(folder.name, "graph.json"), Path(folder.name, "config.json")

    def run_trace(self, *words):
        return subprocess.run([ZEROPLAN, "trace", *words, "--python", PYTHON, "-o", self.output], capture_output=True, text=True)

    def traced(self, *words):
        done = self.run_trace(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(self.output.read_text())

    def code(self, name):
        return self.traced("--code", "%s:%s" % (MODELS, name))

    def class_of(self, config):
        self.config.write_text(json.dumps(config))
        return str(self.config)

    def layer(self, graph):
        """The block of all layers."""
        blocks = {call["block"] for call in graph["calls"] if call["layer"]}
        self.assertEqual(len(blocks), 1)
        return graph["blocks"][blocks.pop()]

    @staticmethod
    def operations(block):
        return [event for event in block["events"] if "op" in event]

    def test_function_of_ones_own_is_refused(self):
        done = self.run_trace("--code", "%s:own_gradient" % MODELS)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("Twice", done.stderr)
        self.assertIn("models.py", done.stderr)
        self.assertFalse(self.output.exists())

    def test_function_of_a_class_is_refused(self):
        done = self.run_trace(self.class_of(YOSO))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("YosoCumulation", done.stderr)
        self.assertIn("modeling_yoso.py", done.stderr)

    def test_function_without_a_gradient_is_its_operations(self):
        names = [row["op"] for row in self.operations(self.layer(self.code("own_gradient_nowhere_needed")))]
        self.assertIn("mul", names)

    def test_known_function_is_one_operation_with_a_gradient(self):
        graph = self.traced(self.class_of(PHIMOE))
        rows = [row for block in graph["blocks"] for row in self.operations(block) if row["op"] == "phimoe_multiplier"]
        self.assertEqual(len(rows), 2)
        for row in rows:
            self.assertNotIn("no_grad", row)
            self.assertEqual(len(row["saves"]), 3)

    def test_view_of_the_same_place_is_no_step(self):
        self.layer(self.code("same_view"))

    def test_layer_returns_a_view(self):
        block = self.layer(self.code("returned_view"))
        self.assertEqual(block["output"], block["events"][-1]["tensor"])
        self.assertIn("of", block["tensors"][block["output"]])

    def test_pairs_in_three_dimensions_are_handed_to_a_cache(self):
        rows = [row for row in self.operations(self.layer(self.code("pairs"))) if row["op"] == "update_cache"]
        self.assertEqual([len(row["in"]) for row in rows], [2])
        self.assertEqual([row["out"] for row in rows], [[]])

    def test_another_value_of_a_key_is_another(self):
        for value in (0, 1, 2, 3):
            for key in ("num_kv_shared_layers", "type_vocab_size", "head_dim"):
                tried = others(key, value)
                self.assertNotIn(value, tried)
                self.assertEqual(len(tried), len(set(tried)))

    def test_view_of_what_was_changed_in_place(self):
        block = self.layer(self.code("changed_in_place"))
        self.assertEqual([row["op"] for row in self.operations(block)].count("add_"), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
