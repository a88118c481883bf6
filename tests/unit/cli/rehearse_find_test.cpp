// The search for the largest batch or sequence that runs (cli/rehearse_find.hpp), without a run.
#include "cli/rehearse_find.hpp"

#include <set>

#include "base/diagnostic.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

using Words = std::vector<std::string>;

// What runs up to `most`.
cli::Found found_up_to(std::int64_t most, const cli::SearchRange& range) {
  return cli::find_largest(range, [&](std::int64_t number) {
    return cli::Tried{number,
                      number <= most ? cli::Outcome::ran : cli::Outcome::out_of_memory,
                      Bytes::of(number)};
  });
}

std::string got_of(const Words& command, cli::Find find) {
  try {
    const cli::NumberedCommand made(command, find);
  } catch (const InputError& error) {
    return error.diagnostics().front().got;
  }
  return "";
}

}  // namespace

TEST_CASE("the largest that runs is found from any start, and no number is tried twice") {
  for (const std::int64_t most : {0, 1, 2, 3, 7, 8, 100, 1000}) {
    for (const std::int64_t first : {1, 2, 5, 64, 4096}) {
      const cli::Found found = found_up_to(most, {1, first, 1 << 14});
      CHECK(found.largest.value_or(0) == most);
      std::set<std::int64_t> numbers;
      for (const cli::Tried& tried : found.tried) numbers.insert(tried.number);
      CHECK(numbers.size() == found.tried.size());
      CHECK(found.tried.size() <= 30);
    }
  }
}

TEST_CASE("a search stops at its upper end, and at its step") {
  CHECK(found_up_to(1 << 20, {1, 1, 64}).largest == 64);
  CHECK(found_up_to(1000, {128, 1024, 1 << 22}).largest == 896);
}

TEST_CASE("a number that fails otherwise ends the search with the largest that ran") {
  const cli::Found found = cli::find_largest({1, 4, 1024}, [](std::int64_t number) {
    return cli::Tried{number, number <= 8 ? cli::Outcome::ran : cli::Outcome::failed, {}};
  });
  CHECK(found.largest == 8);
  CHECK(found.tried.back().outcome == cli::Outcome::failed);
  CHECK(found.tried.size() == 3);
}

TEST_CASE("the number's place is a pair of braces, in any word and more than once") {
  const cli::NumberedCommand made({"python", "train.py", "--batch", "{}", "--out=run-{}"},
                                  cli::Find::micro_batch);
  CHECK(made.with(12) == Words{"python", "train.py", "--batch", "12", "--out=run-12"});
  CHECK_FALSE(made.said());
}

TEST_CASE("an argument with a usual name is found, apart or joined, with dashes or underscores") {
  const cli::NumberedCommand apart({"python", "t.py", "--per_device_train_batch_size", "4"},
                                   cli::Find::micro_batch);
  CHECK(apart.said() == 4);
  CHECK(apart.with(2).back() == "2");
  const cli::NumberedCommand joined({"python", "t.py", "--max-length=2048", "--bs", "8"},
                                    cli::Find::sequence);
  CHECK(joined.said() == 2048);
  CHECK(joined.with(4096) == Words{"python", "t.py", "--max-length=4096", "--bs", "8"});
}

TEST_CASE("a command without a place, or with several, is bad input that names what it has") {
  CHECK(got_of({"python", "train.py"}, cli::Find::micro_batch) == "none that is known");
  CHECK(got_of({"python", "t.py", "--bs", "many"}, cli::Find::micro_batch) == "none that is known");
  CHECK(got_of({"python", "t.py", "--mbs"}, cli::Find::micro_batch) == "none that is known");
  CHECK(got_of({"t.py", "--mbs", "1", "--bs=8"}, cli::Find::micro_batch) == "--mbs and --bs");
}

TEST_CASE("a search begins at the number that the command says, on the grid") {
  CHECK(cli::range_of(cli::Find::micro_batch, 6).first == 6);
  CHECK(cli::range_of(cli::Find::sequence, 2000).first == 1920);
  CHECK(cli::range_of(cli::Find::sequence, 5).first == 128);
  CHECK(cli::range_of(cli::Find::micro_batch, {}).first == 1);
}
