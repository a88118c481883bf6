#include "rehearsal/recorded_work.hpp"

#include <array>
#include <charconv>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/diagnostic.hpp"

namespace zeroplan::rehearsal {
namespace {

// Words between single spaces, from the front.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  std::string_view next() {
    const std::size_t end = rest_.find(' ');
    const std::string_view word = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    return word;
  }
  std::int64_t number() {
    const std::string_view word = next();
    std::int64_t value = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    is_good_ = is_good_ && error == std::errc() && end == word.data() + word.size() && value >= 0;
    return value;
  }
  std::string_view rest() const { return rest_; }
  bool is_good() const { return is_good_; }
  void is_bad() { is_good_ = false; }

 private:
  std::string_view rest_;
  bool is_good_ = true;
};

// cudaDataType_t (library_types.h); what has 8 bits is counted as 16.
DType type_of_library(std::int64_t type) {
  constexpr std::int64_t kFloat32 = 0;
  constexpr std::int64_t kFloat64 = 1;
  constexpr std::int64_t kFloat16 = 2;
  switch (type) {
    case kFloat32:
      return DType::fp32;
    case kFloat64:
      return DType::fp64;
    case kFloat16:
      return DType::fp16;
    default:
      return DType::bf16;
  }
}

DType type_of_torch(std::string_view name) {
  if (name == "float32") return DType::fp32;
  if (name == "float16") return DType::fp16;
  return DType::bf16;
}

MatrixProduct product_of(Words& words) {
  MatrixProduct product;
  product.dtype = type_of_library(words.number());
  words.next();  // transposes
  product.m = words.number();
  product.n = words.number();
  product.k = words.number();
  product.batch = words.number();
  return product;
}

RecordedCollective collective_of(Words& words) {
  RecordedCollective call;
  call.name = std::string(words.next());
  call.bytes = Bytes::of(words.number());
  call.ranks = words.number();
  call.joins = words.number() != 0;
  return call;
}

void read_copy(Words& words, RecordedCall& call) {
  constexpr std::int64_t kToDevice = 1;  // cudaMemcpyKind
  constexpr std::int64_t kToHost = 2;
  const std::int64_t way = words.number();
  call.way = way == kToDevice ? CopyWay::to_device
             : way == kToHost ? CopyWay::to_host
                              : CopyWay::on_device;
  call.number = words.number();
  call.pinned = words.next() == "pinned";
}

void read_host_wait(Words& words, RecordedCall& call) {
  const std::string_view what = words.next();
  if (what == "event") {
    call.waits_for = HostWaitsFor::event;
    call.number = words.number();
  } else if (what == "stream") {
    call.waits_for = HostWaitsFor::stream;
  } else if (what != "device") {
    words.is_bad();
  }
}

void read_kernel(Words& words, RecordedCall& call) {
  words.next();  // grid
  words.next();  // block
  words.next();  // shared memory
  call.name = std::string(words.rest());
}

AttentionCall attention_of(Words& words) {
  AttentionCall call;
  call.batch = words.number();
  call.heads = words.number();
  call.kv_heads = words.number();
  call.queries = words.number();
  call.keys = words.number();
  call.head_dim = words.number();
  call.causal = words.number() != 0;
  call.backward = words.number() != 0;
  call.dtype = type_of_torch(words.next());
  return call;
}

void read_file(Words& words, RecordedCall& call) {
  call.file.handle = words.number();
  const std::string_view way = words.next();
  call.file.reads = way == "read";
  if (way != "read" && way != "write") words.is_bad();
  call.number = words.number();
  call.file.requests.block = Bytes::of(words.number());
  call.file.requests.queue_depth = words.number();
  call.file.requests.threads = words.number();
  const NvmeRequests& made = call.file.requests;
  const bool any = made.block > Bytes::zero() && made.queue_depth > 0 && made.threads > 0;
  if (!any) words.is_bad();
}

constexpr std::array<std::pair<std::string_view, CallKind>, 14> kKinds{
    {{"kernel", CallKind::kernel},
     {"product", CallKind::product},
     {"collective", CallKind::collective},
     {"copy", CallKind::copy},
     {"memset", CallKind::memset},
     {"host", CallKind::host_function},
     {"event", CallKind::event},
     {"wait", CallKind::stream_wait},
     {"sync", CallKind::host_wait},
     {"cpu", CallKind::cpu_pass},
     {"adam", CallKind::cpu_adam},
     {"file", CallKind::file},
     {"file_wait", CallKind::file_wait},
     {"mark", CallKind::mark}}};

class WorkReader {
 public:
  explicit WorkReader(const std::string& file) : file_(file) {}

