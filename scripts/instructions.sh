#!/usr/bin/env bash
# The instructions that questions of scripts/instructions.txt take from start to exit, counted by valgrind's callgrind on one
# core each, beside the counts kept there: seconds hang on the machine and who shares it, these do not. A question that takes 3 %
# more or less ends with status 1: what made it slower is mended or said, what made it faster is kept.
#   scripts/instructions.sh           compares
#   scripts/instructions.sh --set     writes today's counts
# The program is the one of the preset `check`. Another compiler makes other instructions: what it counts is shown alone.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
kept=scripts/instructions.txt
program=build/check/bin/zeroplan
compiler=$(c++ --version | head -n 1)
[ $# -eq 0 ] || [ "$*" = --set ] || { sed -n 1p "$kept"; echo "# $compiler"; printf "%s" "$rows"; } >"$kept.new"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mapfile -t cores < <(taskset -pc $$ | sed 's/.*: *//' | tr , '\n' | awk -F- '{ for (i = $1; i <= $NF; ++i) print i }')
# One core a question, so that it sees one: writes the count into the folder's file of its ROW.
counted() {  # CORE ROW WORDS of the question
  local row=$2 log=$folder/$2.log
  taskset -c "$1" valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "${@:3}" 2>"$log" >/dev/null ||
    { cat "$log" >&2; return 1; }
  sed -n 's/.*Collected : *//p' "$log" | tr -d , >"$folder/$row"
}
mapfile -t questions < <(grep -v '^#' "$kept")
# The longest first, as many at a time as there are cores.
declare -A running=()
for row in $(for i in "${!questions[@]}"; do echo "${questions[i]%% *} $i"; done | sort -rn | cut -d' ' -f2); do
  core=${cores[${#running[@]}]:-}
  if [ -z "$core" ]; then
    wait -n -p done_pid
    core=${running[$done_pid]}
    unset "running[$done_pid]"
  fi
  read -r _ question <<<"${questions[row]}"
  # shellcheck disable=SC2086
  counted "$core" "$row" $question &
  running[$!]=$core
done
wait

rows=""
wrong=""
same=$(grep -cFx "# $compiler" "$kept" || true)
for row in "${!questions[@]}"; do
  read -r count question <<<"${questions[row]}"
  now=$(cat "$folder/$row")
  rows+=$(printf '%-12d %s' "$now" "$question")$'\n'
  change=$(awk -v now="$now" -v kept="$count" 'BEGIN { printf "%+.1f", 100 * (now / kept - 1) }')
  printf '%14d  %+6.1f %%  %s\n' "$now" "$change" "$question"
  if [ "$same" = 1 ] && awk -v c="$change" 'BEGIN { exit !(c > 3 || c < -3) }'; then
    wrong+="$question: $now instructions, $count are kept"$'\n'
  fi
done

if [ "${1:-}" = --set ]; then
  { sed -n 1p "$kept"; echo "# $compiler"; printf "%s" "$rows"; } >"$kept.new"
  mv "$kept.new" "$kept"
elif [ "$same" != 1 ]; then
  echo "not compared: $kept is of another compiler than $compiler"
elif [ -n "$wrong" ]; then
  printf '%sscripts/instructions.sh --set keeps the new counts: say why in the change\n' "$wrong"
  exit 1
fi
