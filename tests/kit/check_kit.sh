#!/usr/bin/env bash
# Writes kits for scenarios that differ in launchers, model and frontend, and checks every file with the
# tool that its readers would use, and so what scripts/gpu.sh starts: check_kit.sh PROGRAM
# A tool that is missing is said and skipped.
set -euo pipefail
program=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
  echo "FAILED: $*" >&2
  failed=1
}
have() {
  command -v "$1" >/dev/null && return 0
  echo "SKIPPED: $1 IS NOT INSTALLED" >&2
  return 1
}
kit() {
  local name=$1
  shift
  "$program" fit "$@" -o "$work/$name" >/dev/null 2>"$work/$name.log" || fail "fit $*: $(cat "$work/$name.log")"
}

kit one_node llama-2-7b 8xA100-80G
kit two_nodes 10B 2x4xA800-80G
kit consumer llama-3.2-1b 4xRTX4090 --method lora --ckpt full
kit fsdp llama-3.2-1b 2x4xA100-80G --engine fsdp --ckpt full
kit ddp llama-3.2-1b 4xA100-80G --engine ddp --method lora
kit own_code chatglm2-6b 8xA100-80G --method lora
kit pipeline baichuan2-7b 2x4xV100-32G --frontend native --pipeline-parallel 2 --precision fp16
kit dpo llama-3.2-1b 2x4xA100-80G --trainer dpo
kit grpo llama-3.2-1b 4xA100-80G --trainer grpo --engine ddp --mbs 8
kit qlora llama-3.2-1b 4xA100-80G --method qlora --engine fsdp
kit bert bert-large-uncased 4xV100-16G --frontend native

if have shellcheck; then
  for script in "$work"/*/run.sh "$work"/*/kit/job.sbatch; do shellcheck "$script" || fail "shellcheck $script"; done
fi
if have yamllint; then
  rules='{extends: default, rules: {line-length: {max: 120}}}'
  yamllint -s -d "$rules" "$work"/*/kit/*.yaml "$work"/*/kit/*.yml "$work"/fsdp/*.yaml "$work"/ddp/*.yaml || fail "yamllint"
fi
if have python3; then
  python3 "$here/check_documents.py" "$work"/*/ || fail "the documents of a kit disagree"
fi
# A plan that no script trains: three documents, and PLAN.md says why.
kit tensor bloom-1b7 8xA100-80G --frontend native --implementation megatron --tensor-parallel 2 --precision fp16
[ "$(cd "$work/tensor" && echo *)" = "PLAN.md ds_config.json scenario.json" ] ||
  fail "a kit for tensor parallelism has $(ls "$work/tensor")"
grep -q Megatron-DeepSpeed "$work/tensor/PLAN.md" || fail "PLAN.md of tensor parallelism does not say what it lacks"
if have python3; then python3 "$here/check_hostile.py" "$program" || fail "names that mean something to a shell"; fi
# What scripts/gpu.sh asks of DeepSpeed on a GPU: zeroplan takes every scenario, or the script ends.
scripts=$here/../../scripts
if have python3; then
  python3 "$scripts/gpu_scenarios.py" --cluster 1x1xH100-80G-SXM --zeroplan "$program" -o "$work/gpu.jsonl" \
    >"$work/gpu.txt" || fail "gpu_scenarios.py"
  [ "$(wc -l <"$work/gpu.jsonl")" -ge 60 ] || fail "gpu_scenarios.py: $(cat "$work/gpu.txt")"
  python3 -c 'import ast, sys; [ast.parse(open(path).read(), path) for path in sys.argv[1:]]' "$scripts"/*.py ||
    fail "a script that Python does not read"
fi
if have shellcheck; then shellcheck "$scripts/gpu.sh" || fail "shellcheck gpu.sh"; fi
if grep -rEl '@[A-Z_]+@' "$work"; then fail "a name was left unfilled in the files above"; fi
# A kit's scenario is an input of every command.
"$program" simulate --scenario "$work/two_nodes" --json >"$work/again.json" 2>"$work/again.log" ||
  fail "simulate --scenario: $(cat "$work/again.log")"
# What fit plans for CPU ranks goes straight into verify: trained on four of them, memory as predicted.
cat >"$work/tiny.json" <<'CONFIG'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
 "max_position_embeddings": 64}
CONFIG
"$program" fit "$work/tiny.json" 1x4xcpu --engine embedded --precision fp32 --seq 32 -o "$work/embedded" \
  >/dev/null 2>"$work/embedded.log" || fail "fit for CPU ranks: $(cat "$work/embedded.log")"
"$program" verify --scenario "$work/embedded/scenario.json" --steps 2 >"$work/verify.txt" 2>"$work/verify.log" ||
  fail "verify of what fit planned: $(cat "$work/verify.txt" "$work/verify.log")"
grep -q '"schema": *"zeroplan.step/1"' "$work/again.json" || fail "simulate said nothing"
if [ "$failed" -eq 0 ]; then echo "kits: all files pass"; fi
exit "$failed"
