#include "runtime/processes/rank_messages.hpp"

#include <algorithm>
#include <array>
#include <concepts>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "model/dtype.hpp"
#include "model/engine/engine_action.hpp"

namespace zeroplan::runtime {
namespace {

constexpr std::uint64_t kMagic = 0x7a65726f706c616eU;
constexpr std::size_t kOpening = 12;  // magic and protocol
constexpr std::size_t kLongestHost = 64;
constexpr std::size_t kPlaceBytes = kLongestHost + 4;

class Writer {
 public:
  template <std::unsigned_integral Number>
  Writer& number(Number value) {
    for (std::size_t i = 0; i < sizeof value; ++i) {
      bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
    }
    return *this;
  }
  Writer& small(int value) { return number(static_cast<std::uint32_t>(value)); }
  Writer& raw(BytesView bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Writer& text(std::string_view text) { return raw(std::as_bytes(std::span(text))); }
  Writer& opening() { return number(kMagic).number(kProtocol); }
  MessageBytes take() { return std::move(bytes_); }

 private:
  MessageBytes bytes_;
};

// Precondition of all: so many bytes are there.
class MessageReader {
 public:
  explicit MessageReader(BytesView bytes) : bytes_(bytes) {}

  template <std::unsigned_integral Number>
  Number number() {
    const BytesView from = raw(sizeof(Number));
    Number value = 0;
    for (std::size_t i = 0; i < sizeof value; ++i) {
      value |= static_cast<Number>(std::to_integer<Number>(from[i]) << (8 * i));
    }
    return value;
  }
  BytesView raw(std::size_t size) {
    ZP_CHECK(size <= bytes_.size(), "a message is read within its bytes");
    const BytesView taken = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return taken;
  }
  Digest digest() {
    Digest digest{};
    const BytesView from = raw(digest.size());
    std::copy(from.begin(), from.end(), digest.begin());
    return digest;
  }
  std::string text(std::size_t size) {
    const BytesView from = raw(size);
    return {reinterpret_cast<const char*>(from.data()), from.size()};
  }

 private:
  BytesView bytes_;
};

template <typename Message>
Read<Message> needs(std::size_t size) {
  return {.reading = Reading::more, .size = size, .message = {}};
}

// Magic and protocol, which keep their place in every release.
template <typename Message>
std::optional<Read<Message>> read_opening(BytesView bytes) {
  if (bytes.size() < kOpening) return needs<Message>(kOpening);
  MessageReader reader(bytes);
  if (reader.number<std::uint64_t>() != kMagic) return Read<Message>{};
  if (reader.number<std::uint32_t>() == kProtocol) return std::nullopt;
  return Read<Message>{.reading = Reading::other_release, .size = 0, .message = {}};
}

// A number below `end` as what it stands for; nothing where it is none.
template <typename Enum>
std::optional<Enum> enumerator(std::uint32_t number, std::size_t end) {
  if (number >= end) return std::nullopt;
  return static_cast<Enum>(number);
}

std::optional<int> within(std::uint32_t number, int least, int most) {
  if (number > static_cast<std::uint32_t>(most)) return std::nullopt;
  const int value = static_cast<int>(number);
  if (value < least) return std::nullopt;
  return value;
}

MessageBytes without_proof(const Hello& hello) {
  return Writer()
      .opening()
      .number(static_cast<std::uint32_t>(hello.purpose))
      .number(hello.job)
      .number(hello.process)
      .small(hello.rank)
      .small(hello.ranks)
      .small(hello.port)
      .small(static_cast<int>(hello.reason.size()))
      .raw(hello.nonce)
      .text(hello.reason)
      .take();
}

// The names keep a caller's proof from being a host's.
Digest proof_of(const Hello& hello, std::string_view secret, const Digest& host_nonce) {
  const MessageBytes rest = without_proof(hello);
  return hmac_sha256(secret, Writer().text("zeroplan caller").raw(host_nonce).raw(rest).take());
}

Digest proof_of(Answer answer, std::string_view secret, const Digest& host, const Digest& caller) {
  const auto number = static_cast<std::uint32_t>(answer);
  return hmac_sha256(secret,
                     Writer().text("zeroplan host").raw(host).raw(caller).number(number).take());
}

bool is_host(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return letter || (c >= '0' && c <= '9') ||
           std::string_view(".:%_-").find(c) != std::string::npos;
  });
}

std::optional<std::vector<RankAddress>> read_places(MessageReader& reader, int ranks) {
  std::vector<RankAddress> places;
  for (int rank = 0; rank < ranks; ++rank) {
    std::string host = reader.text(kLongestHost);
    const std::size_t end = std::min(host.find('\0'), host.size());
    const bool ends = end < kLongestHost && host.find_first_not_of('\0', end) == std::string::npos;
    host.resize(end);
    const auto port = within(reader.number<std::uint32_t>(), 1, 65535);
    if (!ends || !is_host(host) || !port) return std::nullopt;
    places.push_back({std::move(host), *port});
  }
  return places;
}

// Bytes behind the head of a word; nothing where it has another number of them.
bool has_size(Word word, std::size_t size, int ranks) {
  if (word == Word::failure) return size <= kLongestReason;
  if (word == Word::places) return size == kPlaceBytes * static_cast<std::size_t>(ranks);
  return size == 0;
}

MessageBytes word_with(Word word, const MessageBytes& rest) {
  return Writer()
      .number(static_cast<std::uint32_t>(word))
      .number(static_cast<std::uint32_t>(rest.size()))
      .raw(rest)
      .take();
}

}  // namespace

