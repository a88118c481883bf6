#!/usr/bin/env bash
# Everything that only a machine with a GPU can do, part by part:
#   scripts/gpu.sh [--quick] [--only PART]... [--minutes N]
# parts, in this order:
#   build        with CUDA
#   tests        those labelled gpu
#   sanitizer    the same under compute-sanitizer
#   profile      zeroplan profile
#   verify       a 125M model under every stage, prediction beside measurement
#   runtime      Qwen2.5-0.5B, 1.5B and 3B by the embedded runtime, logits by chunks (--fused-loss), micro-batches up to
#                the largest in 8 steps; the fastest again in 60, with all logits at once in 8, and with CUDA graphs in 60;
#                these and 7B with bf16 masters and moments
#   pytorch      the same by PyTorch, eager and compiled (scripts/gpu_pytorch.py), and both in a table
#   rehearse     programs by `zeroplan rehearse --real-gpu`, as one rank and as ranks of several: bytes, seconds of steps
#   activations  what transformers keeps for the backward pass, on the GPU (tests/reference)
#   deepspeed    real DeepSpeed on scripts/gpu_scenarios.py's list (configs/kit/measure.py)
#   calibrate    on half of DeepSpeed's lines; validate before and after on the other half
# What is measured goes to profiles/measured/<gpu>/, with --quick to its folder quick. A part takes N minutes (9) and
# one to end in at most. At the next call sanitizer and verify go on where this commit has no result yet; runtime,
# pytorch and deepspeed where there is none, of whichever commit; build does what make finds; tests, profile,
# activations and calibrate begin anew. What failed is tried again. A part whose need is missing says so and is
# skipped. Ends with 1 where a test, the sanitizer or a program fails; a prediction that is off is a result, not a
# failure, and stands in the files.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
# shellcheck disable=SC1091
. scripts/packages.sh
PATH=$PATH:/usr/local/cuda/bin # nvcc and compute-sanitizer, where no profile has put them there

