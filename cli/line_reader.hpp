// The lines of a file or a pipe as they come, in a bounded part of the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zeroplan::cli {

struct InputLine {
  std::int64_t number = 0;  // in the input, from 1
  std::string text;         // without its end; empty where it is too long
  bool too_long = false;
};

class LineReader {
 public:
  // Of `path`, "-" for standard input. A line of more than `longest` bytes is left out as one that
  // is too long. Once `wake` can be read there are no more lines; -1: never. Throws InputError
  // where the file cannot be read.
  LineReader(std::string path, std::size_t longest, int wake);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line that is not blank, as soon as its end is there; nothing behind the last one.
  // Throws InputError where reading fails, or a line has no end within a gigabyte.
  std::optional<InputLine> next();

 private:
  bool read_line(InputLine& line);
  bool fill();  // false at the end

  std::string path_;
  std::size_t longest_ = 0;
  int wake_ = -1;
  int descriptor_ = -1;
  bool owns_descriptor_ = false;
  bool told_to_stop_ = false;
  std::int64_t number_ = 0;
  std::vector<char> buffer_;
  std::size_t at_ = 0;   // what of the buffer was taken
  std::size_t end_ = 0;  // what of it is filled
};

}  // namespace zeroplan::cli
