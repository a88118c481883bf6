#include "cli/mcp/server.hpp"

#include <algorithm>
#include <array>

#include "base/diagnostic.hpp"
#include "cli/arguments.hpp"

namespace zeroplan::cli {
namespace {

// Revisions of the protocol that differ in nothing the server does; the newest is offered to who
// asks for another.
constexpr std::array<std::string_view, 4> kRevisions = {
    "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};

constexpr std::string_view kInstructions =
    "zeroplan predicts whether an LLM training run under DeepSpeed ZeRO, FSDP or DDP fits, how "
    "fast it is and which ds_config.json it takes, by simulating the engine and PyTorch's "
    "allocator: ask it instead of estimating. fit: does MODEL train on CLUSTER, and how. simulate: "
    "one configuration. lint: a ds_config.json. explain: a log that ends in an error. rehearse: "
    "runs the user's own training program on emulated GPUs. Everything is computed on this machine "
    "and nothing is written.";

// Codes of JSON-RPC 2.0, section 5.1.
enum ErrorCode {
  kParseError = -32700,
  kInvalidRequest = -32600,
  kMethodNotFound = -32601,
  kInvalidParams = -32602
};

Json response(const Json& id, std::string_view member, Json value) {
  return Json::object({{"jsonrpc", "2.0"}, {"id", id}, {std::string(member), std::move(value)}});
}

Json failure(const Json& id, ErrorCode code, std::string message) {
  return response(
      id,
      "error",
      Json::object({{"code", static_cast<std::int64_t>(code)}, {"message", std::move(message)}}));
}

const std::string* text_of(const Json* object, std::string_view key) {
  const Json* value = object != nullptr ? object->find(key) : nullptr;
  return value != nullptr && value->is_string() ? &value->as_string() : nullptr;
}

Json initialized(const Json* params) {
  const std::string* asked = text_of(params, "protocolVersion");
  const bool known = asked != nullptr &&
                     std::find(kRevisions.begin(), kRevisions.end(), *asked) != kRevisions.end();
  return Json::object(
      {{"protocolVersion", known ? *asked : std::string(kRevisions.front())},
       {"capabilities", Json::object({{"tools", Json::object()}})},
       {"serverInfo", Json::object({{"name", "zeroplan"}, {"version", ZEROPLAN_VERSION}})},
       {"instructions", kInstructions}});
}

Json text_content(std::string_view text) {
  return Json::object({{"type", "text"}, {"text", text}});
}

Json called(const ToolCall& call, const ToolAnswer& answer) {
  const bool answered =
      answer.code == kDone || answer.code == kAnswerIsNo || answer.code == kSomeBadLines;
  Json content = Json::array();
  if (!answer.text.empty()) content.push_back(text_content(answer.text));
  if (!answer.log.empty()) content.push_back(text_content(answer.log));
  Json result = Json::object({{"content", content}, {"isError", !answered}});
  if (call.is_document && answered) {
    result["structuredContent"] = parse_json(answer.text, "answer").root;
  }
  return result;
}

Json call_tool(const Json& id, const Json* params, const RunTool& run) {
  const std::string* name = text_of(params, "name");
  if (name == nullptr) return failure(id, kInvalidParams, "params/name: expected a tool's name");
  const Json* said = params->find("arguments");
  const Json arguments = said != nullptr && !said->is_null() ? *said : Json::object();
  if (!arguments.is_object()) {
    return failure(id, kInvalidParams, "params/arguments: expected an object");
  }
  if (!is_tool(*name)) return failure(id, kInvalidParams, "unknown tool: " + *name);
  try {
    const ToolCall call = tool_call(*name, arguments);
    return response(id, "result", called(call, run(call)));
  } catch (const InputError& error) {  // the model that called may mend it
    return response(id, "result", called({}, {kBadInput, "", error.text().english() + "\n"}));
  }
}

std::optional<Json> answer(const Json& message, const RunTool& run) {
  const Json* id = message.find("id");
  const std::string* method = text_of(&message, "method");
  const std::string* version = text_of(&message, "jsonrpc");
  if (!message.is_object() || version == nullptr || *version != "2.0") {
    return failure(Json(), kInvalidRequest, "expected a message of JSON-RPC 2.0");
  }
  if (id == nullptr) return std::nullopt;  // a notification
  if (method == nullptr) {
    const bool answers = message.find("result") != nullptr || message.find("error") != nullptr;
    if (answers) return std::nullopt;  // nothing was asked of the client
    return failure(*id, kInvalidRequest, "expected a method");
  }
  const Json* params = message.find("params");
  if (*method == "initialize") return response(*id, "result", initialized(params));
  if (*method == "ping") return response(*id, "result", Json::object());
  if (*method == "tools/list") {
    return response(*id, "result", Json::object({{"tools", tool_list()}}));
  }
  if (*method == "tools/call") return call_tool(*id, params, run);
  return failure(*id, kMethodNotFound, "unknown method: " + *method);
}

// Several messages in one line, as revision 2025-03-26 has them.
std::optional<Json> answer_all(const Json& messages, const RunTool& run) {
  if (messages.items().empty()) return failure(Json(), kInvalidRequest, "an empty batch");
  Json answers = Json::array();
  for (const Json& message : messages.items()) {
    if (std::optional<Json> one = answer(message, run)) answers.push_back(std::move(*one));
  }
  if (answers.items().empty()) return std::nullopt;
  return answers;
}

}  // namespace

std::optional<std::string> answer_message(std::string_view line, const RunTool& run) {
  std::optional<Json> answered;
  try {
    const Json message =
        parse_json(line, "message", {.comments = false, .trailing_commas = false}).root;
    answered = message.is_array() ? answer_all(message, run) : answer(message, run);
  } catch (const InputError& error) {
    answered = failure(Json(), kParseError, error.text().english());
  }
  if (!answered) return std::nullopt;
  return answered->dump();
}

}  // namespace zeroplan::cli
