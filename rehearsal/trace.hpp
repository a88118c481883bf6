// A model's forward pass as a document: runs rehearsal/python/zeroplan_trace in the user's Python,
// on PyTorch's meta device, where tensors have sizes and no memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "model/transformer.hpp"

namespace zeroplan::rehearsal {

struct TraceRequest {
  std::string python;      // the interpreter, an absolute path
  std::string model;       // a config.json, a folder or a name of transformers; empty: `code`
  std::string code;        // FILE.py:FUNCTION
  std::string class_name;  // of transformers; empty: what the config names
  std::string attention;   // attn_implementation; empty: the model's own
  std::vector<std::string> frozen;    // names or patterns of parameters and modules
  std::vector<std::int64_t> batches;  // three that grow; empty: the usual ones
  std::vector<std::int64_t> sequences;
  // The usual sequences are longer than the first and at most as long as the second, where the
  // model runs other operations beyond (windows); 0: no bound.
  std::int64_t longer_than = 0, at_most = 0;
  Images images;           // that each sequence has
  std::int64_t batch = 1;  // at which it is traced where the class loops over its images
  bool family = false;     // `model` is a model_type: all its configs as zeroplan.family/1
  std::string beside;      // with `family`: a file of the same class in other releases, which stay
  bool trust_remote_code = false;
  std::optional<std::int64_t> seconds;  // it may take; absent: as long as it takes
};

// zeroplan.graph/1, or zeroplan.family/1, as text. A torch for CUDA whose libraries are missing
// gets the emulated ones (emulation.hpp). Throws InputError for what the model or the Python lacks.
std::string trace(const TraceRequest& request);

}  // namespace zeroplan::rehearsal
