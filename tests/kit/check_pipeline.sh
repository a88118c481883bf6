#!/bin/sh
# check_pipeline.py with the Python of $ZEROPLAN_REHEARSAL_PYTHON; exit 77 (skipped) where none is named.
#
# usage: ZEROPLAN_REHEARSAL_PYTHON=ENVIRONMENT/bin/python tests/kit/check_pipeline.sh ZEROPLAN [KIND...]
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
if [ -z "${ZEROPLAN_REHEARSAL_PYTHON:-}" ]; then
  echo "skipped: ZEROPLAN_REHEARSAL_PYTHON names no Python with torch, transformers and DeepSpeed" >&2
  exit 77
fi
program=$1
shift
exec "$ZEROPLAN_REHEARSAL_PYTHON" "$here/check_pipeline.py" "$program" "$ZEROPLAN_REHEARSAL_PYTHON" "$@"