std::string shown_reason(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    shown += printable(text.substr(0, end));
    if (end < text.size()) shown += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (shown.size() <= kLongestReason) return shown;
  std::size_t end = kLongestReason;
  while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xC0) == 0x80) --end;
  return shown.substr(0, end);
}

// --- the beginning of a connection

MessageBytes bytes_of(const Challenge& challenge) {
  return Writer().opening().raw(challenge.nonce).take();
}

MessageBytes bytes_of(const Hello& hello, std::string_view secret, const Digest& host_nonce) {
  Hello shown = hello;
  shown.reason = shown_reason(hello.reason);
  return Writer().raw(without_proof(shown)).raw(proof_of(shown, secret, host_nonce)).take();
}

MessageBytes bytes_of(Answer answer,
                      std::string_view secret,
                      const Digest& host,
                      const Digest& caller) {
  return Writer()
      .opening()
      .number(static_cast<std::uint32_t>(answer))
      .raw(proof_of(answer, secret, host, caller))
      .take();
}

Read<Challenge> read_challenge(BytesView bytes) {
  constexpr std::size_t kSize = kOpening + sizeof(Digest);
  if (auto other = read_opening<Challenge>(bytes)) return *other;
  if (bytes.size() < kSize) return needs<Challenge>(kSize);
  MessageReader reader(bytes.subspan(kOpening));
  return {.reading = Reading::whole, .size = kSize, .message = {reader.digest()}};
}

Read<Hello> read_hello(BytesView bytes) {
  constexpr std::size_t kHead = kOpening + 4 + 8 + 8 + 4 + 4 + 4 + 4;
  constexpr std::size_t kDigests = 2 * sizeof(Digest);
  if (auto other = read_opening<Hello>(bytes)) return *other;
  if (bytes.size() < kHead) return needs<Hello>(kHead);
  MessageReader reader(bytes.subspan(kOpening));
  Hello hello;
  const auto purpose = enumerator<Purpose>(reader.number<std::uint32_t>(), 3);
  hello.job = reader.number<std::uint64_t>();
  hello.process = reader.number<std::uint64_t>();
  const auto rank = within(reader.number<std::uint32_t>(), 0, kMostProcesses - 1);
  const auto ranks = within(reader.number<std::uint32_t>(), 1, kMostProcesses);
  const auto port = within(reader.number<std::uint32_t>(), 0, 65535);
  const auto reason = reader.number<std::uint32_t>();
  const bool good = purpose && rank && ranks && port && *rank < *ranks &&
                    reason <= kLongestReason && (*purpose != Purpose::join || *port > 0) &&
                    (*purpose == Purpose::failure || reason == 0);
  if (!good) return {};
  const std::size_t size = kHead + kDigests + reason;
  if (bytes.size() < size) return needs<Hello>(size);
  hello.purpose = *purpose;
  hello.rank = *rank;
  hello.ranks = *ranks;
  hello.port = *port;
  hello.nonce = reader.digest();
  hello.reason = reader.text(reason);
  hello.proof = reader.digest();
  // Who has the secret sends nothing else; it is shown to users.
  if (shown_reason(hello.reason) != hello.reason) return {};
  return {.reading = Reading::whole, .size = size, .message = std::move(hello)};
}

