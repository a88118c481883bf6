// As much of the driver's library as cuDNN needs to make plans for GPUs that are not there: it
// compiles their kernels, hands the result to the driver, and asks for its functions by name.
// Loading succeeds, nothing can be run, and cuInit finds no device. For tests/cudnn alone.
namespace {

constexpr int kSuccess = 0;
constexpr int kNoDevice = 100;      // CUDA_ERROR_NO_DEVICE
constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED

// Something to point at.
int thing = 0;
int give(void** to) {
  *to = &thing;
  return kSuccess;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming,cppcoreguidelines-macro-usage)
extern "C" {

int cuInit(unsigned) { return kNoDevice; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuGetErrorString(int, const char** text) {
  *text = "an error of the emulated driver";
  return kSuccess;
}
int cuGetErrorName(int, const char** text) {
  *text = "CUDA_ERROR_UNKNOWN";
  return kSuccess;
}
int cuGetExportTable(const void** table, const void*) {
  *table = nullptr;
  return kNotSupported;
}

int cuLibraryLoadData(
    void** library, const void*, void*, void**, unsigned, void*, void**, unsigned) {
  return give(library);
}
int cuLibraryUnload(void*) { return kSuccess; }
int cuLibraryGetKernel(void** kernel, void*, const char*) { return give(kernel); }
int cuKernelSetAttribute(int, int, void*, int) { return kSuccess; }
int cuKernelGetAttribute(int* value, int, void*, int) {
  *value = 0;
  return kSuccess;
}

// Looked for, and of no use to a plan alone.
#define ZP_NOT_THERE(name) \
  int name() { return kNotSupported; }
ZP_NOT_THERE(cuCtxGetCurrent)
ZP_NOT_THERE(cuCtxGetDevice)
ZP_NOT_THERE(cuCtxGetLimit)
ZP_NOT_THERE(cuCtxPopCurrent)
ZP_NOT_THERE(cuCtxPushCurrent)
ZP_NOT_THERE(cuDeviceGet)
ZP_NOT_THERE(cuDeviceGetAttribute)
ZP_NOT_THERE(cuDeviceGetCount)
ZP_NOT_THERE(cuDevicePrimaryCtxRelease)
ZP_NOT_THERE(cuDevicePrimaryCtxReset)
ZP_NOT_THERE(cuDevicePrimaryCtxRetain)
ZP_NOT_THERE(cuFuncGetAttribute)
ZP_NOT_THERE(cuFuncSetAttribute)
ZP_NOT_THERE(cuLaunchCooperativeKernel)
ZP_NOT_THERE(cuLaunchKernel)
ZP_NOT_THERE(cuLaunchKernelEx)
ZP_NOT_THERE(cuLibraryLoadFromFile)
ZP_NOT_THERE(cuLinkAddData)
ZP_NOT_THERE(cuLinkAddData_v2)
ZP_NOT_THERE(cuLinkAddFile_v2)
ZP_NOT_THERE(cuLinkComplete)
ZP_NOT_THERE(cuLinkCreate)
ZP_NOT_THERE(cuLinkCreate_v2)
ZP_NOT_THERE(cuLinkDestroy)
ZP_NOT_THERE(cuMemcpyDtoH_v2)
ZP_NOT_THERE(cuModuleGetFunction)
ZP_NOT_THERE(cuModuleGetGlobal_v2)
ZP_NOT_THERE(cuModuleLoadData)
ZP_NOT_THERE(cuModuleLoadDataEx)
ZP_NOT_THERE(cuModuleLoadFatBinary)
ZP_NOT_THERE(cuModuleUnload)
ZP_NOT_THERE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
ZP_NOT_THERE(cuOccupancyMaxPotentialClusterSize)
ZP_NOT_THERE(cuStreamGetCtx)
ZP_NOT_THERE(cuStreamSynchronize)
ZP_NOT_THERE(cuTensorMapEncodeTiled)
}
// NOLINTEND(readability-identifier-naming,cppcoreguidelines-macro-usage)
