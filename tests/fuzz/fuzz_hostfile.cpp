// DeepSpeed hostfiles: what is read is written and read back the same.
#include "model/hardware/hostfile.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeroplan::Host;
  fuzz::reads([&] {
    const std::vector<Host> hosts = zeroplan::parse_hostfile(fuzz::text_of(data, size), "hostfile");
    fuzz::require(!hosts.empty(), "a hostfile without a host");
    std::string printed;
    for (const Host& host : hosts) {
      fuzz::require(host.slots >= 1, "a host without slots");
      fuzz::require(!host.name.empty(), "a host without a name");
      printed += host.name + " slots=" + std::to_string(host.slots) + "\n";
    }
    const std::vector<Host> again = zeroplan::parse_hostfile(printed, "printed");
    fuzz::require(again.size() == hosts.size(), "what was written has other hosts");
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      fuzz::require(again[i].name == hosts[i].name && again[i].slots == hosts[i].slots,
                    "a host reads differently");
    }
  });
  return 0;
}
