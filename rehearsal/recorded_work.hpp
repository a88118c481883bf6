// What a rehearsed program put on its GPU's streams, in its order, and the host's own time
// between: the lines of the work file (rehearsal/libraries/gpu/record.hpp says their form).
//
// Units: bytes, nanoseconds of the host. Left out: allocations, which the record of phases has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/cost/collective.hpp"
#include "model/cost/nvme.hpp"
#include "model/graph/graph.hpp"

namespace zeroplan::rehearsal {

enum class CallKind {
  kernel,
  product,
  collective,
  copy,
  memset,
  host_function,
  event,        // recorded on the stream
  stream_wait,  // the stream waits for an event
  host_wait,    // the host waits: for an event, a stream or the device
  cpu_pass,     // a pass over host memory that the rehearsal left out
  cpu_adam,
  file,       // an asynchronous read or write of DeepSpeed's, begun
  file_wait,  // the host waits for those of one handle
  mark,       // a phase ends
};

enum class CopyWay { to_device, to_host, on_device };
enum class HostWaitsFor { event, stream, device };

struct RecordedCollective {
  std::string
      name;     // NCCL's: all_gather, reduce_scatter, all_reduce, broadcast, reduce, send, recv
  Bytes bytes;  // that the call counts: of an all-gather what this rank gives, of a
                // reduce-scatter what it gets
  std::int64_t ranks = 1;
  bool joins = false;  // launched together with the call before
};

struct RecordedFile {
  std::int64_t handle = 0;
  bool reads = true;
  NvmeRequests requests;  // as its handle makes them
};

struct RecordedCall {
  CallKind kind = CallKind::kernel;
  std::int32_t stream = 0;  // 0: the default stream, on which PyTorch computes
  std::int64_t nanoseconds = 0;
  std::int32_t operation =
      -1;  // index into RecordedWork::operations; -1: launched by none of torch's
  MatrixProduct product;
  RecordedCollective collective;
  CopyWay way = CopyWay::on_device;
  bool pinned = false;
  HostWaitsFor waits_for = HostWaitsFor::device;
  RecordedFile file;
  std::int64_t number =
      0;             // of an event; bytes of a copy, memset, pass or file; parameters of Adam
  std::string name;  // of a kernel (as the linker has it, cut off) or a phase
};

// An operation of torch that launched something.
struct RecordedOperation {
  std::string name;  // "mul.Tensor"
  Bytes read, written;
  std::optional<AttentionCall> attention;
  std::int32_t kernels = 0;  // without products, copies and memsets
  std::int32_t products = 0;
};

struct RecordedWork {
  std::vector<RecordedCall> calls;
  std::vector<RecordedOperation> operations;
};

// Lines that are cut off are left out. Throws InputError for a line of another form.
RecordedWork read_work(const std::string& lines, const std::string& file);

// Gives each call of `work` the host's time of the same call in `timed`, a run of the same program
// in which operations were not watched. False, and nothing is changed, where the two did not do the
// same.
bool take_host_time(const RecordedWork& timed, RecordedWork& work);

}  // namespace zeroplan::rehearsal