Read<Reply> read_reply(BytesView bytes) {
  constexpr std::size_t kSize = kOpening + 4 + sizeof(Digest);
  if (auto other = read_opening<Reply>(bytes)) return *other;
  if (bytes.size() < kSize) return needs<Reply>(kSize);
  MessageReader reader(bytes.subspan(kOpening));
  const auto answer = enumerator<Answer>(reader.number<std::uint32_t>(), kAnswers);
  if (!answer) return {};
  return {.reading = Reading::whole, .size = kSize, .message = {*answer, reader.digest()}};
}

bool proves(const Hello& hello, std::string_view secret, const Digest& host_nonce) {
  return same_digest(hello.proof, proof_of(hello, secret, host_nonce));
}

bool proves(const Reply& reply, std::string_view secret, const Digest& host, const Digest& caller) {
  return same_digest(reply.proof, proof_of(reply.answer, secret, host, caller));
}

// --- control connections

MessageBytes bytes_of(Word word) {
  ZP_CHECK(has_size(word, 0, 0) && word != Word::places, "a word that stands alone");
  return word_with(word, {});
}

MessageBytes bytes_of_failure(std::string_view reason) {
  return word_with(Word::failure, Writer().text(shown_reason(reason)).take());
}

MessageBytes bytes_of(const std::vector<RankAddress>& places) {
  Writer rest;
  for (const RankAddress& place : places) {
    ZP_CHECK(place.host.size() < kLongestHost && is_host(place.host), "a place has an address");
    std::array<std::byte, kLongestHost> host{};
    std::ranges::copy(std::as_bytes(std::span(place.host)), host.begin());
    rest.raw(host).small(place.port);
  }
  return word_with(Word::places, rest.take());
}

Read<WordMessage> read_word(BytesView bytes, int ranks) {
  constexpr std::size_t kHead = 8;
  if (bytes.size() < kHead) return needs<WordMessage>(kHead);
  MessageReader reader(bytes);
  const auto word = enumerator<Word>(reader.number<std::uint32_t>(), kWordNames.names.size());
  const std::size_t rest = reader.number<std::uint32_t>();
  if (!word || !has_size(*word, rest, ranks)) return {};
  if (bytes.size() < kHead + rest) return needs<WordMessage>(kHead + rest);
  Read<WordMessage> read{.reading = Reading::whole, .size = kHead + rest, .message = {}};
  read.message.word = *word;
  if (*word == Word::failure) {
    read.message.reason = reader.text(rest);
    if (shown_reason(read.message.reason) != read.message.reason) return {};
  }
  if (*word == Word::places) {
    auto places = read_places(reader, ranks);
    if (!places) return {};
    read.message.places = std::move(*places);
  }
  return read;
}

// --- data connections

void write_call(const CollectiveCall& call, std::span<std::byte, kCallBytes> to) {
  const MessageBytes bytes = Writer()
                                 .number(static_cast<std::uint64_t>(call.number))
                                 .number(static_cast<std::uint64_t>(call.part))
                                 .number(static_cast<std::uint64_t>(call.elements))
                                 .small(call.kind)
                                 .small(call.operation)
                                 .small(call.dtype)
                                 .small(call.root)
                                 .take();
  std::ranges::copy(bytes, to.begin());
}

std::optional<CollectiveCall> read_call(std::span<const std::byte, kCallBytes> bytes, int ranks) {
  constexpr int kKinds = static_cast<int>(CollectiveKind::all_to_all) + 1;
  constexpr int kOperations = static_cast<int>(ReduceOperation::maximum) + 1;
  constexpr int kTypes = static_cast<int>(DType::boolean) + 1;
  MessageReader reader(bytes);
  CollectiveCall call;
  call.number = static_cast<std::int64_t>(reader.number<std::uint64_t>());
  call.part = static_cast<std::int64_t>(reader.number<std::uint64_t>());
  call.elements = static_cast<std::int64_t>(reader.number<std::uint64_t>());
  const auto kind = within(reader.number<std::uint32_t>(), 0, kKinds - 1);
  const auto operation = within(reader.number<std::uint32_t>(), 0, kOperations - 1);
  const auto dtype = within(reader.number<std::uint32_t>(), 0, kTypes - 1);
  const auto root = within(reader.number<std::uint32_t>(), 0, ranks - 1);
  const bool good = call.number >= 0 && call.part >= -1 && call.elements >= 0 && kind &&
                    operation && dtype && root;
  if (!good) return std::nullopt;
  call.kind = *kind;
  call.operation = *operation;
  call.dtype = *dtype;
  call.root = *root;
  return call;
}

}  // namespace zeroplan::runtime
