#include "cli/write_kit.hpp"

#include <ostream>

#include "cli/write_file.hpp"

namespace zeroplan {

void write_kit(const std::vector<KitFile>& files, const std::string& folder, std::ostream& log) {
  make_folder(folder);
  for (const KitFile& file : files) {
    const std::size_t slash = file.path.rfind('/');
    if (slash != std::string::npos) make_folder(folder + "/" + file.path.substr(0, slash));
    const std::string path = folder + "/" + file.path;
    write_file(path, file.text);
    if (file.executable) make_executable(path);
  }
  log << "wrote " << files.size() << " files to " << folder << "; start with PLAN.md\n";
}

}  // namespace zeroplan
