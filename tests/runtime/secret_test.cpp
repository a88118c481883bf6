#include "runtime/processes/secret.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <sys/stat.h>

#include "base/diagnostic.hpp"
#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

Environment with(const std::string& secret) {
  return [secret](std::string_view name) -> std::optional<std::string> {
    if (name == "ZEROPLAN_SECRET" && !secret.empty()) return secret;
    return std::nullopt;
  };
}

TEST_CASE("a secret comes from a file or the environment, without the white space around it") {
  CHECK(secret_of(std::nullopt, with("")) == "");
  CHECK(secret_of(std::nullopt, with("0123456789abcdef\n")) == "0123456789abcdef");
  std::string pattern = (std::filesystem::temp_directory_path() / "zeroplan_XXXXXX").string();
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  const std::string path = pattern + "/secret";
  std::ofstream(path) << "  a secret of many words \n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  CHECK(secret_of(path, with("0123456789abcdef")) == "a secret of many words");
  std::filesystem::remove_all(pattern);
}

TEST_CASE("a secret that is short, or that everybody can read, is refused") {
  CHECK_THROWS_AS(secret_of(std::nullopt, with("short")), InputError);
  CHECK_THROWS_AS(secret_of(std::nullopt, with("     \n")), InputError);
  CHECK_THROWS_AS(secret_of("/missing/file", with("")), InputError);
  CHECK_THROWS_AS(secret_of("/tmp", with("")), InputError);
  std::string pattern = (std::filesystem::temp_directory_path() / "zeroplan_XXXXXX").string();
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  const std::string path = pattern + "/secret";
  std::ofstream(path) << "a secret of many words";
  using std::filesystem::perms;
  std::filesystem::permissions(path, perms::owner_read | perms::others_read);
  try {
    secret_of(path, with(""));
    FAIL("everybody can read it");
  } catch (const InputError& error) {
    CHECK(std::string(error.what()).find("chmod 600") != std::string::npos);
  }
  std::ofstream(pattern + "/long") << std::string(5000, 'x');
  std::filesystem::permissions(pattern + "/long", perms::owner_read);
  CHECK_THROWS_AS(secret_of(pattern + "/long", with("")), InputError);
  // A pipe that nobody writes to is not waited for.
  REQUIRE(mkfifo((pattern + "/pipe").c_str(), S_IRUSR | S_IWUSR) == 0);
  CHECK_THROWS_AS(secret_of(pattern + "/pipe", with("")), InputError);
  std::filesystem::remove_all(pattern);
}

}  // namespace
}  // namespace zeroplan::runtime
