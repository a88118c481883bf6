#include "tests/lost_writes/journal.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

extern "C" {
int __real_open(const char* path, int flags, ...);
ssize_t __real_write(int descriptor, const void* data, size_t size);
int __real_ftruncate(int descriptor, off_t size);
int __real_fsync(int descriptor);
int __real_close(int descriptor);
int __real_rename(const char* from, const char* to);
int __real_renameat2(
    int from_folder, const char* from, int to_folder, const char* to, unsigned how);
int __real_link(const char* from, const char* to);
int __real_unlink(const char* path);
int __real_mkdir(const char* path, mode_t mode);
int __real_rmdir(const char* path);
}

namespace zeroplan::test {
namespace {

Journal* listener = nullptr;

using Kind = DiskOperation::Kind;

bool is_name(Kind kind) {
  return kind == Kind::create || kind == Kind::rename || kind == Kind::link ||
         kind == Kind::unlink || kind == Kind::make_folder || kind == Kind::remove_folder;
}

std::string parent_of(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

// Which of the names' operations have reached the disk.
std::vector<bool> names_kept(const std::vector<DiskOperation>& operations,
                             std::size_t count,
                             const Loss& loss) {
  std::vector<bool> kept(count, loss.names == Loss::Names::all);
  std::mt19937_64 random(loss.seed);
  // A file system that keeps its changes of names in order keeps a beginning of them; one that does
  // not may keep any of them.
  const bool in_order = random() % 2 == 0;
  const std::size_t until = count > 0 ? random() % (count + 1) : 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_name(operations[i].kind)) continue;
    if (loss.names == Loss::Names::some) kept[i] = in_order ? i < until : random() % 2 == 0;
    const std::string folder = parent_of(operations[i].path);
    for (std::size_t later = i + 1; later < count; ++later) {
      const DiskOperation& sync = operations[later];
      if (sync.kind == Kind::sync && sync.of_folder && sync.path == folder) kept[i] = true;
    }
  }
  return kept;
}

// Each file's bytes.
std::map<int, std::string> bytes_kept(const std::vector<DiskOperation>& operations,
                                      std::size_t count,
                                      const Loss& loss) {
  std::map<int, std::string> written;
  std::map<int, std::string> sure;
  for (std::size_t i = 0; i < count; ++i) {
    const DiskOperation& operation = operations[i];
    if (operation.kind == Kind::write) written[operation.file] += operation.bytes;
    if (operation.kind == Kind::truncate) {
      written[operation.file].resize(std::stoul(operation.bytes));
    }
    if (operation.kind == Kind::sync && !operation.of_folder) {
      sure[operation.file] = written[operation.file];
    }
  }
  if (loss.bytes == Loss::Bytes::all) return written;
  if (loss.bytes == Loss::Bytes::sure) return sure;
  std::mt19937_64 random(loss.seed ^ 0x9e3779b97f4a7c15U);
  for (auto& [file, text] : written) {
    const std::string& least = sure[file];
    if (text == least) continue;
    const std::size_t from = std::min(least.size(), text.size());
    const std::size_t length = from + random() % (text.size() - from + 1);
    text.resize(length);
    // Blocks that were never written read as zeros.
    if (random() % 2 == 0) {
      for (std::size_t i = from; i < length; ++i) text[i] = '\0';
    }
  }
  return written;
}

}  // namespace

namespace {

// Names as a file system has them, after some of the operations.
struct Names {
  std::set<std::string> folders;
  std::map<std::string, int> files;

  void move(const std::string& from, const std::string& to) {
    if (const auto file = files.find(from); file != files.end()) {
      const int number = file->second;
      files.erase(file);
      files[to] = number;
      return;
    }
    if (folders.erase(from) == 0) return;
    folders.insert(to);
    std::map<std::string, int> moved;
    for (const auto& [path, number] : files) {
      const bool inside = path.starts_with(from + "/");
      moved[inside ? to + path.substr(from.size()) : path] = number;
    }
    files = std::move(moved);
  }

  void apply(const DiskOperation& operation) {
    switch (operation.kind) {
      case Kind::create:
        files[operation.path] = operation.file;
        break;
      case Kind::rename:
        move(operation.path, operation.to);
        break;
      case Kind::link:
        if (const auto file = files.find(operation.path); file != files.end()) {
          files[operation.to] = file->second;
        }
        break;
      case Kind::unlink:
        files.erase(operation.path);
        break;
      case Kind::make_folder:
        folders.insert(operation.path);
        break;
      case Kind::remove_folder:
        folders.erase(operation.path);
        break;
      default:
        break;
    }
  }
};

}  // namespace

