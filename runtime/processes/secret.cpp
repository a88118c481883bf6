#include "runtime/processes/secret.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/diagnostic.hpp"
#include "runtime/processes/socket.hpp"

namespace zeroplan::runtime {
namespace {

[[noreturn]] void refuse_secret(const std::string& pointer,
                                Phrase expected,
                                Phrase got,
                                Phrase hint = "") {
  throw InputError(Diagnostic{.file = pointer.starts_with("--") ? "command line" : "environment",
                              .pointer = pointer,
                              .expected = std::move(expected),
                              .got = std::move(got),
                              .hint = std::move(hint)});
}

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string read_secret(const std::string& path) {
  constexpr const char* kFlag = "--secret-file";
  constexpr std::size_t kLongest = 4096;
  // Not waiting for whoever writes to a pipe.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat facts {};
  if (!file || fstat(file.number(), &facts) != 0) {
    refuse_secret(kFlag, "a readable file", printable(path) + ": " + std::strerror(errno));
  }
  if ((facts.st_mode & S_IROTH) != 0) {
    refuse_secret(kFlag,
                  "a file that not everybody on this machine can read",
                  printable(path),
                  "chmod 600 " + printable(path));
  }
  std::array<char, kLongest> bytes{};
  const ssize_t count =
      S_ISREG(facts.st_mode) ? read(file.number(), bytes.data(), bytes.size()) : -1;
  if (count < 0 || count == ssize_t{kLongest}) {
    refuse_secret(
        kFlag, fmt::format("a readable file of less than {} bytes", kLongest), printable(path));
  }
  return trimmed({bytes.data(), static_cast<std::size_t>(count)});
}

}  // namespace

std::string secret_of(const std::optional<std::string>& file, const Environment& environment) {
  const auto said = environment("ZEROPLAN_SECRET");
  if (!file && (!said || said->empty())) return "";
  const std::string secret = file ? read_secret(*file) : trimmed(*said);
  if (secret.size() >= kShortestSecret) return secret;
  refuse_secret(file ? "--secret-file" : "ZEROPLAN_SECRET",
                fmt::format("a secret of at least {} characters", kShortestSecret),
                std::to_string(secret.size()),
                "openssl rand -hex 32 makes one");
}

}  // namespace zeroplan::runtime
