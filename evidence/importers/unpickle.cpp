#include "evidence/importers/unpickle.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include <fmt/format.h>

#include "base/diagnostic.hpp"

namespace zeroplan::evidence {
namespace {

constexpr char kProto = '\x80';

// Names of opcodes that say more than their byte: those that would run something.
Phrase opcode_name(unsigned char code) {
  switch (code) {
    case 'c':
      return phrase("{}, which imports a module", "GLOBAL");
    case 0x93:
      return phrase("{}, which imports a module", "STACK_GLOBAL");
    case 'R':
      return phrase("{}, which calls a function", "REDUCE");
    case 'i':
      return phrase("{}, which makes an object", "INST");
    case 'o':
      return phrase("{}, which makes an object", "OBJ");
    case 0x81:
      return phrase("{}, which makes an object", "NEWOBJ");
    case 0x92:
      return phrase("{}, which makes an object", "NEWOBJ_EX");
    case 'b':
      return phrase("{}, which changes an object", "BUILD");
    case 'P':
    case 'Q':
      return phrase("{}, which asks the program for an object", "PERSID");
    case 0x82:
    case 0x83:
    case 0x84:
      return phrase("{}, which looks a function up", "EXT");
    default:
      return "";
  }
}

}  // namespace

// The stack machine.
class PickleReader {
 public:
  PickleReader(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  Pickle read();

 private:
  using Ref = Pickle::Ref;
  using Kind = Pickle::Kind;

  [[noreturn]] void fail(const Phrase& expected, const Phrase& got) const {
    throw InputError({file_,
                      fmt::format("byte {}", at_),
                      expected,
                      got,
                      "only data is read from a pickle; nothing of it is run"});
  }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_)
      fail(fmt::format("{} more bytes", count), "the end of the file");
    const std::string_view taken = bytes_.substr(at_, static_cast<std::size_t>(count));
    at_ += taken.size();
    return taken;
  }

  std::uint64_t little_endian(std::size_t bytes) {
    std::uint64_t value = 0;
    const std::string_view taken = take(bytes);
    for (std::size_t i = bytes; i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(taken[i]);
    }
    return value;
  }

  Ref make(Kind kind) {
    constexpr std::size_t kMost = std::numeric_limits<Ref>::max() / 2;
    if (pickle_.values_.size() > kMost) fail("fewer values", "too many");
    pickle_.values_.emplace_back().kind = kind;
    return static_cast<Ref>(pickle_.values_.size() - 1);
  }

  void push(Ref value) { stack_.push_back(value); }
  void push_integer(std::int64_t integer, Kind kind = Kind::integer) {
    const Ref value = make(kind);
    pickle_.values_[value].integer = integer;
    push(value);
  }
  void push_text(std::uint64_t length) {
    const std::string_view text = take(length);
    const Ref value = make(Kind::text);
    pickle_.values_[value].text = text;
    push(value);
  }

