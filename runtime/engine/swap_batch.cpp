#include "runtime/engine/swap_batch.hpp"

#include <algorithm>
#include <utility>

namespace zeroplan::runtime {

void SwapBatch::wait(std::string_view about) {
  if (tickets_.empty()) return;
  const std::vector<SwapFile::Ticket> tickets = std::exchange(tickets_, {});
  for (const SwapFile::Ticket& ticket : tickets) file_->wait(ticket);
  if (timeline_ == nullptr) return;
  Seconds begin = tickets.front()->begin;
  Seconds end = tickets.front()->end;
  for (const SwapFile::Ticket& ticket : tickets) {
    begin = std::min(begin, ticket->begin);
    end = std::max(end, ticket->end);
  }
  timeline_->span(Timeline::nvme, write_ ? "NVMe write" : "NVMe read", about, begin, end);
}

}  // namespace zeroplan::runtime
