#include "cli/language/translation.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "base/diagnostic.hpp"
#include "base/embedded.hpp"
#include "base/phrase_list.hpp"
#include "model/lint/lint.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

using Arguments = std::vector<std::string>;

const cli::Catalogue& chinese() {
  static const cli::Catalogue catalogue(embedded_file("configs/messages/zh.json"), "zh.json");
  return catalogue;
}

// Values that are no text of the catalogue, by number.
Arguments samples(const cli::MessageFormat& format) {
  Arguments arguments(format.arguments());
  for (std::size_t i = 0; i < arguments.size(); ++i) arguments[i] = "Q" + std::to_string(i);
  return arguments;
}

// What a source says with a row of the catalogue.
Phrase phrase_of(const cli::MessageFormat& format, const Arguments& arguments) {
  Phrase text = format.pieces().front().c_str();
  for (std::size_t i = 0; i < format.slots().size(); ++i) {
    text += Phrase(arguments[format.slots()[i].number]);
    text += format.pieces()[i + 1].c_str();
  }
  return text;
}

// A text that is nothing but a slot: another text, whole.
bool is_slot(const cli::MessageFormat& format) {
  return std::all_of(format.pieces().begin(), format.pieces().end(), [](const std::string& piece) {
    return piece.empty();
  });
}

cli::Catalogue of(const std::string& messages) {
  return cli::Catalogue("{\"messages\": {\"all\": {" + messages + "}}}", "test.json");
}

}  // namespace

TEST_CASE("values that somebody is to type are not translated") {
  const cli::Translation words(cli::Language::zh);
  const Diagnostic problem{"command line",
                           "--plot",
                           phrase("one of {}", "stages, memory, full"),
                           in_quotes("x"),
                           did_you_mean("ful", std::array<std::string_view, 1>{"full"})};
  CHECK(words.text(InputError(problem).text()) ==
        "错误：命令行: --plot: 应为 stages, memory, full 之一，实际为\"x\"\n提示：是否想写 full？");
  CHECK(words
            .text(did_you_mean("moddel",
                               std::array<std::string_view, 3>{"model", "modell", "mordel"}))
            .find("或") != std::string::npos);
}

TEST_CASE("numbered slots may stand in another order, and twice") {
  const cli::MessageFormat format("{1} before {0}, {1}");
  CHECK(format.filled({"a", "b"}) == "b before a, b");
}

TEST_CASE("braces that are no slot stay") {
  const cli::MessageFormat format("write {\"stage\": {0}}");
  CHECK(format.filled({"3"}) == "write {\"stage\": 3}");
  CHECK(format.slots().size() == 1);
}

TEST_CASE("Chinese and Latin text are set apart by a space, Chinese and Chinese are not") {
  CHECK(cli::MessageFormat("应为{}，实际").filled({"JSON"}) == "应为 JSON，实际");
  CHECK(cli::MessageFormat("应为 {}，实际").filled({"整数"}) == "应为整数，实际");
  CHECK(cli::MessageFormat("{}时").filled({"3 s"}) == "3 s 时");
  CHECK(cli::MessageFormat("内存    {}").filled({"每节点"}) == "内存    每节点");
  CHECK(cli::MessageFormat("{}：{}").filled({"原因", "4"}) == "原因：4");
}

TEST_CASE("a catalogue whose translation lacks a slot is refused") {
  CHECK_THROWS_AS(of("\"{} of {}\": \"{}\""), InputError);
  CHECK_THROWS_AS(of("\"{} of {}\": \"{0}{2}\""), InputError);
  CHECK_THROWS_AS(of("\"word\": \"\""), InputError);
  CHECK_THROWS_AS(of("\"word\": \"a\", \"word\": \"b\""), InputError);
  CHECK_THROWS_AS(cli::Catalogue("{}", "test.json"), InputError);
  CHECK(of("\"{} of {}\": \"{1}{0}\"").messages().size() == 1);
}

TEST_CASE("English stays as it is") {
  const cli::Translation english(cli::Language::en);
  CHECK(english.text("error\n  - none, at all\n") == "error\n  - none, at all\n");
  CHECK(english.filled("{1} of {0}", {"a", "b"}) == "b of a");
}

TEST_CASE("lines keep their indentation, names stay, what is unknown stays English") {
  const cli::Translation words(cli::Language::zh);
  CHECK(words.text(Phrase("\n  - micro-batch 1: the default\n")) == "\n  - 微批大小 1：默认值\n");
  CHECK(words.text("no sentence that anybody wrote") == "no sentence that anybody wrote");
  CHECK(words.text("") == "");
}

