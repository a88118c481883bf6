#include "model/hardware/hostfile.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "base/diagnostic.hpp"

namespace zeroplan {
namespace {

// A file that is no hostfile has a problem in every line; nobody reads more than these.
constexpr std::size_t kMostProblems = 20;

std::string_view without_space(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Bytes are compared with ASCII: no locale may add letters.
bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// A part between dots.
bool is_label(std::string_view text) {
  constexpr std::size_t kLongest = 63;  // RFC 1035
  if (text.empty() || text.size() > kLongest || text.front() == '-' || text.back() == '-') {
    return false;
  }
  return std::all_of(text.begin(), text.end(), [](char c) {
    return is_letter_or_digit(c) || c == '-' || c == '_';
  });
}

bool is_user(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  if (text.empty() || text.size() > kLongest || text.front() == '-') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
  });
}

std::optional<Host> parse_host(std::string_view line) {
  const std::size_t space = line.find_first_of(" \t");
  if (space == std::string_view::npos) return std::nullopt;
  Host host;
  host.name = std::string(line.substr(0, space));
  std::string_view rest = without_space(line.substr(space));
  constexpr std::string_view kSlots = "slots=";
  if (!rest.starts_with(kSlots)) return std::nullopt;
  rest.remove_prefix(kSlots.size());
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), host.slots);
  if (error != std::errc() || end != rest.data() + rest.size() || host.slots < 1) {
    return std::nullopt;
  }
  return host;
}

// Hosts as they are read, and what is wrong with them.
class HostReader {
 public:
  explicit HostReader(const std::string& path) : path_(path) {}

  void read_line(std::string_view line, int number);
  bool has_enough_problems() const { return problems_.size() >= kMostProblems; }
  std::vector<Host> take();

 private:
  void problem(int line, Phrase expected, Phrase got, Phrase hint = "") {
    problems_.push_back({path_,
                         "line " + std::to_string(line),
                         std::move(expected),
                         std::move(got),
                         std::move(hint)});
  }

  const std::string& path_;
  std::vector<Host> hosts_;
  std::map<std::string, int, std::less<>> line_of_;  // of a host's name
  std::vector<Diagnostic> problems_;
};

void HostReader::read_line(std::string_view line, int number) {
  line = without_space(line.substr(0, line.find('#')));
  if (line.empty()) return;
  std::optional<Host> host = parse_host(line);
  if (!host) {
    problem(number, "HOST slots=N with N of at least 1", in_quotes(line));
    return;
  }
  if (!is_host_name(host->name)) {
    const bool address = host->name.find(':') != std::string::npos;
    problem(number,
            "a host's name of letters, digits, \"-\", \"_\" and \".\", or USER@HOST",
            in_quotes(host->name),
            address ? "give an IPv6 address a name in /etc/hosts: DeepSpeed's launcher takes names"
                    : "");
    return;
  }
  host->line = number;
  const auto [before, added] = line_of_.try_emplace(host->name, number);
  if (!added) {
    problem(number,
            "each host once",
            phrase("{} again", in_quotes(host->name)),
            phrase("it stands in line {} too", before->second));
  }
  if (!hosts_.empty() && hosts_.front().slots != host->slots) {
    const Host& first = hosts_.front();
    problem(number,
            phrase("as many slots on every host: {}, as in line {}", first.slots, first.line),
            std::to_string(host->slots),
            "DeepSpeed starts on unequal hosts, the plan needs equal ones: use the smallest number "
            "of slots everywhere, or plan for part of the hosts");
  }
  hosts_.push_back(std::move(*host));
}

std::vector<Host> HostReader::take() {
  if (hosts_.empty() && problems_.empty()) {
    problems_.push_back({path_, "", "lines HOST slots=N", "no host", ""});
  }
  if (!problems_.empty()) throw InputError(std::move(problems_));
  return std::move(hosts_);
}

}  // namespace

bool is_host_name(std::string_view name) {
  constexpr std::size_t kLongest = 253;  // RFC 1035
  const std::size_t at = name.find('@');
  if (at != std::string_view::npos && !is_user(name.substr(0, at))) return false;
  std::string_view rest = without_user(name);
  if (rest.size() > kLongest) return false;
  while (true) {
    const std::size_t dot = rest.find('.');
    if (!is_label(rest.substr(0, dot))) return false;
    if (dot == std::string_view::npos) return true;
    rest.remove_prefix(dot + 1);
  }
}

std::string_view without_user(std::string_view name) {
  return name.substr(name.find('@') + 1);  // npos + 1 is 0
}

std::vector<Host> parse_hostfile(std::string_view text, const std::string& path) {
  HostReader reader(path);
  for (int number = 1; !text.empty() && !reader.has_enough_problems(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    reader.read_line(text.substr(0, end), number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.take();
}

}  // namespace zeroplan
