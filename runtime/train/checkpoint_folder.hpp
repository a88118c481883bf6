// A folder of checkpoints, as DeepSpeed lays one out:
//
//   DIR/global_step100/         one checkpoint (checkpoint.hpp), never changed once it is there
//   DIR/global_step200/
//   DIR/latest                  the name of the one to go on from: "global_step200"
//   DIR/.zeroplan-checkpoints   says that the folder is ours; locked by the run that writes
//
// A checkpoint is written under a name in the making, flushed, renamed, and only then pointed to.
// At every moment `latest` names a whole one, whoever is killed.
#pragma once

#include <cstdint>
#include <string>

namespace zeroplan::runtime {

// The folder as the run that writes into it sees it. Used by rank 0 alone.
class CheckpointFolder {
 public:
  // Makes the folder where it is missing and locks it until the object goes. `keep`: how many
  // checkpoints of the run stay, 0 for all. `run`: that of the checkpoint from which the run goes
  // on; empty for a new one. Throws InputError where the folder holds what is not ours, or another
  // run is writing into it; WriteError where it cannot be made.
  CheckpointFolder(std::string folder, std::int64_t keep, std::string run);
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;
  ~CheckpointFolder();

  // Which run wrote a checkpoint: a name that is drawn where a run begins. What is of other runs is
  // never removed.
  const std::string& run() const { return run_; }

  // An empty folder to write the checkpoint's files into. Throws WriteError, as finish() does.
  std::string begin();
  // What was begun is whole and on the disk but for its name: it gets one, `latest` names it, and
  // of this run's those go that are too many, the oldest first.
  void finish(std::int64_t steps);
  // What was begun is worth nothing. Never throws.
  void abandon();

 private:
  void require_ours() const;
  void require_pointer() const;
  void lock();
  void remove_leftovers() const;
  void remove_too_many(const std::string& newest) const;

  std::string folder_;
  std::int64_t keep_ = 0;
  std::string run_;
  int lock_ = -1;
  std::string begun_;  // where the next one is written; empty between checkpoints
};

// The checkpoint's own folder behind what --resume names: a folder of checkpoints, or one
// checkpoint of it. Throws InputError where there is none.
std::string find_checkpoint(const std::string& said);

}  // namespace zeroplan::runtime
