#include "base/output_file.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/phrase.hpp"

namespace zeroplan {

int write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

namespace {

namespace fs = std::filesystem;

std::string reason_of(int error) { return std::generic_category().message(error); }

[[noreturn]] void failed(const std::string& path, int error) {
  throw WriteError(path, reason_of(error));
}

std::string folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

// Opens again where a signal came in between (a pipe waits for its reader).
int open_file(const std::string& path, int flags, mode_t mode = 0666) {
  for (;;) {
    const int descriptor = open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, mode);
    if (descriptor >= 0 || errno != EINTR) return descriptor;
  }
}

// errno; 0 also for what has no disk: pipes, terminals, some network file systems' folders.
int sync_descriptor(int descriptor) {
  if (fsync(descriptor) == 0 || errno == EINVAL || errno == ENOTSUP || errno == EROFS) return 0;
  return errno;
}

// Network file systems report a full disk here.
int close_file(int descriptor) { return close(descriptor) == 0 || errno == EINTR ? 0 : errno; }

// A file that another one may be renamed to, a thing that is written as it is, or neither.
struct Target {
  enum class Kind { none, file, stream, refused };
  Kind kind = Kind::none;
  std::string path;  // behind all links
  struct stat status {};
  std::string refusal;
};

Target refused(std::string why) {
  Target target;
  target.kind = Target::Kind::refused;
  target.refusal = std::move(why);
  return target;
}

// The number where a path is a name of one of this process's own descriptors. What is behind it was
// opened by somebody who counts on that very file, and stands at a place in it.
std::optional<int> named_descriptor(const std::string& path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    int number = -1;
    const char* end = path.data() + path.size();
    const auto [stop, error] = std::from_chars(path.data() + folder.size(), end, number);
    if (error == std::errc() && stop == end && number >= 0) return number;
  }
  return std::nullopt;
}

// In a folder like /tmp a link that is neither ours nor the folder's owner's may have been laid to
// make us write elsewhere. As the kernel's fs.protected_symlinks, which sees no link once it has
// been read.
bool laid_by_stranger(const std::string& link, const struct stat& status) {
  struct stat folder {};
  if (stat(folder_of(link).c_str(), &folder) != 0) return false;
  const bool anybody = (folder.st_mode & S_ISVTX) != 0 && (folder.st_mode & S_IWOTH) != 0;
  return anybody && status.st_uid != geteuid() && status.st_uid != folder.st_uid;
}

Target target_of(const std::string& said) {
  constexpr int kMostLinks = 40;  // as the kernel
  if (said.empty() || said.ends_with('/')) return refused("no name of a file");
  if (said.find('\0') != std::string::npos) return refused("a name with a NUL in it");
  Target target;
  target.path = said;
  for (int links = 0;; ++links) {
    if (links == kMostLinks) return refused(reason_of(ELOOP));
    if (named_descriptor(target.path)) {
      target.kind = Target::Kind::stream;
      return target;
    }
    if (lstat(target.path.c_str(), &target.status) != 0) {
      if (errno == ENOTDIR) return refused("a file for its folder");
      if (errno != ENOENT) return refused(reason_of(errno));
      target.kind = Target::Kind::none;
      return target;
    }
    if (!S_ISLNK(target.status.st_mode)) break;
    if (laid_by_stranger(target.path, target.status)) {
      return refused("a symbolic link of another user in a folder that anybody can write to");
    }
    std::error_code error;
    const fs::path next = fs::read_symlink(target.path, error);
    if (error) return refused(error.message());
    target.path =
        next.is_absolute() ? next.string() : (fs::path(folder_of(target.path)) / next).string();
  }
  const mode_t mode = target.status.st_mode;
  if (S_ISDIR(mode)) return refused("a folder of that name");
  if (S_ISBLK(mode)) return refused("a disk");
  if (S_ISSOCK(mode)) return refused("a socket");
  target.kind = S_ISREG(mode) ? Target::Kind::file : Target::Kind::stream;
  return target;
}

