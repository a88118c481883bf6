#!/bin/sh
# Rehearses the runs of tests/reference/rehearsal/runs.jsonl again, each with the versions that it was kept with, and
# compares their bytes with the kept lines.
#
# usage: tests/reference/rehearse.sh [BUILD_FOLDER] [--first N] [--set-of-turn N]
#   default: build, all runs of each set of versions; --set-of-turn: of one set, another each turn
#
# Installs the packages of each set through pip's configured index into BUILD_FOLDER/rehearse, kept between calls, and
# gives a set up after five minutes (ZEROPLAN_REHEARSE_SECONDS): torch's wheel has 530 to 760 MB, NVIDIA's libraries are
# not needed. $ZEROPLAN_REHEARSAL_PYTHON, where it is set, is used instead, for the set of its torch alone. The program is
# $ZEROPLAN_PROGRAM (default: BUILD_FOLDER/ci/bin/zeroplan).
# Exit 0: equal, or skipped, which a line in capitals says; 1: a byte differs.
set -u
limit="${ZEROPLAN_REHEARSE_SECONDS:-300}"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
build="$here/../../build"
first=""
only=""
while [ $# -gt 0 ]; do
  case "$1" in
    --first) first="--first $2" && shift ;;
    --set-of-turn) only=$(echo current 2025 2024 | cut -d ' ' -f $(($2 % 3 + 1))) && shift ;;
    *) build="$1" ;;
  esac
  shift
done
folder="$build/rehearse"
program="${ZEROPLAN_PROGRAM:-$build/ci/bin/zeroplan}"

of_torch="filelock sympy networkx jinja2 fsspec typing-extensions setuptools<80 wheel ninja"
of_deepspeed="hjson msgpack einops py-cpuinfo pydantic psutil tqdm"

skip() {
  echo "NOT REHEARSED: $1" >&2
}

# install SET TORCH TRANSFORMERS DEEPSPEED PEFT ACCELERATE NUMPY: an environment of these releases, in $folder/SET.
install() {
  env="$folder/$1"
  [ "$(cat "$env/pins" 2>/dev/null)" = "$*" ] && return 0
  rm -rf "$env"
  mkdir -p "$env" || return 1
  python3 -m venv "$env/venv" >"$env/venv.log" 2>&1 || return 1
  # Before torch 2.11 DeepSpeed's set-up imports torch, which wants CUDA's libraries: the rehearsal has some.
  # A program that does not use the GPU ends with status 1.
  # shellcheck disable=SC2016,SC2086  # the names are words
  timeout "$limit" sh -ec '
    python="$0/venv/bin/python"
    pip="$python -m pip install --quiet --no-compile"
    $pip --no-deps "torch==$2" "accelerate==$6" "peft==$5"
    $pip $8 $9 "$7" "transformers==$3"
    DS_BUILD_OPS=0 "${10}" rehearse --gpu A100-80G -- $pip --no-build-isolation --no-deps "deepspeed==$4" || true
    $python -m pip show --quiet deepspeed
  ' "$env" "$@" "$of_torch" "$of_deepspeed" "$program" >"$env/pip.log" 2>&1 || {
    rm -rf "$env/venv"
    return 1
  }
  echo "$*" >"$env/pins"
}

# hold PYTHON TORCH: runs.jsonl's runs of this release of torch.
hold() {
  # shellcheck disable=SC2086  # empty: all
  "$1" "$here/rehearsal/check_runs.py" "$program" "$1" "$here/rehearsal/runs.jsonl" --torch "$2" $first
}

[ -x "$program" ] || {
  skip "no program $program"
  exit 0
}
if [ -n "${ZEROPLAN_REHEARSAL_PYTHON:-}" ]; then
  torch=$("$ZEROPLAN_REHEARSAL_PYTHON" -c 'import importlib.metadata as m; print(m.version("torch").split("+")[0])')
  hold "$ZEROPLAN_REHEARSAL_PYTHON" "$torch"
  exit
fi
status=0
# Those of the kept lines, and of configs/software.json.
while read -r name pins; do
  [ -z "$only" ] || [ "$only" = "$name" ] || continue
  torch=${pins%% *}
  # shellcheck disable=SC2086  # the releases are words
  if install "$name" $pins </dev/null; then
    hold "$folder/$name/venv/bin/python" "$torch" </dev/null || status=1
  else
    skip "the packages of $name did not install in $limit s (logs: $folder/$name)"
  fi
done <<'SETS'
current 2.11.0 5.17.0 0.19.6 0.21.2 1.15.0 numpy<3
2025 2.6.0 4.50.3 0.16.4 0.15.0 1.5.2 numpy<2.3
2024 2.2.0 4.40.2 0.14.2 0.10.0 0.30.1 numpy<2
SETS
exit $status
