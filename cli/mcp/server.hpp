// The server's side of the Model Context Protocol, one message at a time: JSON-RPC 2.0 without
// what carries it.
//
// Source: modelcontextprotocol.io, specification 2025-06-18 (lifecycle, tools, transports); the
// earlier and later revisions named in server.cpp say the same of what is used here.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cli/mcp/tools.hpp"

namespace zeroplan::cli {

// A command's answer to a call.
struct ToolAnswer {
  int code = 0;      // its exit code (docs/contract.md section 3)
  std::string text;  // what it answered, by the call a document
  std::string log;   // what it said besides
};
using RunTool = std::function<ToolAnswer(const ToolCall&)>;

// The answer to one line of a client: JSON in one line; nothing to a notification. Nothing is
// thrown but std::bad_alloc.
std::optional<std::string> answer_message(std::string_view line, const RunTool& run);

}  // namespace zeroplan::cli
