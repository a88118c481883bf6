#!/usr/bin/env bash
# Runs every N-th test case of a Catch2 program, from the I-th on, 1 to N; all N parts are all its cases, each once.
#   scripts/tests_part.sh PROGRAM I/N [FILTER]          FILTER in Catch2's words: "*rank*,*TCP*"
#   scripts/tests_part.sh --list PROGRAM I/N [FILTER]   their names, a line each
set -euo pipefail
list=no
if [ "${1:-}" = --list ]; then
  list=yes
  shift
fi
usage() {
  echo "usage: scripts/tests_part.sh [--list] PROGRAM I/N [FILTER]" >&2
  exit 2
}
if [ $# -lt 2 ] || [ $# -gt 3 ]; then usage; fi
[[ "$2" =~ ^([1-9][0-9]*)/([1-9][0-9]*)$ ]] || usage
program=$1
index=${BASH_REMATCH[1]}
parts=${BASH_REMATCH[2]}
[ "$index" -le "$parts" ] || usage
filter=${3:-~[.]}  # what is hidden runs when it is asked for by name

# Catch2 2 exits with the number of names; Catch2 3 knows the option by another name.
names_of() {
  local names
  names=$("$program" --list-test-names-only "$@" 2>/dev/null || true)
  [ -n "$names" ] || names=$("$program" --list-tests --verbosity quiet "$@")
  printf '%s\n' "$names"
}
all=$(mktemp)
mine=$(mktemp)
escaped=$(mktemp)
trap 'rm -f "$all" "$mine" "$escaped"' EXIT
names_of "$filter" >"$all"
awk -v index_="$index" -v parts="$parts" 'NR % parts == index_ % parts' "$all" >"$mine"
count=$(wc -l <"$mine")
# Catch2 ends a name at a comma, even between quotes, unless it is escaped. What it reads otherwise than it writes it
# must not go unnoticed.
sed 's/[\\,"[]/\\&/g' "$mine" >"$escaped"
if [ "$count" -gt 0 ] && ! names_of --input-file "$escaped" | diff "$mine" - >&2; then
  echo "tests_part: $program does not find the test cases that it names" >&2
  exit 1
fi
if [ "$list" = yes ]; then
  cat "$mine"
  exit 0
fi
echo "part $index of $parts of $(basename "$program"): $count of $(wc -l <"$all") test cases"
[ "$count" -eq 0 ] || "$program" --input-file "$escaped"