// Into what is there. `said` for messages.
void write_in_place(const std::string& said,
                    const std::string& path,
                    std::string_view text,
                    int flags) {
  const std::optional<int> open_one = named_descriptor(path);
  const int descriptor =
      open_one ? fcntl(*open_one, F_DUPFD_CLOEXEC, 0) : open_file(path, O_WRONLY | flags);
  if (descriptor < 0) failed(said, errno);
  int error = write_all(descriptor, std::as_bytes(std::span<const char>(text)));
  if (error == 0) error = sync_descriptor(descriptor);
  const int closed = close_file(descriptor);
  if (error == 0) error = closed;
  if (error != 0) failed(said, error);
}

// A new file's descriptor, where the folder takes one; its name in `path`.
int open_new(const Target& target, std::string& path) {
  const bool replaces = target.kind == Target::Kind::file;
  for (int tries = 0; tries < 100; ++tries) {
    path = name_in_the_making(target.path);
    const int descriptor =
        open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, replaces ? 0600 : 0666);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
  return -1;
}

// Owner first: a change of owner takes bits of the mode away.
void take_after(int descriptor, const struct stat& before) {
  struct stat now {};
  if (fstat(descriptor, &now) == 0 &&
      (now.st_uid != before.st_uid || now.st_gid != before.st_gid)) {
    // Not everybody may give files away: then it is the writer's, as a copy would be.
    [[maybe_unused]] const int ignored = fchown(descriptor, before.st_uid, before.st_gid);
  }
  [[maybe_unused]] const int ignored = fchmod(descriptor, before.st_mode & 07777U);
}

}  // namespace

WriteError::WriteError(const std::string& path, const std::string& reason)
    : std::runtime_error(phrase("cannot write {}: {}", path, reason)),
      path_(path),
      reason_(reason) {}

