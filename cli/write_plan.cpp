#include "cli/write_plan.hpp"

#include <filesystem>
#include <ostream>

#include "base/diagnostic.hpp"
#include "cli/write_file.hpp"
#include "cli/write_kit.hpp"
#include "model/families/hf_config.hpp"
#include "tuner/kit/kit.hpp"

namespace zeroplan::cli {
namespace {

namespace fs = std::filesystem;

foreign::Form form_of_name(const std::string& name) {
  if (const auto form = find(foreign::kFormNames, std::string_view(name))) return *form;
  throw InputError({kCommandLine,
                    "--form",
                    "llama-factory, axolotl, accelerate, trl, trainer, shell, sbatch, openrlhf or "
                    "verl",
                    in_quotes(name),
                    did_you_mean(name, foreign::kFormNames.names)});
}

// A name of a file that is a document; a folder of such a name stays a folder.
bool names_document(const std::string& path) {
  std::error_code none;
  const std::string end = fs::path(path).extension().string();
  return (end == ".yaml" || end == ".yml" || end == ".json") && !fs::is_directory(path, none);
}

// What the name of the file and the tool of --from tell; nothing: a kit.
std::optional<foreign::Form> form_of_path(const Arguments& arguments, const std::string& path) {
  std::error_code none;
  if (fs::is_directory(path, none)) return std::nullopt;
  const std::string end = fs::path(path).extension().string();
  if (end == ".sbatch" || end == ".slurm") return foreign::Form::sbatch;
  const auto from = find(foreign::kFormNames, std::string_view(arguments.from_tool));
  const bool own = from && foreign::is_own_command(*from);
  if (end == ".sh") return own ? *from : foreign::Form::shell;
  if (!names_document(path)) return std::nullopt;
  if (arguments.from_tool == "trainer")
    return end == ".json" ? foreign::Form::trainer : foreign::Form::trl;
  if (!arguments.from_tool.empty() && !own) return form_of_name(arguments.from_tool);
  if (own) {
    throw InputError({kCommandLine,
                      "--output",
                      "the name of a folder or of a script, FILE.sh",
                      in_quotes(path),
                      phrase("{} is started by a command", arguments.from_tool)});
  }
  if (end == ".json") return foreign::Form::trainer;
  throw InputError({kCommandLine,
                    "--output",
                    "the name of a folder, or of a file with --form",
                    in_quotes(path),
                    "--form llama-factory, axolotl, accelerate or trl says whose file it is"});
}

// Beside FILE.yaml: FILE.ds_config.json.
std::string ds_config_beside(const std::string& path) {
  return fs::path(path).replace_extension(".ds_config.json").string();
}

// What the file names as model: a folder or a name; a config alone has no weights.
std::string model_of(const Scenario& scenario, std::vector<Phrase>& notes) {
  const ExplicitValue& said = *scenario.find(ScenarioKey::model);
  if (!said.value.is_string()) {
    notes.emplace_back("the model: it was planned from a document; name the folder of its weights");
    return "model";
  }
  std::string text = said.value.as_string();
  const fs::path path(text);
  if (path.filename() == "config.json" && path.has_parent_path())
    return path.parent_path().string();
  const bool a_name = text.find('/') == std::string::npos || path.extension() == ".json";
  std::error_code none;
  if (a_name && !fs::is_directory(path, none)) {
    notes.push_back(phrase(
        "the model's weights: {} is what zeroplan knows it by; name their folder or repository",
        text));
  }
  return text;
}

// Of a kit: what the user's own file says of the run.
tuner::OwnTraining own_training(const Arguments& arguments) {
  tuner::OwnTraining own;
  own.settings = arguments.from_kept;
  if (!arguments.data.empty()) {
    std::error_code none;
    own.data = fs::absolute(arguments.data, none).string();
    own.tokenizer = fs::absolute(arguments.tokenizer, none).string();
  }
  if (arguments.from_tool == "trainer") {
    own.form = foreign::Form::trl;
  } else if (!arguments.from_tool.empty()) {
    own.form = find(foreign::kFormNames, std::string_view(arguments.from_tool));
  }
  return own;
}

// The user's own settings go over where the file is of the same tool.
foreign::FormSettings kept_settings(const Arguments& arguments, foreign::Form form) {
  const std::string_view tool = name(foreign::kFormNames, form);
  const bool same = arguments.from_tool == tool ||
                    (arguments.from_tool == "trainer" && form == foreign::Form::trl);
  return same ? arguments.from_kept : foreign::FormSettings();
}

void refuse_beyond(const Plan& plan, foreign::Form form) {
  const std::vector<Phrase> reasons = tuner::beyond_form(plan, form);
  if (reasons.empty()) return;
  Phrase all;
  for (const Phrase& reason : reasons) all = all.empty() ? reason : phrase("{}; {}", all, reason);
  throw InputError({kCommandLine,
                    "--form",
                    phrase("a plan that {} can start", name(foreign::kFormNames, form)),
                    all,
                    "-o DIR writes a kit with what starts it"});
}

void refuse_own_file(const Arguments& arguments, const std::string& path) {
  std::error_code none;
  const bool own = arguments.from_file && fs::equivalent(*arguments.from_file, path, none);
  if (!own || arguments.has("force")) return;
  throw InputError({path,
                    "",
                    "another file than the one of --from",
                    "the same",
                    "name another one, or replace it with --force"});
}

// Beside a device or a pipe no ds_config.json can lie.
void refuse_what_is_no_file(const std::string& path) {
  std::error_code none;
  if (!fs::exists(path, none) || fs::is_regular_file(path, none)) return;
  throw InputError({path,
                    "",
                    "the name of a file",
                    fs::is_directory(path, none) ? "a folder of that name" : "a device or a pipe",
                    "a ds_config.json is written beside it"});
}

void write_form_file(const Plan& plan,
                     const Scenario& scenario,
                     const Arguments& arguments,
                     const Output& output,
                     std::ostream& log) {
  const Translation words(arguments.language);
  const foreign::Form form = *output.form;
  refuse_beyond(plan, form);
  refuse_what_is_no_file(output.path);
  refuse_own_file(arguments, output.path);
  foreign::FormPlace place{.file = output.path, .ds_config = ds_config_beside(output.path)};
  place.model = model_of(scenario, place.notes);
  place.kept = kept_settings(arguments, form);
  if (foreign::is_own_command(form)) {
    for (const Phrase& line : arguments.from_unread) {
      place.notes.push_back(phrase("{}, which a shell alone knows", line));
    }
  }
  const tuner::WrittenForm written = tuner::write_form(plan, form, place);
  const bool two = tuner::names_ds_config(plan, form);
  // The one that is named first: who is stopped between them has no file that names nothing.
  if (two) write_file(place.ds_config, emit(written_ds_config(plan)).dump(2) + "\n");
  write_file(output.path, written.text);
  log << words.text(two ? phrase("wrote {} and {}\n", output.path, place.ds_config)
                        : phrase("wrote {}\n", output.path));
  for (const Phrase& note : written.notes) log << words.text(phrase("not said in it: {}\n", note));
  log << words.text(phrase("start: {}\n", written.start));
}

}  // namespace

std::optional<Output> output_of(const Arguments& arguments) {
  const auto path = arguments.text("output");
  const auto form = arguments.text("form");
  if (!path) {
    if (!form) return std::nullopt;
    form_of_name(*form);
    throw InputError({kCommandLine, "--output", "the file that --form writes", "nothing", ""});
  }
  if (form) return Output{*path, form_of_name(*form)};
  return Output{*path, form_of_path(arguments, *path)};
}

void require_output(const Arguments& arguments, const Output& output) {
  if (!output.form) return require_kit_folder(output.path, arguments.has("force"));
  refuse_what_is_no_file(output.path);
  refuse_own_file(arguments, output.path);
  require_writable(output.path);
}

void write_plan(const Plan& plan,
                const Scenario& scenario,
                const StepResult& prediction,
                const Arguments& arguments,
                const Output& output,
                std::ostream& log) {
  if (output.form) return write_form_file(plan, scenario, arguments, output, log);
  write_kit(
      tuner::make_kit(plan, scenario_document(plan, scenario), prediction, own_training(arguments)),
      output.path,
      arguments.has("force"),
      log,
      Translation(arguments.language));
}

}  // namespace zeroplan::cli
