#!/usr/bin/env bash
# planner.sh PROGRAM FOLDER: builds the planner's page and opens it in a browser (check_planner.py). Skips aloud (77) where
# emscripten is not installed: the build takes minutes, and ./check does not install it.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
if ! command -v em++ >/dev/null 2>&1; then
  echo "SKIPPED: EMSCRIPTEN IS NOT INSTALLED" >&2
  exit 77
fi
"$here/../../zeroplan" page -o "$2"
exec python3 "$here/check_planner.py" "$2/index.html" "$2/screenshots" "$1"
