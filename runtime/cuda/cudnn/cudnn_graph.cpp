// The graphs are those that cuDNN's developer guide describes as fused flash attention, forward and
// backward, written out operation by operation (NVIDIA cuDNN documentation, Graph API, "Fused
// Attention fprop" and "bprop"): cuDNN knows them again as a whole.
#include "runtime/cuda/cudnn/cudnn_graph.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

#include "base/check.hpp"
#include "runtime/cuda/cudnn/slices.hpp"

namespace zeroplan::runtime::cuda {
namespace {

using Sizes = std::array<std::int64_t, 4>;  // batch, head, row, column

// Names of what is given when a plan runs.
enum Name : std::int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kLse,
  kDOut,
  kDQ,
  kDK,
  kDV,
  kDelta,
  kScale,
  kNothing,  // the score of a key that may not be seen
  kOne,
  kDQSums,
  kVirtual = 100  // and on
};

cudnnDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

// One of a graph's tensors, by its place in Graph.
using Tensor = std::size_t;

class Graph {
 public:
  Graph(const CudnnLibrary& library, std::vector<CudnnDescriptor>& parts)
      : library_(library), parts_(parts) {}

  Tensor tensor(std::int64_t name, const Sizes& size, const Sizes& step, cudnnDataType_t type) {
    return made({name, size, step, type, false});
  }
  // A number that is given when the plan runs, from host memory.
  Tensor number(Name name) {
    return made({name, {1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, true});
  }
  // What lies between operations; dense.
  Tensor between(const Sizes& size, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return between(size, {size[1] * size[2] * size[3], size[2] * size[3], size[3], 1}, type);
  }
  Tensor between(const Sizes& size, const Sizes& step, cudnnDataType_t type) {
    return made({kVirtual + static_cast<std::int64_t>(sizes_.size()), size, step, type, false});
  }

  void matmul(Tensor a, Tensor b, Tensor c) {
    CudnnDescriptor how(library_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_compute(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    how.finalize();
    CudnnDescriptor operation(library_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, parts_[a]);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, parts_[b]);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, parts_[c]);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add(std::move(operation), std::move(how));
  }

  // y = op(x), op(x, b) or, BINARY_SELECT, t ? x : b.
  struct Inputs {
    Tensor x = 0, b = kNone, t = kNone;
    static constexpr Tensor kNone = std::numeric_limits<Tensor>::max();
  };
  void pointwise(cudnnPointwiseMode_t mode,
                 const Inputs& in,
                 Tensor y,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT,
                 std::int64_t axis = -1) {
    CudnnDescriptor how(library_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_compute(how, CUDNN_ATTR_POINTWISE_MATH_PREC, compute);
    if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    how.finalize();
    CudnnDescriptor operation(library_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, parts_[in.x]);
    if (in.b != Inputs::kNone) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, parts_[in.b]);
    if (in.t != Inputs::kNone) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, parts_[in.t]);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, parts_[y]);
    add(std::move(operation), std::move(how));
  }
  // The same, into a tensor of x's shape.
  Tensor pointwise(cudnnPointwiseMode_t mode, const Inputs& in) {
    const Tensor y = between(sizes_.at(in.x));
    pointwise(mode, in, y);
    return y;
  }

  void reduce(cudnnReduceTensorOp_t kind, Tensor x, Tensor y) {
    CudnnDescriptor how(library_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &kind);
    set_compute(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    how.finalize();
    CudnnDescriptor operation(library_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, parts_[x]);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, parts_[y]);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add(std::move(operation), std::move(how));
  }

  void reshape(Tensor x, Tensor y) {
    CudnnDescriptor operation(library_, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, parts_[x]);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, parts_[y]);
    operation.finalize();
    operations_.push_back(operation.handle());
    parts_.push_back(std::move(operation));
  }

  CudnnDescriptor finish(cudnnHandle_t handle) {
    CudnnDescriptor graph(library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (handle != nullptr) {
      graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    }
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS,
              CUDNN_TYPE_BACKEND_DESCRIPTOR,
              static_cast<std::int64_t>(operations_.size()),
              operations_.data());
    graph.finalize();
    return graph;
  }

 private:
  struct Made {
    std::int64_t name;
    Sizes size, step;
    cudnnDataType_t type;
    bool by_value;
  };
  Tensor made(const Made& like) {
    CudnnDescriptor tensor(library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const std::int64_t alignment = 16;  // bytes, what the problem's check promises
    const bool is_virtual = like.name >= kVirtual;
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &like.type);
    tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, like.size.data());
    tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, like.step.data());
    tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &like.name);
    tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &like.by_value);
    tensor.finalize();
    parts_.push_back(std::move(tensor));
    sizes_.emplace(parts_.size() - 1, like.size);
    return parts_.size() - 1;
  }
  static void set_compute(CudnnDescriptor& how,
                          cudnnBackendAttributeName_t name,
                          cudnnDataType_t type) {
    how.set(name, CUDNN_TYPE_DATA_TYPE, 1, &type);
  }
  void add(CudnnDescriptor operation, CudnnDescriptor how) {
    operation.finalize();
    operations_.push_back(operation.handle());
    parts_.push_back(std::move(operation));
    parts_.push_back(std::move(how));
  }

  const CudnnLibrary& library_;
  std::vector<CudnnDescriptor>& parts_;
  std::map<Tensor, Sizes> sizes_;
  std::vector<cudnnBackendDescriptor_t> operations_;
};

