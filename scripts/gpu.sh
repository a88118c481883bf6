#!/usr/bin/env bash
# Everything that only a machine with a GPU can do, in one command:
#   scripts/gpu.sh [--quick]
# builds with CUDA, runs the tests labelled gpu, runs them again under compute-sanitizer, profiles the
# machine, trains a 125M model under every stage with prediction beside measurement, and writes what
# was measured to profiles/measured/<gpu>/. Ends with 1 where a test or the sanitizer fails; a prediction
# that is off is a result, not a failure, and stands in the files.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
quick=no
case "${1:-}" in
  "") ;;
  --quick) quick=yes ;;
  *) echo "usage: scripts/gpu.sh [--quick]" >&2; exit 2 ;;
esac

if ! command -v nvidia-smi >/dev/null 2>&1 || ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  echo "scripts/gpu.sh: no GPU: nvidia-smi lists none" >&2
  exit 2
fi
gpus=$(nvidia-smi -L | grep -c '^GPU')
name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr ' /' '__')
out=profiles/measured/$name
mkdir -p "$out"
failed=()

echo "== build"
cmake --preset cuda >/dev/null
cmake --build --preset cuda --target zeroplan gpu_tests
zeroplan=build/cuda/bin/zeroplan
tests=build/cuda/bin/gpu_tests
{
  nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.max,pcie.link.width.max --format=csv
  git rev-parse HEAD 2>/dev/null || true
  date -u +%Y-%m-%dT%H:%M:%SZ
} >"$out/machine.txt"

echo "== gpu tests"
"$tests" 2>&1 | tee "$out/gpu_tests.txt" | tail -n 3 || failed+=("gpu tests")

if command -v compute-sanitizer >/dev/null 2>&1; then
  tools="memcheck initcheck synccheck racecheck"
  [ "$quick" = no ] || tools=memcheck
  for tool in $tools; do
    echo "== compute-sanitizer $tool"
    compute-sanitizer --tool "$tool" --error-exitcode 9 "$tests" >"$out/sanitizer_$tool.txt" 2>&1 ||
      failed+=("compute-sanitizer $tool")
  done
else
  echo "compute-sanitizer not found: install it with the toolkit" >&2
  failed+=("compute-sanitizer is missing")
fi

echo "== profile"
less=()
[ "$quick" = no ] || less=(--quick)
"$zeroplan" profile "${less[@]}" -o "$out/profile.json" || failed+=("profile")

model=$(mktemp -d)
trap 'rm -rf "$model"' EXIT
cat >"$model/config.json" <<'MODEL'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 768, "intermediate_size": 2048,
 "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 12, "vocab_size": 32000,
 "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "tie_word_embeddings": false}
MODEL
steps=20
[ "$quick" = no ] || steps=5
# verify NAME RANKS STAGE OFFLOAD: prediction beside measurement.
verify() {
  local offload=""
  [ "$4" = none ] || offload=', "offload_optimizer": {"device": "cpu", "pin_memory": true}'
  echo "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": $3$offload}}" >"$model/ds.json"
  local status=0
  "$zeroplan" verify "$model/config.json" --device cuda --ranks "$2" --ds-config "$model/ds.json" \
    --precision bf16 --seq 1024 --mbs 4 --steps "$steps" --measurement "$out/measurements.jsonl" \
    --trace "$out/trace_$1.json" --json >"$out/verify_$1.json" 2>"$out/verify_$1.log" || status=$?
  case "$status" in
    0) echo "$1: as predicted" ;;
    3) echo "$1: off; see $out/verify_$1.json" ;;
    *) echo "$1: failed"; tail -n 2 "$out/verify_$1.log"; failed+=("verify $1") ;;
  esac
}
echo "== verify"
rm -f "$out/measurements.jsonl"
for stage in 0 1 2 3; do
  verify "stage${stage}_1gpu" 1 "$stage" none
  [ "$gpus" -lt 2 ] || verify "stage${stage}_${gpus}gpus" "$gpus" "$stage" none
done
for stage in 2 3; do verify "stage${stage}_offload" 1 "$stage" cpu; done
if [ "$gpus" -lt 2 ]; then verify "stage3_2ranks_share" 2 3 none; fi

echo "== validate"
"$zeroplan" validate "$out/measurements.jsonl" | tee "$out/validate.txt" || true
echo "written to $out"
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
