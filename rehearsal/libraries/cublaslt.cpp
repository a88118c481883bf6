// cuBLASLt: one algorithm for everything, which asks for no workspace.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "rehearsal/libraries/gpu/record.hpp"
#include "rehearsal/libraries/gpu/settings.hpp"

namespace {

using namespace zeroplan::gpu;

constexpr int kDone = 0;                   // CUBLAS_STATUS_SUCCESS
constexpr int kLayoutBatch = 5;            // CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
constexpr int kDescriptionTransposeA = 3;  // CUBLASLT_MATMUL_DESC_TRANSA
constexpr int kDescriptionTransposeB = 4;  // CUBLASLT_MATMUL_DESC_TRANSB
constexpr char kTranspose[] = "NTC";

struct Layout {
  int type;
  std::uint64_t rows, columns;
  int batch;
};

struct Description {
  int transpose_a, transpose_b;
};

struct Heuristic {  // cublasLtMatmulHeuristicResult_t
  std::uint64_t algorithm[8];
  std::size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

struct Preference {
  char nothing;
};

void set_number(int& to, const void* value, std::size_t bytes) {
  if (bytes == sizeof to) std::memcpy(&to, value, bytes);
}

}  // namespace

extern "C" {

std::size_t cublasLtGetVersion() {
  const auto cuda = static_cast<std::size_t>(settings().cuda);
  return cuda / 1000 * 10000 + cuda % 1000 / 10 * 100;
}
int cublasLtCreate(void** handle) {
  *handle = new char[1];
  return kDone;
}
int cublasLtDestroy(void* handle) {
  delete[] static_cast<char*>(handle);
  return kDone;
}
int cublasLtMatrixLayoutCreate(
    Layout** layout, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t) {
  *layout = new Layout{type, rows, columns, 1};
  return kDone;
}
int cublasLtMatrixLayoutDestroy(Layout* layout) {
  delete layout;
  return kDone;
}
int cublasLtMatrixLayoutSetAttribute(Layout* layout,
                                     int which,
                                     const void* value,
                                     std::size_t bytes) {
  if (which == kLayoutBatch) set_number(layout->batch, value, bytes);
  return kDone;
}
int cublasLtMatmulDescCreate(Description** description, int, int) {
  *description = new Description{0, 0};
  return kDone;
}
int cublasLtMatmulDescDestroy(Description* description) {
  delete description;
  return kDone;
}
int cublasLtMatmulDescSetAttribute(Description* description,
                                   int which,
                                   const void* value,
                                   std::size_t bytes) {
  if (which == kDescriptionTransposeA) set_number(description->transpose_a, value, bytes);
  if (which == kDescriptionTransposeB) set_number(description->transpose_b, value, bytes);
  return kDone;
}
int cublasLtMatmulPreferenceCreate(Preference** preference) {
  *preference = new Preference{};
  return kDone;
}
int cublasLtMatmulPreferenceDestroy(Preference* preference) {
  delete preference;
  return kDone;
}
int cublasLtMatmulPreferenceSetAttribute(Preference*, int, const void*, std::size_t) {
  return kDone;
}
int cublasLtMatmulAlgoGetHeuristic(
    void*, void*, void*, void*, void*, void*, void*, int, Heuristic* results, int* found) {
  *results = {};
  results->waves = 1;
  *found = 1;
  return kDone;
}
int cublasLtMatmul(void*,
                   Description* description,
                   const void*,
                   const void*,
                   Layout* a,
                   const void*,
                   Layout*,
                   const void*,
                   const void*,
                   Layout*,
                   void*,
                   Layout* out,
                   const void*,
                   void*,
                   std::size_t,
                   void* stream) {
  enqueue(Work::product,
          stream,
          "%d %c%c %llu %llu %llu %d",
          a->type,
          kTranspose[description->transpose_a],
          kTranspose[description->transpose_b],
          static_cast<unsigned long long>(out->rows),
          static_cast<unsigned long long>(out->columns),
          static_cast<unsigned long long>(description->transpose_a != 0 ? a->rows : a->columns),
          a->batch);
  return kDone;
}
}
