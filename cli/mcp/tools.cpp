#include "cli/mcp/tools.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "cli/arguments.hpp"
#include "cli/flags.hpp"
#include "cli/help.hpp"

namespace zeroplan::cli {
namespace {

constexpr const char* kArguments = "arguments of the tool";

struct Tool {
  std::string_view command;
  bool starts_programs;  // others than zeroplan's own
};
constexpr std::array kTools = {Tool{"fit", false},
                               Tool{"simulate", false},
                               Tool{"lint", false},
                               Tool{"explain", false},
                               Tool{"rehearse", true}};

// Flags of these commands that name a file or a folder to write, or read standard input.
constexpr std::array<std::string_view, 6> kWriting = {
    "output", "force", "form", "trace", "memory-snapshot", "batch"};

bool writes(std::string_view flag) {
  return std::find(kWriting.begin(), kWriting.end(), flag.substr(2)) != kWriting.end();
}

const CommandInfo& command_of(const Tool& tool) { return *command_named(tool.command); }

const Tool* tool_named(std::string_view name) {
  const auto found = std::find_if(
      kTools.begin(), kTools.end(), [&](const Tool& one) { return one.command == name; });
  return found == kTools.end() ? nullptr : &*found;
}

// "--micro-batch-size" -> "micro_batch_size", "CLUSTER" -> "cluster".
std::string property_of(std::string_view word) {
  std::string name(word.substr(word.starts_with("--") ? 2 : 0));
  for (char& c : name)
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

// The schema of a flag's value: sizes and counts are also texts as people write them ("64G", "4k").
Json schema_of(const Flag& flag) {
  Json schema = Json::object({{"description", flag.help}});
  const ScenarioType of_key = flag.key != nullptr ? flag.key->type : ScenarioType::text;
  if (flag.value.empty() || of_key == ScenarioType::boolean) {
    schema["type"] = "boolean";
  } else if (flag.value == "N" || flag.value == "P" || flag.cluster_part != nullptr) {
    schema["type"] = Json::array({"number", "string"});
  } else if (of_key == ScenarioType::text_or_object) {
    schema["type"] = Json::array({"string", "object"});
  } else {
    schema["type"] = "string";
  }
  const bool lists = flag.value.find('|') != std::string::npos &&
                     std::none_of(flag.value.begin(), flag.value.end(), [](char c) {
                       return std::isupper(static_cast<unsigned char>(c)) != 0 || c == '[';
                     });
  if (lists && schema["type"] == Json("string")) {
    schema["enum"] = Json::array();
    for (const std::string& one : parts_of(flag.value, '|')) schema["enum"].push_back(one);
  }
  return schema;
}

// The flags of the command's short help, by the name that the tool's property has.
std::vector<std::pair<std::string, Flag>> properties_of(const CommandInfo& command) {
  std::vector<std::pair<std::string, Flag>> found;
  for (const Flag& flag : usual_flags(command)) {
    if (writes(flag.name) || flag.name == "--json" || flag.name == "--help") continue;
    const bool has_short = flag.short_name.starts_with("--");
    found.emplace_back(property_of(has_short ? flag.short_name : flag.name), flag);
  }
  return found;
}

Json text_property(std::string_view description) {
  return Json::object({{"type", "string"}, {"description", description}});
}

Json strings_property(std::string_view description) {
  Json property = text_property(description);
  property["type"] = "array";
  property["items"] = Json::object({{"type", "string"}});
  return property;
}

Json input_schema(const CommandInfo& command) {
  Json properties = Json::object();
  Json required = Json::array();
  for (const Positional& positional : positionals_of(command)) {
    const std::string name = property_of(positional.name);
    const std::string_view help = positional_help(command, positional.name);
    const bool is_command = positional.name == "COMMAND";
    properties[name] = is_command ? strings_property(help) : text_property(help);
    if (positional.required && command.name != "explain") required.push_back(name);
  }
  if (command.name == "explain") {
    properties["text"] = text_property("instead of file: the log, or its end");
  }
  if (command.name == "lint") {
    properties["ds_config"] = Json::object(
        {{"type", "object"}, {"description", "instead of file: the ds_config.json itself"}});
  }
  for (const auto& [name, flag] : properties_of(command)) {
    if (properties.find(name) == nullptr) properties[name] = schema_of(flag);
  }
  properties["flags"] = strings_property(
      "further words of the command line: [\"--fsdp-version\", \"2\"]; [\"--help\", \"--all\"] "
      "lists them");
  properties["json"] =
      Json::object({{"type", "boolean"},
                    {"description", "the whole answer as one JSON document, instead of its text"}});
  return Json::object({{"type", "object"},
                       {"properties", properties},
                       {"required", required},
                       {"additionalProperties", false}});
}

// Those that write nothing.
std::string examples_of(const CommandInfo& command) {
  std::string kept;
  for (const std::string& line : parts_of(std::string(command.examples), '\n')) {
    if (!line.empty() && line.find(" -o ") == std::string::npos) kept += line + "\n";
  }
  return kept;
}

Json tool_document(const Tool& tool) {
  const CommandInfo& command = command_of(tool);
  return Json::object(
      {{"name", command.name},
       {"description",
        std::string(command.summary) + "\nOn a command line:\n" + examples_of(command)},
       {"inputSchema", input_schema(command)},
       {"annotations",
        Json::object(
            {{"readOnlyHint", !tool.starts_programs}, {"openWorldHint", tool.starts_programs}})}});
}

[[noreturn]] void fail(const std::string& name, const Phrase& expected, const Json& got) {
  throw InputError({kArguments, "/" + name, expected, described(got), ""});
}

// A value as the word of a command line: objects are documents.
std::string word_of(const std::string& name, const Json& value) {
  if (value.is_string()) return value.as_string();
  if (value.is_null() || value.is_array()) {
    fail(name, "a text, a number, true, false or an object", value);
  }
  return value.dump();
}

std::vector<std::string> words_of(const std::string& name, const Json& value) {
  const auto is_text = [](const Json& one) { return one.is_string(); };
  if (!value.is_array() || !std::all_of(value.items().begin(), value.items().end(), is_text)) {
    fail(name, "a list of texts", value);
  }
  std::vector<std::string> words;
  for (const Json& one : value.items()) words.push_back(one.as_string());
  return words;
}

// One call's arguments, sorted into what stands where on a command line.
class CallReader {
 public:
  explicit CallReader(const CommandInfo& command)
      : command_(command),
        positionals_(positionals_of(command)),
        properties_(properties_of(command)),
        said_(positionals_.size()) {
    call_.words.emplace_back(command.name);
  }

  ToolCall read(const Json& arguments) {
    for (const auto& [name, value] : arguments.members()) read(name, value);
    std::vector<std::string>& words = call_.words;
    if (call_.is_document) words.emplace_back("--json");
    words.insert(words.end(), flags_.begin(), flags_.end());
    check_flags();
    // A name that begins with a hyphen is a name, and the words of a program are its own.
    words.emplace_back("--");
    for (const std::vector<std::string>& one : said_) {
      words.insert(words.end(), one.begin(), one.end());
    }
    if (words.back() == "--") words.pop_back();
    return std::move(call_);
  }

 private:
  void read(const std::string& name, const Json& value) {
    for (std::size_t i = 0; i < positionals_.size(); ++i) {
      if (property_of(positionals_[i].name) == name) return read_positional(i, name, value);
    }
    if (name == "json" && value.is_boolean()) {
      call_.is_document = value.as_boolean();
    } else if (name == "flags") {
      flags_ = words_of(name, value);
    } else if (name == "text" && command_.name == "explain") {
      call_.standard_input = word_of(name, value);
      said_.front() = {"-"};
    } else {
      read_flag(name, value);
    }
  }

  // A model's config.json may be said as it is; it goes as a flag, whose documents are read.
  void read_positional(std::size_t i, const std::string& name, const Json& value) {
    if (value.is_object()) return add_flag("--" + name, value.dump());
    said_[i] = positionals_[i].name == "COMMAND" ? words_of(name, value)
                                                 : std::vector{word_of(name, value)};
  }

  void read_flag(const std::string& name, const Json& value) {
    const auto known = std::find_if(
        properties_.begin(), properties_.end(), [&](const auto& one) { return one.first == name; });
    const bool is_ds_config = name == "ds_config" && command_.name == "lint";
    if (known == properties_.end() && !is_ds_config) {
      std::vector<std::string> own{"flags", "json"};
      for (const auto& [property, flag] : properties_) own.push_back(property);
      for (const Positional& one : positionals_) own.push_back(property_of(one.name));
      const std::vector<std::string_view> names(own.begin(), own.end());
      const Phrase hint = did_you_mean(name, names);
      throw InputError({kArguments,
                        "/" + name,
                        "an argument of its inputSchema",
                        in_quotes(name),
                        hint.empty()
                            ? phrase("other flags of zeroplan {} stand in \"flags\"", command_.name)
                            : hint});
    }
    const bool is_switch = !is_ds_config && known->second.value.empty();
    if (!is_switch) return add_flag(flag_of(name), word_of(name, value));
    if (!value.is_boolean()) fail(name, "true or false", value);
    if (value.as_boolean()) call_.words.push_back(flag_of(name));
  }

  static std::string flag_of(std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    return "--" + name;
  }
  void add_flag(const std::string& flag, const std::string& value) {
    call_.words.push_back(flag);
    call_.words.push_back(value);
  }

  // Nothing is written for a client: its user runs the command.
  void check_flags() const {
    const auto end = std::find(flags_.begin(), flags_.end(), "--");
    const std::vector<Flag> known = flags_of(command_);
    for (auto word = flags_.begin(); word != end; ++word) {
      for (const Flag& flag : known) {
        const std::string_view said = std::string_view(*word).substr(0, word->find('='));
        const bool short_one = !flag.short_name.empty() && !flag.short_name.starts_with("--") &&
                               word->starts_with(flag.short_name);
        if (!writes(flag.name) || (property_of(said) != property_of(flag.name) && !short_one))
          continue;
        throw InputError({kArguments,
                          "/flags",
                          "flags that write nothing",
                          in_quotes(*word),
                          "what writes files is for the user to run"});
      }
    }
  }

  const CommandInfo& command_;
  const std::vector<Positional> positionals_;
  const std::vector<std::pair<std::string, Flag>> properties_;
  std::vector<std::vector<std::string>> said_;  // by positional
  std::vector<std::string> flags_;
  ToolCall call_;
};

}  // namespace

Json tool_list() {
  Json tools = Json::array();
  for (const Tool& tool : kTools) tools.push_back(tool_document(tool));
  return tools;
}

bool is_tool(const std::string& name) { return tool_named(name) != nullptr; }

ToolCall tool_call(const std::string& tool, const Json& arguments) {
  return CallReader(command_of(*tool_named(tool))).read(arguments);
}

}  // namespace zeroplan::cli
