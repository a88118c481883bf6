#include "runtime/processes/rank_messages.hpp"

#include <algorithm>
#include <random>
#include <string>

#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

constexpr const char* kSecret = "a secret of the ranks";

Hello example() {
  return {.purpose = Purpose::failure,
          .job = 0x1122334455667788U,
          .process = 99,
          .rank = 2,
          .ranks = 4,
          .port = 4242,
          .reason = "error: no such file\nhint: look",
          .nonce = sha256({}),
          .proof = {}};
}

// `bytes` with a little-endian number of 32 bits at `at`.
MessageBytes with(MessageBytes bytes, std::size_t at, std::uint32_t number) {
  for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::byte>(number >> (8 * i));
  return bytes;
}

// Places of Hello's numbers in its bytes.
constexpr std::size_t kProtocolAt = 8, kPurposeAt = 12, kRankAt = 32, kRanksAt = 36, kPortAt = 40,
                      kReasonAt = 44;

TEST_CASE("the first messages of a connection are read as they were written") {
  const Digest host = random_bytes();
  CHECK(read_challenge(bytes_of(Challenge{host})).message.nonce == host);
  const Hello hello = example();
  const MessageBytes bytes = bytes_of(hello, kSecret, host);
  const Read<Hello> read = read_hello(bytes);
  REQUIRE(read.reading == Reading::whole);
  CHECK(read.size == bytes.size());
  CHECK(read.message.purpose == Purpose::failure);
  CHECK(read.message.job == hello.job);
  CHECK(read.message.process == 99);
  CHECK(read.message.rank == 2);
  CHECK(read.message.ranks == 4);
  CHECK(read.message.port == 4242);
  CHECK(read.message.reason == hello.reason);
  CHECK(proves(read.message, kSecret, host));
  const Reply reply = read_reply(bytes_of(Answer::twice, kSecret, host, hello.nonce)).message;
  CHECK(reply.answer == Answer::twice);
  CHECK(proves(reply, kSecret, host, hello.nonce));
}

TEST_CASE("a proof holds for one secret, one nonce and these very words") {
  const Digest host = random_bytes();
  const Hello hello = read_hello(bytes_of(example(), kSecret, host)).message;
  CHECK_FALSE(proves(hello, "another secret", host));
  CHECK_FALSE(proves(hello, "", host));
  CHECK_FALSE(proves(hello, kSecret, random_bytes()));
  Hello other = hello;
  other.rank = 3;
  CHECK_FALSE(proves(other, kSecret, host));
  const Reply reply = read_reply(bytes_of(Answer::welcome, kSecret, host, hello.nonce)).message;
  CHECK_FALSE(proves(reply, "another secret", host, hello.nonce));
  CHECK_FALSE(proves(reply, kSecret, hello.nonce, host));
  CHECK_FALSE(proves(Reply{Answer::twice, reply.proof}, kSecret, host, hello.nonce));
}

TEST_CASE("the beginning of a message asks for more, and never for more than there may be") {
  const MessageBytes hello = bytes_of(example(), kSecret, {});
  for (std::size_t size = 0; size < hello.size(); ++size) {
    const Read<Hello> read = read_hello(BytesView(hello).first(size));
    REQUIRE(read.reading == Reading::more);
    REQUIRE(read.size > size);
    REQUIRE(read.size <= hello.size());
  }
  const MessageBytes places = bytes_of(std::vector<RankAddress>{{"", 1}, {"10.0.0.7", 65535}});
  for (std::size_t size = 0; size < places.size(); ++size) {
    const Read<WordMessage> read = read_word(BytesView(places).first(size), 2);
    REQUIRE(read.reading == Reading::more);
    REQUIRE(read.size <= places.size());
  }
}

TEST_CASE("a caller's numbers out of their bounds are no message") {
  const MessageBytes good = bytes_of(example(), kSecret, {});
  REQUIRE(read_hello(good).reading == Reading::whole);
  const auto reading = [&](std::size_t at, std::uint32_t number) {
    return read_hello(with(good, at, number)).reading;
  };
  CHECK(reading(0, 0x20544547) == Reading::foreign);  // "GET "
  CHECK(reading(kProtocolAt, kProtocol + 1) == Reading::other_release);
  CHECK(reading(kPurposeAt, 3) == Reading::foreign);
  CHECK(reading(kRankAt, 4) == Reading::foreign);  // of 4
  CHECK(reading(kRanksAt, 0) == Reading::foreign);
  CHECK(reading(kRanksAt, kMostProcesses + 1) == Reading::foreign);
  CHECK(reading(kPortAt, 65536) == Reading::foreign);
  for (const std::size_t at : {kPurposeAt, kRankAt, kRanksAt, kPortAt, kReasonAt}) {
    for (const std::uint32_t number : {0x7fffffffU, 0x80000000U, 0xffffffffU}) {
      CAPTURE(at, number);
      CHECK(reading(at, number) == Reading::foreign);
    }
  }
  CHECK(reading(kReasonAt, kLongestReason + 1) == Reading::foreign);
  CHECK(reading(kPurposeAt, 0) == Reading::foreign);  // who joins has no reason to fail
}

