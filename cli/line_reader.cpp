#include "cli/line_reader.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/diagnostic.hpp"
#include "base/json.hpp"

namespace zeroplan::cli {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 18;
constexpr std::int64_t kHopeless = std::int64_t{1} << 30;  // /dev/zero is one line without an end

[[noreturn]] void not_readable(const std::string& path, int error) {
  throw InputError({path, "", "a readable file", std::strerror(error), ""});
}

}  // namespace

LineReader::LineReader(std::string path, std::size_t longest, int wake)
    : path_(std::move(path)), longest_(longest), wake_(wake), buffer_(kChunk) {
  if (path_ == "-") {
    descriptor_ = STDIN_FILENO;
    path_ = "standard input";
    return;
  }
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path_, error);
  // Without waiting for a pipe's writer: that is done where a signal ends it.
  if (!is_folder) descriptor_ = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  owns_descriptor_ = descriptor_ >= 0;
  if (owns_descriptor_) return;
  const int why = errno;
  (void)read_text_file(path_, 0);  // which fails too, and says why and what was meant
  not_readable(path_, why);
}

LineReader::~LineReader() {
  if (owns_descriptor_) close(descriptor_);
}

bool LineReader::fill() {
  while (!told_to_stop_) {
    std::array<pollfd, 2> ready = {pollfd{descriptor_, POLLIN, 0}, pollfd{wake_, POLLIN, 0}};
    if (poll(ready.data(), ready.size(), -1) < 0) {
      if (errno == EINTR) continue;
      not_readable(path_, errno);
    }
    told_to_stop_ = ready[1].revents != 0;
    if (told_to_stop_ || ready[0].revents == 0) continue;
    const ssize_t count = read(descriptor_, buffer_.data(), buffer_.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) not_readable(path_, errno);
    at_ = 0;
    end_ = static_cast<std::size_t>(count);
    return count > 0;
  }
  return false;
}

// False where there is none; the end of a line that a signal cut is none.
bool LineReader::read_line(InputLine& line) {
  std::int64_t length = 0;
  line = {number_ + 1, "", false};
  while (true) {
    if (at_ == end_ && !fill()) {
      if (told_to_stop_ || length == 0) return false;
      break;
    }
    const std::string_view rest(buffer_.data() + at_, end_ - at_);
    const std::size_t end = rest.find('\n');
    const std::string_view part = rest.substr(0, end);
    const bool whole = end != std::string_view::npos;
    at_ += part.size() + (whole ? 1 : 0);
    length += static_cast<std::int64_t>(part.size());
    line.too_long = length > static_cast<std::int64_t>(longest_);
    if (line.too_long) {
      line.text = std::string();  // with its memory
    } else {
      line.text += part;
    }
    if (whole) break;
    if (length >= kHopeless) {
      throw InputError({path_,
                        "line " + std::to_string(number_ + 1),
                        "an end of the line",
                        "1 GiB without",
                        ""});
    }
  }
  ++number_;
  return true;
}

std::optional<InputLine> LineReader::next() {
  InputLine line;
  while (read_line(line)) {
    if (line.too_long || line.text.find_first_not_of(" \t\r") != std::string::npos) return line;
  }
  return std::nullopt;
}

}  // namespace zeroplan::cli
