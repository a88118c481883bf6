// NVML, the driver's library behind nvidia-smi, loaded where it is there. For sources of
// runtime/cuda alone.
#pragma once

#include <optional>
#include <string>

#include "base/units.hpp"

namespace zeroplan::runtime::cuda {

// One GPU by NVML. What NVML lacks or refuses is absent.
class Nvml {
 public:
  // bus_id: "0000:17:00.0", as CUDA says it.
  explicit Nvml(const std::string& bus_id);
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  bool found() const { return device_ != nullptr; }
  const std::string& problem() const { return problem_; }  // why not

  std::optional<double> clock_megahertz() const;        // of the multiprocessors, now
  std::optional<double> clock_limit_megahertz() const;  // at most
  std::optional<double> power_watts() const;            // now
  std::optional<double> power_limit_watts() const;
  std::optional<double> temperature_celsius() const;  // of the die
  std::optional<Bytes> used_memory() const;           // of the GPU, by all processes
  std::optional<int> pcie_generation() const;         // that GPU and slot can do together
  std::optional<int> pcie_lanes() const;
  std::optional<int> active_nvlinks() const;
  std::string driver() const;  // "580.65.06"; empty where it is not said

 private:
  // The function of that name, or null.
  template <typename Function>
  Function* function(const char* name) const;
  std::optional<double> number(const char* name) const;
  std::optional<double> number(const char* name, int of) const;

  void* library_ = nullptr;
  void* device_ = nullptr;
  std::string problem_;
};

}  // namespace zeroplan::runtime::cuda
