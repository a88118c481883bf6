// What ranks say to each other: whatever comes over a socket is read within its bounds, and what is
// read is written the same.
#include <algorithm>
#include <string>

#include "runtime/processes/rank_messages.hpp"
#include "runtime/train/fingerprint.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;
namespace runtime = zeroplan::runtime;

namespace {

using runtime::BytesView;
using runtime::MessageBytes;
using runtime::Reading;

constexpr int kRanks = 3;

bool same(BytesView first, BytesView second) {
  return std::equal(first.begin(), first.end(), second.begin(), second.end());
}

template <typename Message>
bool is_whole(const runtime::Read<Message>& read, BytesView bytes, std::size_t most) {
  if (read.reading == Reading::more) {
    fuzz::require(read.size > bytes.size(), "more is asked for than is missing");
    fuzz::require(read.size <= most, "more is asked for than a message may have");
  }
  if (read.reading != Reading::whole) return false;
  fuzz::require(read.size <= bytes.size(), "a message of more bytes than there are");
  return true;
}

void check_reason(const std::string& reason) {
  fuzz::require(reason.size() <= runtime::kLongestReason, "a reason that is too long");
  for (const char c : reason) {
    fuzz::require(static_cast<unsigned char>(c) >= 0x20 || c == '\n', "a reason steers terminals");
  }
}

void check_hello(BytesView bytes) {
  const auto read = runtime::read_hello(bytes);
  if (!is_whole(read, bytes, 128 + runtime::kLongestReason)) return;
  const runtime::Hello& hello = read.message;
  fuzz::require(hello.rank >= 0 && hello.rank < hello.ranks, "a rank outside its group");
  fuzz::require(hello.ranks <= runtime::kMostProcesses, "too many ranks");
  fuzz::require(hello.port >= 0 && hello.port <= 65535, "no port");
  check_reason(hello.reason);
  // All but the proof, which is made of a secret.
  const MessageBytes again = runtime::bytes_of(hello, "", {});
  const std::size_t rest = read.size - hello.proof.size();
  fuzz::require(same(BytesView(again).first(rest), bytes.first(rest)),
                "a caller reads differently");
  fuzz::require(!runtime::proves(hello, "a secret that nobody has", {}),
                "a proof without a secret");
}

void check_word(BytesView bytes) {
  const auto read = runtime::read_word(bytes, kRanks);
  if (!is_whole(read, bytes, 8 + runtime::kLongestReason)) return;
  const runtime::WordMessage& said = read.message;
  check_reason(said.reason);
  MessageBytes again;
  if (said.word == runtime::Word::failure) {
    again = runtime::bytes_of_failure(said.reason);
  } else if (said.word == runtime::Word::places) {
    fuzz::require(said.places.size() == kRanks, "a place for every rank");
    again = runtime::bytes_of(said.places);
  } else {
    again = runtime::bytes_of(said.word);
  }
  fuzz::require(same(again, bytes.first(read.size)), "a word reads differently");
}

void check_call(BytesView bytes) {
  if (bytes.size() < runtime::kCallBytes) return;
  const auto first = bytes.first<runtime::kCallBytes>();
  const auto call = runtime::read_call(first, kRanks);
  if (!call) return;
  fuzz::require(call->root >= 0 && call->root < kRanks && call->elements >= 0, "no collective");
  std::array<std::byte, runtime::kCallBytes> again;
  runtime::write_call(*call, again);
  fuzz::require(same(again, first), "a collective reads differently");
}

void check_fingerprint(std::string_view text) {
  const auto read = runtime::Fingerprint::parse(text);
  if (!read) return;
  fuzz::require(read->text() == text, "a fingerprint reads differently");
  fuzz::require(runtime::differences(*read, *read).empty(), "a fingerprint differs from itself");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const BytesView bytes = std::as_bytes(std::span(data, size));
  is_whole(runtime::read_challenge(bytes), bytes, 128);
  is_whole(runtime::read_reply(bytes), bytes, 128);
  check_hello(bytes);
  check_word(bytes);
  check_call(bytes);
  check_fingerprint(fuzz::text_of(data, size));
  return 0;
}
