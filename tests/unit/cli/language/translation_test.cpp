#include "cli/language/translation.hpp"

#include <set>

#include "model/diagnostic.hpp"
#include "model/embedded.hpp"
#include "model/lint/lint.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

using Arguments = std::vector<std::string>;

const Catalogue& chinese() {
  static const Catalogue catalogue(embedded_file("configs/messages/zh.json"), "zh.json");
  return catalogue;
}

// Text that a slot takes and no sentence of the catalogue is.
Arguments samples(const MessageFormat& format) {
  Arguments arguments(format.arguments());
  for (const MessageFormat::Slot& slot : format.slots()) {
    const bool number = slot.take == MessageFormat::Take::quantity;
    arguments[slot.number] = (number ? "4" : "Q") + std::to_string(slot.number);
  }
  return arguments;
}

Catalogue of(const std::string& messages) {
  return Catalogue("{\"messages\": {\"all\": {" + messages + "}}}", "test.json");
}

}  // namespace

TEST_CASE("a format finds what it was filled with") {
  const MessageFormat format("step {}: {} of {}");
  CHECK(format.match("step 3: 4 of 5") == Arguments{"3", "4", "5"});
  CHECK_FALSE(format.match("step 3: 4 of "));
  CHECK_FALSE(format.match("step 3, 4 of 5"));
  CHECK_FALSE(format.match("the step 3: 4 of 5"));
}

TEST_CASE("values that somebody is to type are not translated") {
  const Translation words(Language::zh);
  CHECK(
      words.text("error: command line: --plot: expected one of stages, memory, full, got \"x\"") ==
      "错误：命令行: --plot: 应为 stages, memory, full 之一，实际为\"x\"");
  CHECK(words.text("hint: did you mean memory?") == "提示：是否想写 memory？");
  CHECK(words.text("hint: did you mean memory, none or full?") ==
        "提示：是否想写 memory、none 或 full？");
}

TEST_CASE("slots in front take least, and more where the rest asks for it") {
  CHECK(MessageFormat("{}, {}").match("a, b, c") == Arguments{"a", "b, c"});
  CHECK(MessageFormat("{} {#}").match("optimizer states 3 GiB") ==
        Arguments{"optimizer states", "3 GiB"});
}

TEST_CASE("slots for numbers and words take nothing else") {
  const MessageFormat number("{#} more");
  for (const char* good : {"3", "1,024", "31.4 GiB", "+2 %", "1e9", "-", "no limit"}) {
    INFO(good);
    CHECK(number.match(std::string(good) + " more").has_value());
  }
  for (const char* bad : {"a", "3 and 4", "3: 4", "ZeRO-3", "3 GiB, 4"}) {
    INFO(bad);
    CHECK_FALSE(number.match(std::string(bad) + " more").has_value());
  }
  CHECK(MessageFormat("{w} is").match("one is").has_value());
  CHECK_FALSE(MessageFormat("{w} is").match("one two is").has_value());
}

TEST_CASE("numbered slots may stand in another order, and twice") {
  const MessageFormat format("{1} before {0}, {1}");
  CHECK(format.filled({"a", "b"}) == "b before a, b");
  CHECK(format.match("b before a, b") == Arguments{"a", "b"});
  CHECK_FALSE(format.match("b before a, c"));
}

TEST_CASE("braces that are no slot stay") {
  const MessageFormat format("write {\"stage\": {0}}");
  CHECK(format.filled({"3"}) == "write {\"stage\": 3}");
  CHECK(format.slots().size() == 1);
}

TEST_CASE("Chinese and Latin text are set apart by a space, Chinese and Chinese are not") {
  CHECK(MessageFormat("应为{}，实际").filled({"JSON"}) == "应为 JSON，实际");
  CHECK(MessageFormat("应为 {}，实际").filled({"整数"}) == "应为整数，实际");
  CHECK(MessageFormat("{}时").filled({"3 s"}) == "3 s 时");
  CHECK(MessageFormat("内存    {}").filled({"每节点"}) == "内存    每节点");
  CHECK(MessageFormat("{}：{}").filled({"原因", "4"}) == "原因：4");
}

TEST_CASE("a catalogue whose translation lacks a slot is refused") {
  CHECK_THROWS_AS(of("\"{} of {}\": \"{}\""), InputError);
  CHECK_THROWS_AS(of("\"{} of {}\": \"{0}{2}\""), InputError);
  CHECK_THROWS_AS(of("\"word\": \"\""), InputError);
  CHECK_THROWS_AS(of("\"word\": \"a\", \"word\": \"b\""), InputError);
  CHECK_THROWS_AS(Catalogue("{}", "test.json"), InputError);
  CHECK(of("\"{} of {}\": \"{1}{0}\"").messages().size() == 1);
}

TEST_CASE("English stays as it is") {
  const Translation english(Language::en);
  CHECK(english.text("error\n  - none, at all\n") == "error\n  - none, at all\n");
  CHECK(english.filled("{1} of {0}", {"a", "b"}) == "b of a");
}

