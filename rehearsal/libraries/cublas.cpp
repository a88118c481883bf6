// cuBLAS: handles with their state; products are counted and not computed.
#include <cstddef>

#include "rehearsal/libraries/gpu/record.hpp"
#include "rehearsal/libraries/gpu/settings.hpp"

namespace {

using namespace zeroplan::gpu;

struct Handle {
  void* stream = nullptr;
  int pointer_mode = 0;
  int math_mode = 0;
  int atomics_mode = 1;
};

constexpr int kDone = 0;     // CUBLAS_STATUS_SUCCESS
constexpr int kFloat32 = 0;  // CUDA_R_32F
constexpr int kFloat64 = 1;
constexpr char kTranspose[] = "NTC";

// cublasGetVersion: MAJOR * 10000 + MINOR * 100, of the release's toolkit.
int version() { return settings().cuda / 1000 * 10000 + settings().cuda % 1000 / 10 * 100; }

struct Product {
  int left, right;  // transposes
  int m, n, k;
};

int product(const Handle* handle, const Product& p, int type, long long batch) {
  enqueue(Work::product,
          handle->stream,
          "%d %c%c %d %d %d %lld",
          type,
          kTranspose[p.left],
          kTranspose[p.right],
          p.m,
          p.n,
          p.k,
          batch);
  return kDone;
}

}  // namespace

extern "C" {

int cublasCreate_v2(Handle** handle) {
  *handle = new Handle;
  return kDone;
}
int cublasDestroy_v2(Handle* handle) {
  delete handle;
  return kDone;
}
int cublasGetVersion_v2(Handle*, int* value) {
  *value = version();
  return kDone;
}
int cublasGetProperty(int kind, int* value) {
  *value = kind == 0 ? version() / 10000 : kind == 1 ? version() / 100 % 100 : 0;
  return kDone;
}
int cublasSetPointerMode_v2(Handle* handle, int mode) {
  handle->pointer_mode = mode;
  return kDone;
}
int cublasGetPointerMode_v2(Handle* handle, int* mode) {
  *mode = handle->pointer_mode;
  return kDone;
}
int cublasSetMathMode(Handle* handle, int mode) {
  handle->math_mode = mode;
  return kDone;
}
int cublasGetMathMode(Handle* handle, int* mode) {
  *mode = handle->math_mode;
  return kDone;
}
int cublasSetAtomicsMode(Handle* handle, int mode) {
  handle->atomics_mode = mode;
  return kDone;
}
int cublasGetAtomicsMode(Handle* handle, int* mode) {
  *mode = handle->atomics_mode;
  return kDone;
}
int cublasSetStream_v2(Handle* handle, void* stream) {
  handle->stream = stream;
  return kDone;
}
int cublasGetStream_v2(Handle* handle, void** stream) {
  *stream = handle->stream;
  return kDone;
}
// Its memory is torch's own, which asked for it.
int cublasSetWorkspace_v2(Handle*, void*, std::size_t) { return kDone; }
const char* cublasGetStatusString(int) { return "the status of an emulated cuBLAS"; }
const char* cublasGetStatusName(int) { return "CUBLAS_STATUS"; }

int cublasGemmEx(Handle* handle,
                 int left,
                 int right,
                 int m,
                 int n,
                 int k,
                 const void*,
                 const void*,
                 int type,
                 int) {
  return product(handle, {left, right, m, n, k}, type, 1);
}
int cublasSgemm_v2(Handle* handle, int left, int right, int m, int n, int k) {
  return product(handle, {left, right, m, n, k}, kFloat32, 1);
}
int cublasDgemm_v2(Handle* handle, int left, int right, int m, int n, int k) {
  return product(handle, {left, right, m, n, k}, kFloat64, 1);
}
int cublasSgemmEx(Handle* handle,
                  int left,
                  int right,
                  int m,
                  int n,
                  int k,
                  const void*,
                  const void*,
                  int type,
                  int) {
  return product(handle, {left, right, m, n, k}, type, 1);
}
int cublasGemmStridedBatchedEx(Handle* handle,
                               int left,
                               int right,
                               int m,
                               int n,
                               int k,
                               const void*,
                               const void*,
                               int type,
                               int,
                               long long,
                               const void*,
                               int,
                               int,
                               long long,
                               const void*,
                               void*,
                               int,
                               int,
                               long long,
                               int batch) {
  return product(handle, {left, right, m, n, k}, type, batch);
}
int cublasSgemmStridedBatched(Handle* handle,
                              int left,
                              int right,
                              int m,
                              int n,
                              int k,
                              const void*,
                              const void*,
                              int,
                              long long,
                              const void*,
                              int,
                              long long,
                              const void*,
                              void*,
                              int,
                              long long,
                              int batch) {
  return product(handle, {left, right, m, n, k}, kFloat32, batch);
}
}
