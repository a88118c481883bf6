// Attention without the matrix of scores: blocks of queries against blocks of keys, by Eigen in
// fp32. Forward keeps the logarithm of each row's sum; backward computes the probabilities again.
// Dao et al. 2022, arXiv:2205.14135, algorithms 1 and 4.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernels/cpu_kernels.hpp"

namespace zeroplan::runtime::cpu {
namespace {

constexpr std::int64_t kBlock = 64;

using Tile = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Column = Eigen::VectorXf;

// One of q, k, v, out or their gradients: (row, head, d) at offset + row * row_step + head *
// head_step + d.
template <typename T>
struct HeadsView {
  T* data = nullptr;
  std::int64_t row_step = 0, head_step = 0, dim = 0;

  T* at(std::int64_t row, std::int64_t head) const {
    return data + row * row_step + head * head_step;
  }
  Tile load(std::int64_t row, std::int64_t rows, std::int64_t head) const {
    Tile tile(rows, dim);
    for (std::int64_t i = 0; i < rows; ++i) {
      const T* from = at(row + i, head);
      for (std::int64_t d = 0; d < dim; ++d) tile(i, d) = to_float(from[d]);
    }
    return tile;
  }
  void store(std::int64_t row, std::int64_t head, const Tile& tile) const {
    for (std::int64_t i = 0; i < tile.rows(); ++i) {
      T* to = at(row + i, head);
      for (std::int64_t d = 0; d < dim; ++d) to[d] = from_float<T>(tile(i, d));
    }
  }
};

// The slope of a head: 2^(-8 h / n) for a power of two n; beyond the largest one in `heads`, every
// other slope of twice as many. Press et al. 2021, arXiv:2108.12409; transformers'
// build_alibi_tensor.
float alibi_slope(std::int64_t head, std::int64_t heads) {
  std::int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  const double first = -8.0 / static_cast<double>(power);
  const double exponent = head < power ? first * static_cast<double>(head + 1)
                                       : first / 2.0 * static_cast<double>(2 * (head - power) + 1);
  return static_cast<float>(std::exp2(exponent));
}

template <typename T>
class Attention {
 public:
  explicit Attention(const Run& run)
      : run_(run), call_(run.call), blocks_((run.call.sequence + kBlock - 1) / kBlock) {}

  void forward() {
    const HeadsView<T> out = dense(0, call_.heads);
    float* lse = run_.at<float>(1);
    const HeadsView<T> q = input(2, 0, call_.heads);
    const HeadsView<T> k = input(3, 1, call_.kv_heads);
    const HeadsView<T> v = input(4, 2, call_.kv_heads);
    run_.pool.run(call_.batch * call_.heads * blocks_, [&](std::int64_t task) {
      const Place place = place_of(task, call_.heads);
      forward_block(out, lse, q, k, v, place);
    });
  }

  void backward() {
    float* delta = run_.at<float>(3);
    d_out_ = dense(4, call_.heads);
    lse_ = run_.at<float>(6);
    q_ = input(7, 0, call_.heads);
    k_ = input(8, 1, call_.kv_heads);
    v_ = input(9, 2, call_.kv_heads);
    delta_ = delta;
    const HeadsView<T> out = dense(5, call_.heads);
    run_.pool.run(call_.batch * call_.heads * blocks_, [&](std::int64_t task) {
      const Place at = place_of(task, call_.heads);
      for (std::int64_t i = 0; i < at.rows; ++i) {
        const T* o = out.at(at.row + i, at.head);
        const T* d = d_out_.at(at.row + i, at.head);
        float sum = 0.0F;
        for (std::int64_t j = 0; j < call_.head_dim; ++j) sum += to_float(o[j]) * to_float(d[j]);
        delta[at.statistic + i] = sum;
      }
    });
    const HeadsView<T> d_q = input(0, 0, call_.heads);
    run_.pool.run(call_.batch * call_.heads * blocks_,
                  [&](std::int64_t task) { query_block(d_q, place_of(task, call_.heads)); });
    const HeadsView<T> d_k = input(1, 1, call_.kv_heads);
    const HeadsView<T> d_v = input(2, 2, call_.kv_heads);
    run_.pool.run(call_.batch * call_.kv_heads * blocks_,
                  [&](std::int64_t task) { key_block(d_k, d_v, place_of(task, call_.kv_heads)); });
  }

