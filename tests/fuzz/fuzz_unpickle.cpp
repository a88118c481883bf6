// Pickles: data or an error; values refer to values that are there, and there are no more of them
// than bytes.
#include "evidence/importers/memory_snapshot_import.hpp"
#include "evidence/importers/unpickle.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  fuzz::reads([&] {
    const zeroplan::evidence::Pickle pickle =
        zeroplan::evidence::Pickle::parse(bytes, "fuzz.pickle");
    fuzz::require(pickle.size() <= size, "more values than bytes");
    fuzz::require(pickle.root() < pickle.size(), "no root");
    for (zeroplan::evidence::Pickle::Ref value = 0; value < pickle.size(); ++value) {
      for (const zeroplan::evidence::Pickle::Ref item : pickle.items(value)) {
        fuzz::require(item < pickle.size(), "an item that is not there");
      }
    }
  });
  fuzz::reads([&] {
    zeroplan::evidence::RunFindings findings("fuzz.pickle");
    zeroplan::evidence::read_memory_snapshot(bytes, findings);
    for (const zeroplan::evidence::Series& series : findings.series()) {
      for (const zeroplan::evidence::Sample& sample : series.samples) {
        fuzz::require(sample.value > 0.0, "a sample that is no amount of memory");
      }
    }
  });
  return 0;
}
