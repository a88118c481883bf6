// AdamW of the embedded runtime by threads, on more parameters than caches hold.
#include <vector>

#include "runtime/optimizer/adamw.hpp"
#include "runtime/profile/machine_profile.hpp"

namespace zeroplan::runtime {

std::vector<ProfileRow> measure_cpu_adam(const ProfileScale& scale) {
  const auto size = static_cast<std::size_t>(scale.parameters);
  std::vector<float> weights(size, 0.5F), first(size), second(size), gradient(size, 1e-3F);
  std::vector<ProfileRow> rows;
  std::int64_t step = 0;
  for (const std::int64_t threads : scale.threads) {
    const auto work = [&] {
      adamw({weights, first, second, gradient}, {}, ++step, 1.0, static_cast<int>(threads));
    };
    rows.push_back(
        {"cpu_adam",
         {{"threads", Json(threads)}, {"parameters", Json(scale.parameters)}},
         "parameters/s",
         spread_of(rates(static_cast<double>(scale.parameters), repeat(work, scale.repetition)),
                   scale.repetition.discard)});
  }
  return rows;
}

}  // namespace zeroplan::runtime