 private:
  // A block of positions of one head: where its rows begin in {T, ..} and in {B, A, S}.
  struct Place {
    std::int64_t batch, head, position, rows, row, statistic;
  };

  Place place_of(std::int64_t task, std::int64_t heads) const {
    Place place{};
    place.position = task % blocks_ * kBlock;
    place.head = task / blocks_ % heads;
    place.batch = task / blocks_ / heads;
    return filled(place);
  }
  Place filled(Place place) const {
    place.rows = std::min(kBlock, call_.sequence - place.position);
    place.row = place.batch * call_.sequence + place.position;
    place.statistic = (place.batch * call_.heads + place.head) * call_.sequence + place.position;
    return place;
  }
  Place moved(Place place, std::int64_t head, std::int64_t position) const {
    place.head = head;
    place.position = position;
    return filled(place);
  }

  HeadsView<T> dense(std::size_t operand, std::int64_t heads) const {
    return {run_.at<T>(operand), heads * call_.head_dim, call_.head_dim, call_.head_dim};
  }
  HeadsView<T> input(std::size_t operand, std::size_t which, std::int64_t heads) const {
    if (!call_.layout.fused()) return dense(operand, heads);
    return {run_.at<T>(operand) + call_.layout.offset[which],
            call_.layout.row_stride,
            call_.layout.head_stride,
            call_.head_dim};
  }

  std::int64_t group() const { return call_.heads / call_.kv_heads; }

  // Scaled scores of a block of queries against one of keys; -infinity where they may not look.
  Tile scores(const Tile& q, const Tile& k, const Place& at, std::int64_t key) const {
    Tile s = q * k.transpose();
    s *= static_cast<float>(call_.scale);
    const float slope = call_.alibi ? alibi_slope(at.head, call_.heads) : 0.0F;
    for (std::int64_t i = 0; i < s.rows(); ++i) {
      for (std::int64_t j = 0; j < s.cols(); ++j) {
        const std::int64_t distance = key + j - at.position - i;
        if (call_.causal && distance > 0) {
          s(i, j) = -std::numeric_limits<float>::infinity();
        } else if (call_.alibi) {
          s(i, j) += slope * static_cast<float>(distance);
        }
      }
    }
    return s;
  }

  std::int64_t last_key(const Place& at) const {
    return call_.causal ? at.position + at.rows : call_.sequence;
  }

  void forward_block(const HeadsView<T>& out,
                     float* lse,
                     const HeadsView<T>& q,
                     const HeadsView<T>& k,
                     const HeadsView<T>& v,
                     const Place& at) const {
    const Tile queries = q.load(at.row, at.rows, at.head);
    Tile sum = Tile::Zero(at.rows, call_.head_dim);
    Column largest = Column::Constant(at.rows, -std::numeric_limits<float>::infinity());
    Column total = Column::Zero(at.rows);
    for (std::int64_t key = 0; key < last_key(at); key += kBlock) {
      const Place keys = moved(at, at.head / group(), key);
      Tile p = scores(queries, k.load(keys.row, keys.rows, keys.head), at, key);
      for (std::int64_t i = 0; i < at.rows; ++i) {
        const float most = std::max(largest(i), p.row(i).maxCoeff());
        const float shrink = std::exp(largest(i) - most);
        float row_sum = 0.0F;
        for (std::int64_t j = 0; j < p.cols(); ++j) {
          p(i, j) = std::exp(p(i, j) - most);
          row_sum += p(i, j);
        }
        total(i) = total(i) * shrink + row_sum;
        sum.row(i) *= shrink;
        largest(i) = most;
      }
      sum.noalias() += p * v.load(keys.row, keys.rows, keys.head);
    }
    for (std::int64_t i = 0; i < at.rows; ++i) {
      sum.row(i) /= total(i);
      lse[at.statistic + i] = largest(i) + std::log(total(i));
    }
    out.store(at.row, at.head, sum);
  }

