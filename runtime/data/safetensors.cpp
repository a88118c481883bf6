#include "runtime/data/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <istream>
#include <utility>

#include "base/check.hpp"
#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "base/half_floats.hpp"
#include "base/json.hpp"
#include "runtime/data/file_kind.hpp"

namespace zeroplan::runtime {
namespace {

constexpr std::int64_t kLongestHeader = 100'000'000;  // of the reference implementation

[[noreturn]] void refuse_tensors(const std::string& path, std::string pointer, Phrase got) {
  throw InputError(Diagnostic{.file = path,
                              .pointer = std::move(pointer),
                              .expected = "a safetensors file of F32, BF16 or F16 tensors",
                              .got = std::move(got),
                              .hint = ""});
}

std::int64_t integer_of(const std::string& path, const std::string& name, const Json& json) {
  if (!json.is_integer() || json.as_integer() < 0)
    refuse_tensors(path, "/" + name, described(json));
  return json.as_integer();
}

DType dtype_of(const std::string& path, const std::string& name, const Json* json) {
  const std::string text = json != nullptr && json->is_string() ? json->as_string() : "";
  if (text == "F32") return DType::fp32;
  if (text == "BF16") return DType::bf16;
  if (text == "F16") return DType::fp16;
  refuse_tensors(path, "/" + name + "/dtype", json == nullptr ? "none" : described(*json));
}

TensorInfo info_of(const std::string& path, const std::string& key, const Json& json) {
  const std::string name = pointer_token(key);
  if (!json.is_object()) refuse_tensors(path, "/" + name, described(json));
  TensorInfo info;
  info.dtype = dtype_of(path, name, json.find("dtype"));
  const Json* shape = json.find("shape");
  const Json* offsets = json.find("data_offsets");
  if (shape == nullptr || !shape->is_array()) refuse_tensors(path, "/" + name + "/shape", "none");
  if (offsets == nullptr || !offsets->is_array() || offsets->items().size() != 2) {
    refuse_tensors(path, "/" + name + "/data_offsets", "none");
  }
  std::int64_t numel = 1;
  for (const Json& size : shape->items()) {
    info.shape.push_back(integer_of(path, name + "/shape", size));
    numel = detail::checked_product(numel, info.shape.back());
  }
  info.begin = integer_of(path, name + "/data_offsets", offsets->items()[0]);
  info.end = integer_of(path, name + "/data_offsets", offsets->items()[1]);
  if (info.end - info.begin != (Elements::of(numel) * info.dtype).count()) {
    refuse_tensors(path, "/" + name + "/data_offsets", "another size than the shape's");
  }
  return info;
}

}  // namespace

SafetensorsHeader read_safetensors_header(std::istream& file,
                                          std::int64_t file_size,
                                          const std::string& path) {
  std::array<unsigned char, 8> length_bytes{};
  file.read(reinterpret_cast<char*>(length_bytes.data()), length_bytes.size());
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < length_bytes.size(); ++i) {
    length |= static_cast<std::uint64_t>(length_bytes[i]) << (8 * i);
  }
  if (!file || file_size < 8 ||
      length > static_cast<std::uint64_t>(std::min(kLongestHeader, file_size - 8))) {
    refuse_tensors(path, "", "a header that is longer than the file");
  }
  std::string text(length, '\0');
  file.read(text.data(), static_cast<std::streamsize>(length));
  SafetensorsHeader header;
  header.data_begin = 8 + static_cast<std::int64_t>(length);
  JsonOptions options;
  options.max_values = kMostRecordedValues;
  const Json root = parse_json(text, path, options).root;
  if (!root.is_object()) refuse_tensors(path, "", described(root));
  for (const auto& [name, value] : root.members()) {
    if (name == "__metadata__") continue;
    TensorInfo info = info_of(path, name, value);
    if (info.end > file_size - header.data_begin) {
      refuse_tensors(path, "/" + pointer_token(name), "data behind the file's end");
    }
    header.tensors.emplace(name, std::move(info));
  }
  return header;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  const std::string other = other_than_file(path);
  if (!other.empty()) {
    refuse_tensors(path, "", other == "no file" ? "a file that cannot be opened" : other);
  }
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) refuse_tensors(path, "", "a file that cannot be opened");
  const std::int64_t size = file.tellg();
  file.seekg(0);
  header_ = read_safetensors_header(file, size, path);
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = header_.tensors.find(name);
  return found == header_.tensors.end() ? nullptr : &found->second;
}

void SafetensorsFile::read(std::string_view name, Elements first, std::span<float> values) const {
  const TensorInfo* info = find(name);
  ZP_CHECK(info != nullptr, "the file has the tensor");
  const std::int64_t size = width(info->dtype);
  std::ifstream file(path_, std::ios::binary);
  file.seekg(header_.data_begin + info->begin + first.count() * size);
  std::vector<char> bytes(values.size() * static_cast<std::size_t>(size));
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file) refuse_tensors(path_, "/" + std::string(name), "a file that ends early");
  if (info->dtype == DType::fp32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes.data() + 2 * i, 2);
    values[i] = info->dtype == DType::bf16 ? float_of_bf16(half) : float_of_fp16(half);
  }
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<Tensor>& tensors)
    : file_(path) {
  Json header = Json::object();
  for (const Tensor& tensor : tensors) {
    std::int64_t bytes = width(DType::fp32);
    Json shape = Json::array();
    for (const std::int64_t size : tensor.shape) {
      bytes *= size;
      shape.push_back(size);
    }
    header[tensor.name] = Json::object({{"dtype", "F32"},
                                        {"shape", std::move(shape)},
                                        {"data_offsets", Json::array({left_, left_ + bytes})}});
    left_ += bytes;
  }
  std::string text = header.dump();
  text.resize(static_cast<std::size_t>(round_up(static_cast<std::int64_t>(text.size()), 8)), ' ');
  std::array<char, 8> length{};
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<char>((text.size() >> (8 * i)) & 0xffU);
  }
  file_.write(std::string_view(length.data(), length.size()));
  file_.write(text);
}

void SafetensorsWriter::append(std::span<const float> values) {
  file_.write(std::as_bytes(values));
  left_ -= static_cast<std::int64_t>(values.size_bytes());
}

FileFacts SafetensorsWriter::finish() {
  ZP_CHECK(left_ == 0, "everything that was declared is written");
  file_.finish();
  return file_.facts();
}

}  // namespace zeroplan::runtime
