// The table of releases: what stands in configs/release_rules.json, asked by name. Whether a
// release does something, code asks `acts` (release_rule.hpp).
#pragma once

#include <span>
#include <string_view>

#include "model/releases.hpp"

namespace zeroplan {

// All rows, in the order of ReleaseRule. Where a row begins or ends with a series of DeepSpeed
// (0.17.0), the last release of the series was read (software.cpp) and stands for all of it.
std::span<const ReleaseRow> release_rows();
const ReleaseRow& release_row(ReleaseRule rule);

// "DeepSpeed", as its users write it.
std::string_view display_name(Package package);

// The first release of a described behaviour: what a configuration file's rules are asked with.
Version first_release(DeepSpeedVersion version);

}  // namespace zeroplan
