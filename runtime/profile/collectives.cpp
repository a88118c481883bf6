// The embedded runtime's collectives between ranks of this process, by kind and size.
#include <algorithm>
#include <barrier>
#include <string>
#include <utility>
#include <vector>

#include "runtime/collectives/in_process.hpp"
#include "runtime/profile/kernel_cases.hpp"
#include "runtime/profile/machine_profile.hpp"

namespace zeroplan::runtime {
namespace {

// Seconds of each kept round, on rank 0; every rank does the same number of rounds.
std::vector<double> rounds(
    CollectiveKind kind, int ranks, std::int64_t bytes, DType dtype, const Repetition& repetition) {
  const std::int64_t share = bytes / width(dtype) / ranks;
  const std::int64_t whole = share * ranks;
  const std::int64_t count = repetition.discard + repetition.least;
  auto communicators = in_process_ranks(ranks);
  std::vector<double> kept;
  std::barrier<> ready(ranks);
  run_in_process(communicators, [&](int rank) {
    const auto size = static_cast<std::size_t>(whole * width(dtype));
    std::vector<std::byte> input(size, std::byte{0x3f});  // 0.75 in either format, nearly
    std::vector<std::byte> output(size);
    Exchange exchange;
    exchange.kind = kind;
    exchange.dtype = dtype;
    exchange.elements = Elements::of(kind == CollectiveKind::all_reduce ? whole : share);
    exchange.input = input.data();
    exchange.output = output.data();
    Communicator& communicator = *communicators[static_cast<std::size_t>(rank)];
    Repetition same;  // as many on every rank
    same.discard = repetition.discard;
    same.least = same.most = count - repetition.discard;
    same.long_enough = Seconds::zero();
    communicator.barrier();  // all have come, or none goes on: `ready` knows nothing of failures
    try {
      std::vector<double> seconds =
          repeat([&] { communicator.run(exchange); }, same, [&] { ready.arrive_and_wait(); });
      if (rank == 0) kept = std::move(seconds);
    } catch (...) {
      ready.arrive_and_drop();
      throw;
    }
  });
  return kept;
}

}  // namespace

std::vector<ProfileRow> measure_collectives(const ProfileScale& scale) {
  constexpr std::pair<CollectiveKind, const char*> kKinds[] = {
      {CollectiveKind::all_reduce, "all_reduce"},
      {CollectiveKind::all_gather, "all_gather"},
      {CollectiveKind::reduce_scatter, "reduce_scatter"}};
  constexpr std::int64_t kSmallest = 1 << 12;
  std::vector<ProfileRow> rows;
  const auto measure =
      [&](CollectiveKind kind, const char* what, int ranks, std::int64_t bytes, DType dtype) {
        rows.push_back(
            {std::string("in_process_") + what,
             {{"ranks", Json(ranks)}, {"bytes", Json(bytes)}, {"dtype", Json(text_of(dtype))}},
             "s",
             spread_of(rounds(kind, ranks, bytes, dtype, scale.repetition),
                       scale.repetition.discard)});
      };
  for (const int ranks : {2, 4}) {
    for (const auto& [kind, what] : kKinds) {
      for (std::int64_t bytes = kSmallest; bytes <= scale.largest_message; bytes *= 16) {
        measure(kind, what, ranks, bytes, DType::fp32);
      }
    }
    // Sums of 16-bit numbers convert them.
    for (const std::int64_t part : {256, 16}) {
      const std::int64_t bytes = std::max(kSmallest, scale.largest_message / part);
      measure(CollectiveKind::all_reduce, "all_reduce", ranks, bytes, DType::bf16);
    }
  }
  return rows;
}

}  // namespace zeroplan::runtime
