#!/bin/sh
# Values that programs branch on, and two runs of PyTorch and DeepSpeed themselves on an emulated GPU, compared with the kept lines, to the byte.
#
# usage: ZEROPLAN_REHEARSAL_PYTHON=ENVIRONMENT/bin/python tests/rehearsal/end_to_end.sh ZEROPLAN
#
# Exit 77 (skipped) where no Python is named; tests/reference/rehearse.sh makes an environment and does all runs.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
if [ -z "${ZEROPLAN_REHEARSAL_PYTHON:-}" ]; then
  echo "skipped: ZEROPLAN_REHEARSAL_PYTHON names no Python with torch for CUDA, transformers and DeepSpeed" >&2
  exit 77
fi
"$1" rehearse --gpu A100-80G --events done --steps 0 -- "$ZEROPLAN_REHEARSAL_PYTHON" "$here/programs/values.py" >&2 || exit 1
exec "$ZEROPLAN_REHEARSAL_PYTHON" "$here/../reference/rehearsal/check_runs.py" "$1" "$ZEROPLAN_REHEARSAL_PYTHON" \
  "$here/../reference/rehearsal/runs.jsonl" --only qwen2.5-0.5b-z2-w8-s1024-m1-g4-ckr-gas llama-1.1b-z0-w8-s2048-m1-RTX4090
