// An answer of many rows - strategies, points of a search, releases, clusters - does not die of
// one: the row that a defect of zeroplan ends is left out, named and counted.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "base/phrase.hpp"

namespace zeroplan {

// Runs `make`. Empty, or what is to be said of the defect that ended it: a broken ZP_CHECK, or any
// exception that is neither the user's (InputError, SizeOverflow) nor the memory's; those go on.
template <typename Make>
Phrase defect_in(Make&& make) {
  try {
    std::forward<Make>(make)();
    return {};
  } catch (const InputError&) {
    throw;
  } catch (const SizeOverflow&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return phrase("a defect of zeroplan, please report it: {}", error.what());
  }
}

}  // namespace zeroplan
