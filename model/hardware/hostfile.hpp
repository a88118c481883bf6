// DeepSpeed's hostfile: one line `host slots=N` for each machine, `#` opens a comment.
// Source: DeepSpeed launcher/runner.py:_parse_hostfile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zeroplan {

struct Host {
  std::string name;
  std::int64_t slots = 0;  // GPUs
  int line = 0;            // of the file, from 1
};

// Whether ssh, pdsh and a launcher's command line take it for the name of one host: [USER@]HOST of
// letters, digits, "-" and "_" between dots, no part beginning or ending with "-". DeepSpeed hands
// names to pdsh, which reads ":" and "[" itself, so IPv6 addresses need a name in /etc/hosts.
bool is_host_name(std::string_view name);

// The host of a name that ssh takes: without "USER@".
std::string_view without_user(std::string_view name);

// The hosts in the order of the file: at least one, each once, all with as many slots, because a
// plan needs equal ones. Throws InputError with the first problems of the text; `path` is for
// messages.
std::vector<Host> parse_hostfile(std::string_view text, const std::string& path);

}  // namespace zeroplan
