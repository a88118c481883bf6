#include "foreign/shell.hpp"

#include <algorithm>
#include <cctype>

#include "base/diagnostic.hpp"
#include "foreign/settings.hpp"

namespace zeroplan::foreign {
namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// "NAME=value" with a shell's name: how much of it is the name; 0 for other words.
std::size_t assigned_name(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return 0;
  if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) return 0;
  const std::string_view name = word.substr(0, equals);
  return std::all_of(name.begin(), name.end(), is_name) ? equals : 0;
}

// Windows ends lines with "\r\n"; a "\\" before that continues the command all the same.
std::string with_unix_lines(std::string_view text) {
  std::string lines;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    lines += text[i];
  }
  return lines;
}

class ShellReader {
 public:
  ShellReader(const ShellReader&) = delete;  // text_ is a view of a member
  ShellReader& operator=(const ShellReader&) = delete;
  ShellReader(std::string_view text,
              std::map<std::string, std::string> known,
              const std::string& file)
      : without_returns_(with_unix_lines(text)),
        text_(without_returns_),
        known_(std::move(known)),
        file_(file) {}

  Script read() {
    while (at_ < text_.size()) read_one();
    end_command();
    return std::move(script_);
  }

 private:
  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char next() const { return at_ + 1 < text_.size() ? text_[at_ + 1] : '\0'; }

  void read_one() {
    const char c = now();
    if (c == '\\' && next() == '\n') {
      at_ += 2;
      ++line_;
      end_word();
    } else if (c == '\n') {
      array_.empty() ? end_command() : end_word();
      ++at_;
      ++line_;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      end_word();
      ++at_;
    } else if (c == '#' && !in_word_) {
      read_comment();
    } else if (c == '(' && begins_array()) {
      begin_array();
    } else if (c == ')' && !array_.empty()) {
      end_array();
    } else if (c == ';' || c == '&' || c == '|' || c == '(' || c == ')') {
      end_command();
      ++at_;
    } else if (c == '<' || c == '>') {
      if (!read_document()) skip_redirection();
    } else {
      begin_word();
      read_part();
    }
  }

  // "> log", "2>&1", "<file": the words of a redirection are none of the command.
  void skip_redirection() {
    const bool descriptor = in_word_ && !word_.text.empty() &&
                            word_.text.find_first_not_of("0123456789") == std::string::npos;
    if (descriptor) in_word_ = false;
    end_word();
    while (now() == '<' || now() == '>' || now() == '&') ++at_;
    while (now() == ' ' || now() == '\t') ++at_;
    constexpr std::string_view kEnds = " \t\r\n;&|()<>";
    while (at_ < text_.size() && kEnds.find(now()) == std::string_view::npos) ++at_;
  }

  // "NAME=(": words until the bracket that closes it, lines' ends and comments between them.
  bool begins_array() const {
    return in_word_ && array_.empty() && word_.whole && word_.text.ends_with('=') &&
           assigned_name(word_.text) + 1 == word_.text.size();
  }
  void begin_array() {
    array_ = word_.text.substr(0, word_.text.size() - 1);
    in_word_ = false;
    command_ = {};
    ++at_;
  }
  void end_array() {
    end_word();
    lists_[array_] = std::move(command_.words);
    array_.clear();
    command_ = {};
    ++at_;
  }

