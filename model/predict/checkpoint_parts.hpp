// Internal to model/predict/checkpoint*.cpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/predict/checkpoint.hpp"

namespace zeroplan {

class ContentList {
 public:
  void add(CheckpointFiles entry) { files_.push_back(std::move(entry)); }
  std::vector<CheckpointFiles> take() { return std::move(files_); }

 private:
  std::vector<CheckpointFiles> files_;
};

// What torch.save adds to one tensor in a file of its own, as ds_to_universal.py writes them:
// measured, tests/reference/checkpoints.
inline constexpr std::int64_t kUniversalFile = 1580;

// Of a bf16 engine's files of states (engine.py _get_zero_ckpt_prefix): "bf16_".
std::string states_prefix(const Plan& plan);

bool excludes_frozen(const Plan& plan, const CheckpointOptions& options);

// Whether files of states are one a rank, not in the module's file.
bool partitions_states(const Plan& plan);

// Of a universal checkpoint the files of single parameters.
Bytes pieces_of(const CheckpointContent& universal);

// Why no weights of the model alone are written; empty where they are.
std::string model_problem(const Plan& plan);

// save_pretrained's max_shard_size.
Bytes largest_model_shard(const Plan& plan);

}  // namespace zeroplan
