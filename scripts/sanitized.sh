#!/usr/bin/env bash
# What runs under sanitizers, which takes longer than CI has: a part each time that its turn comes; docs/testing.md says how
# long each takes.
#   scripts/sanitized.sh list              the parts in the order of their turns
#   scripts/sanitized.sh of-turn N         the part of the N-th turn
#   scripts/sanitized.sh preset PART       whose build it needs
#   scripts/sanitized.sh cases PART        the names of its test cases, as the programs in build/PRESET/bin list them
#                                          (ZEROPLAN_PROGRAMS: another folder)
#   scripts/sanitized.sh run PART          builds what it needs and runs it
# PART is one of `list`, or a name without numbers for all of its parts: golden:2/6, golden.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh

# Name, preset, number of turns. A test that joins one of these programs joins a part by itself.
rows='engine fuzz 1
unit fuzz 1
golden fuzz 2
kits fuzz 1
runtime fuzz 4
processes fuzz 1
lost_writes fuzz 1
tsan_processes tsan 1
tsan_runtime tsan 1'
# Under ThreadSanitizer: of runtime_tests what several threads or processes take part in; of processes_tests all
# but the searches, which take minutes until they show anything.
threads='*rank*,*collective*,*over TCP*,*part*,*checkpoint*,*stranger*'
no_searches='~[.]~[search]'

usage() {
  sed -n '/^#   scripts/p' "${BASH_SOURCE[0]}" | cut -c3- >&2
  exit 2
}
list() {
  local name preset parts i
  while read -r name preset parts; do
    for ((i = 1; i <= parts; ++i)); do echo "$name:$i/$parts"; done
  done <<<"$rows"
}
of_turn() {
  local all
  mapfile -t all < <(list)
  echo "${all[$((10#$1 % ${#all[@]}))]}"
}
# Sets name, preset, index and parts of a PART, all parts of a name as 1/1.
read_part() {
  local known_name known_preset
  index=1
  parts=1
  name=${1%%:*}
  preset=""
  while read -r known_name known_preset _; do
    [ "$known_name" = "$name" ] || continue
    preset=$known_preset
    if [ "$1" = "$name" ]; then continue; fi
    if ! [[ "$1" =~ ^[a-z_]+:([1-9][0-9]*)/([1-9][0-9]*)$ ]] || [ "${BASH_REMATCH[1]}" -gt "${BASH_REMATCH[2]}" ]; then
      preset=""
      continue
    fi
    index=${BASH_REMATCH[1]}
    parts=${BASH_REMATCH[2]}
  done <<<"$rows"
  if [ -z "$preset" ]; then
    { echo "sanitized: expected a part, got \"$1\"; the parts are:" && list; } >&2
    exit 2
  fi
}
# What the part needs built.
targets() {
  case "$name" in
    engine) echo engine_tests simulator_tests ;;
    unit) echo unit_tests ;;
    golden) echo zeroplan golden_tests ;;
    kits) echo zeroplan ;;
    runtime) echo runtime_tests ;;
    processes | tsan_processes) echo zeroplan processes_tests ;;
    lost_writes) echo lost_writes_tests ;;
    tsan_runtime) echo runtime_tests ;;
  esac
}
# run_cut I/N: this share of the part's program. With --list, the names of the test cases.
run_cut() {
  local list="" cut bin=${ZEROPLAN_PROGRAMS:-build/$preset/bin}
  if [ "$1" = --list ]; then
    list=--list
    shift
  fi
  cut=$1
  case "$name" in
    engine)
      scripts/tests_part.sh $list "$bin/engine_tests" "$cut"
      scripts/tests_part.sh $list "$bin/simulator_tests" "$cut"
      ;;
    unit) scripts/tests_part.sh $list "$bin/unit_tests" "$cut" ;;
    golden)
      if [ -n "$list" ]; then return; fi  # its five test cases loop over files, and cut the loops
      ZEROPLAN_GOLDEN_PART=$cut "$bin/golden_tests"
      ;;
    kits)
      if [ -n "$list" ]; then return; fi
      if [ "${cut%/*}" = 1 ]; then tests/kit/check_kit.sh "$bin/zeroplan"; fi
      ;;
    runtime) scripts/tests_part.sh $list "$bin/runtime_tests" "$cut" ;;
    processes) scripts/tests_part.sh $list "$bin/processes_tests" "$cut" ;;
    lost_writes) scripts/tests_part.sh $list "$bin/lost_writes_tests" "$cut" ;;
    tsan_processes) scripts/tests_part.sh $list "$bin/processes_tests" "$cut" "$no_searches" ;;
    tsan_runtime) scripts/tests_part.sh $list "$bin/runtime_tests" "$cut" "$threads" ;;
  esac
}
# The part in two halves: every 2 N-th case from the I-th on, and from the (I + N)-th on.
halves() {
  echo "$index/$((2 * parts)) $((index + parts))/$((2 * parts))"
}
run_part() {
  local half logs pids=() failed=0 i
  # shellcheck disable=SC2046
  zp_build "$preset" --target $(targets)
  logs=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$logs'" EXIT
  # Two processes: most tests have but one thread that works.
  for half in $(halves); do
    run_cut "$half" >"$logs/${half/\//_of_}" 2>&1 &
    pids+=($!)
  done
  for i in "${!pids[@]}"; do wait "${pids[$i]}" || failed=1; done
  if [ "$failed" -eq 0 ]; then tail -n 3 "$logs"/*; else cat "$logs"/*; fi
  [ "$failed" -eq 0 ] || echo "FAILED: to run it again: scripts/sanitized.sh run $part" >&2
  return "$failed"
}

command=${1:-}
part=${2:-}
case "$command" in
  list) list ;;
  of-turn)
    [[ "$part" =~ ^[0-9]+$ ]] || usage
    of_turn "$part"
    ;;
  preset | cases | run)
    [ -n "$part" ] || usage
    read_part "$part"
    case "$command" in
      preset) echo "$preset" ;;
      cases) for half in $(halves); do run_cut --list "$half"; done ;;
      run) run_part ;;
    esac
    ;;
  *) usage ;;
esac
