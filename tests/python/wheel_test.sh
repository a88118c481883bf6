#!/usr/bin/env bash
# The wheel of a built program, in an environment with nothing else: installed as pip does it, then tests/python.
#   wheel_test.sh PROGRAM [PYTHON...]      without PYTHON: the oldest and the newest python3.N that are found
# Exit code 77 (skipped) without venv, or where pip cannot get what builds the wheel.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
program=$(readlink -f "$1")
shift
skip() {
  echo "skipped: $*"
  exit 77
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/build" >"$scratch/log" 2>&1 || skip "python3 has no venv"
"$scratch/build/bin/python" -m pip install --quiet "scikit-build-core>=0.10,<2" >"$scratch/log" 2>&1 ||
  skip "pip cannot get scikit-build-core: $(tail -n 1 "$scratch/log")"
cp "$program" "$scratch/zeroplan"
"$scratch/build/bin/python" -m pip wheel --quiet --no-deps --no-build-isolation -w "$scratch" "$root" \
  -C cmake.define.ZEROPLAN_PROGRAM="$scratch/zeroplan" -C build-dir="$scratch/configured"
wheel=$(echo "$scratch"/*.whl)
case "$wheel" in
  *-py3-none-*.whl) ;;
  *) echo "$wheel is not for every Python" >&2; exit 1 ;;
esac

# Pythons by version, oldest first, each once.
pythons=("$@")
if [ ${#pythons[@]} -eq 0 ]; then
  mapfile -t all < <(
    for minor in $(seq 8 30); do
      for one in $(type -ap "python3.$minor"); do
        if "$one" -c 'import sys, venv, ensurepip' 2>/dev/null; then echo "$one"; break; fi
      done
    done)
  [ ${#all[@]} -gt 0 ] || all=(python3)
  pythons=("${all[0]}")
  [ ${#all[@]} -lt 2 ] || pythons+=("${all[-1]}")
fi
first=yes
for python in "${pythons[@]}"; do
  "$python" --version
  venv=$scratch/venv
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --no-index --no-deps "$wheel"
  cd "$scratch"
  # What was installed, and not this clone, nor another zeroplan on the PATH.
  unset ZEROPLAN_PROGRAM PYTHONPATH
  [ "$("$venv/bin/python" -c 'import zeroplan; print(zeroplan.program())')" = "$venv/bin/zeroplan" ]
  [ "$("$venv/bin/zeroplan" --version)" = "zeroplan $("$venv/bin/python" -c 'import zeroplan; print(zeroplan.__version__)')" ]
  [ -f "$("$venv/bin/python" -c 'import os, zeroplan; print(os.path.dirname(zeroplan.__file__))')/py.typed" ]
  # Everything once; of other Pythons what depends on Python.
  tests=(doors_test calls_test objects_test docs_test fields_test)
  [ "$first" = yes ] || tests=(calls_test objects_test)
  first=no
  for test in "${tests[@]}"; do
    ZEROPLAN_SOURCE="$root" "$venv/bin/python" "$here/$test.py" -q
  done
done