using Inputs = Graph::Inputs;

// Tensors of a problem in their memory.
struct Operands {
  const AttentionProblem& p;
  Graph& graph;
  cudnnDataType_t type = type_of(p.dtype);

  Tensor heads(std::int64_t name, std::int64_t count, const HeadSteps& step) const {
    return graph.tensor(name,
                        {p.batch, count, p.sequence, p.head_dim},
                        {p.sequence * step.row, step.head, step.row, 1},
                        type);
  }
  // Rows and columns change places.
  Tensor transposed(std::int64_t name, const HeadSteps& step) const {
    return graph.tensor(name,
                        {p.batch, p.kv_heads, p.head_dim, p.sequence},
                        {p.sequence * step.row, step.head, 1, step.row},
                        type);
  }
  Sizes row_sizes() const { return {p.batch, p.heads, p.sequence, 1}; }
  Sizes score_sizes() const { return {p.batch, p.heads, p.sequence, p.sequence}; }
  Tensor statistic(std::int64_t name) const {
    return graph.tensor(
        name, row_sizes(), {p.heads * p.sequence, p.sequence, 1, 1}, CUDNN_DATA_FLOAT);
  }
  // row >= column ? scores : -infinity.
  Tensor masked(Tensor scores) const {
    if (!p.causal) return scores;
    const Sizes size = score_sizes();
    const Sizes step = {size[1] * size[2] * size[3], size[2] * size[3], size[3], 1};
    const Tensor row = graph.between(size, step, CUDNN_DATA_INT32);
    const Tensor column = graph.between(size, step, CUDNN_DATA_INT32);
    const Tensor seen = graph.between(size, step, CUDNN_DATA_BOOLEAN);
    graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, {.x = scores}, row, CUDNN_DATA_FLOAT, 2);
    graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, {.x = scores}, column, CUDNN_DATA_FLOAT, 3);
    graph.pointwise(CUDNN_POINTWISE_CMP_GE, {.x = row, .b = column}, seen, CUDNN_DATA_BOOLEAN);
    return graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT,
                           {.x = scores, .b = graph.number(kNothing), .t = seen});
  }
  // scale (q k^T).
  Tensor scores(Tensor q, Tensor k, Tensor scale) const {
    const Tensor product = graph.between(score_sizes());
    graph.matmul(q, k, product);
    return graph.pointwise(CUDNN_POINTWISE_MUL, {.x = product, .b = scale});
  }
};

// out = softmax(scale q k^T) v; lse = log(sum(exp)).
void build_forward(const Operands& make) {
  Graph& graph = make.graph;
  const AttentionProblem& p = make.p;
  const Tensor q = make.heads(kQ, p.heads, p.q);
  const Tensor k = make.transposed(kK, p.k);
  const Tensor scores = make.masked(make.scores(q, k, graph.number(kScale)));
  const Tensor largest = graph.between(make.row_sizes());
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, largest);
  const Tensor below = graph.pointwise(CUDNN_POINTWISE_SUB, {.x = scores, .b = largest});
  const Tensor power = graph.pointwise(CUDNN_POINTWISE_EXP, {.x = below});
  const Tensor sum = graph.between(make.row_sizes());
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, power, sum);
  const Tensor logarithm = graph.pointwise(CUDNN_POINTWISE_LOG, {.x = sum});
  graph.pointwise(CUDNN_POINTWISE_ADD, {.x = largest, .b = logarithm}, make.statistic(kLse));
  const Tensor probability = graph.between(make.score_sizes(), make.type);
  graph.pointwise(CUDNN_POINTWISE_DIV, {.x = power, .b = sum}, probability);
  graph.matmul(probability, make.heads(kV, p.kv_heads, p.v), make.heads(kOut, p.heads, p.out));
}