every=(build tests sanitizer profile verify runtime pytorch rehearse activations deepspeed calibrate)
usage() {
  echo "usage: scripts/gpu.sh [--quick] [--only PART]... [--minutes N]; parts: ${every[*]}" >&2
  exit 2
}
quick=no
minutes=9
wanted=()
while [ "$#" -gt 0 ]; do
  case $1 in
    --quick) quick=yes ;;
    --only)
      [[ $# -ge 2 && " ${every[*]} " == *" $2 "* ]] || usage
      wanted+=("$2")
      shift
      ;;
    --minutes)
      [[ $# -ge 2 && $2 =~ ^[1-9][0-9]*$ ]] || usage
      minutes=$2
      shift
      ;;
    *) usage ;;
  esac
  shift
done
[ "${#wanted[@]}" -gt 0 ] || wanted=("${every[@]}")

# Into a variable first: a pipe's reader that leaves early would end nvidia-smi, and pipefail the script.
cards=$(nvidia-smi -L 2>/dev/null) || cards=""
gpus=$(grep -c '^GPU' <<<"$cards") || true
if [ "$gpus" -eq 0 ]; then
  echo "scripts/gpu.sh: no GPU: nvidia-smi lists none" >&2
  exit 2
fi
product=$(nvidia-smi --query-gpu=name --format=csv,noheader)
product=${product%%$'\n'*}
out=profiles/measured/$(tr ' /' '__' <<<"$product")
[ "$quick" = no ] || out=$out/quick
commit=$(git rev-parse HEAD 2>/dev/null) || commit=unknown
cluster="1x1x$product"
programs=build/cuda/bin
zeroplan=$programs/zeroplan
tests=(cuda_kernels_gpu_tests gpu_tests)
python=${PYTHON:-python3}
# shellcheck disable=SC1091
. scripts/gpu_libraries.sh
# shellcheck disable=SC1091
. scripts/gpu_runtime.sh
mkdir -p "$out"
failed=()
for library in libcudnn libnccl libcublasLt; do find_library "$library"; done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
child=""
# shellcheck disable=SC2317,SC2329  # called by the traps
interrupted() {
  trap '' INT TERM
  if [ -n "$child" ]; then
    kill -TERM "$child" 2>/dev/null || true
    wait "$child" || true
  fi
  exit "$1"
}
trap 'interrupted 130' INT
trap 'interrupted 143' TERM

skip() { echo "SKIPPED: $*" >&2; }
# bounded COMMAND...: ends it when the part's time is up; 124 then.
deadline=0
bounded() {
  local left=$((deadline - SECONDS)) status=0
  [ "$left" -gt 0 ] || return 124
  # In the background, because a trap waits for what is in the foreground. measure.py ends its workers in the 60 s.
  timeout --kill-after=60 "$left" "$@" &
  child=$!
  wait "$child" || status=$?
  child=""
  return "$status"
}
# time_up STATUS: 137 is the kernel's too, where host memory is full.
time_up() { [ "$1" -eq 124 ] || { [ "$1" -eq 137 ] && [ "$SECONDS" -ge "$deadline" ]; }; }
# settle WHAT STATUS: what a bounded command's end means for the whole.
settle() {
  if time_up "$2"; then
    echo "$1: not done in $minutes minutes: call again with --only $part"
  elif [ "$2" -ne 0 ]; then
    failed+=("$1")
  fi
}
# The last line of a result that is whole: results of other code are not taken.
seal() { echo "commit $commit" >>"$1"; }
sealed() { grep -qsx "commit $commit" "$1"; }
has_python() { "$python" -c "import $1" >/dev/null 2>&1; }
known_card() { "$zeroplan" simulate gpt2 "$cluster" >/dev/null 2>&1; }
# Stands while the last build is not whole: older programs are not taken for it.
unfinished=build/cuda/unfinished
need() {
  if [ -f "$unfinished" ]; then
    skip "$part: the last build failed or was cut short: --only build"
    return 1
  fi
  [ -x "$1" ] && return 0
  skip "$part: $1 is not built: --only build"
  return 1
}
need_program() { need "$zeroplan"; }
need_test() { need "$programs/$1"; }

# jobs: a processor each, where nvcc has 2 GiB for each; presets have two.
jobs() {
  local processors gigabytes
  processors=$(nproc)
  gigabytes=$(awk '/^MemAvailable/ { print int($2 / 2097152) }' /proc/meminfo 2>/dev/null) || gigabytes=$processors
  [ "${gigabytes:-0}" -ge 1 ] || gigabytes=1
  echo $((processors < gigabytes ? processors : gigabytes))
}
part_build() {
  local status=0 targets=(zeroplan "${tests[@]}")
  mkdir -p build/cuda
  touch "$unfinished"
  borrow cublasLt.h cublasLt
  borrow cudnn_graph.h cudnn
  borrow nccl.h nccl
  borrow cupti.h cupti
  bounded cmake --preset cuda >"$work/cmake.txt" 2>&1 || status=$?
  if [ "$status" -ne 0 ] && ! time_up "$status"; then
    tail -n 15 "$work/cmake.txt"
    # shellcheck disable=SC2154
    echo "cmake ended with $status; what it needs beside nvcc: $zp_test_packages"
    # Without Catch2 there are no tests; what is measured needs none.
    status=0
    targets=(zeroplan)
    bounded cmake --preset cuda -DZEROPLAN_TESTS=OFF >"$work/cmake.txt" 2>&1 || status=$?
    [ "$status" -ne 0 ] || failed+=("build of the tests")
  fi
  grep '^-- GPUs:' "$work/cmake.txt" || true
  [ "$status" -ne 0 ] || bounded cmake --build --preset cuda -j "$(jobs)" --target "${targets[@]}" || status=$?
  [ "$status" -ne 0 ] || rm -f "$unfinished"
  settle build "$status"
  {
    nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.max,pcie.link.width.max --format=csv
    echo "$commit"
    date -u +%Y-%m-%dT%H:%M:%SZ
  } >"$out/machine.txt"
}

part_tests() {
  local name status
  for name in "${tests[@]}"; do
    need_test "$name" || continue
    status=0
    # Each test says when it is done: the one behind the last line is where a program hangs.
    bounded "$programs/$name" --durations yes >"$work/out.txt" 2>&1 || status=$?
    tail -n 3 "$work/out.txt"
    rm -f "$out/$name.txt.cut_short"
    if time_up "$status"; then
      mv "$work/out.txt" "$out/$name.txt.cut_short"
    else
      mv "$work/out.txt" "$out/$name.txt"
    fi
    settle "$name" "$status"
  done
}

part_sanitizer() {
  # Tests let calls of CUDA fail on purpose. Those with CUPTI are left out: it and the sanitizer want the same hooks.
  local tools=(memcheck initcheck synccheck racecheck) tool name to status
  local how=(--report-api-errors no --error-exitcode 9)
  # On one GPU: kernels that wait for each other's on several, as NCCL's, do not end where they are run one by one.
  local card=${CUDA_VISIBLE_DEVICES:-0}
  if ! command -v compute-sanitizer >/dev/null 2>&1; then
    skip "sanitizer: compute-sanitizer comes with the toolkit"
    return
  fi
  [ "$quick" = no ] || tools=(memcheck)
  for tool in "${tools[@]}"; do
    for name in "${tests[@]}"; do
      need_test "$name" || continue
      to=$out/sanitizer_${tool}_$name.txt
      if sealed "$to"; then
        echo "$tool, $name: there already"
        continue
      fi
      status=0
      bounded env CUDA_VISIBLE_DEVICES="${card%%,*}" compute-sanitizer --tool "$tool" "${how[@]}" \
        "$programs/$name" "~[cupti]" --durations yes >"$work/out.txt" 2>&1 || status=$?
      tail -n 1 "$work/out.txt"
      if [ "$status" -eq 0 ]; then
        seal "$work/out.txt"
        mv "$work/out.txt" "$to"
        rm -f "$to.failed" "$to.cut_short"
      elif time_up "$status"; then
        mv "$work/out.txt" "$to.cut_short"
      else
        mv "$work/out.txt" "$to.failed"
      fi
      settle "compute-sanitizer $tool, $name" "$status"
    done
  done
}

part_profile() {
  local less=() status=0
  need_program || return 0
  [ "$quick" = no ] || less=(--quick)
  bounded "$zeroplan" profile --device cuda "${less[@]}" -o "$work/profile.json" >"$work/out.txt" || status=$?
  if [ "$status" -eq 0 ]; then
    mv "$work/profile.json" "$out/profile.json"
    mv "$work/out.txt" "$out/profile.txt"
    tail -n 20 "$out/profile.txt"
  fi
  settle profile "$status"
}

# verify_one NAME RANKS STAGE OFFLOAD; adds to verified
verify_one() {
  local offload="" steps=20 status=0
  if sealed "$out/verify_$1.log"; then
    echo "$1: there already"
    verified+=("$1")
    return
  fi
  [ "$quick" = no ] || steps=5
  [ "$4" = none ] || offload=', "offload_optimizer": {"device": "cpu", "pin_memory": true}'
  echo "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": $3$offload}}" >"$work/ds.json"
  : >"$work/line.jsonl" # --measurement adds to a file
  rm -f "$work/trace.json"
  bounded "$zeroplan" verify "$work/config.json" --device cuda --ranks "$2" --ds-config "$work/ds.json" \
    --precision bf16 --seq 1024 --mbs 4 --steps "$steps" --measurement "$work/line.jsonl" \
    --trace "$work/trace.json" --json >"$work/verify.json" 2>"$work/verify.log" || status=$?
  case $status in
    0) echo "$1: as predicted" ;;
    3) echo "$1: off; see $out/verify_$1.json" ;;
    *)
      if ! time_up "$status"; then
        echo "$1: failed"
        tail -n 2 "$work/verify.log"
        mv "$work/verify.log" "$out/verify_$1.log.failed"
      fi
      settle "verify $1" "$status"
      return
      ;;
  esac
  mv "$work/verify.json" "$out/verify_$1.json"
  [ ! -f "$work/trace.json" ] || mv "$work/trace.json" "$out/trace_$1.json"
  mv "$work/line.jsonl" "$out/measurements_$1.jsonl"
  rm -f "$out/verify_$1.log.failed"
  seal "$work/verify.log"
  mv "$work/verify.log" "$out/verify_$1.log" # last: it says that the case is whole
  verified+=("$1")
}
part_verify() {
  local stage name verified=()
  need_program || return 0
  cat >"$work/config.json" <<'MODEL'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 768, "intermediate_size": 2048,
 "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 12, "vocab_size": 32000,
 "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "tie_word_embeddings": false}
MODEL
  for stage in 0 1 2 3; do
    verify_one "stage${stage}_1gpu" 1 "$stage" none
    [ "$gpus" -lt 2 ] || verify_one "stage${stage}_${gpus}gpus" "$gpus" "$stage" none
  done
  for stage in 2 3; do verify_one "stage${stage}_offload" 1 "$stage" cpu; done
  [ "$gpus" -ge 2 ] || verify_one "stage3_2ranks_share" 2 3 none
  [ "${#verified[@]}" -gt 0 ] || return 0
  for name in "${verified[@]}"; do cat "$out/measurements_$name.jsonl"; done >"$work/measurements.jsonl"
  mv "$work/measurements.jsonl" "$out/measurements.jsonl"
  "$zeroplan" validate "$out/measurements.jsonl" >"$out/validate.txt" || true
  head -n 12 "$out/validate.txt"
}

