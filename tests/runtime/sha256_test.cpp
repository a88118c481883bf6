#include "runtime/processes/sha256.hpp"

#include <string>

#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

std::string hex(const Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte one : digest) {
    text += kDigits[std::to_integer<unsigned>(one) >> 4];
    text += kDigits[std::to_integer<unsigned>(one) & 15U];
  }
  return text;
}

std::string hash_of(const std::string& text) { return hex(sha256(std::as_bytes(std::span(text)))); }

std::string mac_of(const std::string& key, const std::string& text) {
  return hex(hmac_sha256(key, std::as_bytes(std::span(text))));
}

// Source: FIPS 180-4's examples (csrc.nist.gov, SHA256.pdf).
TEST_CASE("SHA-256 gives the digests of the standard's examples") {
  CHECK(hash_of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hash_of(std::string(1'000'000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Source: RFC 4231, cases 1, 2 and 6.
TEST_CASE("HMAC gives the digests of RFC 4231") {
  CHECK(mac_of(std::string(20, '\x0b'), "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(mac_of("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(
      mac_of(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First") ==
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("random bytes differ, and digests that differ in a bit are not the same") {
  CHECK_FALSE(same_digest(random_bytes(), random_bytes()));
  const Digest first = sha256({});
  Digest second = first;
  CHECK(same_digest(first, second));
  second.back() ^= std::byte{1};
  CHECK_FALSE(same_digest(first, second));
}

}  // namespace
}  // namespace zeroplan::runtime
