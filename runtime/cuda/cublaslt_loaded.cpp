// cuBLASLt's functions, found when the first is called: half a gigabyte of library, 0.15 s of every
// start of the program, for commands of which few compute anything on a GPU.
#include <string>

#include <cublasLt.h>
#include <dlfcn.h>

#include "runtime/device/device.hpp"

namespace {

void* symbol(const char* name) {
  static void* const library = [] {
    const std::string file = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
    void* opened = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      throw zeroplan::runtime::DeviceError(std::string("cuBLASLt: ") + ::dlerror());
    }
    return opened;
  }();
  void* found = ::dlsym(library, name);
  if (found == nullptr) {
    throw zeroplan::runtime::DeviceError(std::string("cuBLASLt has no ") + name);
  }
  return found;
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses,cppcoreguidelines-macro-usage)
#define ZP_FORWARD(name, parameters, arguments)                                \
  cublasStatus_t CUBLASWINAPI name parameters {                                \
    static const auto call = reinterpret_cast<decltype(&name)>(symbol(#name)); \
    return call arguments;                                                     \
  }

ZP_FORWARD(cublasLtCreate, (cublasLtHandle_t * lightHandle), (lightHandle))
ZP_FORWARD(cublasLtDestroy, (cublasLtHandle_t lightHandle), (lightHandle))
ZP_FORWARD(cublasLtMatmul,
           (cublasLtHandle_t lightHandle,
            cublasLtMatmulDesc_t computeDesc,
            const void* alpha,
            const void* A,
            cublasLtMatrixLayout_t Adesc,
            const void* B,
            cublasLtMatrixLayout_t Bdesc,
            const void* beta,
            const void* C,
            cublasLtMatrixLayout_t Cdesc,
            void* D,
            cublasLtMatrixLayout_t Ddesc,
            const cublasLtMatmulAlgo_t* algo,
            void* workspace,
            size_t workspaceSizeInBytes,
            cudaStream_t stream),
           (lightHandle,
            computeDesc,
            alpha,
            A,
            Adesc,
            B,
            Bdesc,
            beta,
            C,
            Cdesc,
            D,
            Ddesc,
            algo,
            workspace,
            workspaceSizeInBytes,
            stream))
ZP_FORWARD(cublasLtMatmulAlgoGetHeuristic,
           (cublasLtHandle_t lightHandle,
            cublasLtMatmulDesc_t operationDesc,
            cublasLtMatrixLayout_t Adesc,
            cublasLtMatrixLayout_t Bdesc,
            cublasLtMatrixLayout_t Cdesc,
            cublasLtMatrixLayout_t Ddesc,
            cublasLtMatmulPreference_t preference,
            int requestedAlgoCount,
            cublasLtMatmulHeuristicResult_t heuristicResultsArray[],
            int* returnAlgoCount),
           (lightHandle,
            operationDesc,
            Adesc,
            Bdesc,
            Cdesc,
            Ddesc,
            preference,
            requestedAlgoCount,
            heuristicResultsArray,
            returnAlgoCount))
ZP_FORWARD(cublasLtMatmulDescCreate,
           (cublasLtMatmulDesc_t * matmulDesc,
            cublasComputeType_t computeType,
            cudaDataType_t scaleType),
           (matmulDesc, computeType, scaleType))
ZP_FORWARD(cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t matmulDesc), (matmulDesc))
ZP_FORWARD(cublasLtMatmulDescSetAttribute,
           (cublasLtMatmulDesc_t matmulDesc,
            cublasLtMatmulDescAttributes_t attr,
            const void* buf,
            size_t sizeInBytes),
           (matmulDesc, attr, buf, sizeInBytes))
ZP_FORWARD(cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * pref), (pref))
ZP_FORWARD(cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t pref), (pref))
ZP_FORWARD(cublasLtMatmulPreferenceSetAttribute,
           (cublasLtMatmulPreference_t pref,
            cublasLtMatmulPreferenceAttributes_t attr,
            const void* buf,
            size_t sizeInBytes),
           (pref, attr, buf, sizeInBytes))
ZP_FORWARD(cublasLtMatrixLayoutCreate,
           (cublasLtMatrixLayout_t * matLayout,
            cudaDataType type,
            uint64_t rows,
            uint64_t cols,
            int64_t ld),
           (matLayout, type, rows, cols, ld))
ZP_FORWARD(cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t matLayout), (matLayout))

const char* CUBLASWINAPI cublasLtGetStatusString(cublasStatus_t status) {
  static const auto call =
      reinterpret_cast<decltype(&cublasLtGetStatusString)>(symbol("cublasLtGetStatusString"));
  return call(status);
}
// NOLINTEND(bugprone-macro-parentheses,cppcoreguidelines-macro-usage)
