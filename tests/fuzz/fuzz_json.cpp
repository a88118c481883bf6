// JSON as users write it: what is read prints and reads back equal.
#include "base/described.hpp"
#include "base/json.hpp"
#include "tests/fuzz/fuzz_support.hpp"

using zeroplan::Json;
using zeroplan::JsonDocument;
using zeroplan::parse_json;
namespace fuzz = zeroplan::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::reads([&] {
    const JsonDocument document = parse_json(fuzz::text_of(data, size), "input.json");
    if (!document.duplicates.empty()) return;  // the last one counts, so less is printed
    for (const int indent : {-1, 2}) {
      const JsonDocument again = parse_json(document.root.dump(indent), "printed.json");
      fuzz::require(again.root == document.root, "what was printed reads differently");
    }
    described(document.root);
  });
  return 0;
}
