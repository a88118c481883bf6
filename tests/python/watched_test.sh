#!/usr/bin/env bash
# watched_test.py with the Python that ZEROPLAN_REHEARSAL_PYTHON names: torch, transformers, accelerate, DeepSpeed.
#   watched_test.sh PROGRAM
set -euo pipefail
python=${ZEROPLAN_REHEARSAL_PYTHON:-}
if [ -z "$python" ]; then
  echo "skipped: ZEROPLAN_REHEARSAL_PYTHON names no Python with torch, transformers and DeepSpeed"
  exit 77
fi
ZEROPLAN_PROGRAM=$(readlink -f "$1") exec python3 "$(dirname "$0")/watched_test.py"
