// Checkpoints: a folder with the weights (model.safetensors, as Hugging Face names them), Adam's
// moments (optimizer.safetensors) and where the run stands (state.json). Tensors are whole, so that
// a run goes on under another stage or number of ranks.
//
// A checkpoint is written under a temporary name, flushed to the disk and renamed; the one before
// goes after that. state.json holds size and CRC-32 of the other two files.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/engine/rank_engine.hpp"

namespace zeroplan::runtime {

struct Progress {
  std::int64_t steps = 0;  // of the run, skipped ones included
  std::int64_t rows = 0;   // read so far by all ranks
};

// All ranks call it together; rank 0 writes. One parameter at a time is whole in host memory.
// Where writing fails, rank 0 throws WriteError, having removed what it wrote; the others hear of
// it when that rank fails. The checkpoint before stays.
void save_checkpoint(const std::string& folder,
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

// Throws InputError where files are missing, are not what was written, or do not fit the model.
Checkpoint open_checkpoint(const std::string& folder, const Model& model);

// Weights alone, from a .safetensors file with the model's names.
ValueReader open_weights(const std::string& file, const Model& model);

}  // namespace zeroplan::runtime
