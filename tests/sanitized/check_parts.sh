#!/usr/bin/env bash
# Which part of the tests runs under sanitizers in which turn, and that all parts together leave nothing out:
# check_parts.sh FOLDER, where the test programs are.
set -euo pipefail
programs=$1
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
  echo "FAILED: $*" >&2
  failed=1
}
same() {
  diff "$1" "$2" >"$work/diff" || fail "$3: $(cat "$work/diff")"
}
cases() {
  ZEROPLAN_PROGRAMS=$programs scripts/sanitized.sh cases "$1"
}

# Turns: each part once in so many turns as there are parts, then again.
scripts/sanitized.sh list >"$work/parts"
parts=$(wc -l <"$work/parts")
for ((turn = 5000; turn < 5000 + parts; ++turn)); do scripts/sanitized.sh of-turn "$turn"; done | sort >"$work/of_turns"
sort "$work/parts" | same - "$work/of_turns" "a cycle of turns"
[ "$(scripts/sanitized.sh of-turn 0)" = "$(head -n 1 "$work/parts")" ] || fail "turn 0 has not the first part"
[ "$(scripts/sanitized.sh of-turn "$parts")" = "$(head -n 1 "$work/parts")" ] || fail "the cycle does not begin again"

# What must run under which sanitizers at all, and each name with all its numbers.
cut -d: -f1 "$work/parts" | sort -u >"$work/names"
printf '%s\n' engine golden kits lost_writes processes runtime tsan_processes tsan_runtime unit | same - "$work/names" "the names"
while read -r name; do
  wanted=fuzz
  [[ "$name" != tsan_* ]] || wanted=tsan
  [ "$(scripts/sanitized.sh preset "$name")" = "$wanted" ] || fail "$name is not built by $wanted"
  count=$(grep -c "^$name:" "$work/parts")
  for ((i = 1; i <= count; ++i)); do echo "$name:$i/$count"; done >"$work/wanted"
  grep "^$name:" "$work/parts" | same - "$work/wanted" "the parts of $name"
done <"$work/names"

# Test cases: the parts of a name have all that the program lists, each once.
for name in runtime processes lost_writes; do
  "$programs/${name}_tests" --list-tests '~[.]' >"$work/listing" || true  # Catch2 2 exits with their number
  cases "$name" | sort >"$work/whole"
  [ "$(wc -l <"$work/whole")" -eq "$(sed -n 's/^\([0-9]*\) .*test cases\?$/\1/p' "$work/listing")" ] ||
    fail "$name: $(wc -l <"$work/whole") test cases of $(tail -n 2 "$work/listing")"
  [ -z "$(uniq -d "$work/whole")" ] || fail "$name: twice: $(uniq -d "$work/whole")"
done
while read -r name; do
  grep "^$name:" "$work/parts" | while read -r part; do cases "$part"; done | sort >"$work/pieces"
  cases "$name" | sort | same - "$work/pieces" "the cases of $name"
done <"$work/names"
[ "$(cases tsan_runtime | wc -l)" -gt 50 ] || fail "ThreadSanitizer sees $(cases tsan_runtime | wc -l) cases of the runtime"
cases processes | grep -v -x -F -f <(cases tsan_processes) >"$work/left_out" || true
! grep -v -E 'search|report|bar' "$work/left_out" || fail "left out under ThreadSanitizer though no search"

# What is no part is refused.
for wrong in golden:0/2 golden:3/2 golden:1 golden: golden:1/2/3 :1/2 units ""; do
  if scripts/sanitized.sh preset "$wrong" 2>/dev/null; then fail "\"$wrong\" is taken for a part"; fi
done
if ZEROPLAN_SHARD=golden:9/2 ./check 2>/dev/null; then fail "./check takes a part that is none"; fi
if [ "$failed" -eq 0 ]; then echo "parts under sanitizers: $parts turns, nothing is left out"; fi
exit "$failed"
