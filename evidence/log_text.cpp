#include "evidence/log_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <utility>

namespace zeroplan::evidence {
namespace {

constexpr char kEscape = '\x1b';
constexpr char kBell = '\x07';

// Behind the escape sequence that opens at `at`. ECMA-48: CSI is ESC [ parameters final, OSC is
// ESC ] text BEL or ESC \, the others ESC and one character.
std::size_t end_of_escape(std::string_view text, std::size_t at) {
  if (at + 1 >= text.size()) return text.size();
  const char kind = text[at + 1];
  std::size_t end = at + 2;
  if (kind == '[') {
    while (end < text.size() && text[end] >= ' ' && text[end] <= '?') ++end;
    const bool final = end < text.size() && text[end] >= '@' && text[end] <= '~';
    return final ? end + 1 : end;
  }
  if (kind != ']') return text[at + 1] == '\n' ? at + 1 : end;
  while (end < text.size() && text[end] != kBell && text[end] != kEscape && text[end] != '\n')
    ++end;
  if (end < text.size() && text[end] == kBell) return end + 1;
  if (end + 1 < text.size() && text[end] == kEscape && text[end + 1] == '\\') return end + 2;
  return end;
}

std::string_view without_leading(std::string_view text, std::string_view characters) {
  return text.substr(std::min(text.find_first_not_of(characters), text.size()));
}

// A whole number of at most `kMostRank` off the front.
std::optional<int> take_rank(std::string_view& text) {
  constexpr int kMostRank = 1'000'000;
  int rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc() || rank < 0 || rank > kMostRank) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return rank;
}

bool take(std::string_view& text, std::string_view front) {
  if (!text.starts_with(front)) return false;
  text.remove_prefix(front.size());
  return true;
}

struct Label {
  std::string name;  // equal for the lines of one process
  std::optional<int> rank;
};

// "[rank3]:", "[default3]:", also behind a host's name or a time.
std::optional<Label> take_bracketed(std::string_view& line) {
  constexpr std::size_t kFurthest = 80;
  for (const std::string_view word : {"[rank", "[default"}) {
    const std::size_t at = line.substr(0, kFurthest).find(word);
    if (at == std::string_view::npos) continue;
    std::string_view rest = line.substr(at + word.size());
    const std::optional<int> rank = take_rank(rest);
    if (!rank || !take(rest, "]:")) continue;
    line = rest;
    return Label{"rank " + std::to_string(*rank), rank};
  }
  return std::nullopt;
}

// "[1,3]<stderr>:"
std::optional<Label> take_mpi(std::string_view& line) {
  std::string_view rest = line;
  if (!take(rest, "[") || !take_rank(rest) || !take(rest, ",")) return std::nullopt;
  const std::optional<int> rank = take_rank(rest);
  if (!rank || !take(rest, "]<std")) return std::nullopt;
  if (!take(rest, "err>:") && !take(rest, "out>:")) return std::nullopt;
  line = rest;
  return Label{"rank " + std::to_string(*rank), rank};
}

// "3: ", right-aligned where there are ten ranks and more. A label ends with a space or the line.
std::optional<Label> take_srun(std::string_view& line) {
  std::string_view rest = without_leading(line, " ");
  if (rest.empty() || rest.front() < '0' || rest.front() > '9') return std::nullopt;
  const std::optional<int> rank = take_rank(rest);
  if (!rank || !take(rest, ":")) return std::nullopt;
  if (!rest.empty() && !take(rest, " ")) return std::nullopt;
  line = rest;
  return Label{"rank " + std::to_string(*rank), rank};
}

// "(RayTrainWorker pid=7, ip=10.0.0.1)"
std::optional<Label> take_ray(std::string_view& line) {
  if (line.empty() || line.front() != '(') return std::nullopt;
  constexpr std::size_t kLongest = 120;
  const std::size_t close = line.substr(0, kLongest).find(')');
  if (close == std::string_view::npos) return std::nullopt;
  const std::string_view inside = line.substr(1, close - 1);
  if (inside.find("pid=") == std::string_view::npos) return std::nullopt;
  Label label{std::string(inside), std::nullopt};
  line.remove_prefix(close + 1);
  return label;
}

// Takes signs of quoting and one label off a line.
Label take_label(std::string_view& line) {
  constexpr std::string_view kQuoting = " \t>#|*`";
  const std::string_view plain = without_leading(line, kQuoting);
  Label label;
  for (const auto reader : {take_bracketed, take_mpi, take_srun, take_ray}) {
    std::string_view rest = plain;
    if (std::optional<Label> found = reader(rest)) {
      label = std::move(*found);
      line = rest;
      break;
    }
  }
  line = without_leading(line, kQuoting);
  return label;
}

}  // namespace

