// String literals of C++ sources, for tests about texts.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace zeroplan {

struct SourceText {
  int line = 0;
  std::string text;    // adjacent literals joined, escapes resolved
  std::string before;  // the code of the statement in front of it, without spaces
};

// Reads the literals of one file; comments, includes and characters are passed over.
class SourceTexts {
 public:
  explicit SourceTexts(std::string_view source) : rest_(source) {}

  std::vector<SourceText> read() {
    while (!rest_.empty()) step();
    finish();
    return std::move(found_);
  }

 private:
  void take(std::size_t count) {
    for (const char c : rest_.substr(0, count)) line_ += c == '\n' ? 1 : 0;
    rest_.remove_prefix(std::min(count, rest_.size()));
  }

  void step() {
    const bool line_start = at_line_start_;
    at_line_start_ = rest_[0] == '\n';
    if (rest_.starts_with("//") || (line_start && rest_[0] == '#')) {
      take(std::min(rest_.find('\n'), rest_.size()));
    } else if (rest_.starts_with("R\"(")) {
      const std::size_t end = rest_.find(")\"");
      add(std::string(rest_.substr(3, end - 3)));
      take(end + 2);
    } else if (rest_[0] == '"') {
      take_literal();
    } else if (rest_[0] == '\'' && !std::isalnum(static_cast<unsigned char>(last_))) {
      code('\'');
      take(rest_[1] == '\\' ? 4 : 3);
    } else {
      if (std::isspace(static_cast<unsigned char>(rest_[0])) == 0) code(rest_[0]);
      take(1);
    }
  }

  void take_literal() {
    std::string text;
    std::size_t at = 1;
    for (; rest_[at] != '"'; ++at) {
      if (rest_[at] != '\\') {
        text += rest_[at];
        continue;
      }
      const char escaped = rest_[++at];
      text += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped;
    }
    add(text);
    take(at + 1);
  }

  void add(const std::string& text) {
    if (!open_) found_.push_back({line_, "", statement_});
    open_ = true;
    found_.back().text += text;
  }

  void code(char c) {
    finish();
    last_ = c;
    statement_ += c;
    if (c == ';' || c == '{' || c == '}') statement_.clear();
  }

  void finish() { open_ = false; }

  std::string_view rest_;
  std::vector<SourceText> found_;
  std::string statement_;
  int line_ = 1;
  char last_ = ' ';
  bool open_ = false;  // the next literal belongs to the last one
  bool at_line_start_ = true;
};

}  // namespace zeroplan
