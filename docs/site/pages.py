#!/usr/bin/env python3
"""Makes the pages of the documentation's site: pages.py ZEROPLAN FOLDER.

Those of docs/ as they are, README.md as the first one, CHANGELOG.md and CONTRIBUTING.md, a page a command from the
program's own help, and the reference of the Python package. mkdocs' settings stand beside them, with the list of commands. Needs Python 3.8 and the program.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MODULES = ["zeroplan", "zeroplan.results", "zeroplan.transformers", "zeroplan.deepspeed"]


def printed(program, *arguments):
    return subprocess.run([program, *arguments], stdout=subprocess.PIPE, check=True, text=True).stdout


def commands(program):
    """The names of all commands, in the order of the program's help."""
    text = printed(program, "help", "--all")
    found = re.findall(r"^  ([a-z]+)  +\S", text, re.MULTILINE)
    if len(found) < 10:
        sys.exit("pages.py: no list of commands in zeroplan help --all:\n" + text)
    return list(dict.fromkeys(found))


def command_page(program, name):
    text = printed(program, "help", name, "--all")
    meaning = text.splitlines()[1].strip()
    return "# zeroplan %s\n\n%s.\n\n```\n%s```\n" % (name, meaning[:1].upper() + meaning[1:], text)


def from_docs(text):
    """The links of README.md and its neighbours, for a page that lies in docs/."""
    text = re.sub(r"\]\(docs/README\.md\)", "](design.md)", text)
    text = re.sub(r"\]\(docs/", "](", text)
    return re.sub(r"\[([^]]*)\]\((?!https?:|#)[^)]*\.zh\.md\)", r"\1", text)


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    (pages / "commands").mkdir(parents=True)
    for page in (ROOT / "docs").glob("*.md"):
        if page.name != "README.md":
            shutil.copy(page, pages)
    shutil.copytree(ROOT / "docs" / "examples", pages / "examples")
    for source, page in (("README.md", "index.md"), ("CHANGELOG.md", "CHANGELOG.md"), ("CONTRIBUTING.md", "CONTRIBUTING.md")):
        (pages / page).write_text(from_docs((ROOT / source).read_text(encoding="utf-8")), encoding="utf-8")
    names = commands(program)
    for name in names:
        (pages / "commands" / (name + ".md")).write_text(command_page(program, name), encoding="utf-8")
    (pages / "api.md").write_text("# The Python package\n\n" + "".join("::: %s\n\n" % name for name in MODULES), encoding="utf-8")
    settings = (ROOT / "docs" / "site" / "mkdocs.yml").read_text(encoding="utf-8")
    listed = "[%s]" % ", ".join("commands/%s.md" % name for name in names)
    (folder / "mkdocs.yml").write_text(settings.replace("COMMANDS", listed), encoding="utf-8")


if __name__ == "__main__":
    main()