  // "read -r -d '' NAME <<EOF": the lines up to EOF are the variable's words. False: another
  // command, whose here-document stays what it is.
  bool read_document() {
    if (in_document_ || text_.substr(at_, 2) != "<<" || text_.substr(at_, 3) == "<<<") return false;
    end_word();
    if (command_.words.size() < 2 || command_.words.front().text != "read") return false;
    const std::string name = command_.words.back().text;
    if (!std::all_of(name.begin(), name.end(), is_name)) return false;
    const std::size_t line_end = text_.find('\n', at_);
    if (line_end == std::string_view::npos) return false;
    std::string mark;
    for (const char c : text_.substr(at_ + 2, line_end - at_ - 2)) {
      if (is_name(c)) mark += c;
    }
    const std::size_t begin = line_end + 1;
    std::size_t at = begin;
    while (at < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', at), text_.size());
      std::string_view line = text_.substr(at, end - at);
      line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
      if (line == mark) break;
      at = std::min(end + 1, text_.size());
    }
    take_document(name, text_.substr(begin, at - begin));
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at),
                                         '\n'));
    at_ = std::min(text_.find('\n', at), text_.size());
    command_ = {};
    return true;
  }

  void take_document(const std::string& name, std::string_view body) {
    ShellReader inside(body, known_, file_);
    inside.line_ = line_ + 1;
    inside.in_document_ = true;
    std::vector<Word>& words = lists_[name] = {};
    for (const Command& command : inside.read().commands) {
      words.insert(words.end(), command.words.begin(), command.words.end());
    }
  }

  void begin_word() {
    if (in_word_) return;
    in_word_ = true;
    word_ = {"", line_, true};
  }

  void read_part() {
    const char c = now();
    if (c == '\'') {
      ++at_;
      while (at_ < text_.size() && now() != '\'') take();
      ++at_;
    } else if (c == '"') {
      ++at_;
      quoted_ = true;
      while (at_ < text_.size() && now() != '"') read_quoted();
      quoted_ = false;
      ++at_;
    } else if (c == '$' || c == '`') {
      read_expansion();
    } else {
      if (c == '\\') ++at_;
      if (at_ < text_.size()) take();
    }
  }

  void read_quoted() {
    if (now() == '\\' && next() == '\n') {
      at_ += 2;
      ++line_;
    } else if (now() == '\\' && (next() == '"' || next() == '\\' || next() == '$')) {
      ++at_;
      take();
    } else if (now() == '$' || now() == '`') {
      read_expansion();
    } else {
      take();
    }
  }

  void take() {
    if (now() == '\n') ++line_;
    word_.text += text_[at_++];
  }

  // Leaves what cannot be followed as it is written.
  void leave(std::size_t end) {
    word_.whole = false;
    end = std::min(end, text_.size());
    while (at_ < end) take();
  }

  void read_expansion() {
    if (now() == '`') return leave(std::min(text_.find('`', at_ + 1), text_.size() - 1) + 1);
    if (next() == '(') return leave(closing('(', ')', at_ + 1));
    if (next() == '{') {
      const std::size_t end = closing('{', '}', at_ + 1);
      return expand(text_.substr(at_ + 2, end - at_ - 3), end);
    }
    std::size_t end = at_ + 1;
    while (end < text_.size() && is_name(text_[end])) ++end;
    expand(text_.substr(at_ + 1, end - at_ - 1), end);
  }

  // Behind the bracket that closes the one at `begin`.
  std::size_t closing(char open, char close, std::size_t begin) const {
    int depth = 0;
    for (std::size_t i = begin; i < text_.size(); ++i) {
      if (text_[i] == open) ++depth;
      if (text_[i] == close && --depth == 0) return i + 1;
    }
    return text_.size();
  }

  // The text that variables expand to is bounded, however often they name each other.
  void count_expanded(std::int64_t bytes) {
    expanded_ += bytes;
    if (expanded_ <= kMostText) return;
    throw InputError({file_,
                      "line " + std::to_string(line_),
                      phrase("variables of at most {} bytes together", kMostText),
                      "more",
                      ""});
  }

  // The words of an array or of a document, each with its own line.
  void put_list(const std::vector<Word>& words) {
    if (in_word_ && word_.text.empty()) in_word_ = false;
    end_word();
    for (const Word& word : words) {
      count_expanded(std::ssize(word.text) + 1);
      command_.words.push_back(word);
    }
  }

  // A value without quotes around it becomes as many words as it has.
  void put(std::string_view value) {
    count_expanded(std::ssize(value));
    for (const char c : value) {
      const bool blank = std::isspace(static_cast<unsigned char>(c)) != 0;
      if (blank && !quoted_) {
        end_word();
      } else {
        begin_word();
        word_.text += c;
      }
    }
  }

  // "NAME", or "NAME:-default".
  void expand(std::string_view inside, std::size_t end) {
    const std::size_t mark = inside.find(":-");
    const std::string name(inside.substr(0, mark));
    const auto found = known_.find(name);
    const std::size_t bracket = inside.find('[');
    const bool all = bracket != std::string_view::npos &&
                     (inside.substr(bracket) == "[@]" || inside.substr(bracket) == "[*]");
    const auto list = lists_.find(all ? name.substr(0, bracket) : name);
    if (list != lists_.end()) {
      put_list(list->second);
    } else if (found != known_.end()) {
      put(found->second);
    } else if (mark != std::string_view::npos) {
      word_.text += inside.substr(mark + 2);
      if (inside.find('$') != std::string_view::npos) word_.whole = false;
    } else {
      return leave(end);
    }
    at_ = end;
  }

  void read_comment() {
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    const std::string_view comment = text_.substr(at_, end - at_);
    constexpr std::string_view kSbatch = "#SBATCH";
    at_ = end;
    if (!comment.starts_with(kSbatch)) return;
    std::string word;
    for (const char c : std::string(comment.substr(kSbatch.size())) + " ") {
      if (c == '#') break;
      if (std::isspace(static_cast<unsigned char>(c)) == 0) {
        word += c;
      } else if (!word.empty()) {
        script_.sbatch.push_back({word, line_, true});
        word.clear();
      }
    }
  }

  void end_word() {
    if (!in_word_) return;
    in_word_ = false;
    command_.words.push_back(word_);
  }

  void end_command() {
    end_word();
    if (!command_.words.empty()) {
      remember();
      script_.commands.push_back(std::move(command_));
    }
    command_ = {};
  }

  // A command of assignments alone, or export, sets variables of the script.
  void remember() {
    const bool exported = command_.words.front().text == "export";
    // NAME=value COMMAND sets it for that command alone.
    const bool all = std::all_of(command_.words.begin(),
                                 command_.words.end(),
                                 [](const Word& word) { return assigned_name(word.text) > 0; });
    if (!exported && !all) return;
    for (const Word& word : command_.words) {
      const std::size_t name = assigned_name(word.text);
      if (name == 0) continue;
      if (word.whole) {
        known_[word.text.substr(0, name)] = word.text.substr(name + 1);
      } else {
        known_.erase(word.text.substr(0, name));
      }
    }
  }

  std::string without_returns_;
  std::string_view text_;
  std::map<std::string, std::string> known_;
  const std::string& file_;
  std::map<std::string, std::vector<Word>> lists_;  // arrays, and what `read` took
  std::string array_;                               // whose words are read now
  std::int64_t expanded_ = 0;                       // bytes
  std::size_t at_ = 0;
  int line_ = 1;
  bool in_word_ = false;
  bool quoted_ = false;
  bool in_document_ = false;  // whose own ones are text
  Word word_;
  Command command_;
  Script script_;
};

}  // namespace

bool is_flag(const Word& word) {
  return word.text.size() > 1 && word.text[0] == '-' &&
         std::isdigit(static_cast<unsigned char>(word.text[1])) == 0;
}

Script read_script(std::string_view text,
                   std::map<std::string, std::string> known,
                   const std::string& file) {
  return ShellReader(text, std::move(known), file).read();
}

}  // namespace zeroplan::foreign
