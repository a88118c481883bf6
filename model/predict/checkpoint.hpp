// What saving, converting and loading a checkpoint takes: files and their bytes, memory of a GPU
// and of a node, seconds, and on which ranks the run can go on.
//
// Three kinds: native, what DeepSpeed's engine.save_checkpoint writes and load_checkpoint reads;
// the model, 16-bit weights that others can read; universal, what DeepSpeed's
// checkpoint/ds_to_universal.py makes of a native one so that other ranks can read it.
// Bytes of tensors are the engine's own buffers (model/engine/buffers.hpp), because torch.save
// writes whole storages: a flat buffer is written once with its padding, however many parameters
// are views of it. Checked by tests/engine/checkpoint_recorded_test.cpp against files that
// DeepSpeed wrote (tests/reference/checkpoints).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/checkpoint_files.hpp"

namespace zeroplan {

enum class Resume { directly, by_universal, never };
inline constexpr EnumNames<Resume, 3> kResumeNames{{"directly", "by_universal", "never"}};

// Writing or reading one kind. Peaks hold what is there between steps, too.
struct CheckpointWork {
  Bytes bytes;                     // of the node that moves most
  Bytes gpu_peak;                  // of a rank
  Bytes host_peak;                 // of a node
  std::optional<Seconds> seconds;  // absent where no storage's rate is known
};

struct CheckpointPrediction {
  CheckpointContent native;
  std::optional<CheckpointContent> model;
  std::optional<CheckpointContent> universal;
  Phrase model_problem;      // why there is no `model`
  Phrase universal_problem;  // why there is no `universal`
  bool native_written_twice = false;
  bool exclude_frozen = false;
  CheckpointWork saving;         // native and the model, as the frontend saves them
  CheckpointWork loading;        // native, by as many ranks
  CheckpointWork converting;     // by one process with the script's own numbers of workers
  Bytes converting_disk_peak;    // what the conversion writes beside the native files, at its peak
  CheckpointWork loading_other;  // universal, by as many ranks as the plan has
  Resume other_ranks = Resume::never;
  Phrase resume_reason;
  std::optional<BytesPerSecond> bandwidth;  // that seconds were made with, per node
};

// Nothing for engines other than DeepSpeed. Pure; docs/model.md [K1] to [K5].
std::optional<CheckpointPrediction> predict_checkpoint(const Plan& plan,
                                                       const CheckpointOptions& options = {});

}  // namespace zeroplan
