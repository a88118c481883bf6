// The iteration by which Muon orthogonalises, beside what torch.compile's code allocates for it.
#include "model/newton_schulz.hpp"

#include <set>

#include "tests/catch.hpp"

namespace zeroplan {
namespace {

struct Measured {
  std::int64_t rows, columns;
  std::int64_t gram, standard;  // bytes
};

// torch.cuda.max_memory_allocated() around deepspeed's muon_update() on bf16 gradients, rehearsed
// with torch 2.11.0 and DeepSpeed 0.19.6 on an A100, once code for every size is compiled.
constexpr Measured kMeasured[] = {
    {3072, 1024, 20'971'520, 23'068'672},
    {1024, 3072, 18'874'368, 20'971'520},
    {2048, 1024, 16'777'216, 16'777'216},
    {1024, 1024, 12'582'912, 12'582'912},
    {4096, 512, 10'485'760, 13'631'488},
    {512, 4096, 9'961'472, 13'107'200},
    {8192, 256, 8'912'896, 12'845'056},
    {256, 8192, 8'781'824, 12'713'984},
};

constexpr NewtonSchulz kMethods[] = {NewtonSchulz::gram, NewtonSchulz::standard};

}  // namespace

TEST_CASE("an update by Muon takes what its compiled code allocates") {
  for (const Measured& row : kMeasured) {
    CAPTURE(row.rows, row.columns);
    const MuonMatrices matrices{1, row.rows, row.columns};
    CHECK(newton_schulz_peak(matrices, NewtonSchulz::gram, DType::bf16) == Bytes::of(row.gram));
    CHECK(newton_schulz_peak(matrices, NewtonSchulz::standard, DType::bf16) ==
          Bytes::of(row.standard));
  }
}

TEST_CASE("of an update's tensors one is left, of the gradient's size and type") {
  for (const Measured& row : kMeasured) {
    for (const NewtonSchulz method : kMethods) {
      for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
        CAPTURE(row.rows, row.columns, static_cast<int>(method), width(dtype));
        std::vector<Bytes> made;
        std::set<int> held;
        for (const TensorEvent& event :
             newton_schulz_tensors({1, row.rows, row.columns}, method, dtype)) {
          if (event.bytes > Bytes::zero()) {
            CHECK(event.tensor == static_cast<int>(made.size()));
            made.push_back(event.bytes);
            held.insert(event.tensor);
          } else {
            CHECK(held.erase(event.tensor) == 1);
          }
        }
        REQUIRE(held.size() == 1);
        CHECK(made[static_cast<std::size_t>(*held.begin())] ==
              Elements::of(row.rows * row.columns) * dtype);
      }
    }
  }
}

TEST_CASE("iterating on the Gram matrix takes fewer products with the long side") {
  const NewtonSchulzProducts gram = newton_schulz_products({1, 4096, 1024}, NewtonSchulz::gram);
  CHECK(gram.n == 1024);
  CHECK(gram.m == 4096);
  CHECK(gram.wide == 4);
  CHECK(gram.square == 14);
  for (const NewtonSchulz method : kMethods) {
    const NewtonSchulzProducts square = newton_schulz_products({1, 1024, 1024}, method);
    CHECK(square.wide == 10);
    CHECK(square.square == 5);
  }
}

TEST_CASE("several matrices take as much as each of them") {
  for (const NewtonSchulz method : kMethods) {
    CHECK(newton_schulz_peak({8, 512, 256}, method, DType::bf16) ==
          newton_schulz_peak({1, 512, 256}, method, DType::bf16) * 8);
    CHECK(newton_schulz_traffic({8, 512, 256}, method, DType::bf16).bytes ==
          newton_schulz_traffic({1, 512, 256}, method, DType::bf16).bytes * 8);
  }
}

}  // namespace zeroplan
