#include "cli/write_kit.hpp"

#include <ostream>

#include <fmt/format.h>

#include "cli/write_file.hpp"

namespace zeroplan {

void write_kit(const std::vector<KitFile>& files,
               const std::string& folder,
               std::ostream& log,
               const Translation& words) {
  make_folder(folder);
  for (const KitFile& file : files) {
    const std::size_t slash = file.path.rfind('/');
    if (slash != std::string::npos) make_folder(folder + "/" + file.path.substr(0, slash));
    const std::string path = folder + "/" + file.path;
    write_file(path, file.text);
    if (file.executable) make_executable(path);
  }
  log << words.text(
      fmt::format("wrote {} files to {}; start with PLAN.md\n", files.size(), folder));
}

}  // namespace zeroplan
