// model/plain_text and printable(): what of a file's text may reach a terminal.
#include "base/plain_text.hpp"

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

TEST_CASE("printable text stays, what steers a terminal or turns the writing is escaped") {
  CHECK(printable("llama-2-7b 模型 naïve €") == "llama-2-7b 模型 naïve €");
  CHECK(printable("a\x1b[31mb\nc\td\x7f") == "a\\x1b[31mb\\x0ac\\x09d\\x7f");
  CHECK(printable("\xc2\x9b"
                  "2J") == "\\u009b2J");
  CHECK(printable("evil\u202egnp.exe\u2066\u2069") == "evil\\u202egnp.exe\\u2066\\u2069");
  CHECK(printable("a\u2028b\u200f") == "a\\u2028b\\u200f");
  CHECK(printable(std::string("a\0b", 3)) == "a\\x00b");
}

TEST_CASE("bytes that are no UTF-8 are escaped one by one") {
  CHECK(printable("\xff\xe4\xbd") == "\\xff\\xe4\\xbd");
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");               // "/" in two bytes
  CHECK(printable("\xe0\x80\x9b") == "\\xe0\\x80\\x9b");      // a control character in three
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");      // half a pair of UTF-16
  CHECK(printable("\xf4\x90\x80\x80").starts_with("\\xf4"));  // beyond Unicode
}

TEST_CASE("a character whose bytes have not all come is told from one that is none") {
  CHECK(is_cut_character("\xe4\xbd"));
  CHECK(is_cut_character("\xf0"));
  CHECK_FALSE(is_cut_character("\xe4\xbd\xa0"));
  CHECK_FALSE(is_cut_character("\xff"));
  CHECK_FALSE(is_cut_character("\xe4g"));
  CHECK_FALSE(is_cut_character("a"));
}

TEST_CASE("a JSON document shows nothing that steers and is read back the same") {
  const std::string hostile =
      "a\x1b[2J\x7f\xc2\x9b\u202e\u2066\u061c\u2028 \xc2\xa9 模型 “ ” \" \\ \\u202e \n\t\r";
  const Json value = Json::object({{hostile, hostile}});
  const std::string text = value.dump();
  CHECK(printable(text) == text);
  CHECK(parse_json(text, "test").root == value);
}

TEST_CASE("control characters are found where a name must have none") {
  CHECK_FALSE(has_control_character("My Models/模型 2"));
  CHECK_FALSE(has_control_character("\xff"));  // a path may have any bytes else
  CHECK(has_control_character("a\nb"));
  CHECK(has_control_character(std::string_view("a\0b", 3)));
  CHECK(has_control_character("\x7f"));
}
