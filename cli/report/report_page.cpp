#include "cli/report/report_page.hpp"

#include <map>
#include <span>
#include <vector>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "base/embedded.hpp"
#include "cli/arguments.hpp"
#include "cli/language/translation.hpp"

namespace zeroplan::cli {

// Generated: configs/report and Vega (cli/CMakeLists.txt).
std::span<const EmbeddedFile> report_files();

namespace {

constexpr std::string_view kVega = "vega.js";

std::string_view find_file(std::string_view path) {
  for (const EmbeddedFile& file : report_files()) {
    if (file.path == path) return file.text;
  }
  return {};
}

std::string_view page_file(std::string_view name) {
  const std::string_view text = find_file("configs/report/" + std::string(name));
  ZP_CHECK(!text.empty(), "a file of the page is not embedded");
  return text;
}

// `text` with every @NAME@ replaced, in one pass: values are not looked at again.
std::string filled(std::string_view text, const std::map<std::string_view, std::string>& values) {
  std::string out;
  while (!text.empty()) {
    const std::size_t at = text.find('@');
    out += text.substr(0, at);
    if (at == std::string_view::npos) break;
    text.remove_prefix(at);
    const std::size_t end = text.find('@', 1);
    const auto found =
        end == std::string_view::npos ? values.end() : values.find(text.substr(1, end - 1));
    if (found == values.end()) {
      out += '@';
      text.remove_prefix(1);
    } else {
      out += found->second;
      text.remove_prefix(end + 1);
    }
  }
  return out;
}

std::string title_of(const Json& document) {
  const Json& question = *document.find("question");
  return question.find("model")->as_string() + " on " + question.find("cluster")->as_string();
}

struct Page {
  std::string_view html;
  std::string title;
  std::vector<std::string_view> plots;
  std::vector<std::string_view> scripts;  // behind the shell
  Language language = Language::en;
};

std::string joined(const std::vector<std::string_view>& files) {
  std::string text;
  for (const std::string_view name : files) text += page_file(name);
  return text;
}

std::string page(const Page& page, const Json& document) {
  return filled(page_file(page.html),
                {{"TITLE", html_text(page.title)},
                 {"STYLE", std::string(page_file("page.css"))},
                 {"DOCUMENT", script_json(document)},
                 {"VEGA", std::string(find_file(kVega))},
                 {"PLOTS", joined(page.plots)},
                 {"TEXTS", script_json(page_texts(page.language))},
                 {"WORDS", std::string(page_file("words.js"))},
                 {"SHELL", std::string(page_file("shell.js"))},
                 {"ANSWER", std::string(page_file("answer.html"))},
                 {"SCRIPT", joined(page.scripts)}});
}

}  // namespace

void require_vega() {
  if (!find_file(kVega).empty()) return;
  throw InputError({"zeroplan",
                    "",
                    "a program that was built with Vega",
                    "one that was built without",
                    "install libjs-vega and build again: sudo apt-get install libjs-vega"});
}

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string script_json(const Json& document) {
  const std::string text = document.dump();
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = std::string_view(text).substr(i);
    // In JSON these stand within strings alone.
    if (text[i] == '<') {
      out += "\\u003c";
    } else if (rest.starts_with("\xE2\x80\xA8")) {
      out += "\\u2028";
      i += 2;
    } else if (rest.starts_with("\xE2\x80\xA9")) {
      out += "\\u2029";
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string report_page(const Json& document, Language language) {
  return page({"page.html", title_of(document), {"plots.js"}, {"answer.js", "page.js"}, language},
              document);
}

std::string validation_page(const Json& document) {
  return page({"validation.html",
               "Predictions against measurements",
               {"plots.js", "scatter.js"},
               {"validation.js"}},
              document);
}

std::string plot_script(const Json& document, const PlotRequest& request) {
  const Json wanted = Json::object({{"plot", request.plot},
                                    {"theme", request.theme},
                                    {"width", request.width},
                                    {"height", request.height}});
  return std::string(find_file(kVega)) +
         "\nconst zeroplanTexts = " + script_json(page_texts(request.language)) + ";\n" +
         std::string(page_file("words.js")) + std::string(page_file("plots.js")) +
         std::string(page_file("scatter.js")) +
         "\nconst zeroplanDocument = " + script_json(document) +
         ";\nconst zeroplanRequest = " + script_json(wanted) + ";\n" +
         std::string(page_file("draw.js"));
}

}  // namespace zeroplan::cli
