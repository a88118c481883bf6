#include "cli/errors.hpp"

namespace zeroplan::cli {

Json error_json(const InputError& error) {
  const Diagnostic& first = error.diagnostics().front();
  return Json::object({{"file", first.file},
                       {"pointer", first.pointer},
                       {"expected", first.expected.english()},
                       {"got", first.got.english()},
                       {"hint", first.hint.empty() ? Json() : Json(first.hint.english())}});
}

InputError defect(const std::exception& error, const std::string& file) {
  return InputError(Diagnostic{
      file, "", "a result", error.what(), "this is a defect of zeroplan; please report it"});
}

}  // namespace zeroplan::cli
