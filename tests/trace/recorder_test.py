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

ZEROPLAN, PYTHON = sys.argv[1:3]
MODELS = Path(__file__).resolve().parent / "models.py"
PHIMOE = {"model_type": "phimoe", "architectures": ["PhimoeForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "vocab_size": 128,
          "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "max_position_embeddings": 2048}
YOSO = {"model_type": "yoso", "architectures": ["YosoForMaskedLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "vocab_size": 128,
        "num_attention_heads": 4, "max_position_embeddings": 2050}


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
