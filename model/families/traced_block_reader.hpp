// Reads the parts of zeroplan.graph/1: blocks, their tensors and events, with a problem for
// everything that is not as docs/trace.md says. What comes out can be played without a check.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "model/graph/traced_graph.hpp"

namespace zeroplan {

class TracedReader {
 public:
  TracedReader(std::string file, std::string pointer)
      : file_(std::move(file)), pointer_(std::move(pointer)) {}

  // `at`: where in the document, as a JSON pointer.
  void problem(const std::string& at, Phrase expected, Phrase got, Phrase hint = "");
  bool full() const { return problems_.size() >= kMostProblems; }
  bool clean() const { return problems_.empty(); }
  void throw_problems() const;

  // Values of an object; a problem, and something to go on with, where they are not as they should.
  std::string text(const Json& object, std::string_view key, const std::string& at);
  std::int64_t integer(const Json& object,
                       std::string_view key,
                       const std::string& at,
                       std::int64_t least,
                       std::int64_t most);
  bool flag(const Json& object, std::string_view key, const std::string& at, bool otherwise);
  TracedTensor tensor(const Json& value, const std::string& at);

 private:
  SizeFormula size(const Json& value, const std::string& at);

  std::string file_, pointer_;
  std::vector<Diagnostic> problems_;
};

TracedBlock read_traced_block(TracedReader& reader,
                              const Json& block,
                              const std::string& at,
                              std::int32_t slots);

}  // namespace zeroplan