Journal::Journal(std::string folder) : folder_(std::move(folder)) { listener = this; }

Journal::~Journal() { listener = nullptr; }

bool Journal::listens_to(const std::string& path) const { return path.starts_with(folder_ + "/"); }

void Journal::fail_at(int call, int error, bool for_good) {
  calls_until_failure_ = call;
  error_ = error;
  for_good_ = for_good;
  has_failed_ = false;
}

std::optional<int> Journal::failure(bool takes_room) {
  if (calls_until_failure_ < 0 || (has_failed_ && !takes_room)) return std::nullopt;
  if (calls_until_failure_ > 0) {
    --calls_until_failure_;
    return std::nullopt;
  }
  if (!for_good_) calls_until_failure_ = -1;
  has_failed_ = true;
  return error_;
}

void Journal::opened(int descriptor, const std::string& path, bool made, bool emptied) {
  struct stat status {};
  fstat(descriptor, &status);
  Open open{.descriptor = descriptor, .file = -1, .path = path};
  if (!S_ISDIR(status.st_mode)) {
    // By inode: names may have changed since it was made, and a new file may have an old number.
    const auto known = file_of_inode_.find(status.st_ino);
    if (made || known == file_of_inode_.end()) {
      open.file = files_++;
      file_of_inode_[status.st_ino] = open.file;
      add({.kind = Kind::create, .path = path, .file = open.file});
    } else {
      open.file = known->second;
    }
    if (emptied) add({.kind = Kind::truncate, .path = path, .file = open.file, .bytes = "0"});
  }
  open_.push_back(open);
}

void Journal::closed(int descriptor) {
  std::erase_if(open_, [&](const Open& open) { return open.descriptor == descriptor; });
}

int Journal::file_of(int descriptor) const {
  for (const Open& open : open_) {
    if (open.descriptor == descriptor) return open.file;
  }
  return -2;
}

std::string Journal::path_of(int descriptor) const {
  for (const Open& open : open_) {
    if (open.descriptor == descriptor) return open.path;
  }
  return "";
}

void Journal::restore(std::size_t count, const Loss& loss, const std::string& to) const {
  const std::vector<bool> kept = names_kept(operations_, count, loss);
  Names names;
  for (std::size_t i = 0; i < count; ++i) {
    if (is_name(operations_[i].kind) && kept[i]) names.apply(operations_[i]);
  }
  const std::map<int, std::string> bytes = bytes_kept(operations_, count, loss);
  const auto place = [&](const std::string& path) { return to + path.substr(folder_.size()); };
  for (const std::string& folder : names.folders) {
    std::filesystem::create_directories(place(folder));
  }
  for (const auto& [path, file] : names.files) {
    // A file in a folder that was lost is lost, too.
    const std::string folder = parent_of(path);
    if (folder != folder_ && !names.folders.contains(folder)) continue;
    const auto text = bytes.find(file);
    std::ofstream(place(path), std::ios::binary)
        << (text == bytes.end() ? std::string() : text->second);
  }
}

namespace {

// The listener, where it listens to the path.
Journal* listener_to(const char* path) {
  return listener != nullptr && listener->listens_to(path) ? listener : nullptr;
}

// Where the call is to fail: sets errno.
bool fails(Journal* journal, bool takes_room = true) {
  const auto error = journal->failure(takes_room);
  if (error) errno = *error;
  return error.has_value();
}

}  // namespace
}  // namespace zeroplan::test

using zeroplan::test::DiskOperation;
using zeroplan::test::fails;
using zeroplan::test::Journal;
using zeroplan::test::listener;
using zeroplan::test::listener_to;

extern "C" {

int __wrap_open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  Journal* journal = listener_to((std::string(path) + "/").c_str());
  const bool writes = (flags & (O_WRONLY | O_RDWR)) != 0;
  if (journal != nullptr && (writes || (flags & O_DIRECTORY) != 0) && fails(journal)) return -1;
  struct stat before {};
  const bool was_there = stat(path, &before) == 0;
  const int descriptor = __real_open(path, flags, mode);
  if (journal != nullptr && descriptor >= 0 && (writes || (flags & O_DIRECTORY) != 0)) {
    journal->opened(descriptor, path, !was_there, was_there && (flags & O_TRUNC) != 0);
  }
  return descriptor;
}

