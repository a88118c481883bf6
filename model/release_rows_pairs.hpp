// Rows of the table of releases: both sides of pairs that stop before the first step. In the order
// of ReleaseRule (releases.hpp).
#pragma once

#include <array>

#include "model/releases.hpp"

namespace zeroplan::release_tables {

inline constexpr std::array kPairRows{
    ReleaseRow{ReleaseRule::has_no_sync,
               Package::deepspeed,
               {0, 16, 0},
               {},
               "the engine has no_sync, which refuses stages 2 and 3 and a step inside it",
               "runtime/engine.py:no_sync of 0.15.4 and 0.16.0"},
    ReleaseRow{ReleaseRule::enters_no_sync,
               Package::transformers,
               {4, 30, 0},
               {4, 47, 1},
               "the Trainer enters no_sync in every micro-step but the last, under DeepSpeed, too",
               "trainer.py:_inner_training_loop of 4.46.1, 4.47.0 and 4.47.1"},
    ReleaseRow{
        ReleaseRule::fills_fractions,
        Package::transformers,
        {4, 30, 0},
        {4, 45, 0},
        "the Trainer fills stage3_prefetch_bucket_size with 0.9 x hidden size squared, unrounded",
        "integrations/deepspeed.py:trainer_config_finalize of 4.44.2 and 4.45.0"},
    ReleaseRow{ReleaseRule::gathers_persistent_in_one_format,
               Package::deepspeed,
               {},
               {0, 19, 3},
               "after a step of stage 3 persistent weights are gathered into buffers of the first "
               "one's format, which fails where adapters have another",
               "runtime/zero/partition_parameters.py:_allgather_params_coalesced of 0.19.2 and "
               "0.19.3; DeepSpeed#8072"},
};

}  // namespace zeroplan::release_tables