  // Probabilities and their gradient before the softmax, dS = P (dP - delta).
  struct Pair {
    Tile p, d_s;
  };
  Pair pair(const Place& at,
            std::int64_t key,
            const Tile& q,
            const Tile& d_out,
            const Tile& k,
            const Tile& v) const {
    Pair result;
    result.p = scores(q, k, at, key);
    for (std::int64_t i = 0; i < at.rows; ++i) {
      const float lse = lse_[at.statistic + i];
      for (std::int64_t j = 0; j < result.p.cols(); ++j) {
        result.p(i, j) = std::exp(result.p(i, j) - lse);
      }
    }
    result.d_s = d_out * v.transpose();
    for (std::int64_t i = 0; i < at.rows; ++i) {
      const float delta = delta_[at.statistic + i];
      for (std::int64_t j = 0; j < result.p.cols(); ++j) {
        result.d_s(i, j) = result.p(i, j) * (result.d_s(i, j) - delta);
      }
    }
    return result;
  }

  void query_block(const HeadsView<T>& d_q, const Place& at) const {
    const Tile q = q_.load(at.row, at.rows, at.head);
    const Tile d_out = d_out_.load(at.row, at.rows, at.head);
    Tile sum = Tile::Zero(at.rows, call_.head_dim);
    for (std::int64_t key = 0; key < last_key(at); key += kBlock) {
      const Place keys = moved(at, at.head / group(), key);
      const Tile k = k_.load(keys.row, keys.rows, keys.head);
      const Tile v = v_.load(keys.row, keys.rows, keys.head);
      sum.noalias() += pair(at, key, q, d_out, k, v).d_s * k;
    }
    sum *= static_cast<float>(call_.scale);
    d_q.store(at.row, at.head, sum);
  }

  // `at`: of a key head; its gradients sum over the query heads that share it.
  void key_block(const HeadsView<T>& d_k, const HeadsView<T>& d_v, const Place& at) const {
    const Tile k = k_.load(at.row, at.rows, at.head);
    const Tile v = v_.load(at.row, at.rows, at.head);
    Tile sum_k = Tile::Zero(at.rows, call_.head_dim);
    Tile sum_v = Tile::Zero(at.rows, call_.head_dim);
    for (std::int64_t member = 0; member < group(); ++member) {
      const std::int64_t first = call_.causal ? at.position : 0;
      for (std::int64_t query = first; query < call_.sequence; query += kBlock) {
        const Place queries = moved(at, at.head * group() + member, query);
        const Tile q = q_.load(queries.row, queries.rows, queries.head);
        const Tile d_out = d_out_.load(queries.row, queries.rows, queries.head);
        const Pair both = pair(queries, at.position, q, d_out, k, v);
        sum_v.noalias() += both.p.transpose() * d_out;
        sum_k.noalias() += both.d_s.transpose() * q;
      }
    }
    sum_k *= static_cast<float>(call_.scale);
    d_k.store(at.row, at.head, sum_k);
    d_v.store(at.row, at.head, sum_v);
  }

  const Run& run_;
  const KernelCall& call_;
  std::int64_t blocks_;
  HeadsView<T> d_out_, q_, k_, v_;
  const float* lse_ = nullptr;
  const float* delta_ = nullptr;
};

}  // namespace

template <typename T>
void run_attention(const Run& run) {
  Attention<T> attention(run);
  if (run.call.kernel == Kernel::attention_forward) return attention.forward();
  attention.backward();
}

ZP_CPU_KERNELS(run_attention);

}  // namespace zeroplan::runtime::cpu