ssize_t __wrap_write(int descriptor, const void* data, size_t size) {
  Journal* journal = listener;
  if (journal == nullptr || journal->file_of(descriptor) < 0) {
    return __real_write(descriptor, data, size);
  }
  if (fails(journal)) {
    // A disk that is full takes a part first.
    const ssize_t part = __real_write(descriptor, data, size / 2);
    if (part > 0) {
      journal->add({.kind = DiskOperation::Kind::write,
                    .file = journal->file_of(descriptor),
                    .bytes = {static_cast<const char*>(data), static_cast<std::size_t>(part)}});
    }
    return -1;
  }
  const ssize_t written = __real_write(descriptor, data, size);
  if (written > 0) {
    journal->add({.kind = DiskOperation::Kind::write,
                  .file = journal->file_of(descriptor),
                  .bytes = {static_cast<const char*>(data), static_cast<std::size_t>(written)}});
  }
  return written;
}

int __wrap_ftruncate(int descriptor, off_t size) {
  if (listener != nullptr && listener->file_of(descriptor) >= 0) {
    listener->add({.kind = DiskOperation::Kind::truncate,
                   .file = listener->file_of(descriptor),
                   .bytes = std::to_string(size)});
  }
  return __real_ftruncate(descriptor, size);
}

int __wrap_fsync(int descriptor) {
  Journal* journal = listener;
  const int file = journal == nullptr ? -2 : journal->file_of(descriptor);
  if (file == -2) return __real_fsync(descriptor);
  if (fails(journal)) return -1;
  journal->add({.kind = DiskOperation::Kind::sync,
                .path = journal->path_of(descriptor),
                .file = file,
                .of_folder = file == -1});
  return 0;  // the real one takes its time and nothing here depends on it
}

int __wrap_close(int descriptor) {
  if (listener != nullptr) listener->closed(descriptor);
  return __real_close(descriptor);
}

int __wrap_rename(const char* from, const char* to) {
  Journal* journal = listener_to(from);
  if (journal == nullptr) return __real_rename(from, to);
  if (fails(journal, false)) return -1;
  const int result = __real_rename(from, to);
  if (result == 0) {
    journal->add({.kind = DiskOperation::Kind::rename, .path = from, .to = to});
  }
  return result;
}

int __wrap_renameat2(
    int from_folder, const char* from, int to_folder, const char* to, unsigned how) {
  Journal* journal = listener_to(from);
  if (journal == nullptr) return __real_renameat2(from_folder, from, to_folder, to, how);
  if (fails(journal)) return -1;
  const int result = __real_renameat2(from_folder, from, to_folder, to, how);
  if (result == 0) {
    journal->add({.kind = DiskOperation::Kind::rename, .path = from, .to = to});
  }
  return result;
}

// What is taken away never fails here: nobody could do anything about it.
int __wrap_unlink(const char* path) {
  const int result = __real_unlink(path);
  if (Journal* journal = listener_to(path); journal != nullptr && result == 0) {
    journal->add({.kind = DiskOperation::Kind::unlink, .path = path});
  }
  return result;
}

int __wrap_link(const char* from, const char* to) {
  Journal* journal = listener_to(from);
  if (journal != nullptr && fails(journal, false)) return -1;
  const int result = __real_link(from, to);
  if (journal != nullptr && result == 0) {
    journal->add({.kind = DiskOperation::Kind::link, .path = from, .to = to});
  }
  return result;
}

int __wrap_mkdir(const char* path, mode_t mode) {
  Journal* journal = listener_to(path);
  if (journal != nullptr && fails(journal)) return -1;
  const int result = __real_mkdir(path, mode);
  if (journal != nullptr && result == 0) {
    journal->add({.kind = DiskOperation::Kind::make_folder, .path = path});
  }
  return result;
}

int __wrap_rmdir(const char* path) {
  const int result = __real_rmdir(path);
  if (Journal* journal = listener_to(path); journal != nullptr && result == 0) {
    journal->add({.kind = DiskOperation::Kind::remove_folder, .path = path});
  }
  return result;
}
}