OutputFile::OutputFile(std::string path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

OutputFile OutputFile::create(const std::string& path) {
  const int descriptor = open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
  if (descriptor < 0) failed(path, errno);
  return {path, descriptor};
}

void OutputFile::write(std::span<const std::byte> bytes) {
  const int error = write_all(descriptor_, bytes);
  if (error != 0) failed(path_, error);
}

void OutputFile::finish() {
  const int synced = sync_descriptor(descriptor_);
  const int closed = close_file(std::exchange(descriptor_, -1));
  if (synced != 0 || closed != 0) failed(path_, synced != 0 ? synced : closed);
}

void replace_file(const std::string& path, std::string_view text) {
  const Target target = target_of(path);
  if (target.kind == Target::Kind::refused) throw WriteError(path, target.refusal);
  if (target.kind == Target::Kind::stream) {
    // O_APPEND: a shell may have opened the same file to add to it.
    write_in_place(path, target.path, text, O_APPEND);
    return;
  }
  const bool replaces = target.kind == Target::Kind::file;
  // What the user may not write to is not replaced, although its folder would allow it.
  if (replaces && access(target.path.c_str(), W_OK) != 0) failed(path, errno);
  std::string made;
  const int descriptor = open_new(target, made);
  if (descriptor < 0) {
    const int error = errno;
    if (!replaces || (error != EACCES && error != EPERM && error != EROFS)) failed(path, error);
    write_in_place(path, target.path, text, O_TRUNC);
    return;
  }
  OutputFile file(path, descriptor);
  try {
    if (replaces) take_after(descriptor, target.status);
    file.write(text);
    file.finish();
    if (rename(made.c_str(), target.path.c_str()) != 0) {
      if (errno != EBUSY) failed(path, errno);
      unlink(made.c_str());
      write_in_place(path, target.path, text, O_TRUNC);
      return;
    }
  } catch (...) {
    unlink(made.c_str());
    throw;
  }
  sync_folder(folder_of(target.path));
}

namespace {

// Behind what is there, in one piece; `descriptor` is locked.
int append_locked(int descriptor, std::string_view line) {
  const off_t end = lseek(descriptor, 0, SEEK_END);
  if (end < 0) return errno;
  std::string text;
  char last = '\n';
  if (end > 0 && pread(descriptor, &last, 1, end - 1) == 1 && last != '\n') text = "\n";
  text.append(line).push_back('\n');
  int error = write_all(descriptor, std::as_bytes(std::span<const char>(text)));
  if (error == 0) error = sync_descriptor(descriptor);
  if (error != 0) {
    // Half a line would spoil the next one, too.
    [[maybe_unused]] const int ignored = ftruncate(descriptor, end);
  }
  return error;
}

}  // namespace

void append_line(const std::string& path, std::string_view line) {
  const Target target = target_of(path);
  if (target.kind == Target::Kind::refused) throw WriteError(path, target.refusal);
  if (target.kind == Target::Kind::stream) {
    write_in_place(path, target.path, std::string(line) + "\n", O_APPEND);
    return;
  }
  const int descriptor = open_file(target.path, O_RDWR | O_APPEND | O_CREAT);
  if (descriptor < 0) failed(path, errno);
  int error = 0;
  while (flock(descriptor, LOCK_EX) != 0) {
    // Some network file systems know no locks: appending is the best that is left.
    if (errno != EINTR) break;
  }
  error = append_locked(descriptor, line);
  const int closed = close_file(descriptor);
  if (error == 0) error = closed;
  if (error != 0) failed(path, error);
  if (target.kind == Target::Kind::none) sync_folder(folder_of(target.path));
}

std::optional<std::string> why_not_writable(const std::string& path) {
  const Target target = target_of(path);
  if (target.kind == Target::Kind::refused) return target.refusal;
  if (target.kind == Target::Kind::stream) {
    // Not opened: a pipe would wait for its reader.
    if (access(target.path.c_str(), W_OK) == 0) return std::nullopt;
    return reason_of(errno);
  }
  if (target.kind == Target::Kind::file) {
    if (access(target.path.c_str(), W_OK) != 0) return reason_of(errno);
    return std::nullopt;
  }
  const std::string folder = folder_of(target.path);
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return fs::exists(folder, error) ? "a file for its folder" : "no folder of that name";
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) return reason_of(errno);
  return std::nullopt;
}

void sync_folder(const std::string& path) {
  const int descriptor = open_file(path, O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) {
    // A folder may take files and not be listed: then nobody can flush it.
    if (errno == EACCES) return;
    failed(path, errno);
  }
  const int error = sync_descriptor(descriptor);
  close(descriptor);
  if (error != 0) failed(path, error);
}

void rename_to_free_name(const std::string& from, const std::string& to) {
#ifdef RENAME_NOREPLACE
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) failed(to, errno);
#endif
  // The file system or the kernel does not know it.
  struct stat status {};
  if (lstat(to.c_str(), &status) == 0) failed(to, EEXIST);
  if (rename(from.c_str(), to.c_str()) != 0) failed(to, errno);
}

std::vector<std::string> missing_folders(const std::string& path) {
  std::vector<std::string> missing;
  std::error_code error;
  for (fs::path at = fs::absolute(path, error); !at.empty() && !fs::exists(at, error);
       at = at.parent_path()) {
    missing.push_back(at.string());
  }
  return missing;
}

std::string name_in_the_making(const std::string& path) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  constexpr std::size_t kLongestName = 255;  // of most file systems
  thread_local std::random_device random;
  std::array<char, 8> tail{};
  for (char& c : tail) c = kLetters[random() % kLetters.size()];
  const fs::path whole(path);
  const std::string name = whole.filename().string().substr(0, kLongestName - 2 - tail.size());
  return (whole.parent_path() / ("." + name + "." + std::string(tail.data(), tail.size())))
      .string();
}

}  // namespace zeroplan
