#include "evidence/replay_mismatch.hpp"

namespace zeroplan::evidence {

Json to_json(const ReplayMismatch& mismatch) {
  return Json::object({{"id", mismatch.id},
                       {"step", mismatch.step},
                       {"event", mismatch.event},
                       {"expected", mismatch.expected},
                       {"got", mismatch.got}});
}

}  // namespace zeroplan::evidence