  Ref pop() {
    if (stack_.size() <= floor()) fail("a value on the stack", "none");
    const Ref value = stack_.back();
    stack_.pop_back();
    return value;
  }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  std::vector<Ref> pop_to_mark() {
    if (marks_.empty()) fail("a mark on the stack", "none");
    std::vector<Ref> values(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                            stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return values;
  }
  Pickle::Value& top(Kind kind) {
    if (stack_.size() <= floor()) fail("a list or dictionary on the stack", "nothing");
    Pickle::Value& value = pickle_.values_[stack_.back()];
    if (value.kind != kind) fail("a list or dictionary to add to", "another value");
    return value;
  }

  void tuple(std::size_t count);
  void add_to_dict(const std::vector<Ref>& pairs);
  void long_integer(std::size_t bytes);
  void real();
  void memoize(std::uint64_t place);
  void recall(std::uint64_t place);
  bool step_atom(unsigned char code);
  bool step_container(unsigned char code);
  bool step_memo(unsigned char code);

  std::string_view bytes_;
  const std::string& file_;
  std::size_t at_ = 0;
  Pickle pickle_;
  std::vector<Ref> stack_;
  std::vector<std::size_t> marks_;
  std::vector<std::optional<Ref>> memo_;
};

void PickleReader::tuple(std::size_t count) {
  std::vector<Ref> items(count);
  for (std::size_t i = count; i-- > 0;) items[i] = pop();
  const Ref value = make(Kind::list);
  pickle_.values_[value].items = std::move(items);
  push(value);
}

void PickleReader::add_to_dict(const std::vector<Ref>& pairs) {
  if (pairs.size() % 2 != 0) fail("keys with values", "a key without");
  Pickle::Value& dictionary = top(Kind::dict);
  dictionary.items.insert(dictionary.items.end(), pairs.begin(), pairs.end());
}

// Two's complement. Addresses above 2^63 have nine bytes; they keep their low eight.
void PickleReader::long_integer(std::size_t bytes) {
  constexpr std::size_t kMost = 9;
  if (bytes > kMost) fail("an integer of 64 bits", fmt::format("one of {} bytes", bytes));
  if (bytes == 0) return push_integer(0);
  const std::string_view taken = take(bytes);
  const bool negative = (static_cast<unsigned char>(taken.back()) & 0x80) != 0;
  std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
  for (std::size_t i = std::min<std::size_t>(bytes, 8); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(taken[i]);
  }
  push_integer(static_cast<std::int64_t>(value));
}

// Eight bytes, the highest first.
void PickleReader::real() {
  std::uint64_t bits = 0;
  for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
  const Ref value = make(Kind::real);
  pickle_.values_[value].real = std::bit_cast<double>(bits);
  push(value);
}

void PickleReader::memoize(std::uint64_t place) {
  if (stack_.size() <= floor()) fail("a value to remember", "none");
  if (place > bytes_.size()) fail("a place below the file's size", std::to_string(place));
  if (place >= memo_.size()) memo_.resize(static_cast<std::size_t>(place) + 1);
  memo_[static_cast<std::size_t>(place)] = stack_.back();
}

void PickleReader::recall(std::uint64_t place) {
  if (place >= memo_.size() || !memo_[static_cast<std::size_t>(place)]) {
    fail("a value that was remembered", fmt::format("place {}", place));
  }
  push(*memo_[static_cast<std::size_t>(place)]);
}

bool PickleReader::step_atom(unsigned char code) {
  switch (code) {
    case 'N':
      push(make(Kind::none));
      return true;
    case 0x88:
    case 0x89:
      push_integer(code == 0x88 ? 1 : 0, Kind::boolean);
      return true;
    case 'K':
      push_integer(static_cast<std::int64_t>(little_endian(1)));
      return true;
    case 'M':
      push_integer(static_cast<std::int64_t>(little_endian(2)));
      return true;
    case 'J':
      push_integer(static_cast<std::int32_t>(static_cast<std::uint32_t>(little_endian(4))));
      return true;
    case 0x8a:
      long_integer(static_cast<std::size_t>(little_endian(1)));
      return true;
    case 'G':
      real();
      return true;
    case 0x8c:
      push_text(little_endian(1));
      return true;
    case 'X':
      push_text(little_endian(4));
      return true;
    case 0x8d:
      push_text(little_endian(8));
      return true;
    default:
      return false;
  }
}

bool PickleReader::step_container(unsigned char code) {
  switch (code) {
    case '}':
      push(make(Kind::dict));
      return true;
    case ']':
      push(make(Kind::list));
      return true;
    case ')':
      tuple(0);
      return true;
    case '(':
      marks_.push_back(stack_.size());
      return true;
    case 't': {
      std::vector<Ref> items = pop_to_mark();
      const Ref value = make(Kind::list);
      pickle_.values_[value].items = std::move(items);
      push(value);
      return true;
    }
    case 0x85:
    case 0x86:
    case 0x87:
      tuple(code - 0x84U);
      return true;
    case 'a': {
      const Ref item = pop();
      top(Kind::list).items.push_back(item);
      return true;
    }
    case 'e': {
      const std::vector<Ref> items = pop_to_mark();
      Pickle::Value& list = top(Kind::list);
      list.items.insert(list.items.end(), items.begin(), items.end());
      return true;
    }
    case 's': {
      const Ref value = pop();
      const Ref key = pop();
      add_to_dict({key, value});
      return true;
    }
    case 'u':
      add_to_dict(pop_to_mark());
      return true;
    default:
      return false;
  }
}

bool PickleReader::step_memo(unsigned char code) {
  switch (code) {
    case kProto & 0xff:
      if (little_endian(1) > 5) fail("protocol 2 to 5", "a newer one");
      return true;
    case 0x95:
      little_endian(8);  // FRAME: a hint for buffered reading
      return true;
    case 'q':
      memoize(little_endian(1));
      return true;
    case 'r':
      memoize(little_endian(4));
      return true;
    case 0x94:
      memoize(memo_.size());
      return true;
    case 'h':
      recall(little_endian(1));
      return true;
    case 'j':
      recall(little_endian(4));
      return true;
    default:
      return false;
  }
}

Pickle PickleReader::read() {
  while (true) {
    const auto code = static_cast<unsigned char>(take(1).front());
    if (code == '.') break;
    if (step_atom(code) || step_container(code) || step_memo(code)) continue;
    --at_;
    const Phrase name = opcode_name(code);
    fail("an opcode that makes data", name.empty() ? phrase("opcode 0x{:02x}", code) : name);
  }
  if (stack_.size() != 1 || !marks_.empty()) {
    fail("one value at the end", phrase("{} on the stack", stack_.size()));
  }
  pickle_.root_ = stack_.front();
  return std::move(pickle_);
}

Pickle Pickle::parse(std::string_view bytes, const std::string& file) {
  return PickleReader(bytes, file).read();
}

std::optional<std::int64_t> Pickle::integer(Ref value) const {
  const Value& found = values_[value];
  if (found.kind != Kind::integer && found.kind != Kind::boolean) return std::nullopt;
  return found.integer;
}

std::optional<std::string_view> Pickle::text(Ref value) const {
  const Value& found = values_[value];
  return found.kind == Kind::text ? std::optional(found.text) : std::nullopt;
}

std::optional<Pickle::Ref> Pickle::find(Ref dictionary, std::string_view key) const {
  const Value& found = values_[dictionary];
  // Records have few keys; a long dictionary that is shared often would be searched for ever.
  constexpr std::size_t kMostKeys = 1000;
  if (found.kind != Kind::dict || found.items.size() > 2 * kMostKeys) return std::nullopt;
  std::optional<Ref> last;
  for (std::size_t i = 0; i + 1 < found.items.size(); i += 2) {
    const Value& name = values_[found.items[i]];
    if (name.kind == Kind::text && name.text == key) last = found.items[i + 1];
  }
  return last;
}

bool is_pickle(std::string_view bytes) {
  constexpr char kOldest = 2;
  constexpr char kNewest = 5;
  return bytes.size() > 2 && bytes[0] == kProto && bytes[1] >= kOldest && bytes[1] <= kNewest;
}

}  // namespace zeroplan::evidence