TEST_CASE("lines keep their indentation, names stay, what is unknown stays English") {
  const Translation words(Language::zh);
  CHECK(words.text("\n  - micro-batch 1: the default\n") == "\n  - 微批大小 1：默认值\n");
  CHECK(words.text("no sentence that anybody wrote") == "no sentence that anybody wrote");
  CHECK(words.text("") == "");
  CHECK(words.text("error: error: /none: expected a string, got \"none\"") ==
        "错误：error: /none: 应为字符串，实际为\"none\"");
}

TEST_CASE("of several formats that match the one that leaves no English counts") {
  const Translation words(Language::zh);
  CHECK(words.text(
            "  - ZeRO-3, full activation checkpointing: 3 % slower, 1.5 GiB less GPU memory") ==
        "  - ZeRO-3，完整激活检查点：慢 3 %，GPU 显存少 1.5 GiB");
  CHECK(words.text("A100-80G is taken as A100-80G-SXM: SXM assumed for 8 a node") ==
        "A100-80G 按 A100-80G-SXM 处理：每节点 8 张时假设为 SXM");
}

TEST_CASE("a long text that nothing matches is answered at once") {
  const Translation words(Language::zh);
  std::string text = "error: ";
  for (int i = 0; i < 60; ++i) text += "what, is; that and this or: ";
  CHECK(words.text(text).size() > 0);
}

TEST_CASE("a phrase is looked up by its English, whatever fills its slots") {
  const Translation words(Language::zh);
  CHECK(words.text(phrase("wrote {} and {}", "a and b", "c, d")) == "已写入 a and b 和 c, d");
  CHECK(words.text(
            phrase("assumed: {}", phrase("DDP shards nothing: ZeRO stage {} is ignored", 1))) ==
        "假设：DDP 不切分任何内容：忽略 ZeRO stage 1");
  CHECK(words.text(phrase("wrote {}", "host memory")) == "已写入 host memory");  // {=}: a name
  CHECK(words.text(phrase("  - {}\n    then {}, {} per GPU, {} tokens/s per GPU\n",
                          "micro-batch 1: the default",
                          "DDP",
                          "3 GiB",
                          5)) ==
        "  - 微批大小 1：默认值\n    此时用 DDP，每 GPU 3 GiB，每 GPU 5 token/s\n");
}

TEST_CASE("a clause that fills a slot may be part of the sentence's row") {
  const Translation words(Language::zh);
  const char* const fits = "fits";
  CHECK(words.text(phrase("{}: probability {:.3f}", fits, 0.5)) == "放得下：概率 0.500");
  CHECK(words.text(
            phrase("  checkpoint: {} in {} files{}\n", "1 GiB", 2, ", without 16-bit weights")) ==
        "  检查点：1 GiB，共 2 个文件，不含 16 位权重\n");
  CHECK(words.text(phrase("process {} ({}{}) is on a GPU", 7, "python", "")) ==
        "进程 7（python）占用 GPU");
}

TEST_CASE("what the catalogue does not know of a phrase stays English") {
  const Translation words(Language::zh);
  CHECK(words.text(phrase("no such sentence of {} words", 5)) == "no such sentence of 5 words");
  CHECK(words.text(phrase("{}{}\n{}", "", "", "host memory")) == "\n主机内存");
}

TEST_CASE("every message of the catalogue is found again by the text it makes") {
  const Translation words(Language::zh);
  for (const Catalogue::Message& message : chinese().messages()) {
    if (message.english.letters() < 4) continue;  // lists: "{}, {}"
    const Arguments arguments = samples(message.english);
    const std::string english = message.english.filled(arguments);
    INFO(english);
    CHECK(words.text(english) == message.other.filled(arguments));
  }
}

TEST_CASE("no translation is the English text, save names and lists of them") {
  for (const auto& [english, other] : chinese().sentences()) {
    const bool has_chinese = std::any_of(other.begin(), other.end(), [](char c) { return c < 0; });
    const bool is_sentence = english.find(' ') != std::string::npos;
    INFO(english);
    CHECK((has_chinese || !is_sentence || english == other));
  }
}

TEST_CASE("every text of every rule of lint has a translation") {
  std::set<std::vector<std::string>> formats;
  for (const Catalogue::Message& message : chinese().messages()) {
    formats.insert(message.english.pieces());
  }
  const auto known = [&](std::string_view text) {
    const MessageFormat format(text);
    if (!format.slots().empty()) return format.letters() == 0 || formats.contains(format.pieces());
    return text.empty() || chinese().sentences().find(text) != chinese().sentences().end();
  };
  for (const RuleInfo& rule : lint_rules()) {
    INFO(rule.code);
    CHECK(known(rule.summary));
    CHECK(known(rule.cost));
    for (const RuleText& text : rule.texts) {
      INFO(text.message << "\n" << text.fix);
      CHECK(known(text.message));
      CHECK(known(text.fix));
    }
  }
}

TEST_CASE("the language is --lang's, else the locale's") {
  CHECK(find_language("zh") == Language::zh);
  CHECK_FALSE(find_language("fr").has_value());
  CHECK(language_of_words({"fit", "--lang", "zh"}) == Language::zh);
  CHECK(language_of_words({"fit", "--lang=en"}) == Language::en);
  CHECK(language_of_words({"fit", "--lang", "fr", "--lang", "zh"}) == Language::zh);
}
