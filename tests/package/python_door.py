"""One case of cases.json asked by the Python package, against the answer that command and library gave.

python_door.py ANSWER COMMAND WORDS...: ANSWER is a file of the exit code, the document and messages.
`lint` of a scenario without a file of its own is asked by the command line alone.
"""

import json
import sys

import zeroplan

expected = json.loads(open(sys.argv[1], encoding="utf-8").read().partition("\n")[2])
command, words = sys.argv[2], sys.argv[3:]
flags = {"scenario": None, "fix": {}, "search": {}}
for flag, value in zip(words[::2], words[1::2]):
    if flag in ("--scenario", "--from"):
        flags["scenario" if flag == "--scenario" else "from_"] = value
    elif flag in ("--fix", "--search"):
        key, _, values = value.partition("=")
        flags[flag[2:]][key] = tuple(values.split("..")) if ".." in values else values
flags = {name: value for name, value in flags.items() if value}
if command != "lint":
    answer = getattr(zeroplan, command)(**flags)
    answer = answer if isinstance(answer, dict) else answer.to_dict()
    if "evaluated" in answer:
        answer["seconds"] = 0  # that the search took
    if answer != expected:
        sys.exit(f"zeroplan.{command}({flags}) is not what the command answers")
