// The part of replay_reduce about memory: what the engine's optimizer object holds at the recorded
// moments.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "evidence/recorded_engine.hpp"
#include "evidence/replay_mismatch.hpp"
#include "model/engine/buffers.hpp"
#include "model/engine/partition.hpp"

namespace zeroplan::evidence {

class BufferReplay {
 public:
  BufferReplay(const Json& recording, const RecordedEngine& engine);

  void compare_initialised(std::vector<ReplayMismatch>& out);
  // The moments inside and after a step, in order; `skipped`: the step ended at its overflow check.
  void compare_step(std::size_t step, bool skipped, std::vector<ReplayMismatch>& out);

 private:
  // A storage as text: path numel dtype bytes pinned.
  using Lines = std::vector<std::string>;

  void follow(const Json& event);  // stage 3: which weights are gathered
  void compare(const Json* recorded,
               const std::string& what,
               std::size_t step,
               EngineMoment moment,
               std::vector<ReplayMismatch>& out);
  Lines predicted(EngineMoment moment) const;
  void add_buffer(const EngineBuffer& buffer, EngineMoment moment, Lines& lines) const;
  std::string in_sub_group(int parameter) const;
  bool is_swap_pool(const Json& buffer) const;
  int optimizer_group(int parameter) const;
  void add_gathered(Lines& lines) const;
  void forgive_reused_addresses(const Lines& predicted_lines, Lines& found) const;
  std::int64_t resident_elements() const;

  const Json& recording_;
  const RecordedEngine& engine_;
  std::vector<EngineBuffer> buffers_;
  std::vector<int> persistent_;
  std::vector<SubGroup> sub_groups_;
  bool stepped_ = false;           // an optimizer step was taken, not skipped
  std::map<int, Bytes> gathered_;  // stage 3: parameter -> storage of its gathered weights
};

}  // namespace zeroplan::evidence
