#include "runtime/processes/sha256.hpp"

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <sys/random.h>

namespace zeroplan::runtime {
namespace {

constexpr std::size_t kBlock = 64;  // bytes

// Fractions of the cube roots of the first 64 primes. Source: FIPS 180-4, section 4.2.2.
constexpr std::array<std::uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using State = std::array<std::uint32_t, 8>;
// Of the square roots of the first eight primes. Source: section 5.3.3.
constexpr State kStart = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

std::uint32_t word_at(const std::byte* at) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word = (word << 8) | std::to_integer<std::uint32_t>(at[i]);
  return word;
}

// Section 6.2.2.
void add_block(State& state, const std::byte* block) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t t = 0; t < 16; ++t) w[t] = word_at(block + 4 * t);
  for (std::size_t t = 16; t < 64; ++t) {
    const std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t first = h + s1 + ((e & f) ^ (~e & g)) + kRounds[t] + w[t];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t second = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const State added = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += added[i];
}

}  // namespace

Digest sha256(std::span<const std::byte> bytes) {
  State state = kStart;
  const std::uint64_t bits = static_cast<std::uint64_t>(bytes.size()) * 8;
  while (bytes.size() >= kBlock) {
    add_block(state, bytes.data());
    bytes = bytes.subspan(kBlock);
  }
  // A one bit, zeros, and the length in bits as the last eight bytes.
  std::array<std::byte, 2 * kBlock> last{};
  std::copy(bytes.begin(), bytes.end(), last.begin());
  last[bytes.size()] = std::byte{0x80};
  const std::size_t end = bytes.size() + 9 <= kBlock ? kBlock : 2 * kBlock;
  for (std::size_t i = 0; i < 8; ++i) last[end - 1 - i] = static_cast<std::byte>(bits >> (8 * i));
  for (std::size_t at = 0; at < end; at += kBlock) add_block(state, last.data() + at);
  Digest digest{};
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<std::byte>(state[i / 4] >> (24 - 8 * (i % 4)));
  }
  return digest;
}

Digest hmac_sha256(std::string_view key, std::span<const std::byte> bytes) {
  std::array<std::byte, kBlock> padded{};
  const auto key_bytes = std::as_bytes(std::span(key));
  if (key.size() > kBlock) {
    const Digest hashed = sha256(key_bytes);
    std::copy(hashed.begin(), hashed.end(), padded.begin());
  } else {
    std::copy(key_bytes.begin(), key_bytes.end(), padded.begin());
  }
  const auto hashed_behind = [&](std::byte pad, std::span<const std::byte> rest) {
    std::vector<std::byte> all;
    for (const std::byte one : padded) all.push_back(one ^ pad);
    all.insert(all.end(), rest.begin(), rest.end());
    return sha256(all);
  };
  const Digest inner = hashed_behind(std::byte{0x36}, bytes);
  return hashed_behind(std::byte{0x5c}, inner);
}

bool same_digest(const Digest& first, const Digest& second) {
  std::byte difference{0};
  for (std::size_t i = 0; i < first.size(); ++i) difference |= first[i] ^ second[i];
  return difference == std::byte{0};
}

Digest random_bytes() {
  Digest bytes{};
  // So few come at once, or not at all (getrandom(2)).
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw std::runtime_error("getrandom: the system gives no random bytes");
  }
  return bytes;
}

}  // namespace zeroplan::runtime
