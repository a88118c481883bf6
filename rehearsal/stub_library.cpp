#include "rehearsal/stub_library.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <string_view>

namespace zeroplan::rehearsal {
namespace {

// The format: the System V ABI's "Object files", and the GNU extensions for versions.
constexpr std::size_t kElfHeaderBytes = 64;
constexpr std::size_t kSegmentBytes = 56;
constexpr std::size_t kSegments = 4;
constexpr std::size_t kElfSymbolBytes = 24;
constexpr std::size_t kRelocationBytes = 24;
constexpr std::uint64_t kPage = 0x10000;  // the largest of either machine
constexpr std::uint32_t kLoad = 1;
constexpr std::uint32_t kDynamicSegment = 2;
constexpr std::uint32_t kStack = 0x6474e551;
constexpr std::uint32_t kReadExecute = 5;
constexpr std::uint32_t kReadWrite = 6;
constexpr std::uint16_t kBaseVersion = 1;  // the library's own; and of what has none
constexpr std::uint8_t kGlobalFunction = 0x12;
constexpr std::uint8_t kGlobal = 0x10;

enum Tag : std::uint64_t {
  kNeeded = 1,
  kHash = 4,
  kStrings = 5,
  kSymbols = 6,
  kRelocations = 7,
  kRelocationsSize = 8,
  kRelocationSize = 9,
  kStringsSize = 10,
  kSymbolSize = 11,
  kSoname = 14,
  kVersionNumbers = 0x6ffffff0,
  kVersions = 0x6ffffffc,
  kVersionCount = 0x6ffffffd,
};

std::uint32_t hash_of(std::string_view name) {
  std::uint32_t hash = 0;
  for (const char c : name) {
    hash = (hash << 4) + static_cast<unsigned char>(c);
    const std::uint32_t top = hash & 0xf0000000;
    hash = (hash ^ (top >> 24)) & ~top;
  }
  return hash;
}

// Bytes that grow; numbers are little-endian, as both machines are.
class ByteWriter {
 public:
  std::size_t size() const { return text_.size(); }
  const std::string& text() const { return text_; }
  template <typename Number>
  void add(Number value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    text_.append(raw, sizeof value);
  }
  void append(std::string_view text) { text_.append(text); }
  void pad_to(std::size_t multiple) { text_.resize((size() + multiple - 1) / multiple * multiple); }
  void set32(std::size_t at, std::uint32_t value) { std::memcpy(&text_[at], &value, sizeof value); }
  void set64(std::size_t at, std::uint64_t value) { std::memcpy(&text_[at], &value, sizeof value); }

 private:
  std::string text_;
};

// Texts, each once, ended by 0.
class Strings {
 public:
  std::uint32_t place(const std::string& text) {
    const auto [found, is_new] = places_.try_emplace(text, static_cast<std::uint32_t>(all_.size()));
    if (is_new) all_.append(text).push_back('\0');
    return found->second;
  }
  const std::string& all() const { return all_; }

 private:
  std::string all_ = std::string(1, '\0');
  std::map<std::string, std::uint32_t> places_;
};

// --- machine code; `at` are places in the file, which are addresses too

#if defined(__aarch64__)
constexpr std::uint16_t kMachine = 183;
constexpr std::uint32_t kPlaceOfSymbol = 1025;  // R_AARCH64_GLOB_DAT
constexpr std::size_t kStubBytes = 8;

std::uint32_t distance(std::size_t from, std::size_t to) {
  return static_cast<std::uint32_t>(static_cast<std::int64_t>(to) -
                                    static_cast<std::int64_t>(from));
}
// adr x0, name; b common. What `common` does, for one that says nothing: mov x0, 0; ret.
void add_stub(ByteWriter& file, std::size_t name, std::size_t common) {
  const std::uint32_t d = distance(file.size(), name);
  file.add<std::uint32_t>(0x10000000 | (d & 3) << 29 | (d >> 2 & 0x7ffff) << 5);
  file.add<std::uint32_t>(0x14000000 | (distance(file.size(), common) >> 2 & 0x3ffffff));
}
void add_silent_stub(ByteWriter& file) {
  file.add<std::uint32_t>(0xd2800000);
  file.add<std::uint32_t>(0xd65f03c0);
}
// stp x29, x30, [sp, -16]!; ldr x16, slot; blr x16; mov x0, 0; ldp x29, x30, [sp], 16; ret
void add_common(ByteWriter& file, std::size_t slot) {
  file.add<std::uint32_t>(0xa9bf7bfd);
  file.add<std::uint32_t>(0x58000010 | (distance(file.size(), slot) >> 2 & 0x7ffff) << 5);
  for (const std::uint32_t word : {0xd63f0200U, 0xd2800000U, 0xa8c17bfdU, 0xd65f03c0U}) {
    file.add<std::uint32_t>(word);
  }
}
#else
constexpr std::uint16_t kMachine = 62;
constexpr std::uint32_t kPlaceOfSymbol = 6;  // R_X86_64_GLOB_DAT
constexpr std::size_t kStubBytes = 12;

// Of the next instruction.
std::uint32_t distance(std::size_t at, std::size_t to) {
  return static_cast<std::uint32_t>(static_cast<std::int64_t>(to) -
                                    static_cast<std::int64_t>(at + sizeof(std::uint32_t)));
}
// lea rdi, name; jmp common. For one that says nothing: xor eax, eax; ret.
void add_stub(ByteWriter& file, std::size_t name, std::size_t common) {
  file.append("\x48\x8d\x3d");
  file.add<std::uint32_t>(distance(file.size(), name));
  file.append("\xe9");
  file.add<std::uint32_t>(distance(file.size(), common));
}
void add_silent_stub(ByteWriter& file) {
  file.append("\x31\xc0\xc3");
  for (std::size_t i = 3; i < kStubBytes; ++i) file.append("\x90");
}
// sub rsp, 8; call [slot]; xor eax, eax; add rsp, 8; ret
void add_common(ByteWriter& file, std::size_t slot) {
  file.append("\x48\x83\xec\x08\xff\x15");
  file.add<std::uint32_t>(distance(file.size(), slot));
  file.append("\x31\xc0\x48\x83\xc4\x08\xc3");
}
#endif

class Writer {
 public:
  explicit Writer(const StubLibrary& library) : library_(library) {
    for (const auto& [name, function] : library.functions) {
      if (!function.version.empty()) number_.try_emplace(function.version, 0);
    }
    for (const std::string& version : library.versions) number_.try_emplace(version, 0);
    std::uint16_t next = kBaseVersion;
    for (auto& [version, number] : number_) number = ++next;
  }

