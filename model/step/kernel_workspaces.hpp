// What the libraries of matrix products are given to work in, on one GPU.
#pragma once

#include "base/units.hpp"
#include "model/graph/graph.hpp"

namespace zeroplan {

struct Plan;

// Kept from its first use on: cuBLAS has a workspace for each handle and stream, the forward pass's
// thread and autograd's have one each; torch 1 had none of its own, and torch 2.15 keeps none
// (product_workspace()). Source: aten/src/ATen/cuda/CublasHandlePool.cpp (torch 2.6). The embedded
// runtime: embedded_memory.hpp. Nothing on CPU ranks.
struct KernelWorkspaces {
  Bytes forward;   // from the first forward pass on
  Bytes backward;  // from the first backward pass on
  // Beside them for each of the two threads that calls cublasLt (Library::cublaslt).
  Bytes lt;
  Bytes total() const { return forward + backward; }
};
KernelWorkspaces kernel_workspaces(const Plan& plan);

// The same with cublasLt's, for the threads whose passes over `graph` call it.
Bytes kept_workspaces(const Plan& plan, const ModelGraph& graph);

// What every product allocates and frees; zero where workspaces are kept.
Bytes product_workspace(const Plan& plan);

}  // namespace zeroplan
