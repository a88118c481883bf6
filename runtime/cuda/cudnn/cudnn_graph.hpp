// Attention as a graph of cuDNN, and a plan to run it. A plan can be made for a device that is not
// there, from its properties as JSON: so graphs are checked on machines without one. For sources of
// runtime/cuda/cudnn and tests/cudnn alone.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/cuda/cudnn/cudnn_loaded.hpp"
#include "runtime/cuda/kernels/library_attention.hpp"

namespace zeroplan::runtime::cuda {

class CudnnError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A descriptor of the library.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;

  void set(cudnnBackendAttributeName_t name,
           cudnnBackendAttributeType_t type,
           std::int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other);
  // The number of values there are; at most `room` are written.
  std::int64_t get(cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type,
                   std::int64_t room,
                   void* values) const;
  void finalize();
  cudnnBackendDescriptor_t handle() const { return descriptor_; }

 private:
  void check(cudnnStatus_t status, const char* call) const;

  const CudnnLibrary* library_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

// What a plan is for: the handle's device, or one by its properties (cuDNN's
// CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION; nothing can be run with such a plan).
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  std::string properties;
};

class CudnnPlan {
 public:
  // The first of the engines that cuDNN's heuristics name, and in turn its fallback ones, which
  // makes a plan, and whose sums have one order where the problem asks for it. Throws CudnnError
  // with the last reason where none does.
  CudnnPlan(const CudnnLibrary& library, const AttentionProblem& problem, CudnnTarget target);

  // Sums of queries' gradients without an order stand at its beginning.
  std::int64_t workspace_bytes() const { return sums_ + workspace_; }
  std::int64_t engine() const { return engine_; }  // cuDNN's number of it
  // Throws CudnnError where cuDNN refuses.
  void run(const AttentionMemory& memory, std::byte* workspace) const;

 private:
  bool choose(const CudnnDescriptor& graph, cudnnBackendHeurMode_t mode);
  void take(CudnnDescriptor config);

  const CudnnLibrary& library_;
  CudnnTarget target_;
  AttentionProblem problem_;
  std::unique_ptr<CudnnDescriptor> properties_;
  std::vector<CudnnDescriptor> parts_;  // of the graph
  std::unique_ptr<CudnnDescriptor> plan_;
  std::int64_t workspace_ = 0, engine_ = -1;
  std::int64_t sums_ = 0;  // bytes
  std::string problem_text_;
};

}  // namespace zeroplan::runtime::cuda
