#include "cli/rank_end.hpp"

#include "base/check.hpp"
#include "runtime/processes/secret.hpp"

namespace zeroplan::cli {
namespace {

// What stands behind a flag, or in it; nothing where it is not there.
std::optional<std::string> said_in(const std::vector<std::string>& words, const std::string& flag) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(flag + "=")) return words[i].substr(flag.size() + 1);
    if (words[i] == flag && i + 1 < words.size()) return words[i + 1];
  }
  return std::nullopt;
}

bool trains(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (!word.starts_with("--local_rank=")) return word == "run" || word == "verify";
  }
  return false;
}

void tell(const std::string& reason,
          const std::optional<std::string>& collectives,
          const std::optional<std::string>& secret_file) noexcept {
  try {
    const auto group = runtime::process_group(runtime::process_environment());
    if (group.ranks <= 1) return;
    runtime::join_to_fail(group, join_options_of(collectives, secret_file), reason);
  } catch (const std::exception&) {
    // What the launcher or the secret is, is itself wrong: nobody can be told.
  }
}

bool is_known(const InputError& error) {
  return dynamic_cast<const KnownToRanks*>(&error) != nullptr;
}

}  // namespace

runtime::JoinOptions join_options_of(const std::optional<std::string>& collectives,
                                     const std::optional<std::string>& secret_file) {
  runtime::JoinOptions options;
  if (collectives) {
    const auto known = find(runtime::kTransportNames, std::string_view(*collectives));
    if (!known) {
      throw InputError(
          {kCommandLine, "--collectives", "auto, tcp or mpi", in_quotes(*collectives), ""});
    }
    options.transport = *known;
  }
  options.secret = runtime::secret_of(secret_file, runtime::process_environment());
  return options;
}

void tell_other_ranks(const InputError& error, const Arguments& arguments) noexcept {
  if (is_known(error)) return;
  tell(error.what(), arguments.text("collectives"), arguments.text("secret-file"));
}

void tell_of_no_input(const std::exception& error, const Arguments& arguments) noexcept {
  const bool input = dynamic_cast<const InputError*>(&error) != nullptr ||
                     dynamic_cast<const SizeOverflow*>(&error) != nullptr;
  if (!input) tell(error.what(), arguments.text("collectives"), arguments.text("secret-file"));
}

void tell_other_ranks(const InputError& error, const std::vector<std::string>& words) noexcept {
  if (is_known(error) || !trains(words)) return;
  tell(error.what(), said_in(words, "--collectives"), said_in(words, "--secret-file"));
}

}  // namespace zeroplan::cli
