// Reads Python pickles that hold data and nothing else: None, truth values, numbers, text, lists,
// tuples and dictionaries. That is all a memory snapshot of PyTorch has.
//
// A pickle is a program for a stack machine, and Python's own reader runs it: it imports modules
// and calls functions by name. This reader knows the opcodes that build the values above and
// refuses every other one, so that nothing can be named, imported, called or made up of bytes.
// Values are kept in one table and refer to each other by place in it: a pickle may share a value
// or hold itself, and neither makes the table larger than the file. Source: Lib/pickletools.py of
// CPython, protocols 2 to 5. Checked by tests/evidence/unpickle_test.cpp and
// tests/fuzz/fuzz_unpickle.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeroplan::evidence {

class Pickle {
 public:
  using Ref = std::uint32_t;  // place of a value
  enum class Kind : std::uint8_t { none, boolean, integer, real, text, list, dict };

  // `bytes` must outlive the result, which points into them. Throws InputError for anything but a
  // whole pickle of data, with the byte and the opcode.
  static Pickle parse(std::string_view bytes, const std::string& file);

  Ref root() const { return root_; }
  Kind kind(Ref value) const { return values_[value].kind; }

  // Nothing where the value is of another kind.
  std::optional<std::int64_t> integer(Ref value) const;  // truth values too
  std::optional<std::string_view> text(Ref value) const;
  // Items of a list or tuple; key, value, key, value of a dictionary; empty for others.
  const std::vector<Ref>& items(Ref value) const { return values_[value].items; }
  // The value of that key of a dictionary of at most 1000 keys; the last one counts, as in Python.
  std::optional<Ref> find(Ref dictionary, std::string_view key) const;

  std::size_t size() const { return values_.size(); }

 private:
  friend class PickleReader;
  struct Value {
    Kind kind = Kind::none;
    std::int64_t integer = 0;
    double real = 0.0;
    std::string_view text;
    std::vector<Ref> items;
  };
  std::vector<Value> values_;
  Ref root_ = 0;
};

// Whether the bytes open as a pickle of protocol 2 and newer.
bool is_pickle(std::string_view bytes);

}  // namespace zeroplan::evidence
