#!/bin/sh
# A check of this folder with the Python of $ZEROPLAN_REHEARSAL_PYTHON; exit 77 (skipped) where none is named.
#
# usage: ZEROPLAN_REHEARSAL_PYTHON=ENVIRONMENT/bin/python tests/kit/with_python.sh CHECK.py ZEROPLAN [KIND...]
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
if [ -z "${ZEROPLAN_REHEARSAL_PYTHON:-}" ]; then
  echo "skipped: ZEROPLAN_REHEARSAL_PYTHON names no Python with torch for CUDA, transformers and DeepSpeed" >&2
  exit 77
fi
check=$1
program=$2
shift 2
exec "$ZEROPLAN_REHEARSAL_PYTHON" "$here/$check" "$program" "$ZEROPLAN_REHEARSAL_PYTHON" "$@"
