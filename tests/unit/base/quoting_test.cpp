// tuner/kit/quoting: values of users' files in the languages of a kit, read by who reads them.
#include "base/quoting.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include "base/json.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

namespace fs = std::filesystem;

// Each would do something else than stand for itself where it is not quoted.
const std::vector<std::string>& hostile() {
  static const std::vector<std::string> texts = {"",
                                                 " ",
                                                 "-n",
                                                 "--model",
                                                 "..",
                                                 "../../etc",
                                                 "~",
                                                 "~root",
                                                 "$(touch executed)",
                                                 "node$(touch${IFS}executed)",
                                                 "`touch executed`",
                                                 "a; touch executed",
                                                 "a && touch executed",
                                                 "a | touch executed",
                                                 "> executed",
                                                 "'; touch executed; '",
                                                 "\"; touch executed; \"",
                                                 "'\"'\"'",
                                                 "\\",
                                                 "\\'",
                                                 "a\nb: c",
                                                 "a\r\nb",
                                                 "a\tb",
                                                 "\x1b[31m",
                                                 "\u202eabc\u2066",
                                                 "\u2028\u2029\u0085",
                                                 "\ufeffbom",
                                                 "模型 路径",
                                                 "{{ 7 * 7 }}",
                                                 "{a,b}",
                                                 "[a]",
                                                 "*",
                                                 "?",
                                                 "!important",
                                                 "!!python/object:os.system",
                                                 "&anchor",
                                                 "*alias",
                                                 "%TAG",
                                                 "%s%n",
                                                 "@at",
                                                 "#comment",
                                                 "a #comment",
                                                 "a: b",
                                                 "a:",
                                                 "- a",
                                                 "? a",
                                                 "| ",
                                                 ">",
                                                 "---",
                                                 "...",
                                                 "null",
                                                 "~",
                                                 "Yes",
                                                 "on",
                                                 "TRUE",
                                                 "1",
                                                 "0x10",
                                                 "1e3",
                                                 "1.5",
                                                 ".inf",
                                                 "-.5",
                                                 "2001-01-01",
                                                 "1:30",
                                                 "10.0.0.1",
                                                 "=",
                                                 "<<",
                                                 "$HOME",
                                                 "${HOME}",
                                                 "$$",
                                                 "a$",
                                                 "My Models/llama 2/",
                                                 "node-1",
                                                 "/local_nvme",
                                                 std::string(5000, 'x')};
  return texts;
}

// A folder of the test's own, in which `executed` must not appear.
class Sandbox {
 public:
  Sandbox()
      : folder_(fs::temp_directory_path() / ("zeroplan_quoting_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~Sandbox() { fs::remove_all(folder_); }
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  // What it prints.
  std::string run(const std::string& command) const {
    const std::string line = "cd '" + folder_.string() + "' && " + command;
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(line.c_str(), "r"), pclose);
    REQUIRE(pipe);
    std::string text;
    char buffer[4096];
    while (const std::size_t n = fread(buffer, 1, sizeof(buffer), pipe.get())) {
      text.append(buffer, n);
    }
    return text;
  }
  bool executed() const { return fs::exists(folder_ / "executed"); }

 private:
  fs::path folder_;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\0', at);
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

bool has(const char* program) {
  return std::system((std::string(program) + " >/dev/null 2>&1").c_str()) == 0;
}

}  // namespace

TEST_CASE("sh and bash read the words that were quoted, and execute nothing of them") {
  const Sandbox sandbox;
  std::string always = "printf '%s\\0'";
  std::string where_needed = always;
  for (const std::string& text : hostile()) {
    always += " " + sh_quoted(text);
    where_needed += " " + sh_word(text);
  }
  sandbox.write("always.sh", always + "\n");
  sandbox.write("needed.sh", where_needed + "\n");
  for (const std::string shell : {"sh", "bash"}) {
    if (!has((shell + " -c true").c_str())) continue;
    CHECK(split(sandbox.run(shell + " always.sh")) == hostile());
    CHECK(split(sandbox.run(shell + " needed.sh")) == hostile());
  }
  CHECK_FALSE(sandbox.executed());
  CHECK(sh_word("node-1") == "node-1");
  CHECK(sh_word("My Models/7b") == "'My Models/7b'");
}

TEST_CASE("a file's name that looks like an option is given as a file") {
  CHECK(sh_path("-rf") == "'./-rf'");
  CHECK(sh_path("/local nvme") == "'/local nvme'");
}

TEST_CASE("YAML reads the strings that were written, as strings and each in its place") {
  if (!has("python3 -c 'import yaml'")) {
    WARN("SKIPPED: PyYAML IS NOT INSTALLED");
    return;
  }
  const Sandbox sandbox;
  std::string document = "---\n";
  for (std::size_t i = 0; i < hostile().size(); ++i) {
    document += "k" + std::to_string(i) + ": " + yaml_string(hostile()[i]) + "\n";
  }
  sandbox.write("values.yaml", document);
  const std::string answer = sandbox.run(
      "python3 -c \"import json, yaml; print(json.dumps(yaml.safe_load(open('values.yaml'))))\"");
  const Json values = parse_json(answer, "PyYAML").root;
  REQUIRE(values.members().size() == hostile().size());
  for (std::size_t i = 0; i < hostile().size(); ++i) {
    INFO(hostile()[i] << " as " << yaml_string(hostile()[i]));
    const Json* value = values.find("k" + std::to_string(i));
    REQUIRE(value != nullptr);
    CHECK(*value == Json(hostile()[i]));
  }
  CHECK(yaml_string("q_proj") == "q_proj");
  CHECK(yaml_string("/local_nvme") == "/local_nvme");
  CHECK(yaml_string("123") == "\"123\"");
}

TEST_CASE("docker compose fills in nothing of a value") {
  CHECK(compose_string("/a$HOME/${B}$$") == "\"/a$$HOME/$${B}$$$$\"");
  CHECK(compose_string("/local_nvme") == "/local_nvme");
}

TEST_CASE("Markdown shows names as they are, in their line") {
  CHECK(markdown_text("llama-2-7b") == "llama-2-7b");
  CHECK(markdown_text("a_b stays, _a_ does not") == "a_b stays, \\_a\\_ does not");
  CHECK(markdown_text("x\n# y") == "x\\\\x0a# y");
  CHECK(markdown_text("# y") == "\\# y");
  CHECK(markdown_text("<img src=x>") == "\\<img src=x>");
  CHECK(markdown_text("[a](http://b) | `c`") == "\\[a\\](http://b) \\| \\`c\\`");
  CHECK(markdown_text("\u202e") == "\\\\u202e");
}
