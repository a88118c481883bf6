"""Questions to the program for the checks of this folder: commands with what they took, lines of `simulate --batch`."""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

DEFECT = "defect of zeroplan"


class Done:
    """How a command ended. `cpu` in seconds, `memory` in MB at its peak."""

    def __init__(self, words, code, out, err, usage):
        self.words, self.code, self.out, self.err = words, code, out, err
        self.cpu = usage.ru_utime + usage.ru_stime
        self.memory = usage.ru_maxrss / 1000.0

    def fault(self):
        """What no command may do, whatever it was asked; else empty."""
        if self.code < 0:
            return f"signal {-self.code}"
        if self.code not in (0, 2, 3, 4):
            return f"exit code {self.code}"
        if DEFECT in self.out + self.err:
            return "a defect"
        return ""


class Program:
    def __init__(self, path):
        self.path = str(Path(path).resolve())

    def run(self, words, folder=None, stdin="", seconds=600, variables=None):
        """`seconds` of CPU, and eight times the memory that any question may take, end it."""
        environment = {**os.environ, "LC_ALL": "C.UTF-8", **(variables or {})}

        def limit():
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin.encode())
            given.seek(0)
            process = subprocess.Popen([self.path, *map(str, words)], cwd=folder, stdin=given, stdout=out, stderr=err,
                                       env=environment, preexec_fn=limit)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        return Done(words, process.returncode, *texts, usage)

    def batch(self, scenarios, jobs=2):
        """(answers, fault): one text a scenario; the fault is of the first that has none."""
        answers = []
        size = 500
        for begin in range(0, len(scenarios), size):
            part = scenarios[begin:begin + size]
            lines = "\n".join(json.dumps(scenario) for scenario in part) + "\n"
            done = self.run(["simulate", "--batch", "-", "--jobs", str(jobs)], stdin=lines)
            got = done.out.splitlines()
            answers += got
            if done.code < 0 or len(got) != len(part):
                return answers, f"{done.fault() or 'lines without an answer'} at {json.dumps(part[min(len(got), len(part) - 1)])}"
        return answers, ""

    def names(self, command):
        """The names that `models` or `gpus` lists: the first words of its first table."""
        rows = self.run([command]).out.split("\n\n")[0].splitlines()[1:]
        return [row.split()[0] for row in rows if row.strip()]


class Report:
    """Failures as they are found; the exit code at the end."""

    def __init__(self):
        self.failures, self.asked = {}, 0

    def fail(self, rule, text):
        found = self.failures.setdefault(rule, [])
        found.append(text)
        if len(found) <= 5:
            print(f"  {rule}: {text[:900]}", flush=True)

    def end(self):
        count = sum(map(len, self.failures.values()))
        rules = ", ".join(f"{rule} {len(found)}" for rule, found in sorted(self.failures.items()))
        print(f"{self.asked} questions, {count} failures{': ' if rules else ''}{rules}")
        sys.exit(1 if count else 0)
