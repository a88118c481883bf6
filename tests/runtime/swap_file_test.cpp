// What a swap file takes it gives back, through io_uring and through threads, past the page cache
// and through it; what goes wrong on a drive is said with file, place and reason.
#include "runtime/swap/swap_file.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/diagnostic.hpp"
#include "tests/catch.hpp"
#include "tests/runtime/swap_folder.hpp"

namespace zeroplan::runtime {
namespace {

using test::SwapFolder;

bool has_io_uring() {
  BlockQueue queue;
  const std::unique_ptr<BlockIo> io = uring_io(queue, {});
  queue.close();
  return io != nullptr;
}

SwapOptions options_in(const std::string& folder, SwapEngine engine = SwapEngine::automatic) {
  SwapOptions options;
  options.folder = folder;
  options.pointer = "/nvme_path";
  options.what = "a test";
  options.io.block = Bytes::kib(16);
  options.io.queue_depth = 4;
  options.engine = engine;
  return options;
}

// Aligned to a page, and `shift` bytes behind it.
class Values {
 public:
  explicit Values(std::int64_t bytes, std::int64_t shift = 0)
      : size_(static_cast<std::size_t>(bytes)),
        memory_(std::aligned_alloc(4096, static_cast<std::size_t>(round_up(bytes + shift, 4096)))) {
    data_ = static_cast<std::byte*>(memory_.get()) + shift;
    std::memset(data_, 0, size_);
  }
  void fill(unsigned seed) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < size_; ++i) data_[i] = static_cast<std::byte>(random());
  }
  std::byte* data() const { return data_; }
  Bytes bytes() const { return Bytes::of(static_cast<std::int64_t>(size_)); }
  bool operator==(const Values& other) const {
    return size_ == other.size_ && std::memcmp(data_, other.data_, size_) == 0;
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::size_t size_;
  std::unique_ptr<void, Free> memory_;
  std::byte* data_ = nullptr;
};

// Pieces of random sizes, written and read in random stretches, against the same in memory.
void exchange(const SwapOptions& options, unsigned seed) {
  SwapFile file(options);
  std::mt19937 random(seed);
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % n); };
  struct Piece {
    Bytes offset;
    Values expected;
  };
  std::vector<Piece> pieces;
  for (int i = 0; i < 4; ++i) {
    Values zero(1 + below(200'000));
    const Bytes offset = file.reserve(zero.bytes());
    pieces.push_back({offset, std::move(zero)});
  }
  std::vector<SwapFile::Ticket> tickets;
  std::vector<Values> written;  // alive until waited for
  for (int round = 0; round < 6; ++round) {
    for (Piece& piece : pieces) {
      const std::int64_t size = piece.expected.bytes().count();
      const bool whole = below(2) == 0;
      const std::int64_t from = whole ? 0 : below(size);
      const std::int64_t count = whole ? size : 1 + below(size - from);
      Values values(count, below(3) == 0 ? below(700) : 0);
      values.fill(random());
      std::memcpy(piece.expected.data() + from, values.data(), static_cast<std::size_t>(count));
      tickets.push_back(file.write(piece.offset + Bytes::of(from), values.data(), values.bytes()));
      written.push_back(std::move(values));
    }
    for (const SwapFile::Ticket& ticket : tickets) file.wait(ticket);
    tickets.clear();
    written.clear();
    for (const Piece& piece : pieces) {
      Values back(piece.expected.bytes().count(), below(2) == 0 ? 512 : below(500));
      file.wait(file.read(piece.offset, back.data(), back.bytes()));
      REQUIRE(back == piece.expected);
    }
  }
}

TEST_CASE("a swap file gives back what was written, in any stretch") {
  SwapFolder on_disk;
  SwapFolder in_memory("/dev/shm");
  for (const std::string& folder : {on_disk.path(), in_memory.path()}) {
    if (folder.empty()) continue;
    for (const SwapEngine engine : {SwapEngine::threads, SwapEngine::io_uring}) {
      if (engine == SwapEngine::io_uring && !has_io_uring()) {
        WARN("SKIPPED: no io_uring here");
        continue;
      }
      for (const int variant : {0, 1, 2, 3}) {
        CAPTURE(folder, static_cast<int>(engine), variant);
        SwapOptions options = options_in(folder, engine);
        options.io.queue_depth = variant == 0 ? 1 : 8;
        options.io.threads = variant == 1 ? 3 : 1;
        options.io.single_submit = variant == 2;
        options.io.overlap_events = variant != 3;
        exchange(options, static_cast<unsigned>(variant));
      }
    }
  }
  CHECK(on_disk.empty());
}

TEST_CASE("what is reserved reads as zero, and the file has no name") {
  SwapFolder folder;
  SwapFile file(options_in(folder.path()));
  const Bytes offset = file.reserve(Bytes::kib(100));
  CHECK(file.reserve(Bytes::of(1)) == offset + Bytes::kib(100));
  CHECK(folder.empty());
  CHECK(folder.open_files().size() >= 1);
  Values zero(Bytes::kib(100).count());
  Values read(Bytes::kib(100).count());
  read.fill(1);
  file.wait(file.read(offset, read.data(), read.bytes()));
  CHECK(read == zero);
}

// --- calls that give less than was asked for

TEST_CASE("short, interrupted and refused calls go on where they stopped") {
  SwapFolder folder;
  SwapOptions options = options_in(folder.path());
  std::atomic<int> calls{0};
  options.io.call = [&](const SwapBlock& block) -> std::int64_t {
    const int call = calls++;
    if (call % 5 == 1) return -EINTR;
    if (call % 5 == 3) return -EAGAIN;
    if (block.direct && call % 7 == 2) return -EINVAL;
    // Sometimes less than a page.
    const auto most = static_cast<std::size_t>(
        std::min<std::int64_t>(block.bytes, call % 3 == 0 ? 1'000 : 8'192));
    const int descriptor = most % 4096 == 0 ? block.descriptor : block.cached;
    const ssize_t moved = block.transfer->write ? pwrite(descriptor, block.data, most, block.offset)
                                                : pread(descriptor, block.data, most, block.offset);
    return moved < 0 ? -errno : moved;
  };
  exchange(options, 7);
  CHECK(calls > 100);
}

TEST_CASE("progress() moves a block on by what was done") {
  auto transfer = std::make_shared<SwapTransfer>();
  alignas(4096) static std::byte memory[16'384];
  const SwapBlock whole{.transfer = transfer,
                        .descriptor = 4,
                        .cached = 3,
                        .direct = true,
                        .data = memory,
                        .offset = 8192,
                        .bytes = 16'384};
  IoFailure failure;
  SwapBlock block = whole;
  CHECK(progress(block, 16'384, failure) == BlockState::done);
  block = whole;
  CHECK(progress(block, 4'096, failure) == BlockState::again);
  CHECK((block.offset == 12'288 && block.bytes == 12'288 && block.data == memory + 4'096));
  CHECK(block.descriptor == 4);
  CHECK(progress(block, 512, failure) == BlockState::again);  // the rest is not aligned
  CHECK(block.descriptor == 3);
  CHECK(progress(block, 0, failure) == BlockState::failed);
  CHECK((failure.error == 0 && failure.offset == 12'800 && failure.bytes == 11'776));
  transfer->write = true;
  CHECK(progress(block, 0, failure) == BlockState::failed);
  CHECK(failure.error == ENOSPC);
  CHECK(progress(block, -EIO, failure) == BlockState::failed);
  CHECK(failure.error == EIO);
  block = whole;
  CHECK(progress(block, -EINVAL, failure) == BlockState::again);
  CHECK_FALSE(block.direct);
  CHECK(progress(block, -EINVAL, failure) == BlockState::failed);
}

// --- what goes wrong

template <typename Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const SwapError& error) {
    return error.what();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a swap file that was cut is told with offset, bytes and reason") {
  for (const SwapEngine engine : {SwapEngine::threads, SwapEngine::io_uring}) {
    if (engine == SwapEngine::io_uring && !has_io_uring()) continue;
    SwapFolder folder;
    SwapFile file(options_in(folder.path(), engine));
    Values values(Bytes::kib(64).count());
    values.fill(3);
    const Bytes offset = file.reserve(values.bytes());
    file.wait(file.write(offset, values.data(), values.bytes()));
    REQUIRE(ftruncate(folder.open_files().front(), 20 * 1024) == 0);
    const std::string message =
        error_of([&] { file.wait(file.read(offset, values.data(), values.bytes())); });
    CAPTURE(message);
    CHECK(message.find("cannot read swap file " + folder.path() + " (a test), ") == 0);
    CHECK(message.find(" bytes at offset ") != std::string::npos);
    CHECK(message.find(": the file ends there") != std::string::npos);
    // What is whole can still be read.
    Values first(Bytes::kib(16).count());
    CHECK_NOTHROW(file.wait(file.read(offset, first.data(), first.bytes())));
  }
}

TEST_CASE("a drive's error is told with offset, bytes and reason, and the first one counts") {
  SwapFolder folder;
  SwapOptions options = options_in(folder.path());
  options.io.queue_depth = 1;
  options.io.call = [](const SwapBlock& block) -> std::int64_t {
    return block.offset == 32 * 1024 ? -EIO : block.bytes;
  };
  SwapFile file(options);
  Values values(Bytes::kib(64).count());
  const Bytes offset = file.reserve(values.bytes());
  CHECK(error_of([&] { file.wait(file.write(offset, values.data(), values.bytes())); }) ==
        "cannot write swap file " + folder.path() +
            " (a test), 16384 bytes at offset 32768: Input/output error");
}

TEST_CASE("a full drive is told when room is asked for") {
  SwapFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    WARN("SKIPPED: may not mount a small file system: " << std::strerror(errno));
    return;
  }
  {
    SwapFile file(options_in(folder.path()));
    CHECK_NOTHROW(file.reserve(Bytes::kib(128)));
    CHECK(error_of([&] { file.reserve(Bytes::mib(1)); }) ==
          "cannot make room in swap file " + folder.path() +
              " (a test) for 1048576 bytes at offset 131072: No space left on device");
  }
  umount(folder.path().c_str());
}

TEST_CASE("a file that may not grow is told with the system's reason") {
  SwapFolder folder;
  SwapFile file(options_in(folder.path()));
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit now{65'536, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &now);
  const std::string message = error_of([&] { file.reserve(Bytes::mib(1)); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(message.find("cannot make room in swap file ") == 0);
  CHECK(message.find(" 1048576 bytes at offset 0: File too large") != std::string::npos);
}

TEST_CASE("a folder that cannot hold swap files is told by its key") {
  SwapFolder folder;
  CHECK(error_of([&] { require_swap_folder("", "/a/nvme_path"); }) ==
        "error: ds_config: /a/nvme_path: expected a folder on the drive, got none\n"
        "hint: device nvme swaps to files in nvme_path");
  const std::string file = folder.path() + "/file";
  std::ofstream(file) << "x";
  CHECK(
      error_of([&] {
        require_swap_folder(file, "/a/nvme_path");
      }).find("expected a folder that can be written to, got \"" + file + "\": Not a directory") !=
      std::string::npos);
  CHECK(error_of([&] {
          require_swap_folder(file + "/deeper", "/a/nvme_path");
        }).find("Not a directory") != std::string::npos);
  CHECK(error_of([&] {
          require_swap_folder("/proc/no/such/folder", "/a/nvme_path");
        }).find("\nhint: name a folder on a local drive") != std::string::npos);
  CHECK(error_of([&] {
          require_swap_folder(folder.path() + "/none", "/a/nvme_path");
        }).find("No such file or directory") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/none"));
  CHECK_NOTHROW(require_swap_folder(folder.path(), "/a/nvme_path"));
}

// --- a kernel that refuses io_uring

// From here on the process's calls of io_uring_setup fail with EPERM, as a container's filter does.
bool forbid_io_uring() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{4, filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_CASE("where the kernel refuses io_uring, threads swap") {
  SwapFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    if (!forbid_io_uring()) _exit(77);
    try {
      exchange(options_in(folder.path()), 11);
      const SwapFile file(options_in(folder.path()));
      if (file.engine() != SwapEngine::threads) _exit(1);
      SwapFile(options_in(folder.path(), SwapEngine::io_uring));
      _exit(2);
    } catch (const SwapError& error) {
      const std::string said = "no io_uring: not built in, or refused by the kernel";
      _exit(error.what() == said ? 0 : 3);
    } catch (...) {
      _exit(4);
    }
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    WARN("SKIPPED: may not filter system calls here");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace zeroplan::runtime
