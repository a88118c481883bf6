#include "runtime/train/fingerprint.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/diagnostic.hpp"
#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

Fingerprint example() {
  Fingerprint print;
  print.add("model.heads", std::int64_t{4});
  print.add("optimizer.lr", 0.1);
  print.add("model.tied", true);
  print.add("data.source", "text \"a\"\n= b");
  return print;
}

TEST_CASE("a fingerprint is read as it was written, in its order") {
  const Fingerprint print = example();
  CHECK(print.text() ==
        "model.heads=4\noptimizer.lr=0.1\nmodel.tied=true\ndata.source=text \"a\"\\x0a= b\n");
  CHECK(Fingerprint::parse(print.text()) == print);
  CHECK(Fingerprint::parse("") == Fingerprint());
  CHECK(print.part({"model.", "data."}).text() ==
        "model.heads=4\nmodel.tied=true\ndata.source=text \"a\"\\x0a= b\n");
}

TEST_CASE("what no fingerprint prints is not read as one") {
  const std::string long_value(Fingerprint::kLongestValue + 1, 'x');
  const std::string long_text(Fingerprint::kLongestText + 1, '\n');
  for (const std::string& text : {std::string("a=1"),
                                  std::string("a\n"),
                                  std::string("=1\n"),
                                  std::string("a b=1\n"),
                                  std::string("a=1\na=2\n"),
                                  std::string("a=\x1b[31m\n"),
                                  std::string("a=\xff\n"),
                                  "a=" + long_value + "\n",
                                  long_text}) {
    CAPTURE(text);
    CHECK_FALSE(Fingerprint::parse(text).has_value());
  }
}

TEST_CASE("differences name the key and both values, and what one side lacks") {
  const Fingerprint first = example();
  CHECK(differences(first, first).empty());
  Fingerprint second;
  second.add("optimizer.lr", 0.01);
  second.add("model.heads", std::int64_t{4});
  second.add("data.source", *first.find("data.source"));
  second.add("seed", std::int64_t{7});
  const auto found = differences(first, second);
  REQUIRE(found.size() == 3);
  CHECK(found[0].key == "optimizer.lr");
  CHECK(found[0].first == "0.1");
  CHECK(found[0].second == "0.01");
  CHECK(found[1].key == "model.tied");
  CHECK(found[1].second == "nothing");
  CHECK(found[2].key == "seed");
  CHECK(found[2].first == "nothing");
}

TEST_CASE("long values that differ behind their beginning differ in the fingerprint") {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "\u00e9";
  Fingerprint first;
  first.add("ds_config.list", text + "a");
  Fingerprint second;
  second.add("ds_config.list", text + "b");
  CHECK(differences(first, second).size() == 1);
  CHECK(first.find("ds_config.list")->size() <= Fingerprint::kLongestValue);
  CHECK(Fingerprint::parse(first.text()) == first);
}

TEST_CASE("a file's fingerprint is its size and checksum; of a large one, of three places") {
  std::string pattern = (std::filesystem::temp_directory_path() / "zeroplan_XXXXXX").string();
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  const std::filesystem::path folder = pattern;
  const std::string small = folder / "small";
  std::ofstream(small) << "123456789";
  CHECK(file_fingerprint(small) == "9 bytes, CRC-32 cbf43926");  // the checksum's own example
  std::ofstream(small) << "";
  CHECK(file_fingerprint(small) == "0 bytes, CRC-32 00000000");
  const std::string large = folder / "large";
  std::ofstream(large) << "beginning";
  std::filesystem::resize_file(large, 100 << 20);  // a hole
  const std::string before = file_fingerprint(large);
  CHECK(before.find("104857600 bytes") == 0);
  CHECK(before.find("of the first, middle and last 16 MiB") != std::string::npos);
  for (const std::int64_t at : {0LL, 50LL << 20, (100LL << 20) - 1}) {
    std::fstream file(large);
    file.seekp(at);
    file << "x";
    file.close();
    CHECK(file_fingerprint(large) != before);
  }
  CHECK_THROWS_AS(file_fingerprint(folder / "missing"), InputError);
  CHECK_THROWS_AS(file_fingerprint(folder), InputError);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace zeroplan::runtime
