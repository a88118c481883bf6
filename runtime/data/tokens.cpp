#include "runtime/data/tokens.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "model/diagnostic.hpp"
#include "runtime/data/initial_weights.hpp"

namespace zeroplan::runtime {
namespace {

class RandomTokens : public TokenSource {
 public:
  RandomTokens(std::uint64_t seed, std::int64_t vocabulary, std::int64_t rows)
      : stream_(mixed(seed)), vocabulary_(static_cast<std::uint64_t>(vocabulary)), rows_(rows) {}

  void read(std::int64_t row,
            std::span<std::int64_t> ids,
            std::span<std::int64_t> labels) const override {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = token(row % rows_, i);
      labels[i] = token(row % rows_, i + 1);
    }
  }

 private:
  std::int64_t token(std::int64_t row, std::size_t at) const {
    const std::uint64_t place = (static_cast<std::uint64_t>(row) << 32) + at;
    return static_cast<std::int64_t>(mixed(stream_ ^ mixed(place)) % vocabulary_);
  }
  std::uint64_t stream_;
  std::uint64_t vocabulary_;
  std::int64_t rows_;
};

class FileTokens : public TokenSource {
 public:
  FileTokens(std::vector<std::uint16_t> tokens, std::int64_t sequence)
      : tokens_(std::move(tokens)),
        rows_((static_cast<std::int64_t>(tokens_.size()) - 1) / sequence) {}

  void read(std::int64_t row,
            std::span<std::int64_t> ids,
            std::span<std::int64_t> labels) const override {
    const auto first = static_cast<std::size_t>(row % rows_) * ids.size();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = tokens_[first + i];
      labels[i] = tokens_[first + i + 1];
    }
  }

 private:
  std::vector<std::uint16_t> tokens_;
  std::int64_t rows_;
};

class MaskedTokens : public TokenSource {
 public:
  MaskedTokens(std::unique_ptr<TokenSource> source, std::uint64_t seed, std::int64_t mask)
      : source_(std::move(source)), stream_(mixed(~seed)), mask_(mask) {}

  void read(std::int64_t row,
            std::span<std::int64_t> ids,
            std::span<std::int64_t> labels) const override {
    constexpr std::uint64_t kMasked = 15;  // of 100
    source_->read(row, ids, labels);
    bool any = false;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::uint64_t place = (static_cast<std::uint64_t>(row) << 32) + i;
      const bool last_chance = !any && i + 1 == ids.size();
      const bool masked = mixed(stream_ ^ mixed(place)) % 100 < kMasked || last_chance;
      labels[i] = masked ? ids[i] : -1;
      if (masked) ids[i] = mask_;
      any = any || masked;
    }
  }

 private:
  std::unique_ptr<TokenSource> source_;
  std::uint64_t stream_;
  std::int64_t mask_;
};

[[noreturn]] void refuse(const std::string& path, std::string expected, std::string got) {
  throw InputError(Diagnostic{.file = "command line",
                              .pointer = "--data",
                              .expected = std::move(expected),
                              .got = path + ", " + std::move(got),
                              .hint = ""});
}

}  // namespace

std::unique_ptr<TokenSource> random_tokens(std::uint64_t seed,
                                           std::int64_t vocabulary,
                                           std::int64_t rows) {
  return std::make_unique<RandomTokens>(seed, vocabulary, rows);
}

std::unique_ptr<TokenSource> masked_tokens(std::unique_ptr<TokenSource> source,
                                           std::uint64_t seed,
                                           std::int64_t mask) {
  return std::make_unique<MaskedTokens>(std::move(source), seed, mask);
}

std::unique_ptr<TokenSource> token_file(const std::string& path,
                                        std::int64_t sequence,
                                        std::int64_t vocabulary) {
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(path, "a readable file of text or tokens", "which cannot be opened");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<std::uint16_t> tokens;
  if (std::string_view(path).ends_with(".bin")) {
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
      const auto low = static_cast<unsigned char>(text[i]);
      const auto high = static_cast<unsigned char>(text[i + 1]);
      tokens.push_back(static_cast<std::uint16_t>(low | (high << 8)));
    }
  } else {
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  }
  if (static_cast<std::int64_t>(tokens.size()) <= sequence) {
    refuse(path,
           "more than " + std::to_string(sequence) + " tokens, one sequence",
           "which has " + std::to_string(tokens.size()));
  }
  const std::uint16_t largest = *std::max_element(tokens.begin(), tokens.end());
  if (largest >= vocabulary) {
    refuse(path,
           "tokens below the vocabulary of " + std::to_string(vocabulary),
           "which has token " + std::to_string(largest));
  }
  return std::make_unique<FileTokens>(std::move(tokens), sequence);
}

}  // namespace zeroplan::runtime