TEST_CASE("what would steer a terminal is neither sent nor taken as a reason") {
  Hello hello = example();
  hello.reason = "a\x1b[31mb\nc\xff";
  const MessageBytes sent = bytes_of(hello, kSecret, {});
  CHECK(read_hello(sent).message.reason == "a\\x1b[31mb\nc\\xff");
  MessageBytes forged = bytes_of_failure("abc");
  CHECK(read_word(forged, 2).message.reason == "abc");
  forged.back() = std::byte{0x1b};
  CHECK(read_word(forged, 2).reading == Reading::foreign);
  const std::string longest =
      read_word(bytes_of_failure(std::string(100'000, 'x')), 2).message.reason;
  CHECK(longest == std::string(kLongestReason, 'x'));
}

TEST_CASE("words on a control connection have the size that they must have") {
  for (const Word word : {Word::beat, Word::done, Word::here, Word::connected, Word::go}) {
    CHECK(read_word(bytes_of(word), 2).message.word == word);
    CHECK(read_word(with(bytes_of(word), 4, 1), 2).reading == Reading::foreign);
  }
  CHECK(read_word(with(bytes_of(Word::go), 0, 7), 2).reading == Reading::foreign);
  CHECK(read_word(with(bytes_of(Word::go), 0, 0xffffffff), 2).reading == Reading::foreign);
  CHECK(read_word(with(bytes_of_failure("a"), 4, kLongestReason + 1), 2).reading ==
        Reading::foreign);
}

TEST_CASE("a table of places has an address and a port for every rank") {
  const std::vector<RankAddress> places = {{"", 1}, {"fe80::1%eth0", 65535}, {"node-3.local", 80}};
  const MessageBytes bytes = bytes_of(places);
  const Read<WordMessage> read = read_word(bytes, 3);
  REQUIRE(read.reading == Reading::whole);
  REQUIRE(read.message.places.size() == 3);
  CHECK(read.message.places[1].host == "fe80::1%eth0");
  CHECK(read.message.places[1].port == 65535);
  CHECK(read_word(bytes, 2).reading == Reading::foreign);
  CHECK(read_word(bytes, 4).reading == Reading::foreign);
  const std::size_t second = 8 + 68;
  CHECK(read_word(with(bytes, second + 64, 0), 3).reading == Reading::foreign);
  CHECK(read_word(with(bytes, second + 64, 65536), 3).reading == Reading::foreign);
  CHECK(read_word(with(bytes, second, 0x0a20), 3).reading == Reading::foreign);  // " \n"
  MessageBytes without_end = bytes;
  std::fill_n(without_end.begin() + second, 64, std::byte{'x'});
  CHECK(read_word(without_end, 3).reading == Reading::foreign);
  CHECK(read_word(with(bytes, second + 60, 'x'), 3).reading == Reading::foreign);  // behind its end
}

TEST_CASE("a collective of which a number is out of bounds is none") {
  const CollectiveCall call{
      .number = 5, .part = -1, .elements = 1001, .kind = 6, .operation = 1, .dtype = 7, .root = 3};
  std::array<std::byte, kCallBytes> bytes;
  write_call(call, bytes);
  CHECK(read_call(bytes, 4) == call);
  CHECK_FALSE(read_call(bytes, 3).has_value());  // root 3 of 3
  const auto refused = [](CollectiveCall bad) {
    std::array<std::byte, kCallBytes> its_bytes;
    write_call(bad, its_bytes);
    return !read_call(its_bytes, 4).has_value();
  };
  for (const std::int32_t number : {8, 1000, -1, 0x7fffffff}) {
    CollectiveCall bad = call;
    bad.kind = number;
    CHECK(refused(bad));
    bad = call;
    bad.operation = number;
    CHECK(refused(bad));
    bad = call;
    bad.dtype = number;
    CHECK(refused(bad));
    bad = call;
    bad.root = number;
    CHECK(refused(bad));
  }
  CollectiveCall bad = call;
  bad.elements = -1;
  CHECK(refused(bad));
  bad = call;
  bad.number = -1;
  CHECK(refused(bad));
  bad = call;
  bad.part = -2;
  CHECK(refused(bad));
}

TEST_CASE("random and altered bytes are read without harm") {
  std::mt19937 random(20261123);
  const MessageBytes hello = bytes_of(example(), kSecret, {});
  const MessageBytes places = bytes_of(std::vector<RankAddress>{{"a", 1}, {"b", 2}});
  for (int i = 0; i < 20'000; ++i) {
    MessageBytes bytes = i % 3 == 0 ? hello : places;
    if (i % 3 == 2) bytes.assign(random() % 300, std::byte{0});
    for (std::size_t change = 0; change < 1 + random() % 4 && !bytes.empty(); ++change) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    const Read<Hello> read = read_hello(bytes);
    if (read.reading == Reading::whole) {
      REQUIRE(read.message.rank < read.message.ranks);
      REQUIRE(shown_reason(read.message.reason) == read.message.reason);
    }
    read_challenge(bytes);
    read_reply(bytes);
    const Read<WordMessage> word = read_word(bytes, 2);
    if (word.reading == Reading::more) REQUIRE(word.size <= 8 + kLongestReason);
    if (bytes.size() >= kCallBytes) read_call(BytesView(bytes).first<kCallBytes>(), 2);
  }
}

}  // namespace
}  // namespace zeroplan::runtime