part_pytorch() {
  local states status=0 less=()
  need_program || return 0
  if ! has_python torch || ! has_python transformers; then
    skip "pytorch: $python has no torch or no transformers (PYTHON=... names another)"
    return
  fi
  [ "$quick" = no ] || less=(--models qwen2.5-0.5b --sequences 1024 --steps 10 --warm-up 3)
  for states in fp32 bf16; do
    status=0
    bounded "$python" scripts/gpu_pytorch.py --fork -o "$out/pytorch.jsonl" --cluster "$cluster" \
      --zeroplan "$zeroplan" --states "$states" "${less[@]}" || status=$?
    settle "pytorch, $states states" "$status"
  done
  if [ "$quick" = no ]; then
    status=0
    bounded "$python" scripts/gpu_pytorch.py --fork -o "$out/pytorch.jsonl" --cluster "$cluster" \
      --zeroplan "$zeroplan" --states bf16 --models qwen2.5-7b || status=$?
    settle "pytorch, 7B" "$status"
  fi
  [ ! -f "$out/pytorch.jsonl" ] || "$python" scripts/gpu_compare.py "$out/runtime.jsonl" "$out/pytorch.jsonl" |
    tee "$out/comparison.md"
}

# DeepSpeed compiles its Adam when it is first used. A build that was cut short leaves a lock, on which the next would
# wait for ever; nobody else builds in this folder.
build_deepspeed_ops() {
  local status=0
  TORCH_EXTENSIONS_DIR=$PWD/build/torch_extensions
  # An environment may name 9.0a, on which DeepSpeed 0.19's builder ends.
  TORCH_CUDA_ARCH_LIST=$("$python" -c 'import torch; print("{}.{}".format(*torch.cuda.get_device_capability()))') ||
    TORCH_CUDA_ARCH_LIST=""
  export TORCH_EXTENSIONS_DIR TORCH_CUDA_ARCH_LIST
  [ -n "$TORCH_CUDA_ARCH_LIST" ] || unset TORCH_CUDA_ARCH_LIST
  mkdir -p "$TORCH_EXTENSIONS_DIR"
  find "$TORCH_EXTENSIONS_DIR" -name lock -delete
  bounded "$python" -c 'from deepspeed.ops.op_builder import CPUAdamBuilder, FusedAdamBuilder
FusedAdamBuilder().load()
CPUAdamBuilder().load()' >"$work/ops.txt" 2>&1 || status=$?
  [ "$status" -ne 0 ] || return 0
  tail -n 1 "$work/ops.txt"
  cp "$work/ops.txt" "$out/deepspeed_ops.txt"
  settle "deepspeed's own kernels" "$status"
  return 1
}

