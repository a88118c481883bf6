#include "model/engine/engine_config.hpp"

#include "model/releases.hpp"

namespace zeroplan {

void drop_what_is_ignored(EngineConfig& config) {
  if (config.stage != 1 || config.acts(ReleaseRule::stage1_reads_options)) return;
  config.overlap_comm = false;
  config.round_robin_gradients = false;
  config.contiguous_gradients = false;
}

int reduction_ranks(const EngineConfig& config) {
  const bool of_all = config.acts(ReleaseRule::mics_reduces_over_all) && !config.embedded;
  return of_all ? config.data_parallel_ranks : partition_ranks(config);
}

}  // namespace zeroplan
