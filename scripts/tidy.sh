#!/usr/bin/env bash
# clang-tidy with the checks of .clang-tidy; what it finds ends with status 1.
#   scripts/tidy.sh changed    sources changed since the branch left origin/main, or since the last
#                              commits where it has not; ZEROPLAN_BASE=COMMIT names another base
#   scripts/tidy.sh all        every source outside tests/
# Configures the preset `tidy`, and builds nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/changed.sh

# The sources to check for a list of changed files: themselves, and for a header its own source.
sources_of() {
  local file
  while read -r file; do
    case $file in
      tests/*) ;;
      *.cpp) echo "$file" ;;
      *.hpp) echo "${file%.hpp}.cpp" ;;
    esac
  done | sort -u | while read -r file; do
    if [ -f "$file" ]; then echo "$file"; fi
  done
}

case "${1:-changed}" in
  all) files=$(git ls-files '*.cpp' | sources_of) ;;
  changed)
    since=$(zp_base) || { echo "tidy: SKIPPED, no commit to compare with" >&2; exit 0; }
    echo "changed since $(git log -1 --format='%h %s' "$since")"
    files=$(zp_changed "$since" | sources_of)
    ;;
  *) echo "usage: scripts/tidy.sh changed|all" >&2; exit 2 ;;
esac
[ -n "$files" ] || { echo "no source changed"; exit 0; }
echo "$(wc -l <<<"$files") sources"
cmake --preset tidy >/dev/null
# Where ZEROPLAN_TIDY_SECONDS says how long, the sources come in an order of the commit's own, and the rest is left out.
limit=${ZEROPLAN_TIDY_SECONDS:-86400}
files=$(shuf --random-source=<(yes "$(git rev-parse HEAD)") <<<"$files")
failed=$(mktemp)
trap 'rm -f "$failed"' EXIT
status=0
# 2>: clang-tidy counts there what it suppressed in system headers.
# shellcheck disable=SC2016 # the shell that xargs starts fills in
timeout "$limit" xargs -P "$(nproc)" -n 1 \
  sh -c 'clang-tidy -p build/tidy --quiet "$1" || echo "$1" >>"$0"' "$failed" <<<"$files" 2>/dev/null || status=$?
[ "$status" -ne 124 ] || echo "== SKIPPED after $limit s, the rest of the sources: scripts/tidy.sh changed"
[ ! -s "$failed" ] || { echo "clang-tidy complains of:"; cat "$failed"; exit 1; }
[ "$status" -eq 124 ] || exit "$status"
