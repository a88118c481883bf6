#!/usr/bin/env bash
# Every header compiles on its own, as the first thing that a source includes; one that leans on its includer
# ends with status 1.
#   scripts/headers_alone.sh changed    headers changed since zp_base (scripts/changed.sh)
#   scripts/headers_alone.sh all
# The folders are those of cmake/folders.txt. Left out are the ones marked with-cuda: headers of CUDA's, cuDNN's and the
# fuzzers' sources, which need more on their command lines.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/changed.sh

case "${1:-changed}" in
  all) files=$(git ls-files) ;;
  changed)
    since=$(zp_base) || { echo "headers alone: SKIPPED, no commit to compare with" >&2; exit 0; }
    files=$(zp_changed "$since")
    ;;
  *) echo "usage: scripts/headers_alone.sh changed|all" >&2; exit 2 ;;
esac
folders_with() {  # MARK: "runtime/cuda|tests/gpu|..." of the rows that have it
  awk -F'|' -v mark="$1" '/^[^#]/ && index($5, mark) { gsub(/ /, "", $1); printf "%s%s", sep, $1; sep = "|" }' cmake/folders.txt
}
headers=$(grep '\.hpp$' <<<"$files" | grep -Ev "^($(folders_with with-cuda))/[^/]*$" | sort -u |
  while read -r file; do if [ -f "$file" ]; then echo "$file"; fi; done)
[ -n "$headers" ] || { echo "no header changed"; exit 0; }
echo "$(wc -l <<<"$headers") headers"
# shellcheck disable=SC2016  # the inner shell's
xargs -P "$(nproc)" -I{} sh -c '
  echo "#include \"{}\"" | "${CXX:-c++}" -std=c++20 -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers \
    -Werror -fsyntax-only -I. "-DZEROPLAN_SOURCE_DIR=\".\"" "-DZEROPLAN_UNPACKED_DATA_DIR=\".\"" -x c++ - ||
    { echo "{} does not compile on its own" >&2; exit 1; }' <<<"$headers"
