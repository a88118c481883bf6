#include "base/embedded.hpp"

#include "base/check.hpp"

namespace zeroplan {

std::string_view embedded_file(std::string_view path) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path == path) return file.text;
  }
  ZP_CHECK(false, "no embedded file " + std::string(path));
  return {};
}

}  // namespace zeroplan
