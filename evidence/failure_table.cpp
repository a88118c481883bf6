#include "evidence/failure_table.hpp"

#include <algorithm>
#include <optional>

#include "base/check.hpp"
#include "base/embedded.hpp"
#include "base/json.hpp"
#include "evidence/text_scanner.hpp"

namespace zeroplan::evidence {
namespace {

constexpr std::string_view kSchema = "zeroplan.failures/1";
// What fills a slot is a name, a number or a path: longer text is another message.
constexpr std::size_t kLongestValue = 240;

char small_letter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::uint16_t opening_of(char first, char second) {
  const auto byte = [](char c) { return static_cast<unsigned>(static_cast<unsigned char>(c)); };
  return static_cast<std::uint16_t>(byte(small_letter(first)) << 8 | byte(small_letter(second)));
}

std::string trimmed_of(std::string_view text, std::string_view what) {
  const std::size_t begin = text.find_first_not_of(what);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(what) + 1 - begin));
}

// "a {name} b" as "a", "name", "b". Braces around anything but a name are text.
std::pair<std::vector<std::string>, std::vector<std::string>> parts_of(std::string_view text) {
  constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyz_";
  std::pair<std::vector<std::string>, std::vector<std::string>> parts;
  std::string piece;
  while (!text.empty()) {
    const std::size_t open = std::min(text.find('{'), text.size());
    piece += text.substr(0, open);
    text.remove_prefix(open);
    if (text.empty()) break;
    const std::size_t end = std::min(text.find_first_not_of(kOfNames, 1), text.size());
    if (end == 1 || end == text.size() || text[end] != '}') {
      piece += text.front();
      text.remove_prefix(1);
      continue;
    }
    parts.first.push_back(std::exchange(piece, ""));
    parts.second.emplace_back(text.substr(1, end - 1));
    text.remove_prefix(end + 1);
  }
  parts.first.push_back(piece);
  return parts;
}

FailureWords words_of(const std::string& text) {
  FailureWords words;
  auto [pieces, names] = parts_of(text);
  ZP_CHECK(pieces.front().size() > 1 && pieces.front().front() != ' ',
           "words of configs/failures.json open with two characters: " + text);
  // A scanner skips the white space before what it takes.
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    pieces[i].erase(0, pieces[i].find_first_not_of(' '));
    ZP_CHECK(!pieces[i].empty() || i + 1 == pieces.size(),
             "two slots of configs/failures.json stand side by side: " + text);
  }
  words.pieces = std::move(pieces);
  words.names = std::move(names);
  return words;
}

std::vector<std::string> texts_of(const Json& row, std::string_view key) {
  const Json* value = row.find(key);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->as_string()};
  std::vector<std::string> texts;
  for (const Json& text : value->items()) texts.push_back(text.as_string());
  return texts;
}

KnownFailure read_row(const Json& row) {
  KnownFailure failure;
  failure.code = row.find("code")->as_string();
  if (const Json* kind = row.find("kind")) {
    const auto known = zeroplan::find(kFailureKindNames, kind->as_string());
    ZP_CHECK(known.has_value(), "no kind of failure: " + kind->as_string());
    failure.kind = *known;
  }
  if (const Json* count = row.find("at_least")) {
    failure.at_least = static_cast<int>(count->as_integer());
  }
  for (const std::string& words : texts_of(row, "words")) failure.words.push_back(words_of(words));
  failure.cause = texts_of(row, "cause");
  failure.check = texts_of(row, "check");
  failure.remedy = texts_of(row, "remedy");
  ZP_CHECK(!failure.words.empty() && !failure.cause.empty() && !failure.remedy.empty(),
           "a failure lacks words, cause or remedy: " + failure.code);
  return failure;
}

// What stands in the slots where the words are said at `at`; nothing where they are not.
std::optional<FailureValues> match_words(std::string_view text,
                                         std::size_t at,
                                         const FailureWords& words) {
  TextScanner scanner(text, at);
  if (!scanner.take(words.pieces.front())) return std::nullopt;
  FailureValues values;
  for (std::size_t i = 1; i < words.pieces.size(); ++i) {
    const std::size_t begin = scanner.at();
    const std::size_t most = std::min(text.size(), begin + kLongestValue);
    const std::string_view rest = text.substr(0, std::min(text.find('\n', begin), most));
    std::size_t end = rest.size();
    if (words.pieces[i].empty()) {
      const std::size_t word = std::min(rest.find_first_not_of(' ', begin), rest.size());
      end = std::min(rest.find_first_of(" \t,;'\"`)", word), rest.size());
    } else {
      end = find_words(rest, words.pieces[i], begin);
      if (end == std::string_view::npos) return std::nullopt;
    }
    std::string value = trimmed_of(rest.substr(begin, end - begin), " \t.:,");
    if (value.empty()) return std::nullopt;
    values[words.names[i - 1]] = std::move(value);
    scanner = TextScanner(text, end);
    if (!words.pieces[i].empty()) scanner.take(words.pieces[i]);
  }
  return values;
}

}  // namespace

FailureTable::FailureTable(std::string_view document, const std::string& file) {
  const Json root = parse_json(document, file).root;
  const Json* schema = root.find("schema");
  ZP_CHECK(schema != nullptr && schema->as_string() == kSchema, file + " has another schema");
  for (const Json& row : root.find("failures")->items()) rows_.push_back(read_row(row));
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    for (const FailureWords& words : rows_[i].words) {
      const std::string& first = words.pieces.front();
      openings_[opening_of(first[0], first[1])].push_back({i, &words});
    }
  }
}

std::vector<FoundFailure> FailureTable::find(const LogText& log) const {
  std::vector<FoundFailure> found;
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t speaker = kNone;  // of the line at hand, in `found`
  const std::string_view text = log.text;
  for (std::size_t at = 0; at + 1 < text.size(); ++at) {
    if (text[at] == '\n') speaker = kNone;
    const auto openings = openings_.find(opening_of(text[at], text[at + 1]));
    if (openings == openings_.end()) continue;
    for (const Opening& opening : openings->second) {
      const KnownFailure& row = rows_[opening.row];
      const bool speaks = row.kind != FailureKind::where;
      const bool spoken = speaks && speaker != kNone;
      if (spoken && found[speaker].failure <= &row) continue;
      auto values = match_words(text, at, *opening.words);
      if (!values) continue;
      if (spoken) {
        found[speaker] = {&row, at, std::move(*values)};
        continue;
      }
      if (speaks) speaker = found.size();
      found.push_back({&row, at, std::move(*values)});
    }
  }
  return found;
}

const FailureTable& known_failures() {
  constexpr const char* kFile = "configs/failures.json";
  static const FailureTable table(embedded_file(kFile), kFile);
  return table;
}

Phrase filled_text(const std::vector<std::string>& texts, const FailureValues& values) {
  for (const std::string& text : texts) {
    const auto [pieces, names] = parts_of(text);
    const bool known = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      return values.find(name) != values.end();
    });
    if (!known) continue;
    Phrase phrase;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      phrase += pieces[i].c_str();
      if (i < names.size()) phrase += Phrase(values.at(names[i]));
    }
    return phrase;
  }
  return {};
}

}  // namespace zeroplan::evidence
