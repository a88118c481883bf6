#include "base/json.hpp"

#include <cmath>
#include <string>

#include "base/diagnostic.hpp"
#include "tests/catch.hpp"

using zeroplan::InputError;
using zeroplan::Json;
using zeroplan::parse_json;

namespace {

zeroplan::Diagnostic error_of(const std::string& text) {
  try {
    parse_json(text, "f.json");
  } catch (const InputError& error) {
    return error.diagnostics().front();
  }
  FAIL("no error for: " << text);
  return {};
}

}  // namespace

TEST_CASE("json keeps member order, integers and positions") {
  const auto document = parse_json("{\n  \"b\": 1,\n  \"a\": [1.5, true, null]\n}", "f.json");
  const Json& root = document.root;
  REQUIRE(root.members().size() == 2);
  CHECK(root.members()[0].first == "b");
  CHECK(root.find("b")->is_integer());
  CHECK(root.find("b")->line() == 2);
  CHECK(root.find("a")->items()[0].as_number() == 1.5);
  CHECK(root.find("a")->line() == 3);
  CHECK(root.dump() == R"({"b":1,"a":[1.5,true,null]})");
}

TEST_CASE("json skips comments and trailing commas and says so") {
  const auto document =
      parse_json("{ // one\n \"a\": \"x // no comment\", /* two */ \"b\": [1, 2, ], }", "f.json");
  CHECK(document.had_comments);
  CHECK(document.had_trailing_commas);
  CHECK(document.root.find("a")->as_string() == "x // no comment");
  CHECK(document.root.find("b")->items().size() == 2);
}

TEST_CASE("json remembers duplicate keys and lets the last one count") {
  const auto document = parse_json("{\"z\": {\"a\": 1,\n \"a\": 2}}", "f.json");
  REQUIRE(document.duplicates.size() == 1);
  CHECK(document.duplicates[0].pointer == "/z/a");
  CHECK(document.duplicates[0].line == 2);
  CHECK(document.root.find("z")->find("a")->as_integer() == 2);
}

TEST_CASE("an object of very many members is read and printed in time linear in them") {
  std::string text = "{\"k\":-1";
  for (int i = 0; i < 200000; ++i) text += ",\"k" + std::to_string(i) + "\":" + std::to_string(i);
  text += ",\"k\":1}";
  const auto document = parse_json(text, "f.json");  // minutes where each key is searched for
  CHECK(document.root.members().size() == 200002);
  REQUIRE(document.duplicates.size() == 1);
  CHECK(document.duplicates[0].pointer == "/k");
  const std::string printed = document.root.dump();
  CHECK(printed.substr(0, 14) == R"({"k":1,"k0":0,)");
}

TEST_CASE("json errors name line, column and the usual cause") {
  CHECK(error_of("").got == "an empty file");
  CHECK(error_of(" \n").got == "an empty file");
  CHECK(error_of("{\"a\": 1").hint.english().find("ends too early") != std::string::npos);
  CHECK(error_of("{\"a\": CONFIG_BATCH_SIZE}").hint.english().find("CONFIG_BATCH_SIZE") !=
        std::string::npos);
  CHECK(error_of("{\"a\": NaN}").hint.english().find("NaN") != std::string::npos);
  CHECK(error_of("{\"a\": True}").hint.english().find("Python") != std::string::npos);
  const auto missing_comma = error_of("{\"a\": 1\n \"b\": 2}");
  CHECK(missing_comma.pointer == "line 2, column 2");
  CHECK(missing_comma.hint.english().find("comma") != std::string::npos);
  CHECK(error_of(std::string(1000, '[')).expected.english().find("64 nested") != std::string::npos);
  CHECK(error_of(std::string("{\0}", 3)).got == "a binary file");
}

TEST_CASE("json equality ignores order of members and 1 against 1.0") {
  CHECK(parse_json("{\"a\":1,\"b\":2.0}", "").root == parse_json("{\"b\":2,\"a\":1}", "").root);
  CHECK_FALSE(parse_json("[1,2]", "").root == parse_json("[2,1]", "").root);
}

TEST_CASE("a path that is no file is an input error") {
  CHECK_THROWS_AS(zeroplan::read_text_file("/"), InputError);
  CHECK_THROWS_AS(zeroplan::read_text_file("/no/such/file"), InputError);
}

