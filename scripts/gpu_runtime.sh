# Sourced by gpu.sh: its part runtime, what the embedded runtime reaches on a GPU.
# shellcheck shell=bash
# shellcheck disable=SC2154
# runtime_point MODEL SEQUENCE SIZE FUSED GRAPHS STATES STEPS: tried once; of 60 steps the first ten are not counted.
# Ends with 1 where it does not fit or failed, with 2 where the time is up.
runtime_point() {
  local point="$1 seq $2 micro-batch $3" status=0 steps=$7 lines=$out/runtime.jsonl
  if [ "$steps" -lt 60 ]; then
    lines=$out/runtime_sweep.jsonl
  else
    point="$point again"
    [ "$quick" = no ] || steps=8
  fi
  [ "$4" = false ] || point="$point fused loss"
  [ "$5" = off ] || point="$point CUDA graphs"
  [ "$6" = fp32 ] || point="$point $6 states"
  if grep -q "^$point: " "$out/runtime_points.txt"; then
    grep -q "^$point: trained" "$out/runtime_points.txt" || status=1
    return "$status"
  fi
  bounded env ZEROPLAN_CUDA_GRAPHS="$5" "$zeroplan" run "$1" --device cuda --ranks 1 --ds-config "$work/ds_$6.json" \
    --precision bf16 --seq "$2" --mbs "$3" --fused-loss "$4" --steps "$steps" --measurement "$lines" --json \
    >"$work/run.json" 2>"$work/run.log" || status=$?
  if [ "$status" -eq 0 ]; then
    echo "$point: trained" | tee -a "$out/runtime_points.txt"
    return 0
  fi
  if time_up "$status"; then
    settle "$point" "$status"
    return 2
  fi
  # Not to fit is an answer; anything else is a failure, and is tried again.
  # What a library cannot load or a launch cannot get is the GPU's end as well as the account's.
  if grep -qE 'out of .* memory in phase|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|out of memory' \
    "$work/run.log"; then
    echo "$point: out of memory" | tee -a "$out/runtime_points.txt"
  else
    echo "$point: $(grep '^error' "$work/run.log" | tail -n 1) (exit $status)"
    failed+=("$point")
  fi
  return 1
}
# runtime_series MODEL SEQUENCE STATES: micro-batches from 4,096 tokens on are doubled until one does not fit; then half as
# much again as the last, or where none did half as much until one does. Ends with 1 where the time is up.
runtime_series() {
  local first=$((4096 / $2)) size status=0
  for ((size = first; size <= 128; size *= 2)); do
    status=0
    runtime_point "$1" "$2" "$size" true off "$3" 8 || status=$?
    [ "$status" -lt 2 ] || return 1
    [ "$status" -eq 0 ] || break
  done
  [ "$status" -ne 0 ] || return 0
  if [ "$size" -gt "$first" ]; then
    [ "$size" -ge 4 ] || return 0
    status=0
    runtime_point "$1" "$2" "$((size * 3 / 4))" true off "$3" 8 || status=$?
    [ "$status" -lt 2 ]
    return
  fi
  while [ "$status" -ne 0 ] && [ "$size" -gt 1 ]; do
    size=$((size / 2))
    status=0
    runtime_point "$1" "$2" "$size" true off "$3" 8 || status=$?
    [ "$status" -lt 2 ] || return 1
  done
}
# runtime_best MODEL SEQUENCE STATES GRAPHS: the fastest of the sweep once more, longer. Ends with 1 where the time is up.
runtime_best() {
  local best status=0
  best=$("$python" scripts/gpu_compare.py --best "$out/runtime_sweep.jsonl" "$1" "$2" "$3") || {
    skip "the best of $1 seq $2, $3 states: no point has trained, or no $python"
    return 0
  }
  # The micro-batch, and whether the loss is fused.
  runtime_point "$1" "$2" "${best% *}" "${best#* }" "$4" "$3" 60 || status=$?
  [ "$status" -lt 2 ]
}
part_runtime() {
  local model sequence status
  need_program || return 0
  echo '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 1}}' >"$work/ds_fp32.json"
  echo '{"bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},
    "zero_optimization": {"stage": 1}}' >"$work/ds_bf16.json"
  touch "$out/runtime_points.txt"
  for model in qwen2.5-0.5b qwen2.5-1.5b qwen2.5-3b; do
    for sequence in 1024 4096; do
      runtime_series "$model" "$sequence" fp32 || return 0
      runtime_best "$model" "$sequence" fp32 off || return 0
      status=0
      runtime_point "$model" "$sequence" "$((8192 / sequence))" false off fp32 8 || status=$?
      [ "$status" -lt 2 ] || return 0
      runtime_best "$model" "$sequence" fp32 on || return 0
    done
  done
  for model in qwen2.5-7b qwen2.5-3b qwen2.5-1.5b qwen2.5-0.5b; do
    for sequence in 1024 4096; do
      runtime_series "$model" "$sequence" bf16 || return 0
      runtime_best "$model" "$sequence" bf16 off || return 0
    done
  done
}
