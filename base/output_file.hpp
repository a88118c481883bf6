// Writing files so that nothing of the user's is lost: what stood at a path stays whole until the
// new file is whole and on the disk, and goes on having its mode and owner.
//
// Every error is a WriteError, which names the path that was asked for and the system's reason.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace zeroplan {

// All of the bytes, behind signals too. errno; 0 where they were written.
int write_all(int descriptor, std::span<const std::byte> bytes);

// "cannot write PATH: No space left on device".
class WriteError : public std::runtime_error {
 public:
  WriteError(const std::string& path, const std::string& reason);
  const std::string& path() const { return path_; }
  const std::string& reason() const { return reason_; }

 private:
  std::string path_;
  std::string reason_;
};

// A file that is written from its beginning to its end.
class OutputFile {
 public:
  // A file that was not there: a name that is taken, a symbolic link too, is an error.
  static OutputFile create(const std::string& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span<const char>(text))); }
  // On the disk (fsync) when it returns.
  void finish();

 private:
  OutputFile(std::string path, int descriptor);
  friend void replace_file(const std::string&, std::string_view);

  std::string path_;  // for messages
  int descriptor_ = -1;
};

// Replaces what is at `path` by `text`, at once or not at all: written under a new name in the same
// folder, flushed and renamed. Symbolic links stay, and what they lead to is replaced; a file keeps
// its mode and, where that is allowed, its owner. Written in place are pipes, terminals, character
// devices, this process's descriptors (/dev/stdout, /dev/fd/3), and files that cannot be replaced:
// in a folder that takes no new file, or a mount point of their own. Refused are folders, disks and
// sockets, and links of strangers in a folder that anybody can write to.
void replace_file(const std::string& path, std::string_view text);

// Adds a line behind what is there. Several processes may add to one file at the same time: each
// line is whole and none is lost (flock). A file that does not end in a line's end gets one first;
// a line that does not fit on the disk is taken back.
void append_line(const std::string& path, std::string_view line);

// Why replace_file() would refuse the path, as far as that can be known without writing.
std::optional<std::string> why_not_writable(const std::string& path);

// The folder and those of its parents that are not there, the innermost first.
std::vector<std::string> missing_folders(const std::string& path);

// The folder's names are on the disk when it returns.
void sync_folder(const std::string& path);

// Gives `from` the name `to`, which must be free, in a folder of the same file system.
void rename_to_free_name(const std::string& from, const std::string& to);

// ".NAME.k3v9x2q1": a name that nobody has, for something in the making beside `path`.
std::string name_in_the_making(const std::string& path);

}  // namespace zeroplan
