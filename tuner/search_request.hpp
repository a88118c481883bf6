// What the user says about the space of a search: --fix key=value, --search key=lo..hi or
// key=a,b,c.
//
// Keys are those of ds_config.json, by pointer (/zero_optimization/stage), by its end
// (offload_optimizer.device) or by name alone where one key has it (reduce_bucket_size), and the
// workload's micro_batch_size, gradient_accumulation_steps and activation_checkpointing. Values are
// checked against the knob table. Checked by tests/unit/tuner/search_space_test.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/knobs/ds_config.hpp"
#include "model/workload.hpp"

namespace zeroplan::tuner {

// As on the command line.
struct SearchWords {
  std::vector<std::string> fix;     // "stage=3"
  std::vector<std::string> search;  // "reduce_bucket_size=1e7..5e8", "micro_batch_size=1,2,4"
};

// The same, read. Values of one key in ascending order for ranges, as said for lists.
struct SearchRequest {
  std::map<Knob, std::vector<KnobValue>> knobs;  // one value: fixed
  std::vector<std::int64_t> micro_batches;       // empty: nothing was said
  std::vector<std::int64_t> accumulations;
  std::vector<ActivationCheckpointing> checkpointings;
  std::optional<std::int64_t> global_batch;  // /train_batch_size
};

// Throws InputError with everything that is wrong: unknown keys (with the nearest name), values
// outside a key's range, ranges of what has no order, keys that are said twice.
SearchRequest read_request(const SearchWords& words);

}  // namespace zeroplan::tuner
