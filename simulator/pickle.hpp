// Writes Python's pickle format, protocol 2, as far as nested dictionaries and lists of integers,
// truth values and text need it. PyTorch's memory visualizer reads its snapshots so.
//
// Source: Lib/pickletools.py of CPython, opcodes PROTO, EMPTY_DICT, EMPTY_LIST, MARK, SETITEMS,
// APPENDS, BINUNICODE, BININT, LONG1, NEWTRUE, NEWFALSE, STOP. Containers are written in one go and
// never shared, so nothing is memoized. Checked by tests/simulator/memory_snapshot_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zeroplan::simulator {

class PickleWriter {
 public:
  PickleWriter() : out_("\x80\x02") {}

  // {key: value, ...}: begin_dict, then key and value in turn, end_dict. Lists alike.
  void begin_dict() { out_ += "}("; }
  void end_dict() { out_ += 'u'; }
  void begin_list() { out_ += "]("; }
  void end_list() { out_ += 'e'; }

  void text(std::string_view value);
  void integer(std::int64_t value);
  void boolean(bool value) { out_ += value ? '\x88' : '\x89'; }

  // A dictionary's entry.
  void entry(std::string_view key, std::string_view value) {
    text(key);
    text(value);
  }
  void entry(std::string_view key, std::int64_t value) {
    text(key);
    integer(value);
  }

  // The whole document; nothing may be written after it.
  std::string finish() {
    out_ += '.';
    return std::move(out_);
  }

 private:
  void little_endian(std::uint64_t value, int bytes);

  std::string out_;
};

}  // namespace zeroplan::simulator
