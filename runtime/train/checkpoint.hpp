// A checkpoint: a folder with the weights (model.safetensors, as Hugging Face names them), Adam's
// moments (optimizer.safetensors) and where the run stands (state.json). Tensors are whole, so that
// a run goes on under another stage or number of ranks.
//
// state.json holds size and CRC-32 of the other two files, and a CRC-32 of itself.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/engine/rank_engine.hpp"
#include "runtime/train/checkpoint_state.hpp"

namespace zeroplan::runtime {

class CheckpointFolder;

// All ranks call it together; rank 0 writes, and has the folder, the others null. One parameter at
// a time is whole in host memory. Where writing fails, rank 0 throws WriteError, having removed
// what it wrote; the others hear of it when that rank fails. The checkpoints before stay.
void save_checkpoint(CheckpointFolder* folder,
                     const RankEngine& engine,
                     const Model& model,
                     const Progress& progress,
                     Communicator& group,
                     Memory& memory);

struct Checkpoint {
  Progress progress;
  ValueReader weights;
  ResumedState state;
};

// `folder`: a checkpoint, or a folder of checkpoints (checkpoint_folder.hpp), of which the latest
// is opened. Throws InputError where files are missing, are not what was written, or do not fit the
// model.
Checkpoint open_checkpoint(const std::string& folder, const Model& model);

// Throws InputError with every key in which `curve` is not what the checkpoint's run had: from here
// on it would be another run. `folder` for the message.
void require_same_curve(const Checkpoint& checkpoint,
                        const Fingerprint& curve,
                        const std::string& folder);

// Weights alone, from a .safetensors file with the model's names.
ValueReader open_weights(const std::string& file, const Model& model);

}  // namespace zeroplan::runtime
