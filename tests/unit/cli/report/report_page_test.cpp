#include "cli/report/report_page.hpp"

#include "tests/catch.hpp"

using namespace zeroplan;

TEST_CASE("text for HTML cannot open an element or leave an attribute") {
  CHECK(cli::html_text("<b a='1' c=\"2\">&lt;") ==
        "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;lt;");
  CHECK(cli::html_text("7B auf 8×A100") == "7B auf 8×A100");
}

TEST_CASE("a document in a script element cannot end it and reads back the same") {
  const std::string evil = "</script><!-- <script> \xE2\x80\xA8\xE2\x80\xA9 \\u003c \"";
  const Json document = Json::object({{"model", evil}, {evil, Json::array({Json(evil)})}});
  const std::string text = cli::script_json(document);
  CHECK(text.find('<') == std::string::npos);
  CHECK(text.find("\xE2\x80\xA8") == std::string::npos);
  CHECK(text.find("\xE2\x80\xA9") == std::string::npos);
  CHECK(parse_json(text, "test").root == document);
}