part_rehearse() {
  local kind status asked
  need_program || return 0
  if ! has_python torch || ! has_python transformers || ! has_python deepspeed; then
    skip "rehearse: $python has no torch, transformers or deepspeed"
    return
  fi
  if ! known_card; then
    skip "rehearse: zeroplan knows no such GPU"
    return
  fi
  build_deepspeed_ops || return 0
  for kind in memory time ahead; do
    "$python" tests/reference/rehearsal/card_lines.py "$kind" "$product" >"$work/card_$kind.jsonl"
    asked=$work/card_$kind.jsonl
    if [ "$quick" = yes ]; then
      head -n 4 "$asked" >"$work/few.jsonl"
      asked=$work/few.jsonl
    fi
    status=0
    bounded "$python" scripts/rehearse_matrix.py "$(command -v "$python")" "$asked" --real-gpu --program "$zeroplan" \
      --to "$out/rehearsals_$kind.jsonl" || status=$?
    settle "rehearse, $kind" "$status"
  done
}

part_activations() {
  local status=0 small=()
  if ! has_python torch || ! has_python transformers; then
    skip "activations: $python has no torch or no transformers"
    return
  fi
  if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    skip "activations: this torch sees no GPU"
    return
  fi
  [ "$quick" = no ] || small=(--small)
  bounded "$python" tests/reference/record_activations.py --device cuda "${small[@]}" \
    >"$work/out.txt" 2>&1 || status=$?
  tail -n 2 "$work/out.txt"
  time_up "$status" || mv "$work/out.txt" "$out/activations.txt"
  # The small rows alone do not go into the table.
  [ "$status" -ne 0 ] || [ "$quick" = yes ] || cp tests/reference/activations.json "$out/activations.json"
  settle activations "$status"
}