// a^T times `by`, for keys; where heads share them summed over these.
void add_over_queries(const Operands& make, Tensor a, Tensor by, Tensor to) {
  Graph& graph = make.graph;
  const AttentionProblem& p = make.p;
  const Sizes size = make.score_sizes();
  const Tensor turned =
      graph.between(size, {size[1] * size[2] * size[3], size[2] * size[3], 1, size[3]}, make.type);
  graph.reshape(a, turned);
  if (p.heads == p.kv_heads) return graph.matmul(turned, by, to);
  const Tensor of_heads = graph.between({p.batch, p.heads, p.sequence, p.head_dim}, make.type);
  graph.matmul(turned, by, of_heads);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, of_heads, to);
}

// The sums of dQ have one order where dQ is a product by itself: cuDNN then keeps all dS in its
// workspace. As fp32 sums in memory they are added by whoever comes first; since 9.6 cuDNN clears
// them itself. Both forms are cudnn-frontend's (node/scaled_dot_product_flash_attention.h).
void build_backward(const Operands& make) {
  Graph& graph = make.graph;
  const AttentionProblem& p = make.p;
  const Tensor q = make.heads(kQ, p.heads, p.q);
  const Tensor k = make.transposed(kK, p.k);
  const Tensor v = make.transposed(kV, p.v);
  const Tensor d_out = make.heads(kDOut, p.heads, p.out);
  const Tensor scale = graph.number(kScale);

  const Tensor products = graph.between({p.batch, p.heads, p.sequence, p.head_dim});
  graph.pointwise(
      CUDNN_POINTWISE_MUL, {.x = d_out, .b = make.heads(kOut, p.heads, p.out)}, products);
  const Tensor delta_sum = graph.between(make.row_sizes());
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, products, delta_sum);
  const Tensor delta = make.statistic(kDelta);
  graph.pointwise(CUDNN_POINTWISE_MUL, {.x = delta_sum, .b = graph.number(kOne)}, delta);

  const Tensor scores = make.scores(q, k, scale);
  const Tensor below =
      graph.pointwise(CUDNN_POINTWISE_SUB, {.x = scores, .b = make.statistic(kLse)});
  const Tensor probability = graph.pointwise(CUDNN_POINTWISE_EXP, {.x = make.masked(below)});
  add_over_queries(make, probability, d_out, make.heads(kDV, p.kv_heads, p.v));

  const Tensor d_p = graph.between(make.score_sizes());
  graph.matmul(d_out, v, d_p);
  const Tensor centred = graph.pointwise(CUDNN_POINTWISE_SUB, {.x = d_p, .b = delta});
  const Tensor d_softmax = graph.pointwise(CUDNN_POINTWISE_MUL, {.x = centred, .b = probability});
  const Tensor d_scores = graph.pointwise(CUDNN_POINTWISE_MUL, {.x = d_softmax, .b = scale});
  add_over_queries(make, d_scores, q, make.heads(kDK, p.kv_heads, p.k));

  const Tensor keys = graph.between({p.batch, p.kv_heads, p.sequence, p.head_dim},
                                    {p.sequence * p.k.row, p.k.head, p.k.row, 1},
                                    make.type);
  graph.reshape(k, keys);
  const Tensor d_q = make.heads(kDQ, p.heads, p.q);
  if (p.ordered) return graph.matmul(d_scores, keys, d_q);
  const std::int64_t head = p.sequence * p.head_dim;
  const Tensor sums = graph.tensor(kDQSums,
                                   {p.batch, p.heads, p.sequence, p.head_dim},
                                   {p.heads * head, head, p.head_dim, 1},
                                   CUDNN_DATA_FLOAT);
  graph.matmul(d_scores, keys, sums);
  graph.pointwise(CUDNN_POINTWISE_IDENTITY, {.x = sums}, d_q);
}

}  // namespace

CudnnDescriptor::CudnnDescriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type)
    : library_(&library) {
  check(library.create_descriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
}
CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) library_->destroy_descriptor(descriptor_);
}
CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : library_(other.library_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}

void CudnnDescriptor::check(cudnnStatus_t status, const char* call) const {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> text{};
  library_->last_error(text.data(), text.size());
  throw CudnnError(std::string(call) + ": " + library_->error_string(status) + ": " + text.data());
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type,
                          std::int64_t count,
                          const void* values) {
  check(library_->set(descriptor_, name, type, count, values), "cudnnBackendSetAttribute");
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.descriptor_);
}
std::int64_t CudnnDescriptor::get(cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type,
                                  std::int64_t room,
                                  void* values) const {
  std::int64_t count = 0;
  check(library_->get(descriptor_, name, type, room, &count, values), "cudnnBackendGetAttribute");
  return count;
}
void CudnnDescriptor::finalize() { check(library_->finalize(descriptor_), "cudnnBackendFinalize"); }