namespace {

// What reading the text is refused with.
std::string refusal_of(const std::string& text, const zeroplan::JsonOptions& options = {}) {
  try {
    zeroplan::parse_json(text, "a.json", options);
  } catch (const zeroplan::InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a document has a most of values, and each key a most of bytes") {
  zeroplan::JsonOptions options;
  options.max_values = 4;
  CHECK(refusal_of("[1,2,3]", options).empty());
  CHECK(
      refusal_of("[1,2,3,4]", options).find("expected a document of at most 4 values, got more") !=
      std::string::npos);
  CHECK(refusal_of(R"({"a":{"b":{"c":{}}}})", options).empty());
  CHECK_FALSE(refusal_of(R"({"a":{"b":{"c":{"d":1}}}})", options).empty());
  const std::string longest(4096, 'k');
  CHECK(refusal_of("{\"" + longest + "\":1}").empty());
  CHECK(refusal_of("{\"" + longest + "k\":1}").find("keys of at most 4096 bytes") !=
        std::string::npos);
}

TEST_CASE("a key that stands a million times is remembered a hundred times") {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += "\"k\":1,";
  text += "\"k\":2}";
  const zeroplan::JsonDocument document = zeroplan::parse_json(text, "a.json");
  CHECK(document.duplicates.size() == 100);
  CHECK(document.root.find("k")->as_integer() == 2);
}

TEST_CASE("values of every type are kept, changed and compared") {
  using zeroplan::Json;
  Json value;
  CHECK(value.is_null());
  value["a"]["b"].push_back(1);
  value["a"]["b"].push_back("two");
  value["a"]["c"] = true;
  CHECK(value.dump() == R"({"a":{"b":[1,"two"],"c":true}})");
  CHECK(value == zeroplan::parse_json(R"({"a":{"c":true,"b":[1.0,"two"]}})", "b.json").root);
  CHECK_FALSE(value == zeroplan::parse_json(R"({"a":{"c":true,"b":[1.0]}})", "b.json").root);
  CHECK(value["a"].erase("c"));
  CHECK_FALSE(value["a"].erase("c"));
  CHECK(Json(1).items().empty());
  CHECK(Json("x").members().empty());
}

TEST_CASE("values are printed in one line or indented, empty ones closed at once") {
  using zeroplan::Json;
  const Json value =
      Json::object({{"none", Json::array()},
                    {"nothing", Json::object()},
                    {"list", Json::array({1, -0.0, 1e300, nullptr})},
                    {"in \"quotes\"\n", Json::object({{"a", "\x7f \xc3\xa9 \xff"}})}});
  CHECK(value.dump() ==
        "{\"none\":[],\"nothing\":{},\"list\":[1,-0.0,1e+300,null],"
        "\"in \\\"quotes\\\"\\n\":{\"a\":\"\\u007f \xc3\xa9 \xef\xbf\xbd\"}}");
  CHECK(value.dump(2) ==
        "{\n  \"none\": [],\n  \"nothing\": {},\n"
        "  \"list\": [\n    1,\n    -0.0,\n    1e+300,\n    null\n  ],\n"
        "  \"in \\\"quotes\\\"\\n\": {\n    \"a\": \"\\u007f \xc3\xa9 \xef\xbf\xbd\"\n  }\n}");
  CHECK(Json::array({std::nan(""), HUGE_VAL}).dump() == "[null,null]");
}

TEST_CASE("of a key that stands twice the last value is printed, where the first stands") {
  const zeroplan::Json value = zeroplan::parse_json(R"({"a":1,"b":2,"a":{"c":3}})", "f").root;
  CHECK(value.dump() == R"({"a":{"c":3},"b":2})");
}

TEST_CASE("a copy is a value of its own, also of itself and of a part") {
  using zeroplan::Json;
  Json value = zeroplan::parse_json(R"({"a":[1,"two",3.0,true,null,{"b":[]}]})", "f").root;
  const Json copy = value;
  CHECK(copy == value);
  CHECK(copy.find("a")->items()[1].column() == value.find("a")->items()[1].column());
  const Json& itself = value;
  value = itself;
  CHECK(copy == value);
  const Json& part = value.find("a")->items()[5];
  value = part;
  CHECK(value.dump() == R"({"b":[]})");
}
