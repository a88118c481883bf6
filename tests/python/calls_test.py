"""Results, errors, Ctrl-C, tables: what the calls add to the documents."""

import html.parser
import io
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from contextlib import redirect_stderr
from pathlib import Path
from unittest import mock

import zeroplan
from zeroplan import _flags
from zeroplan import _program
from zeroplan._commands import _as_called


class Balanced(html.parser.HTMLParser):
    """HTML whose elements are all closed, in order."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.tables = 0

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.tables += tag == "table"

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (self.open, tag)
        self.open.pop()


def checked(text):
    parser = Balanced()
    parser.feed(text)
    assert not parser.open, parser.open
    return parser


class Results(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fit = zeroplan.fit("gpt2", "2xRTX-4090", global_batch=32, seq=512)
        cls.none = zeroplan.fit("70B", "1xRTX-4090", seq=1024, mbs=1, gas=1)

    def test_numbers_are_those_of_the_document(self):
        best = self.fit.to_dict()["recommended"]
        self.assertTrue(self.fit.fits)
        self.assertEqual(best["result"]["fit_probability"], self.fit.probability)
        self.assertEqual(best["result"]["gpu"]["peak_total_bytes"], self.fit.recommended.result.gpu.peak_total_bytes)
        self.assertEqual(best["ds_config"], self.fit.ds_config)
        self.assertEqual(len(self.fit.to_dict()["strategies"]), len(self.fit.strategies))
        low, high = self.fit.recommended.result.intervals.peak_total_bytes
        self.assertLessEqual(low, self.fit.recommended.result.gpu.peak_total_bytes)
        self.assertGreaterEqual(high, low)
        step = self.fit.recommended.result
        self.assertEqual(step.gpu.peak_total_bytes, sum(step.gpu.breakdown_at_peak.values()))

    def test_what_is_handed_out_may_be_changed(self):
        self.fit.ds_config["zero_optimization"]["stage"] = 17
        self.fit.to_dict()["fits"] = "changed"
        self.assertNotEqual(17, self.fit.ds_config["zero_optimization"]["stage"])
        self.assertIs(True, self.fit.to_dict()["fits"])

    def test_results_cannot_be_changed(self):
        with self.assertRaises(AttributeError):
            self.fit.fits = False

    def test_nothing_fits(self):
        self.assertFalse(self.none.fits)
        self.assertIsNone(self.none.recommended)
        self.assertIsNone(self.none.ds_config)
        self.assertLess(self.none.probability, 0.95)
        with self.assertRaises(ValueError):
            self.none.training_arguments()
        checked(self.none._repr_html_())

    def test_arguments_of_the_trainer_make_the_plan(self):
        arguments = self.fit.training_arguments()
        best = self.fit.recommended
        self.assertEqual(best.micro_batch_size, arguments["per_device_train_batch_size"])
        self.assertEqual(best.gradient_accumulation_steps, arguments["gradient_accumulation_steps"])
        self.assertEqual(self.fit.ds_config, arguments["deepspeed"])
        self.assertEqual(best.activation_checkpointing != "none", arguments["gradient_checkpointing"])

    def test_a_notebook_shows_tables(self):
        text = self.fit._repr_html_()
        self.assertEqual(1, checked(text).tables)
        self.assertIn("ZeRO-3", text)
        self.assertNotIn("http", text)
        step = self.fit.recommended.result
        checked(step._repr_html_())
        self.assertIn("optimizer states", step._repr_html_())
        checked(zeroplan.lint({"zero_optimization": {"stge": 2}})._repr_html_())

    def test_print_shows_the_tables_and_repr_one_line(self):
        shown = str(self.fit).splitlines()
        self.assertTrue(shown[0].startswith("fits: ZeRO-"))
        self.assertEqual(len(self.fit.strategies) + 2, len(shown))
        self.assertIn("ZeRO-3", shown[-1])
        self.assertIn("GPU memory at the peak", str(self.fit.recommended.result))
        self.assertIn("rejected-key", str(zeroplan.lint({"zero_optimization": {"stge": 2}})))
        self.assertIn("nothing fits", str(self.none))
        for result in (self.fit, self.fit.recommended, self.fit.recommended.result):
            self.assertNotIn("\n", repr(result))
            self.assertLess(len(repr(result)), 700)
        self.assertIn("strategies=[", repr(self.fit))

    def test_names_from_files_are_no_markup(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "ds.json")
            path.write_text('{"<script>alert(1)</script>": 1, "zero_optimization": {"<b>": 1}}')
            text = zeroplan.lint(path)._repr_html_()
        self.assertNotIn("<script", text)
        self.assertIn("&lt;b&gt;", text)
        checked(text)

    def test_rows_for_pandas(self):
        try:
            import pandas  # noqa: F401
        except ImportError:
            with self.assertRaisesRegex(ImportError, "pip install pandas"):
                self.fit.df()
            return
        frame = self.fit.df()
        self.assertEqual(len(self.fit.strategies), len(frame))
        self.assertIn("result.gpu.peak_total_bytes", frame.columns)
        self.assertEqual(1, len(self.fit.recommended.result.df()))

    def test_a_report_is_a_page_without_network(self):
        report = zeroplan.report(
            "gpt2", "2xRTX-4090", seq=256, fix={"stage": 2, "micro_batch_size": 4, "gradient_accumulation_steps": 1}
        )
        self.assertTrue(report.fits)
        self.assertTrue(report.html.lstrip().lower().startswith("<!doctype html>"))
        shown = report._repr_html_()
        self.assertIn("sandbox='allow-scripts'", shown)
        self.assertIn("default-src", shown)
        checked(shown)
        with tempfile.TemporaryDirectory() as folder:
            report.save(Path(folder, "page.html"))
            self.assertEqual(report.html, Path(folder, "page.html").read_text(encoding="utf-8"))


class Errors(unittest.TestCase):
    def test_bad_input_says_where_and_what(self):
        with self.assertRaises(zeroplan.InputError) as caught:
            zeroplan.simulate("7B", "8xA100-80G", ds_config={"zero_optimization": {"stage": 7}})
        error = caught.exception
        self.assertIn("/zero_optimization/stage", error.pointer)
        self.assertIn("between 0 and 3", error.expected)
        self.assertEqual("7", error.got)
        self.assertIsInstance(error, ValueError)
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((error.pointer, str(error)), (again.pointer, str(again)))

    def test_a_flag_that_does_not_exist_has_a_hint(self):
        with self.assertRaises(zeroplan.InputError) as caught:
            zeroplan.fit("7B", "8xA100-80G", sqe=4096)
        self.assertEqual("--sqe", caught.exception.pointer)
        self.assertIn("--seq", caught.exception.hint)

    def test_a_file_that_is_not_there(self):
        with self.assertRaises(zeroplan.InputError) as caught:
            zeroplan.lint("no_such_file.json")
        self.assertEqual("no_such_file.json", caught.exception.file)

    def test_a_name_that_looks_like_a_flag_is_a_name(self):
        with self.assertRaises(zeroplan.InputError) as caught:
            zeroplan.lint("--rules")
        self.assertEqual("--rules", caught.exception.file)

    def test_what_is_no_model_is_a_type_error(self):
        for wrong in (3.5, object()):
            with self.assertRaises(TypeError):
                zeroplan.fit(wrong, "8xA100-80G")
        with self.assertRaises(TypeError):
            zeroplan.rehearse("python train.py", gpu="A100-80G")

    def test_paths_of_the_user_stay_as_they_are(self):
        error = zeroplan.InputError("/data/zeroplan-runs/ds.json", "/a", "x", "y")
        self.assertIs(error, _as_called(error))

    def test_a_program_that_cannot_be_started(self):
        with mock.patch.dict(os.environ, ZEROPLAN_PROGRAM="/nowhere/zeroplan"):
            with self.assertRaisesRegex(zeroplan.ZeroplanError, "could not be started"):
                zeroplan.simulate("7B", "8xA100-80G")

    def test_a_program_that_crashes_is_an_exception(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "zeroplan")
            path.write_text("#!/bin/sh\necho went wrong >&2\nkill -SEGV $$\n")
            path.chmod(0o755)
            with mock.patch.dict(os.environ, ZEROPLAN_PROGRAM=str(path)):
                with self.assertRaisesRegex(zeroplan.ZeroplanError, "signal 11(?s:.*)went wrong"):
                    zeroplan.simulate("7B", "8xA100-80G")

    def test_unknown_classes_are_asked_in_this_python(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "zeroplan")
            path.write_text('#!/bin/sh\necho "python is $ZEROPLAN_PYTHON" >&2\nexit 9\n')
            path.chmod(0o755)
            for named in (None, "/of/mine/python"):
                said = {"ZEROPLAN_PROGRAM": str(path), **({"ZEROPLAN_PYTHON": named} if named else {})}
                with mock.patch.dict(os.environ, said):
                    if not named:
                        os.environ.pop("ZEROPLAN_PYTHON", None)
                    with self.assertRaisesRegex(zeroplan.ZeroplanError, f"python is {re.escape(named or sys.executable)}"):
                        zeroplan.simulate("7B", "8xA100-80G")


INTERRUPTED = """
import sys, zeroplan
print("begins", flush=True)
try:
    zeroplan.tune("llama-2-70b", "16x8xA100-80G", gap=0)
