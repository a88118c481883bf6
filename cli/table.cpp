#include "cli/table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "base/check.hpp"
#include "base/diagnostic.hpp"

namespace zeroplan::cli {
namespace {

// Columns a UTF-8 text takes on a terminal: CJK and full-width characters take two.
std::size_t display_width(const std::string& text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    const bool wide = length == 3 && lead >= 0xe3 && lead <= 0xef;  // U+3000 and above
    width += wide ? 2 : 1;
    i += length;
  }
  return width;
}

std::string padded(const std::string& text, std::size_t width, Align align) {
  const std::size_t own = display_width(text);
  const std::string space(own < width ? width - own : 0, ' ');
  return align == Align::left ? text + space : space + text;
}

}  // namespace

std::string table(const std::vector<Column>& columns,
                  const std::vector<std::vector<std::string>>& texts) {
  std::vector<std::vector<std::string>> rows = texts;
  for (auto& row : rows) {
    for (std::string& cell : row) cell = printable(cell);
  }
  std::vector<std::size_t> widths;
  std::vector<std::string> titles;
  for (const Column& column : columns) {
    widths.push_back(display_width(column.title));
    titles.push_back(column.title);
  }
  for (const auto& row : rows) {
    ZP_CHECK(row.size() == columns.size(), "a row of a table has another number of cells");
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) line += "  ";
      line += padded(cells[i], widths[i], columns[i].align);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add(titles);
  for (const auto& row : rows) add(row);
  return text;
}

std::string table(const std::vector<Column>& columns,
                  const std::vector<std::vector<Phrase>>& rows,
                  const Translation& words) {
  std::vector<Column> titles = columns;
  for (Column& column : titles) column.title = words.text(column.title);
  std::vector<std::vector<std::string>> cells(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const Phrase& cell : rows[i]) cells[i].push_back(words.text(cell));
  }
  return table(titles, cells);
}

std::string fixed_text(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }

namespace {

int gib_digits(Bytes bytes) { return bytes.gib() < 10 ? 2 : 1; }

}  // namespace

std::string gib_number(Bytes bytes) {
  if (bytes.is_infinite()) return "-";
  return fixed_text(bytes.gib(), gib_digits(bytes));
}

GibPair::GibPair(Bytes need, Bytes available, const std::string& unit)
    : needed(unit.empty() ? gib_number(need) : gib_text(need)),
      there(unit.empty() ? gib_number(available) : gib_text(available)) {
  if (need.is_infinite() || available.is_infinite()) return;
  const int digits = gib_digits(available);
  constexpr double kUnits = 2.0;  // of the last digit
  if (std::abs(need.gib() - available.gib()) * std::pow(10.0, digits) >= kUnits) return;
  constexpr int kMost = 3;  // digits more: MiB
  for (int more = 1; more <= kMost; ++more) {
    needed = fixed_text(need.gib(), digits + more) + unit;
    there = fixed_text(available.gib(), digits + more) + unit;
    if (needed != there) return;
  }
}

std::string gib_text(Bytes bytes) {
  return bytes.is_infinite() ? "no limit" : gib_number(bytes) + " GiB";
}

std::string plain_name(std::string_view id) {
  std::string text(id);
  std::replace(text.begin(), text.end(), '_', ' ');
  if (text.starts_with("gpu ")) text.replace(0, 3, "GPU");
  if (text.starts_with("cpu ")) text.replace(0, 3, "CPU");
  return text == "nvme" ? "NVMe" : text;
}

std::string count_text(std::int64_t count) {
  std::string digits = std::to_string(std::abs(count));
  for (std::ptrdiff_t i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > 0; i -= 3) {
    digits.insert(static_cast<std::size_t>(i), ",");
  }
  if (count < 0) digits.insert(0, 1, '-');
  return digits;
}

std::string short_count_text(std::int64_t n) {
  const double value = static_cast<double>(n);
  if (value >= 1e12) return fmt::format("{:.2f} T", value / 1e12);
  if (value >= 1e9) return fmt::format("{:.2f} B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.0f} M", value / 1e6);
  return count_text(n);
}

std::string seconds_text(Seconds time) {
  const double s = time.seconds();
  if (std::isinf(s)) return "-";
  if (s >= 100) return fmt::format("{:.0f} s", s);
  if (s >= 1) return fmt::format("{:.2f} s", s);
  if (s >= 1e-3) return fmt::format("{:.1f} ms", s * 1e3);
  return fmt::format("{:.0f} us", s * 1e6);
}

std::string percent_text(double ratio) { return fmt::format("{:.1f} %", ratio * 100.0); }

}  // namespace zeroplan::cli
