// What ranks say to each other over TCP, as bytes. Whatever comes over a socket is read here, by
// pure functions of bytes: every number, rank, size and text is within its bounds, or the message
// is refused.
//
// A connection begins so, with the protocol's number in front, which changes with any message:
//   host -> caller   Challenge   a nonce
//   caller -> host   Hello       who calls, what for, its own nonce, and HMAC(secret) of all that
//   host -> caller   Reply       the answer, and HMAC(secret) of it and both nonces
//   caller -> host   Word::here  what is kept of a caller is a caller that is still there
// Control connections go on with words; data connections carry a CollectiveCall before each
// collective, then its bytes. Numbers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.hpp"
#include "runtime/processes/process_group.hpp"
#include "runtime/processes/sha256.hpp"

namespace zeroplan::runtime {

inline constexpr std::uint32_t kProtocol = 2;
inline constexpr std::uint32_t kLongestReason = 1 << 14;  // bytes of a failure's text

using MessageBytes = std::vector<std::byte>;
using BytesView = std::span<const std::byte>;

// What became of bytes that should begin with a message.
enum class Reading {
  more,           // `size` bytes are needed before more can be said
  whole,          // the first `size` bytes are the message
  foreign,        // not one of ours
  other_release,  // of another protocol
};

template <typename Message>
struct Read {
  Reading reading = Reading::foreign;
  std::size_t size = 0;
  Message message;
};

struct Challenge {
  Digest nonce{};
};

// What a caller is for: joins the group, tells that its rank has failed, carries data.
enum class Purpose : std::uint32_t { join, failure, data };

struct Hello {
  Purpose purpose = Purpose::join;
  std::uint64_t job = 0;      // a number of the job: jobs that meet by mistake have different ones
  std::uint64_t process = 0;  // tells a second call of a process from a second process
  int rank = 0;
  int ranks = 0;
  int port = 0;        // where this rank listens for data; 0: nowhere
  std::string reason;  // of a failure
  Digest nonce{};
  Digest proof{};
};

enum class Answer : std::uint32_t { welcome, other_job, other_ranks, other_secret, twice };
inline constexpr std::size_t kAnswers = 5;

struct Reply {
  Answer answer = Answer::welcome;
  Digest proof{};
};

MessageBytes bytes_of(const Challenge& challenge);
// `proof` is made of the secret, the host's nonce and the rest.
MessageBytes bytes_of(const Hello& hello, std::string_view secret, const Digest& host_nonce);
MessageBytes bytes_of(Answer answer,
                      std::string_view secret,
                      const Digest& host,
                      const Digest& caller);

Read<Challenge> read_challenge(BytesView bytes);
Read<Hello> read_hello(BytesView bytes);
Read<Reply> read_reply(BytesView bytes);

bool proves(const Hello& hello, std::string_view secret, const Digest& host_nonce);
bool proves(const Reply& reply, std::string_view secret, const Digest& host, const Digest& caller);

// --- control connections

enum class Word : std::uint32_t {
  beat,       // still here
  failure,    // the group has failed: why
  done,       // nothing follows
  here,       // a caller has had its answer
  places,     // where every rank listens
  connected,  // to all ranks
  go,         // all are connected to all
};
inline constexpr EnumNames<Word, 7> kWordNames{
    {"beat", "failure", "done", "here", "places", "connected", "go"}};

// Where a rank listens for data. No host: that of rank 0, as everybody knows it.
struct RankAddress {
  std::string host;
  int port = 0;
};

struct WordMessage {
  Word word = Word::beat;
  std::string reason;               // of a failure: printable lines
  std::vector<RankAddress> places;  // one for each rank
};

MessageBytes bytes_of(Word word);  // beat, done, here, connected, go
MessageBytes bytes_of_failure(std::string_view reason);
MessageBytes bytes_of(const std::vector<RankAddress>& places);
Read<WordMessage> read_word(BytesView bytes, int ranks);

// Lines without control characters, at most kLongestReason bytes.
std::string shown_reason(std::string_view text);

// --- data connections

// What every rank tells every other before a collective, so that different calls are noticed.
struct CollectiveCall {
  std::int64_t number = 0;
  std::int64_t part = 0;  // -1: of all ranks
  std::int64_t elements = 0;
  std::int32_t kind = 0, operation = 0, dtype = 0, root = 0;
  bool operator==(const CollectiveCall&) const = default;
};
inline constexpr std::size_t kCallBytes = 40;

void write_call(const CollectiveCall& call, std::span<std::byte, kCallBytes> to);
// Nothing where a number is none of an enumerator, of a rank below `ranks`, of elements.
std::optional<CollectiveCall> read_call(std::span<const std::byte, kCallBytes> bytes, int ranks);

}  // namespace zeroplan::runtime
