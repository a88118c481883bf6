// Where training rows come from: random tokens, a file of tokens, or plain text byte by byte.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace zeroplan::runtime {

// Rows are numbered over the whole run and all ranks, so that the same rows are trained on whatever
// the number of ranks.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // Row `row`: ids and the tokens that follow them, both as long as the sequence.
  virtual void read(std::int64_t row,
                    std::span<std::int64_t> ids,
                    std::span<std::int64_t> labels) const = 0;
};

// `rows` different rows of random tokens, repeated for ever: a model learns them by heart.
std::unique_ptr<TokenSource> random_tokens(std::uint64_t seed,
                                           std::int64_t vocabulary,
                                           std::int64_t rows = 64);

// A file: with the ending .bin little-endian 16-bit tokens, one behind the other; anything else is
// text, each byte a token. Throws InputError for what cannot be read, a file too short for one row
// of `sequence`, and tokens outside the vocabulary.
std::unique_ptr<TokenSource> token_file(const std::string& path,
                                        std::int64_t sequence,
                                        std::int64_t vocabulary);

// Masked language modelling over `source`: 15 % of the tokens of a row, at least one, are replaced
// by `mask` and are what is asked for. The same ones whenever a row is read. Source: Devlin et al.
// 2019, arXiv:1810.04805, section 3.1; every chosen token is masked.
std::unique_ptr<TokenSource> masked_tokens(std::unique_ptr<TokenSource> source,
                                           std::uint64_t seed,
                                           std::int64_t mask);

}  // namespace zeroplan::runtime
