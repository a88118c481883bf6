// state.json of a checkpoint: where the run stands and what its files were, as text and back.
// Whatever a file says, what is read is within bounds.
//
//   {"schema": "zeroplan.checkpoint/2", "run": ..., "steps": ..., "rows": ..., "updates": ...,
//    "loss_scaler": {...} or null, "curve": {key: value}, "files": {...}, "crc32": of all before
//    it}
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "runtime/data/disk_file.hpp"
#include "runtime/engine/rank_engine.hpp"
#include "runtime/train/fingerprint.hpp"

namespace zeroplan::runtime {

inline constexpr const char* kStateFile = "state.json";
// state.json first: without it the others are no checkpoint.
inline constexpr std::array<const char*, 3> kCheckpointFiles = {
    kStateFile, "model.safetensors", "optimizer.safetensors"};

struct Progress {
  std::int64_t steps = 0;  // of the run, skipped ones included
  std::int64_t rows = 0;   // read so far by all ranks
  std::string run;         // CheckpointFolder::run() of who wrote it; empty at the start
  Fingerprint curve;       // what decides about losses to come; empty where nobody said it
};

struct CheckpointState {
  Progress progress;
  std::int64_t updates = 0;                    // steps that were not skipped
  std::optional<LossScalerState> loss_scaler;  // where it is dynamic
  FileFacts weights, moments;                  // of model.safetensors, optimizer.safetensors
};

std::string state_text(const CheckpointState& state);

// Throws InputError with `file` where the text is not what state_text() writes, or a release before
// wrote ("zeroplan.checkpoint/1": no checksum of its own, of a loss scaler the scale alone).
CheckpointState parse_state(const std::string& text, const std::string& file);

// An InputError about one of a checkpoint's files.
[[noreturn]] void refuse_checkpoint(const std::string& file,
                                    std::string pointer,
                                    Phrase expected,
                                    Phrase got);

// Whether a document says that it is one, of whatever content.
bool claims_to_be_state(const Json& document);

// Whether the folder itself has a state.json of ours, whole or not.
bool holds_checkpoint(const std::string& folder);

// The document as text with a checksum of itself behind its other members.
std::string with_own_checksum(const Json& document);

}  // namespace zeroplan::runtime