  void line(std::string_view line) {
    ++number_;
    std::array<std::string_view, 4> fields;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const std::size_t tab = i + 1 < fields.size() ? line.find('\t') : std::string_view::npos;
      fields[i] = line.substr(0, tab);
      if (i + 1 < fields.size() && tab == std::string_view::npos) throw bad(line);
      line = tab == std::string_view::npos ? std::string_view() : line.substr(tab + 1);
    }
    Words place(fields[1]);
    Words clock(fields[2]);
    RecordedCall call;
    call.stream = static_cast<std::int32_t>(place.number());
    call.nanoseconds = clock.number() + waiting_;
    Words words(fields[3]);
    if (fields[0] == "op") {
      open_.push_back({std::string(fields[3]), {}, {}, {}, 0, 0});
      indices_.push_back(-1);
      waiting_ = call.nanoseconds;
    } else if (fields[0] == "op_end") {
      end_operation(words);
      waiting_ = call.nanoseconds;
    } else {
      waiting_ = 0;
      read(fields[0], words, call);
    }
    if (!words.is_good() || !place.is_good() || !clock.is_good()) throw bad(fields[3]);
  }

  RecordedWork take() { return std::move(work_); }

 private:
  InputError bad(std::string_view got) const {
    return InputError({file_,
                       "line " + std::to_string(number_),
                       "a line of work that a rehearsed program wrote",
                       in_quotes(std::string(got.substr(0, 80))),
                       "the file was written by another version, or cut off"});
  }

  // Work belongs to the innermost operation around it.
  std::int32_t operation() {
    if (open_.empty()) return -1;
    if (indices_.back() < 0) {
      indices_.back() = static_cast<std::int32_t>(work_.operations.size());
      work_.operations.push_back(open_.back());
    }
    return indices_.back();
  }

  void end_operation(Words& words) {
    if (open_.empty()) return words.is_bad();
    RecordedOperation ended;
    ended.read = Bytes::of(words.number());
    ended.written = Bytes::of(words.number());
    if (words.next() == "attention") ended.attention = attention_of(words);
    if (indices_.back() >= 0) {
      RecordedOperation& operation = work_.operations[static_cast<std::size_t>(indices_.back())];
      operation.read = ended.read;
      operation.written = ended.written;
      operation.attention = ended.attention;
    }
    open_.pop_back();
    indices_.pop_back();
  }

  void read(std::string_view kind, Words& words, RecordedCall& call) {
    const auto* known = kKinds.begin();
    while (known != kKinds.end() && known->first != kind) ++known;
    if (known == kKinds.end()) return words.is_bad();
    call.kind = known->second;
    switch (call.kind) {
      case CallKind::kernel:
        read_kernel(words, call);
        break;
      case CallKind::product:
        call.product = product_of(words);
        break;
      case CallKind::collective:
        call.collective = collective_of(words);
        break;
      case CallKind::copy:
        read_copy(words, call);
        break;
      case CallKind::host_wait:
        read_host_wait(words, call);
        break;
      case CallKind::file:
        read_file(words, call);
        break;
      case CallKind::file_wait:
        call.file.handle = words.number();
        break;
      case CallKind::memset:
      case CallKind::event:
      case CallKind::stream_wait:
      case CallKind::cpu_pass:
      case CallKind::cpu_adam:
        call.number = words.number();
        break;
      case CallKind::mark:
        call.name = std::string(words.rest());
        break;
      case CallKind::host_function:
        break;
    }
    const bool launches = call.kind == CallKind::kernel || call.kind == CallKind::product;
    if (launches) call.operation = operation();
    if (call.operation >= 0) {
      RecordedOperation& of = work_.operations[static_cast<std::size_t>(call.operation)];
      ++(call.kind == CallKind::product ? of.products : of.kernels);
    }
    work_.calls.push_back(std::move(call));
  }

  const std::string& file_;
  std::int64_t number_ = 0;
  std::int64_t waiting_ = 0;  // ns of lines that are no call
  RecordedWork work_;
  std::vector<RecordedOperation> open_;  // around the line, the innermost last
  std::vector<std::int32_t> indices_;    // of the open ones; -1: it has launched nothing
};

}  // namespace

RecordedWork read_work(const std::string& lines, const std::string& file) {
  WorkReader reader(file);
  std::string_view rest(lines);
  for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    reader.line(rest.substr(0, end));
    rest = rest.substr(end + 1);
  }
  return reader.take();
}

bool take_host_time(const RecordedWork& timed, RecordedWork& work) {
  if (timed.calls.size() != work.calls.size()) return false;
  for (std::size_t i = 0; i < work.calls.size(); ++i) {
    const RecordedCall& a = timed.calls[i];
    const RecordedCall& b = work.calls[i];
    if (a.kind != b.kind || a.stream != b.stream || a.name != b.name) return false;
  }
  for (std::size_t i = 0; i < work.calls.size(); ++i) {
    work.calls[i].nanoseconds = timed.calls[i].nanoseconds;
  }
  return true;
}

}  // namespace zeroplan::rehearsal
