#!/bin/sh
# Rehearses the runs of tests/reference/rehearsal/runs.jsonl again and compares their bytes with the kept lines.
#
# usage: tests/reference/rehearse.sh [BUILD_FOLDER]    (default: build)
#
# Takes the Python of $ZEROPLAN_REHEARSAL_PYTHON where it is set; else installs the pinned packages through pip's
# configured index into BUILD_FOLDER/rehearse, kept between calls, and gives up after five minutes
# (ZEROPLAN_REHEARSE_SECONDS): torch's wheel has 530 MB, NVIDIA's libraries are not needed. The program is
# $ZEROPLAN_PROGRAM (default: BUILD_FOLDER/ci/bin/zeroplan).
# Exit 0: equal, or skipped, which a line in capitals says; 1: a byte differs.
set -u
limit="${ZEROPLAN_REHEARSE_SECONDS:-300}"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
build="${1:-$here/../../build}"
folder="$build/rehearse"
program="${ZEROPLAN_PROGRAM:-$build/ci/bin/zeroplan}"
python="${ZEROPLAN_REHEARSAL_PYTHON:-}"

# Those of the kept lines.
pins="torch==2.11.0 transformers==5.17.0 deepspeed==0.19.6 peft==0.21.2 accelerate==1.15.0"
of_torch="filelock sympy networkx jinja2 fsspec typing-extensions numpy setuptools<80 wheel ninja"
of_deepspeed="hjson msgpack einops py-cpuinfo pydantic psutil tqdm"

skip() {
  echo "NOT REHEARSED: $1" >&2
  exit 0
}

install() {
  [ "$(cat "$folder/pins" 2>/dev/null)" = "$pins" ] && return
  rm -rf "$folder"
  mkdir -p "$folder" || skip "cannot write to $folder"
  python3 -m venv "$folder/venv" >"$folder/venv.log" 2>&1 || skip "no Python with venv (log: $folder/venv.log)"
  # shellcheck disable=SC2086  # the names are words
  timeout "$limit" sh -ec '
    pip="$0/venv/bin/python -m pip install --quiet --no-compile"
    $pip --no-deps torch==2.11.0 accelerate==1.15.0 peft==0.21.2
    $pip $1 $2 transformers==5.17.0
    DS_BUILD_OPS=0 $pip --no-build-isolation --no-deps deepspeed==0.19.6
  ' "$folder" "$of_torch" "$of_deepspeed" >"$folder/pip.log" 2>&1
  case $? in
    0) echo "$pins" >"$folder/pins" ;;
    124) rm -rf "$folder/venv" && skip "the packages did not arrive in $limit s" ;;
    *) rm -rf "$folder/venv" && skip "pip cannot install $pins (log: $folder/pip.log)" ;;
  esac
}

[ -x "$program" ] || skip "no program $program"
if [ -z "$python" ]; then
  install
  python="$folder/venv/bin/python"
fi
exec "$python" "$here/rehearsal/check_runs.py" "$program" "$python" "$here/rehearsal/runs.jsonl"
