// state.json of checkpoints: what is read is within bounds, is written and read back the same, and
// no change of what was written is read. Documents get the checksum that they lack: behind it is
// where the reader is.
#include "runtime/train/checkpoint_state.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

namespace {

using zeroplan::Json;
using zeroplan::runtime::CheckpointState;
using zeroplan::runtime::parse_state;
using zeroplan::runtime::state_text;

void check(const CheckpointState& state) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  for (const std::int64_t count : {state.progress.steps, state.progress.rows, state.updates}) {
    fuzz::require(count >= 0 && count <= kMost, "a count out of bounds");
  }
  if (state.loss_scaler) {
    fuzz::require(state.loss_scaler->scale > 0.0, "a scale that is not above zero");
    fuzz::require(state.loss_scaler->iteration >= 0 && state.loss_scaler->iteration <= kMost &&
                      state.loss_scaler->last_overflow >= -1 &&
                      state.loss_scaler->last_overflow <= kMost,
                  "steps of the scaler out of bounds");
  }
  const std::string text = state_text(state);
  const CheckpointState again = parse_state(text, "written.json");
  fuzz::require(state_text(again) == text, "a state is written differently when it was read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::text_of(data, size));
  fuzz::reads([&] { check(parse_state(text, "state.json")); });
  fuzz::reads([&] {
    Json document = zeroplan::parse_json(text, "state.json").root;
    if (!document.is_object() || document.members().empty()) return;
    document.erase("crc32");
    if (document.members().empty()) return;
    check(parse_state(zeroplan::runtime::with_own_checksum(document), "state.json"));
  });
  return 0;
}
