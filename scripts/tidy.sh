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
# 2>: clang-tidy counts there what it suppressed in system headers.
xargs -P "$(nproc)" -n 1 clang-tidy -p build/tidy --quiet <<<"$files" 2>/dev/null
