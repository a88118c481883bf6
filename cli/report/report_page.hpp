// The pages of `zeroplan report` and `zeroplan validate --plot` and the plots of `zeroplan plot`: a
// document (report_data.hpp, validation_plot.hpp) joined with configs/report and with Vega, which
// the build takes from Debian's libjs-vega.
//
// Everything that comes from the user stands in the page once, as JSON in a data block; the page's
// script reads it and writes text nodes. The page's Content-Security-Policy lets it load nothing.
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"
#include "cli/language/language.hpp"

namespace zeroplan::cli {

// Throws InputError where this program was built without Vega.
void require_vega();

// Precondition of the three: there is Vega. The page's own words are of the reader's language, but
// for what validate says: that is English. Those of the document are what they are.
std::string report_page(const Json& document, Language language);
std::string validation_page(const Json& document);
// A program for a JavaScript engine without a document: it prints the plot as SVG.
struct PlotRequest {
  std::string plot = "tradeoff";
  std::string theme = "light";
  int width = 720;
  int height = 0;  // 0: the plot's own
  Language language = Language::en;
};
std::string plot_script(const Json& document, const PlotRequest& request);

// Text for an element or an attribute of HTML.
std::string html_text(std::string_view text);
// A JSON document for a <script> element: no "<" is left in it, so that neither </script> nor <!--
// can end or change the element; no line separator of JavaScript's either.
std::string script_json(const Json& document);

}  // namespace zeroplan::cli
