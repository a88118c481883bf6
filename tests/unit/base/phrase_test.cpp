#include "base/phrase.hpp"

#include <map>

#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

// The key with {} for slots.
std::string key_of(const Phrase& phrase) {
  std::string text;
  for (const char c : phrase.key()) text += c == Phrase::kSlot ? "{}" : std::string(1, c);
  return text;
}

std::vector<std::string> arguments_of(const Phrase& phrase) {
  return {phrase.arguments().begin(), phrase.arguments().end()};
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a phrase has its English, its key and what fills the slots") {
  const Phrase text = phrase("{} needs {:.1f} GiB on {} GPUs", std::string("x"), 2.04, 8);
  CHECK(text.english() == "x needs 2.0 GiB on 8 GPUs");
  CHECK(key_of(text) == "{} needs {} GiB on {} GPUs");
  CHECK(arguments_of(text) == Texts{"x", "2.0", "8"});
}

TEST_CASE("numbered slots, widths and doubled braces are those of fmt") {
  const Phrase text = phrase("{1:>4}|{0}|{0} {{stage}}", "a", 7);
  CHECK(text.english() == fmt::format("{1:>4}|{0}|{0} {{stage}}", "a", 7));
  CHECK(key_of(text) == "{}|{}|{} {stage}");
  CHECK(arguments_of(text) == Texts{"   7", "a", "a"});
}

TEST_CASE("a literal is text, anything else fills a slot") {
  const std::string name = "gpt2";
  const Phrase text = Phrase("no ") + name + ", and " + Phrase("nothing else") + '.';
  CHECK(text.english() == "no gpt2, and nothing else.");
  CHECK(key_of(text) == "no {}, and {}.");
  CHECK(Phrase(name).is_value());
  CHECK(Phrase(name).key().empty());
  CHECK(key_of(Phrase(name) + " fits") == "{} fits");
  CHECK(key_of(name + Phrase(" fits")) == "{}{}");
  CHECK_FALSE(Phrase("fits").is_value());
}

TEST_CASE("a phrase in a slot stays a phrase") {
  const Phrase inner = phrase("{} of {}", 1, 2);
  const Phrase outer = phrase("rank {}: {}", 3, inner);
  CHECK(outer.english() == "rank 3: 1 of 2");
  REQUIRE(outer.arguments().size() == 2);
  CHECK(key_of(outer.arguments()[1]) == "{} of {}");
}

TEST_CASE("lines are added as slots, parts of a sentence join the key") {
  Phrase lines;
  lines += phrase("a {}\n", 1);
  lines += phrase("b {}\n", 2);
  CHECK(lines.english() == "a 1\nb 2\n");
  CHECK(key_of(lines) == "{}{}");
  Phrase sentence = phrase("a {}", 1);
  sentence.append(phrase(", b {}", 2)).append(std::string("c"));
  CHECK(sentence.english() == "a 1, b 2c");
  CHECK(key_of(sentence) == "a {}, b {}{}");
}

TEST_CASE("copies share their parts and change apart") {
  const Phrase first = phrase("a {}", 1);
  Phrase second = first;
  second += " b";
  CHECK(first.english() == "a 1");
  CHECK(second.english() == "a 1 b");
  second += second;
  CHECK(second.english() == "a 1 ba 1 b");
}

TEST_CASE("nothing adds nothing") {
  Phrase text;
  text += "";
  text += Phrase();
  text += std::string();
  CHECK(text.empty());
  CHECK(text.is_value());
  CHECK(phrase("{}", "").empty());
}

TEST_CASE("values are changed, words are not") {
  const Phrase text = phrase("a {} a: {}", std::string("a"), phrase("a {}", std::string("a")));
  const Phrase changed =
      text.with_values([](std::string_view value) { return std::string(value) + "!"; });
  CHECK(changed.english() == "a a! a: a a!");
  CHECK(changed.key() == text.key());
}

TEST_CASE("a byte that stands for slots stands for none in a text") {
  const Phrase text =
      "a\x01"
      "b";
  CHECK(text.english() ==
        "a\x01"
        "b");
  CHECK(text.key() == "a b");
  CHECK(text.arguments().empty());
}

TEST_CASE("phrases are ordered and compared by their English") {
  std::map<Phrase, int, std::less<>> counts;
  ++counts[phrase("{} b", "a")];
  ++counts["a b"];
  CHECK(counts.size() == 1);
  CHECK(counts.find(std::string_view("a b"))->second == 2);
  CHECK(phrase("{}", 1) == "1");
}
