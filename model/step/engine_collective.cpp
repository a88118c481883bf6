#include "model/step/engine_collective.hpp"

namespace zeroplan {

std::optional<Collective> collective_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return Collective::all_reduce;
    case CollectiveKind::reduce_scatter:
      return Collective::reduce_scatter;
    case CollectiveKind::all_gather:
      return Collective::all_gather;
    case CollectiveKind::reduce:  // a ring to one rank moves what a broadcast from it does
    case CollectiveKind::broadcast:
      return Collective::broadcast;
    case CollectiveKind::all_to_all:
      return Collective::all_to_all;
    case CollectiveKind::barrier:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace zeroplan
