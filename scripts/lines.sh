#!/usr/bin/env bash
# How much code there is: lines and files of C++ and CUDA by top-level folder, without tests, beside the limits of
# scripts/lines.txt and what the change adds; more than a limit ends with status 1.
#   scripts/lines.sh              the working tree against zp_base (scripts/changed.sh)
#   scripts/lines.sh --set        writes what there is today as the limits: git's diff shows which rise and which go down
#   scripts/lines.sh --headers    headers of at most 30 lines, and those that one file alone includes: what may fold into it
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
# shellcheck source=scripts/changed.sh
. scripts/changed.sh
pattern='\.(cpp|hpp|cu|cuh|h)$'

if [ "${1:-}" = --headers ]; then
  git grep -hoE '#include "[^"]+"' -- '*.cpp' '*.hpp' '*.cu' '*.cuh' | sed 's/#include "//; s/"//' | sort | uniq -c >/tmp/$$.uses
  trap 'rm -f /tmp/$$.uses' EXIT
  git ls-files | grep -E '\.hpp$' | grep -v '^tests/' | while read -r file; do
    uses=$(awk -v file="$file" '$2 == file { print $1 }' /tmp/$$.uses)
    lines=$(wc -l <"$file")
    if [ "$lines" -le 30 ] || [ "${uses:-0}" -le 1 ]; then echo "$lines lines, ${uses:-0} users: $file"; fi
  done | sort -n
  exit 0
elif [ $# -gt 0 ] && [ "$1" != --set ]; then
  sed -n '4,6s/^# *//p' "$0" >&2
  exit 2
fi

# "lines files folder" of each top-level folder, of files that are named on standard input and can be read by "$@".
counted() {
  while read -r file; do
    printf '%s %s\n' "$("$@" "$file" | wc -l)" "${file%%/*}"
  done | awk '{ lines[$2] += $1; ++files[$2] } END { for (f in lines) print lines[f], files[f], f }'
}
at_base() { git show "$base:$1"; }
base=$(zp_base)
now=$(git ls-files --cached --others --exclude-standard | grep -E "$pattern" | grep -v '^tests/' |
  while read -r file; do if [ -f "$file" ]; then echo "$file"; fi; done | counted cat)
if [ "${1:-}" = --set ]; then
  {
    grep '^#' scripts/lines.txt
    sort -rn <<<"$now" | awk '{ printf "%-9s %d\n", $3, $1; lines += $1; files += $2 } END { print "all " lines " " files }'
  } >scripts/lines.txt.new
  mv scripts/lines.txt.new scripts/lines.txt
fi
# Of the base only what differs is read.
before=$(git diff --name-only --no-renames --diff-filter=MD "$base" | grep -E "$pattern" | grep -v '^tests/' | counted at_base || true)
after=$({ git diff --name-only --no-renames --diff-filter=MA "$base"; git ls-files --others --exclude-standard; } | sort -u |
  grep -E "$pattern" | grep -v '^tests/' | counted cat || true)

awk -v now="$now" -v before="$before" -v after="$after" '
  function table(text, sign,   rows, i, n, part) {
    n = split(text, rows, "\n")
    for (i = 1; i <= n; ++i) if (split(rows[i], part, " ") == 3) { change[part[3]] += sign * part[1] }
  }
  BEGIN {
    table(after, 1); table(before, -1)
    n = split(now, rows, "\n")
    for (i = 1; i <= n; ++i) if (split(rows[i], part, " ") == 3) { lines[part[3]] = part[1]; files[part[3]] = part[2] }
    printf "%-10s %8s %8s %8s %6s\n", "folder", "lines", "limit", "change", "files"
  }
  /^#/ || NF < 2 { next }
  $1 == "all" { limit = $2; most_files = $3; next }
  {
    printf "%-10s %8d %8d %+8d %6d\n", $1, lines[$1], $2, change[$1], files[$1]
    sum += lines[$1]; sum_files += files[$1]; sum_change += change[$1]; known[$1] = 1
    if (lines[$1] > $2) wrong = wrong $1 " has " lines[$1] - $2 " lines more than its limit\n"
  }
  END {
    printf "%-10s %8d %8d %+8d %6d of %d\n", "all", sum, limit, sum_change, sum_files, most_files
    for (f in lines) if (!(f in known)) wrong = wrong f " has no row\n"
    if (sum > limit) wrong = wrong "all together have " sum - limit " lines more than their limit\n"
    if (sum_files > most_files) wrong = wrong sum_files - most_files " files more than their limit\n"
    if (wrong != "") { printf "%sscripts/lines.txt has the limits: raise a row in the change that needs it, and say why there\n", wrong; exit 1 }
  }' scripts/lines.txt