part_deepspeed() {
  local status=0
  need_program || return 0
  if ! known_card; then
    skip "deepspeed: zeroplan does not know $product, whose scenarios it would choose"
    return
  fi
  if [ ! -f "$out/scenarios.jsonl" ]; then
    "$python" scripts/gpu_scenarios.py --cluster "$cluster" --zeroplan "$zeroplan" -o "$out/scenarios.jsonl" ||
      { failed+=("scenarios"); return; }
  fi
  if ! has_python deepspeed || ! has_python transformers; then
    skip "deepspeed: $python has no deepspeed or no transformers"
    return
  fi
  build_deepspeed_ops || return 0
  bounded env CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}" "$python" configs/kit/measure.py \
    "$out/scenarios.jsonl" --ranks 1 --fork -o "$out/deepspeed.jsonl" --logs "$out/deepspeed_logs" --timeout 240 --once ||
    status=$?
  settle "deepspeed, see $out/deepspeed_logs" "$status"
}

part_calibrate() {
  local lines=$out/deepspeed.jsonl half status=0
  need_program || return 0
  if [ ! -s "$lines" ] || [ "$(wc -l <"$lines")" -lt 8 ]; then
    skip "calibrate: fewer than 8 lines in $lines: --only deepspeed"
    return
  fi
  # The list was shuffled when it was made.
  awk 'NR % 2 == 1' "$lines" >"$out/calibrate_on.jsonl"
  awk 'NR % 2 == 0' "$lines" >"$out/validate_on.jsonl"
  half=$out/validate_on.jsonl
  bounded "$zeroplan" calibrate "$out/calibrate_on.jsonl" -o "$work/calibrated.json" >"$work/out.txt" || status=$?
  case $status in 0 | 4) ;; *) settle calibrate "$status"; return ;; esac
  [ ! -f "$work/calibrated.json" ] || mv "$work/calibrated.json" "$out/calibrated.json"
  mv "$work/out.txt" "$out/calibrate.txt"
  "$zeroplan" validate "$half" >"$out/validate_before.txt" || true
  "$zeroplan" validate "$half" --profile "$out/calibrated.json" >"$out/validate_calibrated.txt" || true
  if [ -f "$out/profile.json" ]; then
    "$zeroplan" validate "$half" --profile "$out/profile.json" >"$out/validate_profiled.txt" || true
  fi
  for half in before calibrated profiled; do
    [ ! -f "$out/validate_$half.txt" ] || { echo "$half:"; head -n 12 "$out/validate_$half.txt"; }
  done
}

for part in "${every[@]}"; do
  [[ " ${wanted[*]} " == *" $part "* ]] || continue
  echo "== $part"
  deadline=$((SECONDS + 60 * minutes))
  "part_$part"
done
echo "written to $out"
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
