// Host memory: STREAM's copy and triad by threads, and copies between buffers by size.
#include <cstddef>
#include <cstring>
#include <vector>

#include "runtime/kernels/thread_pool.hpp"
#include "runtime/profile/machine_profile.hpp"

namespace zeroplan::runtime {
namespace {

constexpr std::int64_t kGrain = std::int64_t{1} << 16;  // elements of a task

struct Arrays {
  std::vector<double> a, b, c;
};

// Touched first by the threads that will use them.
Arrays arrays_of(std::int64_t elements, ThreadPool& pool) {
  const auto size = static_cast<std::size_t>(elements);
  Arrays arrays{std::vector<double>(size), std::vector<double>(size), std::vector<double>(size)};
  pool.run_ranges(elements, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      arrays.a[at] = 1.0;
      arrays.b[at] = 2.0;
      arrays.c[at] = 0.5;
    }
  });
  return arrays;
}

// Bytes as STREAM counts them (McCalpin 1995): what the program reads and writes; that a cache
// reads a line before it is written is not counted.
void stream(const ProfileScale& scale, std::int64_t threads, std::vector<ProfileRow>& rows) {
  ThreadPool pool(static_cast<int>(threads));
  const std::int64_t elements = scale.memory_bytes / static_cast<std::int64_t>(sizeof(double));
  Arrays arrays = arrays_of(elements, pool);
  const auto measure = [&](const char* what, double bytes_of_element, auto&& body) {
    const auto work = [&] {
      pool.run_ranges(elements, kGrain, [&](std::int64_t begin, std::int64_t end) {
        body(static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
      });
    };
    const std::vector<double> seconds = repeat(work, scale.repetition);
    rows.push_back({what,
                    {{"threads", Json(threads)}, {"array_bytes", Json(scale.memory_bytes)}},
                    "bytes/s",
                    spread_of(rates(bytes_of_element * static_cast<double>(elements), seconds),
                              scale.repetition.discard)});
  };
  double* const a = arrays.a.data();
  const double* const b = arrays.b.data();
  const double* const c = arrays.c.data();
  measure("host_memory_copy", 16.0, [=](std::size_t begin, std::size_t end) {
    std::memcpy(a + begin, b + begin, (end - begin) * sizeof(double));
  });
  measure("host_memory_triad", 24.0, [=](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) a[i] = b[i] + 3.0 * c[i];
  });
}

// One copy alone, and one in each direction at the same time.
void copies(const ProfileScale& scale, std::vector<ProfileRow>& rows) {
  constexpr std::int64_t kSmallest = 1 << 12;
  for (std::int64_t bytes = kSmallest; bytes <= scale.largest_message; bytes *= 16) {
    const auto size = static_cast<std::size_t>(bytes);
    std::vector<std::byte> first(size), second(size), third(size), fourth(size);
    for (const std::int64_t directions : {1, 2}) {
      ThreadPool pool(static_cast<int>(directions));
      const auto work = [&] {
        pool.run(directions, [&](std::int64_t i) {
          std::memcpy(
              i == 0 ? first.data() : fourth.data(), i == 0 ? second.data() : third.data(), size);
        });
      };
      const double moved = static_cast<double>(bytes * directions);
      rows.push_back(
          {"pageable_host_copy",
           {{"bytes", Json(bytes)}, {"concurrent", Json(directions)}},
           "bytes/s",
           spread_of(rates(moved, repeat(work, scale.repetition)), scale.repetition.discard)});
    }
  }
}

}  // namespace

std::vector<ProfileRow> measure_host_memory(const ProfileScale& scale) {
  std::vector<ProfileRow> rows;
  for (const std::int64_t threads : scale.threads) stream(scale, threads, rows);
  copies(scale, rows);
  return rows;
}

}  // namespace zeroplan::runtime
