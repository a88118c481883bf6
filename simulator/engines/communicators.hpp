// One stream for each NCCL communicator: collectives of one group run one after the other, whoever
// issued them.
//
// Source: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp: the communicator's stream waits for the
// caller's; the caller's waits for it at once, or when the handle is waited for.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "model/cost/parallel_layout.hpp"
#include "simulator/program_writer.hpp"

namespace zeroplan::simulator {

class Communicators {
 public:
  Communicators(const ParallelLayout& layout, ProgramWriter& writer)
      : layout_(layout), writer_(writer) {}

  // The group of a collective over so many ranks of the job: all of them, neighbours (hpZ and MiCS
  // shards, FSDP's hybrid ones), or those with the same place in their shard (`across`).
  CollectiveGroup group_of(std::int64_t ranks, bool across = false) const {
    return across ? layout_.group_across_shards(ranks) : layout_.shard_group(ranks);
  }

  StreamId stream_of(const CollectiveGroup& group);

  // The stream of a communicator that something was launched on; -1: nothing was.
  StreamId known_stream(const CollectiveGroup& group) const;

  // Nothing where one rank is alone.
  void launch(StreamId issuer, TaskIndex task, const CollectiveGroup& group, bool asynchronous);

  // Nothing runs beside a collective: CPU ranks do its work themselves, when they wait for it.
  void run_in_line() { in_line_ = true; }

 private:
  ParallelLayout layout_;
  ProgramWriter& writer_;
  bool in_line_ = false;
  // By ranks per node and nodes of the group.
  std::vector<std::pair<std::pair<std::int64_t, std::int64_t>, StreamId>> streams_;
};

}  // namespace zeroplan::simulator