  std::string write() {
    file_.append(std::string(kElfHeaderBytes + kSegments * kSegmentBytes, '\0'));
    add_strings();
    add_hash();
    const std::size_t symbols = reserve(symbol_count() * kElfSymbolBytes, 8);
    add_version_numbers();
    add_versions();
    const std::size_t relocation = reserve(kRelocationBytes, 8);
    const std::uint64_t slot = slot_address();
    const std::size_t code = add_code(slot);
    write_symbols(symbols, code);
    set(relocation, {slot, std::uint64_t{1} << 32 | kPlaceOfSymbol, 0});
    at_[kSymbols] = symbols;
    at_[kRelocations] = relocation;
    const std::size_t text_end = file_.size();
    reserve(slot - dynamic_bytes() - text_end, 1);
    add_dynamic();
    file_.add<std::uint64_t>(0);  // the slot
    write_header(text_end);
    return file_.text();
  }

 private:
  std::size_t symbol_count() const { return library_.functions.size() + 2; }

  std::size_t reserve(std::size_t bytes, std::size_t multiple) {
    file_.pad_to(multiple);
    const std::size_t at = file_.size();
    file_.append(std::string(bytes, '\0'));
    return at;
  }
  void set(std::size_t at, std::initializer_list<std::uint64_t> values) {
    for (const std::uint64_t value : values) {
      file_.set64(at, value);
      at += sizeof value;
    }
  }

  void add_strings() {
    strings_.place(library_.soname);
    strings_.place(library_.callback);
    for (const std::string& name : library_.needed) strings_.place(name);
    for (const auto& [name, function] : library_.functions) strings_.place(name);
    for (const auto& [version, number] : number_) strings_.place(version);
    at_[kStrings] = file_.size();
    file_.append(strings_.all());
  }
  std::size_t string_place(const std::string& text) { return at_[kStrings] + strings_.place(text); }

  void add_hash() {
    file_.pad_to(8);
    at_[kHash] = file_.size();
    const auto buckets = static_cast<std::uint32_t>(library_.functions.size() / 2 + 1);
    std::vector<std::uint32_t> first(buckets, 0);
    std::vector<std::uint32_t> next(symbol_count(), 0);
    std::uint32_t number = 2;
    for (const auto& [name, function] : library_.functions) {
      std::uint32_t& bucket = first[hash_of(name) % buckets];
      next[number] = bucket;
      bucket = number++;
    }
    file_.add<std::uint32_t>(buckets);
    file_.add(static_cast<std::uint32_t>(symbol_count()));
    for (const std::uint32_t symbol : first) file_.add(symbol);
    for (const std::uint32_t symbol : next) file_.add(symbol);
  }

  void add_version_numbers() {
    at_[kVersionNumbers] = file_.size();
    file_.add<std::uint16_t>(0);  // of no symbol
    file_.add<std::uint16_t>(kBaseVersion);
    for (const auto& [name, function] : library_.functions) {
      file_.add<std::uint16_t>(function.version.empty() ? kBaseVersion : number_[function.version]);
    }
  }

