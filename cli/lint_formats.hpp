// Findings of `lint` as other programs show them at lines: GitHub's annotations, SARIF.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "model/knobs/finding.hpp"
#include "model/lint/place.hpp"

namespace zeroplan::cli {

// A finding of one file, or an error that kept the file from being read.
struct PlacedFinding {
  std::string file;
  Place place;
  Finding finding;
};

// Code of the findings that stand for an input error.
inline constexpr const char* kBadInputCode = "bad-input";

// A problem of reading as a finding.
PlacedFinding placed(const Diagnostic& problem);

// One workflow command a finding: ::error file=ds.json,line=3,col=5,title=...::...
// Source: docs.github.com, "Workflow commands for GitHub Actions"; actions/toolkit
// packages/core/src/command.ts (what is escaped).
void print_github(const std::vector<PlacedFinding>& findings, std::ostream& out);

// One SARIF 2.1.0 document with the rules that were found. Source: OASIS SARIF 2.1.0, sections
// 3.13 (log), 3.18 (driver), 3.27 (result), 3.30 (region).
void print_sarif(const std::vector<PlacedFinding>& findings, std::ostream& out);

}  // namespace zeroplan::cli
