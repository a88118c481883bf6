// What the fuzz targets share. A target hands its bytes to one reader: the reader answers with a
// value or an InputError; every other exception, and whatever the sanitizers see, is a defect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/check.hpp"
#include "base/diagnostic.hpp"

namespace zeroplan::fuzz {

[[noreturn]] inline void defect(const std::string& what) {
  std::fprintf(stderr, "defect: %s\n", what.c_str());
  std::abort();
}

inline void require(bool holds, const std::string& what) {
  if (!holds) defect(what);
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A message must say what was expected and what came, and must not steer the terminal.
inline void check_message(const Diagnostic& problem) {
  require(!problem.expected.empty(), "a diagnostic without what was expected");
  require(!problem.got.empty(), "a diagnostic without what came: " + problem.expected);
  const std::string text = to_string(problem);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    require(byte >= 0x20 || c == '\n', "a control character in a message");
    require(byte != 0x7f, "a control character in a message");
  }
}

// Whether `reader` returned; false where it threw an InputError, or found sizes past 64 bits.
template <typename Reader>
bool reads(Reader&& reader) {
  try {
    reader();
    return true;
  } catch (const InputError& error) {
    for (const Diagnostic& problem : error.diagnostics()) check_message(problem);
  } catch (const SizeOverflow&) {
    // The command line reports it as bad input (base/check.hpp).
  }
  return false;
}

}  // namespace zeroplan::fuzz
