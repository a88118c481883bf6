#include "runtime/train/agreement.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "runtime/data/fnv1a.hpp"

namespace zeroplan::runtime {
namespace {

constexpr std::size_t kMostKeys = 8;    // in a message
constexpr std::size_t kMostRanks = 16;  // in a list of them

// What stands for a fingerprint as long as all are the same.
struct Summary {
  std::uint64_t hash = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Summary&) const = default;
};

// `size` bytes of every rank, one behind the other.
std::vector<char> gathered(Communicator& group, const void* own, std::size_t size) {
  std::vector<char> all(size * static_cast<std::size_t>(group.ranks()));
  group.run({.kind = CollectiveKind::all_gather,
             .dtype = DType::uint8,
             .elements = Elements::of(static_cast<std::int64_t>(size)),
             .input = static_cast<const std::byte*>(own),
             .output = reinterpret_cast<std::byte*>(all.data())});
  return all;
}

std::vector<Summary> summaries(Communicator& group, const std::string& text) {
  Fnv1a hash;
  hash.add_text(text);
  const Summary own{.hash = hash.value(), .bytes = text.size()};
  const std::vector<char> all = gathered(group, &own, sizeof own);
  std::vector<Summary> result(static_cast<std::size_t>(group.ranks()));
  std::memcpy(result.data(), all.data(), all.size());
  return result;
}

std::string list_of(const std::vector<std::size_t>& ranks) {
  const std::span<const std::size_t> shown(ranks.data(), std::min(ranks.size(), kMostRanks));
  const std::size_t rest = ranks.size() - shown.size();
  const std::string more = rest == 0 ? "" : fmt::format(" and {} more", rest);
  return fmt::format("rank {}{}", fmt::join(shown, ", "), more);
}

// "0 on rank 0, 1, 3 and 7 on rank 2"
std::string values_of(const std::vector<Fingerprint>& by_rank, const std::string& key) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> values;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const std::string* found = by_rank[rank].find(key);
    const std::string value = found != nullptr ? *found : "nothing";
    const auto same = [&](const auto& one) { return one.first == value; };
    auto at = std::find_if(values.begin(), values.end(), same);
    if (at == values.end()) at = values.insert(values.end(), {value, {}});
    at->second.push_back(rank);
  }
  std::string text;
  for (const auto& [value, ranks] : values) {
    if (!text.empty()) text += " and ";
    text += value + " on " + list_of(ranks);
  }
  return text;
}

}  // namespace

std::string disagreement(const std::vector<Fingerprint>& by_rank) {
  std::vector<std::string> keys;
  for (const Fingerprint& other : by_rank) {
    for (const FingerprintDifference& one : differences(by_rank.front(), other)) {
      if (std::find(keys.begin(), keys.end(), one.key) == keys.end()) keys.push_back(one.key);
    }
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(keys.size(), kMostKeys); ++i) {
    text += fmt::format("{}{} is {}", i == 0 ? "" : "; ", keys[i], values_of(by_rank, keys[i]));
  }
  if (keys.size() > kMostKeys) text += fmt::format("; and {} more", keys.size() - kMostKeys);
  return text;
}

void require_agreement(Communicator& group, const Fingerprint& own) {
  const std::string text = own.text();
  const std::vector<Summary> all = summaries(group, text);
  const bool same =
      std::all_of(all.begin(), all.end(), [&](const Summary& one) { return one == all.front(); });
  if (same) return;
  std::uint64_t most = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    most = std::max(most, all[rank].bytes);
    if (all[rank].bytes > Fingerprint::kLongestText) {
      throw CollectiveError(fmt::format("rank {} sends no fingerprint of a run", rank));
    }
  }
  std::string padded = text;
  padded.resize(most, '\n');
  const std::vector<char> texts = gathered(group, padded.data(), most);
  std::vector<Fingerprint> by_rank;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string_view theirs(texts.data() + rank * most, all[rank].bytes);
    auto read = Fingerprint::parse(theirs);
    if (!read) throw CollectiveError(fmt::format("rank {} sends no fingerprint of a run", rank));
    by_rank.push_back(std::move(*read));
  }
  throw CollectiveError("the ranks do not run the same: " + disagreement(by_rank));
}

}  // namespace zeroplan::runtime
