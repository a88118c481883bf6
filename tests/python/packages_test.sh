#!/usr/bin/env bash
# What the package is to others' tools: mypy, jsonschema over users' files, pandas. Exit code 77 (skipped) where pip cannot
# get them.
#   packages_test.sh PROGRAM
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
ZEROPLAN_PROGRAM=$(readlink -f "$1")
export ZEROPLAN_PROGRAM
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv" >"$scratch/log" 2>&1 || { echo "skipped: python3 has no venv"; exit 77; }
python=$scratch/venv/bin/python
"$python" -m pip install --quiet mypy jsonschema pandas typing_extensions >"$scratch/log" 2>&1 ||
  { echo "skipped: pip cannot get mypy, jsonschema and pandas: $(tail -n 1 "$scratch/log")"; exit 77; }
(cd "$root" && "$python" -m mypy --no-incremental)
export PYTHONPATH=$root/python ZEROPLAN_CORPUS=$root/data/corpus/ds_configs
"$python" "$here/schema_test.py"
"$python" "$here/calls_test.py" Results
