// Links over TCP: a data connection between any two ranks, and a control connection of every rank
// to rank 0, which a thread watches.
//
// Control carries a heartbeat every two seconds, the reason of a failure, and the word that a rank
// is done. A connection that closes without that word, or twelve seconds of silence, is the end of
// a rank; rank 0 tells the others which one and why, and all transfers throw.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "runtime/processes/links.hpp"
#include "runtime/processes/tcp_rendezvous.hpp"

namespace zeroplan::runtime {

// Called by the watching thread when the group failed and the owner of the Links has taken no
// notice for TcpTimes::unnoticed: it computes between two collectives. Ends the process, as a rule.
using Abandoned = std::function<void(const std::string& reason)>;

// From the end of a machine to the end of the last rank: silence + unnoticed, below 30 s.
struct TcpTimes {
  std::chrono::milliseconds beat = std::chrono::seconds(2);
  std::chrono::milliseconds silence = std::chrono::seconds(12);  // of a rank that is given up
  std::chrono::milliseconds unnoticed = std::chrono::seconds(15);
};

std::unique_ptr<Links> tcp_links(int rank,
                                 Connections connections,
                                 Abandoned abandoned = {},
                                 const TcpTimes& times = {});

}  // namespace zeroplan::runtime
