#include "runtime/data/file_kind.hpp"

#include <filesystem>
#include <system_error>

namespace zeroplan::runtime {

std::string other_than_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  switch (fs::status(path, error).type()) {
    case fs::file_type::regular:
      return "";
    case fs::file_type::directory:
      return "a directory";
    case fs::file_type::fifo:
      return "a pipe";
    case fs::file_type::block:
    case fs::file_type::character:
      return "a device";
    case fs::file_type::socket:
      return "a socket";
    default:
      return "no file";
  }
}

}  // namespace zeroplan::runtime
