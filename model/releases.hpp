// What single releases of DeepSpeed, torch, transformers, TRL and accelerate do that changes
// memory, time or results: the one place where releases are told apart.
//
// Code asks `acts(rule, release)`, or `acts(rule)` of what carries its releases (EngineConfig,
// GraphOptions, Software), and compares no numbers itself. A new difference is one name here and
// one row in configs/release_rules.json, with the releases it holds for and where that was seen.
// Four tables keep releases of their own, and for the same reason as data: configs/knobs.json
// (which keys a release reads, and their defaults), configs/software.json (what was installed
// together; models' classes), software.cpp (which releases of DeepSpeed were read) and
// allocator_options.cpp (what a release reads in PYTORCH_CUDA_ALLOC_CONF).
#pragma once

#include <string_view>

#include "model/release_rule.hpp"

namespace zeroplan {

// Each row of configs/release_rules.json, which says what it is. Names say what a release that acts
// does.
enum class ReleaseRule : std::uint8_t {
  // --- DeepSpeed: when stage 3 gathers and releases weights ---
  resets_trace_in_forward,
  keeps_available_count,
  agrees_on_trace_length,
  releases_leftovers,
  attributes_recomputation,
  misses_recomputed_ends,
  leaf_modules_by_default,
  waits_after_lone_gather,
  gathers_without_copy,
  mics_reduces_over_all,
  // --- DeepSpeed: gradients ---
  stage1_reads_options,
  makes_buckets_on_demand,
  bucket_in_communication_dtype,
  waits_both_ways,
  waits_for_every_bucket,
  reuses_bucket_too_early,
  sums_whole_gradients,
  keeps_bf16_gradients,
  frees_bf16_gradients,
  sums_bf16_in_bf16,
  counts_micro_steps,
  casts_gradient_on_gpu,
  copies_gradient_in_background,
  sums_in_fp32_partition,
  // --- DeepSpeed: optimizer, masters, initialization ---
  stage1_without_zero,
  makes_states_at_step,
  pins_master_always,
  pins_master_as_asked,
  casts_weights_on_host,
  flattens_on_gpu,
  clones_cast_master,
  keeps_dtypes_under_zero_init,
  checks_bf16_overflow,
  scan_reduces_first,
  has_known_muon,
  locks_nvme_pool,
  // --- DeepSpeed: checkpoints ---
  converts_stage3,
  injects_missing_state,
  saves_swapped_states,
  // --- DeepSpeed: what its parser refuses (zeroplan lint) ---
  stage1_refuses_scaling,
  needs_pydantic_2,
  refuses_zero_loss_scale,
  sums_in_model_format,
  reads_local_accumulator,
  autotp_refuses_stage3,
  autotp_reads_plan,
  autotp_misses_zero_init,
  autotp_cuts_head,
  autotp_sums_norms,
  manages_accumulation,
  refuses_empty_buckets,
  // --- DeepSpeed: what can be installed with it, and how recordings name its parts ---
  annotates_with_list,
  imports_newer_names,
  leaves_view_at_step,
  names_weight_buffer,
  names_master_copy,
  // --- torch ---
  creates_context_in_parts,
  loads_kernels_lazily,
  has_sdpa,
  updates_lists_by_default,
  goes_with_flash_attn_2,
  sdpa_has_flash_2,
  composer_has_flash_2,
  sdpa_groups_heads,
  math_attention_in_fp32,
  safe_softmax_in_place,
  first_cudnn_attention,
  drops_old_names,
  sorts_pinned_by_size,
  keeps_lt_workspace,
  shares_lt_workspace,
  makes_workspace_per_product,
  takes_oldest_segment,
  mem_efficient_groups_heads,
  has_expandable_segments,
  infers_list_annotations,
  holds_tensors_for_nccl,
  trusts_fused_adam,
  prefers_cudnn_attention,
  triton_errs_in_delta_rule,
  // --- transformers: Trainer, loading, checkpointing ---
  maps_weights,
  copies_slices,
  fills_other_ranks,
  loads_as_stored,
  leaves_four_bits_on_gpu,
  saves_large_shards,
  ignores_sync_each_batch,
  goes_with_wide_adapters,
  goes_with_four_bit_inputs,
  trainer_has_liger,
  evaluates_in_kernel,
  rounds_steps_up,
  trainer_asks_for_fused,
  checkpoints_without_reentrance,
  checkpointing_requires_gradient,
  checkpoints_inside_hooks,
  trainer_drops_cache,
  trainer_takes_fully_shard,
  // --- transformers: attention ---
  masks_scores_once,
  llama_has_sdpa,
  shares_attention_code,
  gemma2_has_sdpa,
  scans_by_products,
  gemma2_refuses_sdpa,
  gemma_scales_in_embedding,
  masks_by_utilities,
  groups_heads_in_sdpa,
  attention_keeps_views,
  cache_concatenates,
  hybrids_keep_cache,
  // --- transformers: positions and norms ---
  llama_drops_rotary_cache,
  mistral_drops_rotary_cache,
  qwen2_drops_rotary_cache,
  shares_rotary_tables,
  gemma2_shares_rotary_tables,
  mixtral_drops_rotary_cache,
  phi3_rotates_a_part,
  olmo_turns_in_fp32,
  olmo2_weighs_in_fp32,
  // --- transformers: blocks, experts, losses ---
  decoders_share_loss,
  loss_pads_labels,
  starcoder2_keeps_activations,
  experts_undescribed,
  fuses_experts,
  // --- TRL: trainers of several models ---
  trl_rewrites_dpo,
  trl_copies_shifted_logits,
  trl_scores_by_rows,
  trl_scores_in_kernel,
  trl_scores_in_chunks,
  trl_checkpoints_by_default,
  trl_checkpoints_without_reentrance,
  trl_forces_reentrance,
  trl_keeps_four_bits,
  trl_keeps_four_bits_in_kto,
  trl_keeps_adapters_narrow,
  trl_refuses_reference_with_adapters,
  trl_has_ppo,
  trl_penalises_grpo,
  trl_counts_prompts,
  trl_compares_all_logits,
  // --- accelerate ---
  casts_frozen_for_fully_shard,
  misses_upcast_for_fully_shard,
  // --- pairs of releases that stop before the first step (model/plan/release_pairs.hpp) ---
  has_no_sync,
  enters_no_sync,
  fills_fractions,
  gathers_persistent_in_one_format,
};

struct ReleaseRow {
  ReleaseRule rule;
  Package package;
  Version since;            // the first release that does it; 0.0.0: the oldest that is described
  Version until;            // the first that does it no more; 0.0.0: all since do it
  std::string_view does;    // what such a release does, one sentence without its stop
  std::string_view source;  // where it was seen: a file and its symbol, a pull request, a recording
};

}  // namespace zeroplan
