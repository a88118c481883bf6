// cuDNN's functions, found when they are first asked for: a program built with cuDNN's headers
// starts where the library is not. For sources of runtime/cuda/cudnn alone.
#pragma once

#include <cudnn_graph.h>

namespace zeroplan::runtime::cuda {

struct CudnnLibrary {
  decltype(&cudnnGetVersion) version;
  decltype(&cudnnGetErrorString) error_string;
  decltype(&cudnnGetLastErrorString) last_error;
  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendSetAttribute) set;
  decltype(&cudnnBackendGetAttribute) get;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;
};

// Null where there is no libcudnn of the headers' major version, or one that lacks a function;
// `why` (null: not wanted) then says so. It stays loaded.
const CudnnLibrary* cudnn_library(const char** why = nullptr);

}  // namespace zeroplan::runtime::cuda
