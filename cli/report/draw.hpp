// Pictures from a script: `plot` and `validate --plot` run Vega in a JavaScript engine of this
// machine.
//
// SVG by Node.js, PNG from the SVG by rsvg-convert. What is missing is an InputError that names the
// package; a tool that fails is an internal error.
#pragma once

#include <string>

#include "base/phrase.hpp"

namespace zeroplan::cli {

// Are the tools there? Throws InputError; `otherwise` says what to do without Node.js.
void require_drawing(bool png, const Phrase& otherwise);

// The SVG that `script` (report_page.hpp, plot_script) prints.
std::string draw_svg(const std::string& script);

// Writes a PNG of twice the SVG's size in pixels: sharp on today's screens.
void write_png(const std::string& svg, const std::string& path);

}  // namespace zeroplan::cli