  void add_version(const std::string& name, std::uint16_t number, bool last) {
    constexpr std::uint32_t kEntry = 20;
    constexpr std::uint32_t kName = 8;
    file_.add<std::uint16_t>(1);  // of the format
    file_.add<std::uint16_t>(number == kBaseVersion ? 1 : 0);
    file_.add<std::uint16_t>(number);
    file_.add<std::uint16_t>(1);  // names
    file_.add<std::uint32_t>(hash_of(name));
    file_.add<std::uint32_t>(kEntry);
    file_.add<std::uint32_t>(last ? 0 : kEntry + kName);
    file_.add<std::uint32_t>(strings_.place(name));
    file_.add<std::uint32_t>(0);
  }
  void add_versions() {
    file_.pad_to(8);
    at_[kVersions] = file_.size();
    std::size_t left = number_.size();
    add_version(library_.soname, kBaseVersion, left == 0);
    for (const auto& [version, number] : number_) add_version(version, number, --left == 0);
  }

  // Behind the dynamic section, which begins the first page that the code does not reach.
  std::uint64_t slot_address() const {
    constexpr std::size_t kCommonAndGaps = 96;
    const std::size_t code = file_.size() + kCommonAndGaps + symbol_count() * kStubBytes;
    return (code + kPage - 1) / kPage * kPage + dynamic_bytes();
  }
  std::size_t dynamic_bytes() const { return (library_.needed.size() + 13) * 16; }

  std::size_t add_code(std::uint64_t slot) {
    file_.pad_to(16);
    const std::size_t common = file_.size();
    add_common(file_, slot);
    file_.pad_to(16);
    const std::size_t code = file_.size();
    for (const auto& [name, function] : library_.functions) {
      if (function.says) {
        add_stub(file_, string_place(name), common);
      } else {
        add_silent_stub(file_);
      }
    }
    return code;
  }

  void write_symbols(std::size_t at, std::size_t code) {
    const auto write_one = [&](const std::string& name,
                               std::uint8_t kind,
                               std::uint16_t section,
                               std::uint64_t value,
                               std::uint64_t size) {
      at += kElfSymbolBytes;
      file_.set64(at,
                  strings_.place(name) | std::uint64_t{kind} << 32 | std::uint64_t{section} << 48);
      file_.set64(at + 8, value);
      file_.set64(at + 16, size);
    };
    write_one(library_.callback, kGlobal, 0, 0, 0);
    for (const auto& [name, function] : library_.functions) {
      write_one(name, kGlobalFunction, 1, code, kStubBytes);
      code += kStubBytes;
    }
  }

  void add_dynamic() {
    dynamic_ = file_.size();
    const auto entry = [&](std::uint64_t tag, std::uint64_t value) {
      file_.add(tag);
      file_.add(value);
    };
    for (const std::string& name : library_.needed) entry(kNeeded, strings_.place(name));
    entry(kSoname, strings_.place(library_.soname));
    for (const auto& [tag, place] : at_) entry(tag, place);
    entry(kStringsSize, strings_.all().size());
    entry(kSymbolSize, kElfSymbolBytes);
    entry(kRelocationsSize, kRelocationBytes);
    entry(kRelocationSize, kRelocationBytes);
    entry(kVersionCount, number_.size() + 1);
    entry(0, 0);
  }

  void write_header(std::size_t text_end) {
    ByteWriter header;
    header.append("\177ELF\2\1\1");
    header.pad_to(16);
    header.add<std::uint16_t>(3);  // a shared library
    header.add<std::uint16_t>(kMachine);
    header.add<std::uint32_t>(1);
    header.add<std::uint64_t>(0);
    header.add<std::uint64_t>(kElfHeaderBytes);  // where segments are described
    header.add<std::uint64_t>(0);                // no sections: those are for tools
    header.add<std::uint32_t>(0);
    header.add<std::uint16_t>(kElfHeaderBytes);
    header.add<std::uint16_t>(kSegmentBytes);
    header.add<std::uint16_t>(kSegments);
    header.pad_to(kElfHeaderBytes);
    const auto segment = [&](std::uint32_t type,
                             std::uint32_t flags,
                             std::uint64_t at,
                             std::uint64_t size,
                             std::uint64_t align) {
      header.add(type);
      header.add(flags);
      for (const std::uint64_t value : {at, at, at, size, size, align}) header.add(value);
    };
    segment(kLoad, kReadExecute, 0, text_end, kPage);
    segment(kLoad, kReadWrite, dynamic_, file_.size() - dynamic_, kPage);
    segment(kDynamicSegment, kReadWrite, dynamic_, dynamic_bytes(), 8);
    segment(kStack, kReadWrite, 0, 0, 16);
    for (std::size_t at = 0; at < header.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, &header.text()[at], sizeof word);
      file_.set64(at, word);
    }
  }

  const StubLibrary& library_;
  std::map<std::string, std::uint16_t> number_;  // of each version
  ByteWriter file_;
  Strings strings_;
  std::map<std::uint64_t, std::uint64_t> at_;  // parts by the tags that name them
  std::size_t dynamic_ = 0;
};

}  // namespace

std::string stub_library(const StubLibrary& library) { return Writer(library).write(); }

}  // namespace zeroplan::rehearsal
