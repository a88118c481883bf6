"""Every Python example of docs/python.md runs, one after the other, in one name space."""

import os
import re
import unittest
from pathlib import Path

SOURCE = Path(os.environ.get("ZEROPLAN_SOURCE", Path(__file__).resolve().parent.parent.parent))


class Examples(unittest.TestCase):
    def test_they_run(self):
        text = (SOURCE / "docs" / "python.md").read_text(encoding="utf-8")
        names = {}
        found = 0
        for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            code = block.group(1)
            line = text[: block.start(1)].count("\n") + 1
            if code.startswith("# not run"):  # needs what a test has not: the line says what
                continue
            with self.subTest(line=line):
                exec(compile("\n" * (line - 1) + code, "docs/python.md", "exec"), names)
                found += 1
        self.assertGreaterEqual(found, 3)


if __name__ == "__main__":
    unittest.main()