CudnnPlan::CudnnPlan(const CudnnLibrary& library,
                     const AttentionProblem& problem,
                     CudnnTarget target)
    : library_(library),
      target_(std::move(target)),
      problem_(problem),
      sums_(bytes_of_sums(problem)) {
  constexpr std::size_t kClearsSums = 90600;
  if (sums_ > 0 && library.version() < kClearsSums) {
    throw CudnnError("it does not clear the sums of queries' gradients before 9.6");
  }
  if (target_.handle == nullptr) {
    properties_ = std::make_unique<CudnnDescriptor>(library, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    properties_->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                     CUDNN_TYPE_CHAR,
                     static_cast<std::int64_t>(target_.properties.size()),
                     target_.properties.data());
    properties_->finalize();
  }
  Graph graph(library, parts_);
  const Operands make{problem, graph};
  problem.backward ? build_backward(make) : build_forward(make);
  parts_.push_back(graph.finish(target_.handle));
  const CudnnDescriptor& whole = parts_.back();
  problem_text_ = "no engine";
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (choose(whole, mode)) return;
  }
  throw CudnnError(problem_text_);
}

bool CudnnPlan::choose(const CudnnDescriptor& graph, cudnnBackendHeurMode_t mode) {
  try {
    CudnnDescriptor heuristics(library_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (properties_) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *properties_);
    heuristics.finalize();
    const std::int64_t count =
        heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
    std::vector<CudnnDescriptor> configs;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (std::int64_t i = 0; i < count; ++i) {
      configs.emplace_back(library_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      handles.push_back(configs.back().handle());
    }
    const std::int64_t given = heuristics.get(
        CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, handles.data());
    for (std::int64_t i = 0; i < std::min(count, given); ++i) {
      try {
        take(std::move(configs[static_cast<std::size_t>(i)]));
        return true;
      } catch (const CudnnError& error) {
        problem_text_ = error.what();
      }
    }
  } catch (const CudnnError& error) {
    problem_text_ = error.what();
  }
  return false;
}

void CudnnPlan::take(CudnnDescriptor config) {
  CudnnDescriptor engine(library_, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t engine_handle = engine.handle();
  config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine_handle);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const std::int64_t noted = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                        CUDNN_TYPE_NUMERICAL_NOTE,
                                        CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                        notes.data());
  for (std::int64_t i = 0; i < noted; ++i) {
    if (problem_.ordered &&
        notes[static_cast<std::size_t>(i)] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) {
      throw CudnnError("an engine whose sums have no order");
    }
  }
  std::int64_t number = -1;
  engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
  auto plan = std::make_unique<CudnnDescriptor>(library_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (properties_) {
    plan->set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *properties_);
  } else {
    plan->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target_.handle);
  }
  plan->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  plan->finalize();
  plan->get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &workspace_);
  parts_.push_back(std::move(config));
  plan_ = std::move(plan);
  engine_ = number;
}

void CudnnPlan::run(const AttentionMemory& memory, std::byte* workspace) const {
  ZP_CHECK(target_.handle != nullptr, "a plan for a device by its properties is not run");
  float scale = static_cast<float>(problem_.scale);
  float nothing = -std::numeric_limits<float>::infinity();
  float one = 1.0F;
  std::vector<std::int64_t> names{kQ, kK, kV, kOut, kLse, kScale};
  std::vector<void*> data{memory.q, memory.k, memory.v, memory.out, memory.lse, &scale};
  const auto give = [&](Name name, void* at) {
    names.push_back(name);
    data.push_back(at);
  };
  if (problem_.causal) give(kNothing, &nothing);
  if (problem_.backward) {
    give(kDOut, memory.d_out);
    give(kDQ, memory.d_q);
    give(kDK, memory.d_k);
    give(kDV, memory.d_v);
    give(kDelta, memory.delta);
    give(kOne, &one);
    if (sums_ > 0) give(kDQSums, workspace);
  }
  const auto count = static_cast<std::int64_t>(names.size());
  CudnnDescriptor pack(library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, names.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, data.data());
  void* scratch = workspace + sums_;
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch);
  pack.finalize();
  const cudnnStatus_t status = library_.execute(target_.handle, plan_->handle(), pack.handle());
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> text{};
  library_.last_error(text.data(), text.size());
  throw CudnnError(std::string("cudnnBackendExecute: ") + library_.error_string(status) + ": " +
                   text.data());
}

}  // namespace zeroplan::runtime::cuda
