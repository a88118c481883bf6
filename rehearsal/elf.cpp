#include "rehearsal/elf.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/diagnostic.hpp"

namespace zeroplan::rehearsal {
namespace {

// The format: the System V ABI's "Object files", and the GNU extensions for versions.
constexpr std::string_view kMagic = "\177ELF\2\1";  // 64 bits, little-endian
constexpr std::size_t kHeaderBytes = 64;
constexpr std::uint32_t kDynamicSection = 6;
constexpr std::uint32_t kDynamicSymbols = 11;
constexpr std::uint32_t kVersionNeeds = 0x6ffffffe;
constexpr std::uint32_t kVersionSection = 0x6fffffff;
constexpr std::uint64_t kTagNeeded = 1;
constexpr std::uint64_t kTagSoname = 14;
constexpr std::size_t kSymbolBytes = 24;
constexpr std::uint16_t kVersionMask = 0x7fff;  // the top bit hides a definition

class ElfReader {
 public:
  ElfReader(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  template <typename Number>
  Number number(std::uint64_t at) const {
    Number value{};
    std::memcpy(&value, part(at, sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view part(std::uint64_t at, std::uint64_t length) const {
    if (at > bytes_.size() || length > bytes_.size() - at) fail("an end before its parts");
    return bytes_.substr(at, length);
  }
  // A text that ends with 0 within its table.
  std::string text(std::string_view table, std::uint64_t at) const {
    if (at >= table.size()) fail("a name outside its table");
    const std::size_t end = table.find('\0', at);
    if (end == std::string_view::npos) fail("a name without an end");
    return std::string(table.substr(at, end - at));
  }
  [[noreturn]] void fail(const Phrase& got) const {
    throw InputError({file_, "", "a shared library of a 64-bit Linux", got, ""});
  }

 private:
  std::string_view bytes_;
  const std::string& file_;
};

struct ElfSection {
  std::uint32_t type = 0;
  std::uint32_t link = 0;  // its table of names, as a section
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

std::vector<ElfSection> sections_of(const ElfReader& reader) {
  constexpr std::size_t kSectionBytes = 64;
  const auto table = reader.number<std::uint64_t>(0x28);
  const auto entry = reader.number<std::uint16_t>(0x3a);
  const auto count = reader.number<std::uint16_t>(0x3c);
  if (entry != kSectionBytes) reader.fail("no table of sections");
  std::vector<ElfSection> sections;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = table + i * kSectionBytes;
    sections.push_back({reader.number<std::uint32_t>(at + 4),
                        reader.number<std::uint32_t>(at + 40),
                        reader.number<std::uint64_t>(at + 24),
                        reader.number<std::uint64_t>(at + 32)});
  }
  return sections;
}

struct ElfVersion {
  std::string name;
  std::string library;
};

class LibraryReader {
 public:
  LibraryReader(std::string_view bytes, const std::string& file)
      : reader_(bytes, file), sections_(sections_of(reader_)) {}

  SharedLibrary read() const {
    SharedLibrary library;
    read_dynamic(library);
    read_symbols(library, versions());
    return library;
  }

  std::set<std::string> defined() const {
    std::set<std::string> found;
    const ElfSection* symbols = find(kDynamicSymbols);
    if (symbols == nullptr) return found;
    const std::string_view names = names_of(*symbols);
    for (std::uint64_t i = 1; i < symbols->size / kSymbolBytes; ++i) {
      const std::uint64_t at = symbols->offset + i * kSymbolBytes;
      if (reader_.number<std::uint16_t>(at + 6) == 0) continue;
      found.insert(reader_.text(names, reader_.number<std::uint32_t>(at)));
    }
    return found;
  }

 private:
  const ElfSection* find(std::uint32_t type) const {
    const auto found = std::find_if(
        sections_.begin(), sections_.end(), [&](const ElfSection& s) { return s.type == type; });
    return found == sections_.end() ? nullptr : &*found;
  }

  std::string_view names_of(const ElfSection& section) const {
    if (section.link >= sections_.size()) reader_.fail("a section without its names");
    const ElfSection& names = sections_[section.link];
    return reader_.part(names.offset, names.size);
  }

  void read_dynamic(SharedLibrary& library) const {
    const ElfSection* dynamic = find(kDynamicSection);
    if (dynamic == nullptr) reader_.fail("a file that is not linked dynamically");
    const std::string_view names = names_of(*dynamic);
    constexpr std::uint64_t kEntryBytes = 16;
    for (std::uint64_t at = 0; at + kEntryBytes <= dynamic->size; at += kEntryBytes) {
      const auto tag = reader_.number<std::uint64_t>(dynamic->offset + at);
      if (tag != kTagNeeded && tag != kTagSoname) continue;
      const auto place = reader_.number<std::uint64_t>(dynamic->offset + at + 8);
      std::string name = reader_.text(names, place);
      if (tag == kTagSoname) library.soname = name;
      if (tag == kTagNeeded) library.needed.push_back(std::move(name));
    }
  }

  // By number: what symbols say of the version they want.
  std::map<std::uint16_t, ElfVersion> versions() const {
    std::map<std::uint16_t, ElfVersion> found;
    const ElfSection* needs = find(kVersionNeeds);
    if (needs == nullptr) return found;
    const std::string_view names = names_of(*needs);
    std::uint64_t at = needs->offset;
    // An entry is at least as long as its header, so that the section bounds their number.
    for (std::uint64_t left = needs->size / 16; left > 0; --left) {
      const std::string library = reader_.text(names, reader_.number<std::uint32_t>(at + 4));
      std::uint64_t one = at + reader_.number<std::uint32_t>(at + 8);
      for (auto count = reader_.number<std::uint16_t>(at + 2); count > 0; --count) {
        const auto number = reader_.number<std::uint16_t>(one + 6);
        found[number & kVersionMask] = {reader_.text(names, reader_.number<std::uint32_t>(one + 8)),
                                        library};
        one += reader_.number<std::uint32_t>(one + 12);
      }
      const auto next = reader_.number<std::uint32_t>(at + 12);
      if (next == 0) break;
      at += next;
    }
    return found;
  }

  void read_symbols(SharedLibrary& library,
                    const std::map<std::uint16_t, ElfVersion>& known) const {
    const ElfSection* symbols = find(kDynamicSymbols);
    if (symbols == nullptr) return;
    const ElfSection* numbers = find(kVersionSection);
    const std::string_view names = names_of(*symbols);
    for (std::uint64_t i = 1; i < symbols->size / kSymbolBytes; ++i) {
      const std::uint64_t at = symbols->offset + i * kSymbolBytes;
      if (reader_.number<std::uint16_t>(at + 6) != 0) continue;  // defined in a section of its own
      WantedSymbol wanted{reader_.text(names, reader_.number<std::uint32_t>(at)), "", ""};
      if (wanted.name.empty()) continue;
      if (numbers != nullptr) {
        const auto number = reader_.number<std::uint16_t>(numbers->offset + 2 * i);
        const auto found = known.find(number & kVersionMask);
        if (found != known.end()) {
          wanted.version = found->second.name;
          wanted.library = found->second.library;
        }
      }
      library.wanted.push_back(std::move(wanted));
    }
  }

  ElfReader reader_;
  std::vector<ElfSection> sections_;
};

// A file as bytes, without reading it.
class Mapped {
 public:
  explicit Mapped(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
      if (file >= 0) close(file);
      throw InputError({path, "", "a shared library", "no file that can be read", ""});
    }
    size_ = static_cast<std::size_t>(status.st_size);
    if (size_ > 0) address_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (address_ == MAP_FAILED) {
      throw InputError({path, "", "a shared library", "a file that cannot be mapped", ""});
    }
  }
  ~Mapped() {
    if (address_ != nullptr) munmap(address_, size_);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  std::string_view bytes() const { return {static_cast<const char*>(address_), size_}; }

 private:
  void* address_ = nullptr;
  std::size_t size_ = 0;
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool is_driver_name(std::string_view text) {
  constexpr std::size_t kShortest = 6;
  const auto letter = [&](std::size_t i, int (*kind)(int)) {
    return kind(static_cast<unsigned char>(text[i])) != 0;
  };
  if (text.size() < kShortest || !std::all_of(text.begin(), text.end(), is_word)) return false;
  if (text.starts_with("nvml")) return letter(4, std::isupper);
  return text.starts_with("cu") && letter(2, std::isupper) && letter(3, std::islower);
}

}  // namespace

SharedLibrary read_shared_library(std::string_view bytes, const std::string& file) {
  const ElfReader reader(bytes, file);
  if (bytes.size() < kHeaderBytes || !bytes.starts_with(kMagic)) reader.fail("another file");
  return LibraryReader(bytes, file).read();
}

std::set<std::string> defined_functions(std::string_view bytes, const std::string& file) {
  const ElfReader reader(bytes, file);
  if (bytes.size() < kHeaderBytes || !bytes.starts_with(kMagic)) reader.fail("another file");
  return LibraryReader(bytes, file).defined();
}

SharedLibrary read_shared_library_file(const std::string& path) {
  const Mapped file(path);
  return read_shared_library(file.bytes(), path);
}

std::vector<std::string> driver_names(std::string_view bytes) {
  std::set<std::string> names;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\0', at), bytes.size());
    const std::string_view text = bytes.substr(at, end - at);
    if (end < bytes.size() && is_driver_name(text)) names.emplace(text);
    at = end + 1;
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> driver_names_of_file(const std::string& path) {
  const Mapped file(path);
  return driver_names(file.bytes());
}

}  // namespace zeroplan::rehearsal
