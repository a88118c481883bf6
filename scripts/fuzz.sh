#!/usr/bin/env bash
# Runs the fuzz targets of tests/fuzz, one after the other, for SECONDS together.
#   scripts/fuzz.sh [SECONDS [TARGET...]]      60 seconds, all targets
# Builds them first (preset `fuzz`, clang), unless ZEROPLAN_FUZZ_PROGRAMS names a folder with them. What is learned stays in build/fuzz/corpus; an input that
# crashes is kept in build/fuzz/crashes and ends the run with status 1 after the other targets.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/packages.sh

seconds=${1:-60}
case $seconds in
  '' | *[!0-9]*) echo "usage: scripts/fuzz.sh [SECONDS [TARGET...]]" >&2; exit 2 ;;
esac
shift || true
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for source in tests/fuzz/fuzz_*.cpp; do
    name=${source##*/fuzz_}
    targets+=("${name%.cpp}")
  done
fi
programs=${ZEROPLAN_FUZZ_PROGRAMS:-}
if [ -z "$programs" ]; then
  zp_build fuzz
  programs=build/fuzz/bin
fi
share=$((seconds / ${#targets[@]}))
[ "$share" -ge 1 ] || share=1

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
mkdir -p build/fuzz/corpus build/fuzz/crashes build/fuzz/logs
failed=0
printf '%-12s %12s %10s %10s %8s %8s\n' target executions edges features corpus seconds
for target in "${targets[@]}"; do
  log=build/fuzz/logs/$target.log
  mkdir -p "build/fuzz/corpus/$target"
  options=(-max_total_time="$share" -timeout=120 -rss_limit_mb=2560 -max_len=16384 -len_control=20
           -print_final_stats=1 -artifact_prefix="build/fuzz/crashes/$target-")
  dictionary=tests/fuzz/dictionaries/$target.txt
  [ ! -f "$dictionary" ] || options+=(-dict="$dictionary")
  outcome=ok
  "$programs/fuzz_$target" "${options[@]}" "build/fuzz/corpus/$target" "tests/fuzz/seeds/$target" \
    >"$log" 2>&1 || outcome=failed
  awk -v target="$target" -v share="$share" '
    / cov: / { for (i = 1; i <= NF; ++i) { if ($i == "cov:") edges = $(i + 1)
                                           if ($i == "ft:") features = $(i + 1)
                                           if ($i == "corp:") corpus = $(i + 1) } }
    /stat::number_of_executed_units:/ { executions = $2 }
    END { split(corpus, parts, "/")
          printf "%-12s %12s %10s %10s %8s %8s\n", target, executions, edges, features, parts[1], share }' "$log"
  if [ "$outcome" = failed ]; then
    failed=1
    echo "-- $target failed; see $log and build/fuzz/crashes" >&2
    grep -E -m 8 'defect:|ERROR:|runtime error:|terminate|what\(\)|SUMMARY' "$log" >&2 || true
  fi
done
exit "$failed"
