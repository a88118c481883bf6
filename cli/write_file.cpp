#include "cli/write_file.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <unistd.h>

#include "base/diagnostic.hpp"
#include "base/output_file.hpp"

namespace zeroplan::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_write(const std::string& path, const Phrase& why) {
  throw InputError({path, "", "a place that can be written to", why, ""});
}

}  // namespace

void make_folder(const std::string& path) {
  if (path.empty())
    throw InputError({"command line", "--output", "the name of a folder", "\"\"", ""});
  std::error_code error;
  fs::create_directories(path, error);
  if (error) cannot_write(path, error.message());
  if (!fs::is_directory(path, error)) cannot_write(path, "a file of that name");
}

void write_file(const std::string& path, std::string_view text) {
  try {
    replace_file(path, text);
  } catch (const WriteError& error) {
    cannot_write(path, error.reason());
  }
}

void add_line(const std::string& path, std::string_view line) {
  try {
    append_line(path, line);
  } catch (const WriteError& error) {
    cannot_write(path, error.reason());
  }
}

void require_writable(const std::string& path) {
  const auto why = why_not_writable(path);
  if (why) cannot_write(path, *why);
}

void require_folder(const std::string& path) {
  std::error_code error;
  if (path.empty()) make_folder(path);  // says so
  fs::path there = fs::absolute(path, error);
  while (!fs::exists(there, error) && there.has_parent_path() && there.parent_path() != there) {
    there = there.parent_path();
  }
  if (!fs::is_directory(there, error)) {
    cannot_write(path, fs::exists(path, error) ? "a file of that name" : "a file for its folder");
  }
  if (access(there.c_str(), W_OK | X_OK) != 0) cannot_write(path, std::strerror(errno));
}

}  // namespace zeroplan::cli
