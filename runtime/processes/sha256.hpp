// SHA-256 and HMAC, by which ranks prove that they have the same secret without sending it.
// Sources: FIPS 180-4 (SHA-256), RFC 2104 (HMAC). Checked by tests/runtime/sha256_test.cpp against
// the examples of FIPS 180-4 and RFC 4231.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace zeroplan::runtime {

using Digest = std::array<std::byte, 32>;

Digest sha256(std::span<const std::byte> bytes);
Digest hmac_sha256(std::string_view key, std::span<const std::byte> bytes);

// In a time that does not tell where they differ.
bool same_digest(const Digest& first, const Digest& second);

// From the system's source of randomness; throws std::runtime_error where it gives none.
Digest random_bytes();

}  // namespace zeroplan::runtime
