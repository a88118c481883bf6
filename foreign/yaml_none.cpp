// Without libyaml (CMakeLists.txt).
#include "base/diagnostic.hpp"
#include "foreign/yaml.hpp"

namespace zeroplan::foreign {

bool reads_yaml() { return false; }

Json parse_yaml(std::string_view, const std::string& file) {
  throw InputError({file,
                    "",
                    "JSON: this program was built without libyaml",
                    "YAML",
                    "build it again with Debian's libyaml-dev"});
}

}  // namespace zeroplan::foreign
