#include "base/too_large.hpp"

namespace zeroplan {

InputError too_large() {
  return InputError(Diagnostic{"scenario",
                               "",
                               "sizes whose products fit 64 bits (9.2e18 bytes or elements)",
                               "more",
                               "the model, the sequence length or the micro-batch has digits too "
                               "many"});
}

}  // namespace zeroplan
