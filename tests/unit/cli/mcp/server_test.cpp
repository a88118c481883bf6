#include "cli/mcp/server.hpp"

#include <algorithm>
#include <string>

#include "base/diagnostic.hpp"
#include "cli/arguments.hpp"
#include "cli/flags.hpp"
#include "tests/catch.hpp"

namespace zeroplan::cli {
namespace {

using Words = std::vector<std::string>;

Words words_of(const std::string& tool, const std::string& arguments) {
  return tool_call(tool, parse_json(arguments, "test").root).words;
}

std::string refused(const std::string& tool, const std::string& arguments) {
  try {
    words_of(tool, arguments);
  } catch (const InputError& error) {
    return error.text();
  }
  return "";
}

// A client's side: the answer to one message, of a command that repeats its words.
Json asked(const std::string& message, int code = kDone) {
  const auto answer = answer_message(message, [&](const ToolCall& call) {
    Json words = Json::array();
    for (const std::string& word : call.words) words.push_back(word);
    return ToolAnswer{code, words.dump(), ""};
  });
  return answer ? parse_json(*answer, "answer").root : Json();
}

std::string text_at(const Json& answer) {
  return answer.find("result")->find("content")->items().front().find("text")->as_string();
}

}  // namespace

TEST_CASE("a tool's call is a command line: properties are flags, positionals stand last") {
  CHECK(words_of("fit", R"({"model": "7B", "cluster": "8xA100-80G"})") ==
        Words{"fit", "--", "7B", "8xA100-80G"});
  CHECK(words_of("fit", R"({"model": "7B", "seq": 4096, "json": true, "flags": ["--why"]})") ==
        Words{"fit", "--seq", "4096", "--json", "--why", "--", "7B"});
  CHECK(words_of("simulate", R"({"model": {"model_type": "llama"}, "require_fit": true})") ==
        Words{"simulate", "--model", R"({"model_type":"llama"})", "--require-fit"});
  CHECK(words_of("lint", R"({"ds_config": {"train_batch_size": 8}})") ==
        Words{"lint", "--ds-config", R"({"train_batch_size":8})"});
  CHECK(words_of("rehearse", R"({"command": ["python", "-m", "train"], "ranks": 8})") ==
        Words{"rehearse", "--ranks", "8", "--", "python", "-m", "train"});
  const ToolCall log = tool_call("explain", Json::object({{"text", "CUDA out of memory"}}));
  CHECK(log.words == Words{"explain", "--", "-"});
  CHECK(log.standard_input == "CUDA out of memory");
}

TEST_CASE("every property of every tool is an argument that its command takes") {
  const Json tools = tool_list();
  CHECK(tools.items().size() == 5);
  for (const Json& tool : tools.items()) {
    const std::string& name = tool.find("name")->as_string();
    const std::vector<Flag> flags = flags_of(*command_named(name));
    const Json& schema = *tool.find("inputSchema");
    for (const auto& [property, about] : schema.find("properties")->members()) {
      CAPTURE(name, property);
      CHECK_FALSE(about.find("description")->as_string().empty());
      if (about.find("type")->dump().find("array") != std::string::npos) continue;
      if (property == "json" || property == "text") continue;
      const Json value = about.find("type")->dump().find("boolean") != std::string::npos
                             ? Json(true)
                             : Json("value");
      const ToolCall call = tool_call(name, Json::object({{property, value}}));
      REQUIRE(call.words.size() >= 2);
      const std::string& word = call.words[1];
      const bool known = std::any_of(flags.begin(), flags.end(), [&](const Flag& flag) {
        return flag.name == word || flag.short_name == word;
      });
      CHECK((known || word == "--"));
    }
  }
}

TEST_CASE("what a tool does not take is said, with what was meant") {
  CHECK(refused("fit", R"({"modell": "7B"})").find("did you mean model?") != std::string::npos);
  CHECK(refused("fit", R"({"model": null})").find("/model: expected a text") != std::string::npos);
  CHECK(refused("fit", R"({"flags": "--why"})").find("/flags: expected a list") !=
        std::string::npos);
  CHECK(refused("rehearse", R"({"command": "python train.py"})").find("a list of texts") !=
        std::string::npos);
}

TEST_CASE("no tool writes a file, in whatever spelling the flag comes") {
  for (const std::string flag : {"--output", "-o", "-oplan", "--output=plan", "--form=trl"}) {
    CAPTURE(flag);
    CHECK(refused("fit", R"({"flags": [")" + flag + R"("]})").find("write nothing") !=
          std::string::npos);
  }
}

TEST_CASE("the server answers requests, and nothing else") {
  CHECK(asked(R"({"jsonrpc": "2.0", "method": "notifications/initialized"})").is_null());
  CHECK(asked(R"({"jsonrpc": "2.0", "id": 1, "result": {}})").is_null());
  CHECK(*asked(R"({"jsonrpc": "2.0", "id": "a", "method": "ping"})").find("result") ==
        Json::object());
  const Json old = asked(
      R"({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2024-11-05"}})");
  CHECK(*old.find("result")->find("protocolVersion") == Json("2024-11-05"));
  const Json other = asked(
      R"({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "1999-01-01"}})");
  CHECK(*other.find("result")->find("protocolVersion") == Json("2025-11-25"));
  CHECK(
      asked(R"([{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "method": "n"}])")
          .items()
          .size() == 1);
}

TEST_CASE("what is no message, or asks for what there is not, has JSON-RPC's code") {
  const auto code = [](const std::string& message) {
    return asked(message).find("error")->find("code")->as_integer();
  };
  CHECK(code("nonsense") == -32700);
  CHECK(code("") == -32700);
  CHECK(code("7") == -32600);
  CHECK(code("[]") == -32600);
  CHECK(code(R"({"id": 1, "method": "ping"})") == -32600);
  CHECK(code(R"({"jsonrpc": "2.0", "id": 1})") == -32600);
  CHECK(code(R"({"jsonrpc": "2.0", "id": 1, "method": "resources/list"})") == -32601);
  CHECK(code(R"({"jsonrpc": "2.0", "id": 1, "method": "tools/call"})") == -32602);
  CHECK(
      code(R"({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "tune"}})") ==
      -32602);
}

TEST_CASE("a call's answer is its text, and the document where that was asked for") {
  const std::string call =
      R"({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fit", "arguments": )";
  const Json text = asked(call + R"({"model": "7B"}}})");
  CHECK(text_at(text) == R"(["fit","--","7B"])");
  CHECK(*text.find("result")->find("isError") == Json(false));
  CHECK(text.find("result")->find("structuredContent") == nullptr);
  const Json document = asked(call + R"({"model": "7B", "json": true}}})");
  CHECK(document.find("result")->find("structuredContent")->items().size() == 4);
  // "no" is an answer.
  CHECK(*asked(call + "{}}}", kAnswerIsNo).find("result")->find("isError") == Json(false));
  CHECK(*asked(call + "{}}}", kBadInput).find("result")->find("isError") == Json(true));
  const Json wrong = asked(call + R"({"sequence": 1}}})");
  CHECK(*wrong.find("result")->find("isError") == Json(true));
  CHECK(text_at(wrong).find("/sequence") != std::string::npos);
}

}  // namespace zeroplan::cli