TEST_CASE("a finished sentence is a value, which nobody takes apart") {
  const cli::Translation words(cli::Language::zh);
  CHECK(words.text("host memory") == "主机内存");
  CHECK(words.text("  host memory") == "  主机内存");
  const std::string sentence = "A100-80G is taken as A100-80G-SXM: SXM assumed for 8 a node";
  CHECK(words.text(sentence) == sentence);
  CHECK(words.text(phrase("{} is taken as {}: {}",
                          "A100-80G",
                          "A100-80G-SXM",
                          phrase("{} assumed for {} a node", "SXM", 8))) ==
        "A100-80G 按 A100-80G-SXM 处理：每节点 8 张时假设为 SXM");
}

TEST_CASE("a list is said part by part") {
  const cli::Translation words(cli::Language::zh);
  const std::vector<Phrase> parts = {"host memory", phrase("{} hosts", 3), std::string("x")};
  CHECK(phrase_list(parts) == "host memory, 3 hosts, x");
  CHECK(words.text(phrase_list(parts)) == "主机内存、3 台主机、x");
  CHECK(words.text(phrase_list(parts, "; ")) == "主机内存；3 台主机；x");
  CHECK(phrase_list(std::vector<Phrase>{}).empty());
  CHECK(phrase_list(std::vector<std::string>{"a"}).is_value());
}

TEST_CASE("a line ends behind an argument that ends in one") {
  const cli::Translation words(cli::Language::zh);
  Phrase text;
  for (int hosts : {2, 3}) text += phrase("{} hosts\n", hosts);
  text += "host memory\n";
  CHECK(words.text(text) == "2 台主机\n3 台主机\n主机内存\n");
}

TEST_CASE("a phrase is looked up by its English, whatever fills its slots") {
  const cli::Translation words(cli::Language::zh);
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
  const cli::Translation words(cli::Language::zh);
  const char* const fits = "fits";
  CHECK(words.text(phrase("{}: probability {:.3f}", fits, 0.5)) == "放得下：概率 0.500");
  CHECK(words.text(
            phrase("  checkpoint: {} in {} files{}\n", "1 GiB", 2, ", without 16-bit weights")) ==
        "  检查点：1 GiB，共 2 个文件，不含 16 位权重\n");
  CHECK(words.text(phrase("process {} ({}{}) is on a GPU", 7, "python", "")) ==
        "进程 7（python）占用 GPU");
}

TEST_CASE("what the catalogue does not know of a phrase stays English") {
  const cli::Translation words(cli::Language::zh);
  CHECK(words.text(phrase("no such sentence of {} words", 5)) == "no such sentence of 5 words");
  CHECK(words.text(phrase("{}{}\n{}", "", "", "host memory")) == "\n主机内存");
}

TEST_CASE("every message of the catalogue is found by what a source says with it") {
  const cli::Translation words(cli::Language::zh);
  for (const cli::Catalogue::Message& message : chinese().messages()) {
    if (chinese().find(message.english.key()) != &message) continue;  // a row in front has its key
    const Arguments arguments = samples(message.english);
    const Phrase english = phrase_of(message.english, arguments);
    INFO(english.english());
    CHECK(words.text(english) == message.other.filled(arguments));
  }
}

TEST_CASE("no translation is the English text, save names and lists of them") {
  for (const auto& [english, other] : chinese().sentences()) {
    if (!cli::MessageFormat(english).slots().empty()) continue;
    const bool has_chinese = std::any_of(other.begin(), other.end(), [](char c) { return c < 0; });
    const bool is_sentence = english.find(' ') != std::string::npos;
    INFO(english);
    CHECK((has_chinese || !is_sentence || english == other));
  }
}

TEST_CASE("every text of every rule of lint has a translation") {
  std::set<std::vector<std::string>> formats;
  for (const cli::Catalogue::Message& message : chinese().messages()) {
    formats.insert(message.english.pieces());
  }
  const auto known = [&](std::string_view text) {
    const cli::MessageFormat format(text);
    if (!format.slots().empty()) return is_slot(format) || formats.contains(format.pieces());
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
  CHECK(cli::find_language("zh") == cli::Language::zh);
  CHECK_FALSE(cli::find_language("fr").has_value());
  CHECK(cli::language_of_words({"fit", "--lang", "zh"}) == cli::Language::zh);
  CHECK(cli::language_of_words({"fit", "--lang=en"}) == cli::Language::en);
  CHECK(cli::language_of_words({"fit", "--lang", "fr", "--lang", "zh"}) == cli::Language::zh);
}
