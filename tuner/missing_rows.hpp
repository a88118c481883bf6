// Rows that are missing from an answer, because a defect ended them or the question refuses them.
#pragma once

#include <cstddef>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "base/defect.hpp"
#include "base/phrase_list.hpp"

namespace zeroplan::tuner {

// May be used by several threads; what it says does not depend on their order.
class MissingRows {
 public:
  // Runs `make`. False where a defect ended it: then `row` is missing.
  template <typename Make>
  bool attempt(const Phrase& row, Make&& make) {
    std::exception_ptr thrown;
    const Phrase why = defect_in([&] {
      try {
        std::forward<Make>(make)();
      } catch (...) {
        thrown = std::current_exception();
        throw;
      }
    });
    if (!why.empty()) add(row, why, thrown);
    return why.empty();
  }

  // The same where the question itself may refuse a row and not the others (InputError).
  template <typename Make>
  bool attempt_or_refuse(const Phrase& row, Make&& make) {
    try {
      return attempt(row, std::forward<Make>(make));
    } catch (const InputError& error) {
      const Diagnostic& first = error.diagnostics().front();
      add(row,
          phrase("{}: expected {}, got {}", first.pointer, first.expected, first.got),
          std::current_exception());
      return false;
    }
  }

  // "2 rows are left out: ZeRO-3 (why); ZeRO-2 (why)"; empty where none is.
  Phrase sentence() const;
  // What ended one of them, the first by name. Precondition: one is missing.
  [[noreturn]] void rethrow() const;

 private:
  struct Row {
    Phrase name, why;
    std::exception_ptr error;
  };
  void add(const Phrase& name, const Phrase& why, std::exception_ptr error);

  mutable std::mutex mutex_;
  std::vector<Row> rows_;
};

}  // namespace zeroplan::tuner
