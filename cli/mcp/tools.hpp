// The commands that a client of `zeroplan mcp` may call, as tools of the Model Context Protocol: a
// JSON Schema of what each takes, and a call as the words of a command line.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"

namespace zeroplan::cli {

// The answer to tools/list: fit, simulate, lint, explain and rehearse. A tool takes what the short
// help of its command names, and in `flags` everything else; none takes a flag that writes a file.
Json tool_list();

bool is_tool(const std::string& name);

// A call as a command line.
struct ToolCall {
  std::vector<std::string> words;  // the command first
  std::string standard_input;      // what it finds there
  bool is_document = false;        // its answer is one JSON document
};

// Throws InputError for an argument that the tool does not take, and for flags that write.
// Precondition: is_tool(tool).
ToolCall tool_call(const std::string& tool, const Json& arguments);

}  // namespace zeroplan::cli
