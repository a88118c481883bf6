#include "runtime/processes/mpi_links.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <mpi.h>

#include "runtime/collectives/communicator.hpp"
#include "runtime/processes/rank_messages.hpp"

namespace zeroplan::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kPiece = 256 << 20;              // bytes of one message; MPI counts in int
constexpr int kSpins = 200;                             // polls before a wait gives the core away
constexpr std::chrono::microseconds kNap{50};           // between polls after that
constexpr std::chrono::milliseconds kMpiFarewell{500};  // for the reason of a failure to get out

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw CollectiveError(
      fmt::format("{}: {}", call, std::string_view(text.data(), static_cast<std::size_t>(length))));
}

// All calls but fail() and failure() come from one thread, the one that MPI was begun on.
class MpiLinks : public Links {
 public:
  explicit MpiLinks(const ProcessGroup& group) : group_(group) {}

  int rank() const override { return group_.rank; }
  int ranks() const override { return group_.ranks; }

  void begin() override;
  void transfer(std::span<Transfer> transfers, Deadline deadline) override;
  void end() override;

  void fail(std::string_view reason) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!reason_) reason_ = failure_text([&] { return reason; });
  }
  std::optional<std::string> failure() const override {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

 private:
  // What is under way; requests_[i] belongs to peers_[i].
  void post(const Transfer& transfer);
  void drop();
  bool all_done();
  void hear_of_failures();
  void tell_failure();

  const ProcessGroup group_;
  MPI_Comm data_ = MPI_COMM_NULL;
  MPI_Comm notices_ = MPI_COMM_NULL;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
  mutable std::mutex mutex_;
  std::optional<std::string> reason_;
};

void MpiLinks::begin() {
  int provided = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  int rank = -1;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank != group_.rank || ranks != group_.ranks) {
    throw CollectiveError(fmt::format(
        "{} says rank {} of {}, MPI says rank {} of {}: the program was built with another MPI "
        "than it was started by; --collectives tcp needs none",
        name(kLauncherNames, group_.launcher),
        group_.rank,
        group_.ranks,
        rank,
        ranks));
  }
  check(MPI_Comm_dup(MPI_COMM_WORLD, &data_), "MPI_Comm_dup");
  check(MPI_Comm_dup(MPI_COMM_WORLD, &notices_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(data_, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(notices_, MPI_ERRORS_RETURN);
}

void MpiLinks::post(const Transfer& transfer) {
  const auto each_piece = [&](auto bytes, auto&& call) {
    while (!bytes.empty()) {
      const std::size_t count = std::min<std::size_t>(bytes.size(), kPiece);
      MPI_Request request = MPI_REQUEST_NULL;
      call(bytes.data(), static_cast<int>(count), request);
      requests_.push_back(request);
      peers_.push_back(transfer.peer);
      bytes = bytes.subspan(count);
    }
  };
  each_piece(transfer.receive, [&](std::byte* to, int count, MPI_Request& request) {
    check(MPI_Irecv(to, count, MPI_BYTE, transfer.peer, 0, data_, &request), "MPI_Irecv");
  });
  each_piece(transfer.send, [&](const std::byte* from, int count, MPI_Request& request) {
    check(MPI_Isend(from, count, MPI_BYTE, transfer.peer, 0, data_, &request), "MPI_Isend");
  });
}

bool MpiLinks::all_done() {
  int done = 0;
  check(
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
      "MPI_Testall");
  return done != 0;
}

// What was posted may not be written into any more.
void MpiLinks::drop() {
  for (MPI_Request& request : requests_) {
    int done = 0;
    if (request == MPI_REQUEST_NULL) continue;
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0) continue;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
  requests_.clear();
  peers_.clear();
}

void MpiLinks::transfer(std::span<Transfer> transfers, Deadline deadline) {
  requests_.clear();
  peers_.clear();
  for (const Transfer& one : transfers) post(one);
  for (int polls = 0; !all_done(); ++polls) {
    if (polls < kSpins) {
      std::this_thread::yield();
      continue;
    }
    hear_of_failures();
    if (const auto reason = failure()) {
      drop();
      throw CollectiveError(*reason);
    }
    if (Clock::now() >= deadline) {
      std::vector<int> missing;
      for (std::size_t i = 0; i < requests_.size(); ++i) {
        int done = 0;
        MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
        const bool known = std::find(missing.begin(), missing.end(), peers_[i]) != missing.end();
        if (done == 0 && !known) missing.push_back(peers_[i]);
      }
      drop();
      throw TransferTimeout(std::move(missing));
    }
    std::this_thread::sleep_for(kNap);
  }
}

void MpiLinks::hear_of_failures() {
  int there = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, 0, notices_, &there, &status) != MPI_SUCCESS || there == 0) return;
  int length = 0;
  MPI_Get_count(&status, MPI_CHAR, &length);
  if (length < 0 || length > static_cast<int>(kLongestReason)) {
    fail(fmt::format("rank {} sends what nobody understands", status.MPI_SOURCE));
    return;
  }
  std::string text(static_cast<std::size_t>(length), ' ');
  MPI_Recv(text.data(), length, MPI_CHAR, status.MPI_SOURCE, 0, notices_, MPI_STATUS_IGNORE);
  fail(shown_reason(text));
}

void MpiLinks::tell_failure() {
  const std::string text = shown_reason(failure().value_or(""));
  std::vector<MPI_Request> sends;
  for (int peer = 0; peer < group_.ranks; ++peer) {
    if (peer == group_.rank) continue;
    sends.push_back(MPI_REQUEST_NULL);
    MPI_Isend(
        text.data(), static_cast<int>(text.size()), MPI_CHAR, peer, 0, notices_, &sends.back());
  }
  const Clock::time_point leave_by = Clock::now() + kMpiFarewell;
  int done = 0;
  while (done == 0 && Clock::now() < leave_by) {
    MPI_Testall(static_cast<int>(sends.size()), sends.data(), &done, MPI_STATUSES_IGNORE);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Who leaves without MPI_Finalize makes mpirun end the others: let them say why first.
  while (Clock::now() < leave_by) {
    MPI_Iprobe(MPI_ANY_SOURCE, 0, notices_, &done, MPI_STATUS_IGNORE);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void MpiLinks::end() {
  if (failure()) {
    tell_failure();
    return;
  }
  MPI_Comm_free(&notices_);
  MPI_Comm_free(&data_);
  MPI_Finalize();
}

}  // namespace

bool built_with_mpi() { return true; }

std::unique_ptr<Links> mpi_links(const ProcessGroup& group) {
  return std::make_unique<MpiLinks>(group);
}

}  // namespace zeroplan::runtime
