// Reading and writing tensors in the safetensors format: eight bytes with the header's length, a
// JSON header of names, dtypes, shapes and offsets, the data.
// Source: the format's description at huggingface.co/docs/safetensors.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "model/dtype.hpp"
#include "runtime/data/disk_file.hpp"

namespace zeroplan::runtime {

struct TensorInfo {
  DType dtype = DType::fp32;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // bytes behind the header
};

// What stands before the data.
struct SafetensorsHeader {
  std::map<std::string, TensorInfo, std::less<>> tensors;
  std::int64_t data_begin = 0;  // in the file
};

// Reads the header from the file's beginning; `file_size` in bytes, `path` for messages. Throws
// InputError for what is no such file: a broken header, offsets outside the file, sizes that
// contradict shapes, dtypes other than F32, BF16 and F16; SizeOverflow for shapes of more elements
// than 64 bits count.
SafetensorsHeader read_safetensors_header(std::istream& file,
                                          std::int64_t file_size,
                                          const std::string& path);

// A file of tensors, read in parts; may be shared by threads, each with a copy.
class SafetensorsFile {
 public:
  // Throws as read_safetensors_header() does, and InputError for a file that cannot be opened.
  explicit SafetensorsFile(const std::string& path);

  const TensorInfo* find(std::string_view name) const;
  // Elements [first, first + values.size()) as fp32. Throws InputError where the file ends early.
  // Precondition: the tensor is there and has them.
  void read(std::string_view name, Elements first, std::span<float> values) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  SafetensorsHeader header_;
};

// Writes fp32 tensors one after the other, in the order in which they were declared.
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    std::vector<std::int64_t> shape;
  };
  // Throws WriteError, here, in append() and in finish().
  SafetensorsWriter(const std::string& path, const std::vector<Tensor>& tensors);
  void append(std::span<const float> values);
  // Flushes to the disk; what was written. Precondition: everything declared was appended.
  FileFacts finish();

 private:
  DiskFile file_;
  std::int64_t left_ = 0;  // bytes still to come
};

}  // namespace zeroplan::runtime
