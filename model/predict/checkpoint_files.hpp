// Which files a checkpoint has, of how many bytes, and who writes each: DeepSpeed's own, the
// model's weights alone, and what ds_to_universal.py makes of the former. What writing and reading
// them takes: checkpoint.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/enum_names.hpp"
#include "base/phrase.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {

// Who writes a file.
enum class CheckpointWriter {
  rank_0,             // of all ranks
  first_replica,      // the first data-parallel rank of each pipeline stage and tensor rank
  every_rank,         // each its own
  first_shard_group,  // MiCS: the ranks of the first shard group, each its own
  converter           // ds_to_universal.py, one process of the user's
};
inline constexpr EnumNames<CheckpointWriter, 5> kCheckpointWriterNames{
    {"rank_0", "first_replica", "every_rank", "first_shard_group", "converter"}};

// Files of one kind. `{rank}`, `{stage}` and `{parameter}` stand for what tells them apart.
struct CheckpointFiles {
  std::string path;  // below the folder that save_checkpoint gets, or the Trainer's checkpoint-N
  CheckpointWriter written_by = CheckpointWriter::rank_0;
  std::int64_t files = 1;
  Bytes tensors;              // of one: of the storages in it
  std::int64_t storages = 0;  // how many
  Bytes bytes;                // of one: with what torch's zip and pickle, or a header, add
  Bytes total;                // of all
};

// One kind of a checkpoint, complete.
struct CheckpointContent {
  std::vector<CheckpointFiles> files;
  Bytes total() const;
};

struct CheckpointOptions {
  // engine.save_checkpoint(exclude_frozen_parameters=). Unspecified: true with
  // adapters, as the Trainer passes it, else false, DeepSpeed's default.
  std::optional<bool> exclude_frozen;
  // What the folder's storage writes and reads, per node. Unspecified: the node's NVMe.
  std::optional<BytesPerSecond> bandwidth;
};

// What DeepSpeed writes (docs/model.md [K1]). Precondition: workload.engine is deepspeed.
CheckpointContent native_checkpoint(const Plan& plan, const CheckpointOptions& options);

// The weights alone ([K2]): engine.save_16bit_model of a loop of the user's own, save_pretrained
// under the Trainer. Nothing where stage 3 does not gather them. Same precondition.
std::optional<CheckpointContent> model_checkpoint(const Plan& plan,
                                                  const CheckpointOptions& options);

// What ds_to_universal.py makes of native_checkpoint() ([K3]). Precondition: no
// universal_problem().
CheckpointContent universal_checkpoint(const Plan& plan, const CheckpointOptions& options);

// Why ds_to_universal.py cannot convert the plan's checkpoints; empty where it can.
Phrase universal_problem(const Plan& plan);

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
Phrase model_problem(const Plan& plan);

// save_pretrained's max_shard_size.
Bytes largest_model_shard(const Plan& plan);

}  // namespace zeroplan
