#include "runtime/data/tokens.hpp"

#include <algorithm>
#include <fstream>
#include <istream>
#include <utility>
#include <vector>

#include "base/diagnostic.hpp"
#include "runtime/data/file_kind.hpp"
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

[[noreturn]] void refuse(const std::string& path, Phrase expected, const Phrase& got) {
  throw InputError(Diagnostic{.file = "command line",
                              .pointer = "--data",
                              .expected = std::move(expected),
                              .got = path + ", " + got,
                              .hint = ""});
}

// A byte is a token; of `pairs` two are one, the lower first, and a last odd one is none.
std::vector<std::uint16_t> tokens_in(std::istream& file, bool pairs) {
  std::vector<std::uint16_t> tokens;
  std::vector<char> part(std::size_t{1} << 20);
  do {
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    const auto bytes = static_cast<std::size_t>(file.gcount());
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(part[i]); };
    if (pairs) {
      for (std::size_t i = 0; i + 1 < bytes; i += 2) {
        tokens.push_back(static_cast<std::uint16_t>(at(i) | (at(i + 1) << 8)));
      }
    } else {
      for (std::size_t i = 0; i < bytes; ++i) tokens.push_back(at(i));
    }
  } while (file);
  return tokens;
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
  constexpr const char* kExpected = "a readable file of text or tokens";
  if (const std::string other = other_than_file(path); !other.empty()) {
    refuse(path, kExpected, other == "no file" ? "which cannot be opened" : "which is " + other);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(path, kExpected, "which cannot be opened");
  std::vector<std::uint16_t> tokens = tokens_in(file, path.ends_with(".bin"));
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
