#include "cli/write_file.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "model/diagnostic.hpp"

namespace zeroplan {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_write(const std::string& path, const std::string& why) {
  throw InputError({path, "", "a place that can be written to", why, ""});
}

}  // namespace

void make_folder(const std::string& path) {
  if (path.empty())
    throw InputError({"command line", "--output", "the name of a folder", "\"\"", ""});
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) cannot_write(path, error.message());
  if (!std::filesystem::is_directory(path, error)) cannot_write(path, "a file of that name");
}

void write_file(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  {
    std::ofstream stream(temporary, std::ios::binary | std::ios::trunc);
    if (!stream) cannot_write(path, std::strerror(errno));
    stream.write(text.data(), static_cast<std::streamsize>(text.size()));
    stream.close();
    std::error_code ignored;
    if (!stream) {
      std::filesystem::remove(temporary, ignored);
      cannot_write(path, "a full disk");
    }
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error) cannot_write(path, error.message());
}

void require_writable(const std::string& path) {
  std::error_code error;
  if (path.empty() || path.ends_with('/')) cannot_write(path, "no name of a file");
  if (fs::is_directory(path, error)) cannot_write(path, "a folder of that name");
  const fs::path parent = fs::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  // As write_file: a file is made in the folder and renamed, whatever stands there.
  if (!fs::is_directory(folder, error)) {
    cannot_write(path,
                 fs::exists(folder, error) ? "a file for its folder" : "no folder of that name");
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) cannot_write(path, std::strerror(errno));
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

void make_executable(const std::string& path) {
  using std::filesystem::perms;
  std::error_code error;
  std::filesystem::permissions(path,
                               perms::owner_exec | perms::group_exec | perms::others_exec,
                               std::filesystem::perm_options::add,
                               error);
  if (error) cannot_write(path, error.message());
}

}  // namespace zeroplan
