#!/usr/bin/env bash
# Builds the documentation as a static site, build/site/html/index.html: docs/, a page a command, the Python reference.
#   scripts/docs_site.sh [ZEROPLAN]    the program (build/ci/bin/zeroplan)
# A link or an anchor that leads nowhere is an error. Needs python3 with venv, and an index for pip.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
program=$(readlink -f "${1:-build/ci/bin/zeroplan}")
venv=build/site/venv
if [ ! -x "$venv/bin/mkdocs" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet "mkdocs==1.6.1" "mkdocs-material==9.8.2" "mkdocstrings-python==2.0.11"
fi
python3 docs/site/pages.py "$program" build/site
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --clean --quiet -f build/site/mkdocs.yml
echo "build/site/html/index.html"