std::string without_escapes(std::string text) {
  std::size_t kept = std::min(text.find(kEscape), text.size());
  for (std::size_t i = kept; i < text.size();) {
    if (text[i] == kEscape) {
      i = end_of_escape(text, i);
    } else {
      text[kept++] = text[i++];
    }
  }
  text.resize(kept);
  return text;
}

int LogText::line_at(std::size_t offset) const {
  const auto after =
      std::upper_bound(marks.begin(), marks.end(), offset, [](std::size_t at, const Mark& mark) {
        return at < mark.offset;
      });
  return after == marks.begin() ? 0 : std::prev(after)->line;
}

std::string_view LogText::line_around(std::size_t offset) const {
  const std::string_view whole = text;
  offset = std::min(offset, whole.size());
  const std::size_t before = offset == 0 ? std::string_view::npos : whole.rfind('\n', offset - 1);
  const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
  const std::size_t end = std::min(whole.find('\n', offset), whole.size());
  return whole.substr(begin, end - begin);
}

namespace {

// use(content, line): the lines that hold anything, and their numbers from 1. A line may be changed
// once it was used.
template <typename Use>
void for_each_line(std::string_view text, Use&& use) {
  for (int line = 1; !text.empty();) {
    const std::size_t end = std::min(text.find_first_of("\r\n"), text.size());
    const std::string_view content = text.substr(0, end);
    const bool counts = end < text.size() && text[end] == '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!content.empty()) use(content, line);
    if (counts) ++line;
  }
}

// Without labels: the lines move together where they stand, so that a large log is held once.
LogText one_text(std::string log, std::size_t lines) {
  LogText text;
  text.marks.reserve(lines);
  std::size_t kept = 0;
  const bool open = !log.empty() && log.back() != '\n' && log.back() != '\r';
  if (open) log += '\n';
  for_each_line(log, [&](std::string_view content, int line) {
    take_label(content);
    text.marks.push_back({kept, line});
    std::memmove(log.data() + kept, content.data(), content.size());
    kept += content.size();
    log[kept++] = '\n';
  });
  log.resize(kept);
  text.text = std::move(log);
  return text;
}

}  // namespace

std::vector<LogText> split_log(std::string log) {
  log = without_escapes(std::move(log));
  struct Size {
    std::size_t place = 0;  // of the label in `texts`
    std::size_t bytes = 0;
    std::size_t lines = 0;
  };
  std::map<std::string, Size, std::less<>> sizes;
  std::vector<LogText> texts;
  for_each_line(log, [&](std::string_view content, int) {
    const Label label = take_label(content);
    const auto [entry, added] = sizes.try_emplace(label.name, Size{texts.size()});
    if (added) texts.push_back({label.rank, "", {}});
    entry->second.bytes += content.size() + 1;
    ++entry->second.lines;
  });
  if (sizes.size() == 1 && sizes.begin()->first.empty()) {
    return {one_text(std::move(log), sizes.begin()->second.lines)};
  }
  for (const auto& [name, size] : sizes) {  // a large log is held twice, no more
    texts[size.place].text.reserve(size.bytes);
    texts[size.place].marks.reserve(size.lines);
  }
  for_each_line(log, [&](std::string_view content, int line) {
    const Label label = take_label(content);
    LogText& text = texts[sizes.find(label.name)->second.place];
    text.marks.push_back({text.text.size(), line});
    text.text += content;
    text.text += '\n';
  });
  return texts;
}

}  // namespace zeroplan::evidence
