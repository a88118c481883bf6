#!/bin/sh
# Records the small part of activations.json again and compares it with the table, exactly. With
# ZEROPLAN_FULL=yes all of it, losses.json, and every configuration of DeepSpeed's engines in all releases,
# which `zeroplan replay` (of $ZEROPLAN_PROGRAM, default BUILD_FOLDER/ci/bin/zeroplan) must reproduce: about
# five minutes on two cores.
#
# usage: tests/reference/rerecord.sh [BUILD_FOLDER]    (default: build)
#
# Takes the Python of $PYTHON (default: python3) where that has the pinned packages already; else
# installs them through pip's configured index into BUILD_FOLDER/rerecord, kept between calls, and
# gives up after five minutes (ZEROPLAN_RERECORD_SECONDS): torch's wheel brings 3 GB of CUDA with it.
# Exit 0: equal, or skipped, which a line in capitals says; 1: the table and PyTorch differ.
set -u
pins="torch==2.6.0 numpy==2.2.6 transformers==4.50.3"
limit="${ZEROPLAN_RERECORD_SECONDS:-300}"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
folder="${1:-$here/../../build}/rerecord"
python="${PYTHON:-python3}"

skip() {
  echo "NOT RE-RECORDED: $1" >&2
  exit 0
}

install() {
  [ "$(cat "$folder/pins" 2>/dev/null)" = "$pins" ] && return
  rm -rf "$folder"
  mkdir -p "$folder" || skip "cannot write to $folder"
  "$python" -m venv "$folder/venv" >"$folder/venv.log" 2>&1 ||
    skip "no Python with venv (log: $folder/venv.log)"
  # shellcheck disable=SC2086  # the pins are words
  timeout "$limit" "$folder/venv/bin/python" -m pip install --quiet --no-compile $pins \
    >"$folder/pip.log" 2>&1
  case $? in
    0) echo "$pins" >"$folder/pins" ;;
    124) rm -rf "$folder/venv" && skip "the packages did not arrive in $limit s" ;;
    *) rm -rf "$folder/venv" && skip "pip cannot install $pins (log: $folder/pip.log)" ;;
  esac
}

has_pins() {
  # shellcheck disable=SC2086  # the pins are words
  "$python" - $pins 2>/dev/null <<'PYTHON'
import importlib.metadata, sys
for pin in sys.argv[1:]:
    name, version = pin.split("==")
    if name != "numpy" and importlib.metadata.version(name).split("+")[0] != version:
        sys.exit(1)
PYTHON
}

if ! has_pins; then
  install
  python="$folder/venv/bin/python"
fi
mkdir -p "$folder"

small=--small
[ "${ZEROPLAN_FULL:-no}" = no ] || small=""
echo "recording activations with $pins"
# shellcheck disable=SC2086  # empty: all
"$python" "$here/record_activations.py" --check $small 2>"$folder/record.log"
status=$?
# 3 is a difference; anything else is a program that could not run, which judges nothing.
case $status in
  0) ;;
  3) echo "tests/reference/activations.json differs from what PyTorch does (see above)" >&2; exit 1 ;;
  *) skip "the recorder ended with status $status (log: $folder/record.log)" ;;
esac
[ -z "$small" ] || exit 0

echo "recording losses"
"$python" "$here/record_losses.py" >"$folder/losses.json" 2>"$folder/losses.log" ||
  skip "losses: the recorder failed (log: $folder/losses.log)"
if ! cmp "$folder/losses.json" "$here/losses.json" >&2; then
  echo "tests/reference/losses.json differs from what PyTorch computes here" >&2
  exit 1
fi

# Without triton: what DeepSpeed imports of it looks for a GPU's driver.
echo "recording DeepSpeed's engines"
[ "$python" != "$folder/venv/bin/python" ] || {
  "$python" -m pip uninstall --quiet --yes triton &&
    "$python" -m pip install --quiet --no-compile "setuptools<80" wheel einops hjson msgpack ninja packaging psutil \
      py-cpuinfo "pydantic>=2" tqdm &&
    DS_BUILD_OPS=0 "$python" -m pip install --quiet --no-compile --no-deps deepspeed==0.19.6
} >"$folder/deepspeed.log" 2>&1 || skip "DeepSpeed: pip (log: $folder/deepspeed.log)"
"$python" "$here/record_engine" --all -o "$folder/engines.jsonl" --releases "$folder/releases" \
  >"$folder/engines.log" 2>&1 || skip "DeepSpeed: the recorder failed (log: $folder/engines.log)"
"${ZEROPLAN_PROGRAM:-$folder/../ci/bin/zeroplan}" replay "$folder/engines.jsonl"