except zeroplan.Interrupted as stopped:
    best = stopped.result
    print("stopped", best is None or best.evaluated >= 0, flush=True)
"""


class Running(unittest.TestCase):
    def test_ctrl_c_ends_a_search_and_leaves_no_process(self):
        child = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self.assertEqual(b"begins\n", child.stdout.readline())
        time.sleep(1.5)
        began = time.monotonic()
        # As a notebook does: the kernel alone is told.
        os.kill(child.pid, signal.SIGINT)
        out, log = child.communicate(timeout=60)
        self.assertEqual(b"stopped True\n", out, log.decode())
        self.assertLess(time.monotonic() - began, 30)
        with self.assertRaises(ProcessLookupError):  # the group is empty
            os.killpg(child.pid, 0)

    def test_progress_is_shown_when_it_is_asked_for(self):
        shown = io.StringIO()
        with redirect_stderr(shown):
            # From the second second on; nobody finishes this one before.
            tuned = zeroplan.tune("llama-2-7b", "8xH100-80G", time_limit=3, progress=True)
        self.assertIn("[", shown.getvalue())
        self.assertTrue(all(isinstance(one, str) for one in tuned.cut_off))
        silent = io.StringIO()
        with redirect_stderr(silent):
            zeroplan.simulate("gpt2", "2xRTX-4090")
        self.assertEqual("", silent.getvalue())

    def test_two_threads_ask_at_once(self):
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(2) as pool:
            both = list(pool.map(lambda seq: zeroplan.simulate("gpt2", "2xRTX-4090", seq=seq), (256, 512)))
        self.assertNotEqual(both[0].gpu, both[1].gpu)

    def test_the_module_is_the_program(self):
        ended = subprocess.run([sys.executable, "-m", "zeroplan", "--version"], stdout=subprocess.PIPE)
        self.assertRegex(ended.stdout.decode(), r"^zeroplan \d")


class Flags(unittest.TestCase):
    """The keyword arguments that type checkers know are the program's flags."""

    # Of the call, not of the program, or given in another way.
    OURS = {"json", "lang", "help", "model", "cluster", "clusters", "goal", "solve", "compare_versions", "markdown", "rules", "format", "output"}

    def flags_of(self, command):
        ended = _program.run([command, "--help", "--all"])
        found = set(re.findall(r"^\s+(?:-\w, )?--([a-z0-9-]+)", ended.out, re.MULTILINE))
        found |= set(re.findall(r"--([a-z0-9-]+)", " ".join(re.findall(r"^\s+--.*?  ", ended.out, re.MULTILINE))))
        return {flag.replace("-", "_") for flag in found}

    def test_each_flag_is_an_argument(self):
        for command, kind in (
            ("fit", _flags.FitFlags),
            ("simulate", _flags.SimulateFlags),
            ("tune", _flags.TuneFlags),
            ("report", _flags.ReportFlags),
            ("lint", _flags.LintFlags),
        ):
            with self.subTest(command):
                known = {"from" if name == "from_" else name for name in kind.__annotations__}
                missing = self.flags_of(command) - known - self.OURS
                if command == "simulate":  # files of it are the command line's
                    missing -= {"batch", "jobs", "trace", "memory_snapshot", "require_fit", "rank"}
                if command == "lint":
                    missing -= {"ds_config"}
                self.assertEqual(set(), missing)


if __name__ == "__main__":
    unittest.main()
