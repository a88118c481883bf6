// A disk that may lose what was not flushed, and that fails when it is told to.
//
// The program is linked so that the calls with which zeroplan writes files (open, write, fsync,
// rename, unlink, mkdir, rmdir) pass through here. They are carried out, and while a Journal
// listens to a folder they are kept in order. From them follows what a machine that loses its power
// at any moment may find afterwards: a file's bytes are sure up to its last fsync, a name up to the
// last fsync of its folder; of the rest anything may be there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zeroplan::test {

struct DiskOperation {
  enum class Kind {
    create,
    write,
    truncate,
    sync,
    rename,
    link,
    unlink,
    make_folder,
    remove_folder
  };
  Kind kind = Kind::create;
  std::string path;  // as it was when the call came; of a sync: of the folder or file
  std::string to;    // of a rename or link
  int file = -1;     // which file; names change
  std::string bytes;
  bool of_folder = false;  // a sync of a folder's names
};

// What a machine finds after it lost its power.
struct Loss {
  enum class Names { sure, all, some } names = Names::sure;
  enum class Bytes { sure, all, some } bytes = Bytes::sure;
  std::uint64_t seed = 0;  // of `some`
};

// Listens to one folder, from an empty one on; one at a time.
class Journal {
 public:
  explicit Journal(std::string folder);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  const std::vector<DiskOperation>& operations() const { return operations_; }
  // Of calls from now on the one with this number (0: the next) fails with `error`; for good, as a
  // full disk, or once.
  void fail_at(int call, int error, bool for_good);
  void fail_no_more() { calls_until_failure_ = -1; }
  bool failed() const { return has_failed_; }

  // Writes into the empty folder `to` what is found where the first `count` operations were
  // called before the loss.
  void restore(std::size_t count, const Loss& loss, const std::string& to) const;

  // For the calls.
  bool listens_to(const std::string& path) const;
  // errno with which this call fails; on a full disk those that take no room fail once at most.
  std::optional<int> failure(bool takes_room);
  void opened(int descriptor, const std::string& path, bool made, bool emptied);
  void closed(int descriptor);
  void add(DiskOperation operation) { operations_.push_back(std::move(operation)); }
  int file_of(int descriptor) const;
  std::string path_of(int descriptor) const;

 private:
  struct Open {
    int descriptor = -1;
    int file = -1;  // -1: a folder
    std::string path;
  };

  std::string folder_;
  std::vector<DiskOperation> operations_;
  std::vector<Open> open_;
  std::map<std::uint64_t, int> file_of_inode_;
  int files_ = 0;
  int calls_until_failure_ = -1;
  int error_ = 0;
  bool for_good_ = false;
  bool has_failed_ = false;
};

}  // namespace zeroplan::test
