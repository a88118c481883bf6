// Plain text tables and numbers for people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "cli/language/translation.hpp"

namespace zeroplan::cli {

enum class Align { left, right };

struct Column {
  Phrase title;
  Align align = Align::left;
};

// Rows under titles, columns separated by two spaces, without trailing spaces. Widths count
// characters, not bytes, and wide (Chinese) ones twice; a cell stays in its line (printable()).
std::string table(const std::vector<Column>& columns,
                  const std::vector<std::vector<std::string>>& rows);

// The same with titles and cells in another language.
std::string table(const std::vector<Column>& columns,
                  const std::vector<std::vector<Phrase>>& rows,
                  const Translation& words);

std::string gib_text(Bytes bytes);  // "31.4 GiB", "-" for infinite
// A need and what there is, as "23.4 GiB" and "31.4 GiB"; with a digit more where these
// are so near to each other that the usual digits hide on which side of the limit the need is.
struct GibPair {
  GibPair(Bytes needed, Bytes available, const std::string& unit = " GiB");
  std::string needed, there;
};
std::string count_text(std::int64_t count);    // "6,738,415,616"
std::string short_count_text(std::int64_t n);  // "6.74 B", "350 M"
std::string seconds_text(Seconds time);        // "1.23 s", "45.6 ms"
std::string percent_text(double ratio);        // "43.1 %"
std::string fixed_text(double value, int digits);
std::string gib_number(Bytes bytes);          // "31.4", under a title that names GiB
std::string plain_name(std::string_view id);  // "optimizer_states" -> "optimizer states"

}  // namespace zeroplan::cli
