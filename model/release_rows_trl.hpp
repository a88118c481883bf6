// Rows of the table of releases: TRL, accelerate. In the order of ReleaseRule (releases.hpp).
#pragma once

#include <array>

#include "model/releases.hpp"

namespace zeroplan::release_tables {

inline constexpr std::array kTrlRows{
    ReleaseRow{ReleaseRule::trl_rewrites_dpo,
               Package::trl,
               {0, 29, 0},
               {},
               "DPOTrainer holds the model's outputs until its loss is returned, and measures the "
               "entropy of the logits",
               "trl/trainer/dpo_trainer.py:_compute_loss of 0.29.0; concatenated_forward of 0.28"},
    ReleaseRow{ReleaseRule::trl_copies_shifted_logits,
               Package::trl,
               {0, 29, 0},
               {1, 6, 0},
               "DPOTrainer makes a contiguous copy of the logits without the last position",
               "trl/trainer/dpo_trainer.py:_compute_loss of 0.29.0 and 1.5.0"},
    ReleaseRow{ReleaseRule::trl_scores_by_rows,
               Package::trl,
               {0, 13, 0},
               {1, 14, 0},
               "log-probabilities of tokens are taken row by row, in the logits' format",
               "trl/trainer/utils.py:selective_log_softmax"},
    ReleaseRow{ReleaseRule::trl_scores_in_kernel,
               Package::trl,
               {1, 14, 0},
               {1, 15, 0},
               "one Triton kernel reads the logits and leaves a number a token",
               "trl/trainer/utils.py:selective_log_softmax_and_entropy of 1.14.0"},
    ReleaseRow{ReleaseRule::trl_scores_in_chunks,
               Package::trl,
               {1, 15, 0},
               {},
               "logits exist in tiles of 4,096 tokens and 32,768 words alone, of completions only",
               "trl/kernels/chunked_logprob.py, trl/trainer/utils.py:add_fused_lm_head of 1.15.0"},
    ReleaseRow{ReleaseRule::trl_checkpoints_by_default,
               Package::trl,
               {0, 22, 0},
               {},
               "TRL's trainers checkpoint activations unless gradient_checkpointing is false",
               "trl/trainer/dpo_config.py of 0.22.0, trl/trainer/base_config.py of 1.16.0"},
    ReleaseRow{
        ReleaseRule::trl_checkpoints_without_reentrance,
        Package::trl,
        {0, 28, 0},
        {},
        "trainers of preferences and rewards checkpoint with use_reentrant=False unless told "
        "otherwise, beside transformers 4, too",
        "trl/trainer/dpo_trainer.py:DPOTrainer.__init__ of 0.28.0"},
    ReleaseRow{
        ReleaseRule::trl_forces_reentrance,
        Package::trl,
        {1, 9, 0},
        {},
        "with adapters at ZeRO stage 3 checkpointing is reentrant, whatever the arguments say",
        "trl/trainer/dpo_trainer.py, kto_trainer.py, grpo_trainer.py of 1.9.0; trl#2514"},
    ReleaseRow{ReleaseRule::trl_keeps_four_bits,
               Package::trl,
               {1, 4, 0},
               {},
               "beside four-bit weights adapters are cast to bf16 and all else stays as it was "
               "loaded, where prepare_model_for_kbit_training() made it fp32",
               "trl/trainer/dpo_trainer.py, grpo_trainer.py, experimental/kto/kto_trainer.py of "
               "1.3.0 and 1.4.0"},
    ReleaseRow{ReleaseRule::trl_keeps_adapters_narrow,
               Package::trl,
               {1, 7, 0},
               {},
               "at ZeRO stage 3 adapters beside weights that are not quantised keep the model's "
               "format",
               "trl/trainer/sft_trainer.py, dpo_trainer.py, grpo_trainer.py of 1.7.0; trl#6091"},
    ReleaseRow{
        ReleaseRule::trl_refuses_reference_with_adapters,
        Package::trl,
        {},
        {0, 28, 0},
        "DPOTrainer refuses a reference model beside adapters unless force_use_ref_model says so",
        "trl/trainer/dpo_trainer.py:DPOTrainer.__init__ of 0.12.2 and 0.24.0"},
    ReleaseRow{ReleaseRule::trl_has_ppo,
               Package::trl,
               {0, 12, 0},
               {1, 13, 0},
               "there is a PPOTrainer that trains policy and value model in one engine",
               "trl/trainer/ppo_trainer.py of 0.12.2 to 0.28; trl/experimental/ppo of 0.27.2 to "
               "1.12.0, gone in 1.13.0"},
    ReleaseRow{ReleaseRule::trl_penalises_grpo,
               Package::trl,
               {},
               {0, 19, 0},
               "GRPO's beta is 0.04 unless it is said, which takes a reference model",
               "trl/trainer/grpo_config.py of 0.18.2 and 0.19.1"},
    ReleaseRow{ReleaseRule::trl_counts_prompts,
               Package::trl,
               {},
               {0, 15, 0},
               "GRPO's batch on a device counts prompts, each of num_generations completions",
               "trl/trainer/grpo_trainer.py:_prepare_inputs of 0.14.0, RepeatRandomSampler of "
               "0.15.2"},
    ReleaseRow{
        ReleaseRule::trl_compares_all_logits,
        Package::trl,
        {1, 14, 0},
        {},
        "GKDTrainer compares whole logits at every position but the last, and takes those of "
        "the completions out of the result",
        "trl/experimental/gkd/gkd_trainer.py:compute_loss of 1.13.0, 1.14.0 and 1.16.0"},
    // --- accelerate ---
    ReleaseRow{
        ReleaseRule::casts_frozen_for_fully_shard,
        Package::accelerate,
        {1, 6, 0},
        {1, 13, 0},
        "under FSDP2 with mixed precision the whole module is cast to fp32, frozen weights too",
        "accelerate/utils/fsdp_utils.py:fsdp2_prepare_model of 1.6.0 to 1.12.0; pull request "
        "3848"},
    ReleaseRow{
        ReleaseRule::misses_upcast_for_fully_shard,
        Package::accelerate,
        {1, 13, 0},
        {1, 14, 0},
        "under FSDP2 with mixed precision what is cast to fp32 is thrown away: weights that were "
        "loaded in 16 bits are trained in 16 bits",
        "accelerate/utils/fsdp_utils.py:fsdp2_prepare_model of 1.12.0 to 1.14.0"},
};

}  // namespace zeroplan::release_tables
