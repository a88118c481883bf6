// A plan in the files of the tools that people train with: LLaMA-Factory's and axolotl's YAML,
// accelerate's configuration, arguments of TRL and of transformers' scripts, a shell line, a job
// script of Slurm, OpenRLHF's and verl's commands. cli/from reads them back. Names of settings are
// those of the tools' argument classes: LLaMA-Factory src/llamafactory/hparams/*_args.py, axolotl
// utils/schemas/*.py, accelerate utils/dataclasses.py, trl/trainer/sft_config.py and
// model_config.py, transformers training_args.py and examples/pytorch/language-modeling/run_clm.py.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/phrase.hpp"
#include "foreign/form.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan::tuner {

struct WrittenForm {
  std::string text;
  std::string start;          // the command that trains by it
  std::vector<Phrase> notes;  // what of the plan the file does not say, a sentence each
  bool executable = false;
};

// Why no file of this form starts the plan; empty where one does.
std::vector<Phrase> beyond_form(const Plan& plan, foreign::Form form);

// Precondition: beyond_form() is empty. Notes stand in the text as comments, where it has comments.
WrittenForm write_form(const Plan& plan, foreign::Form form, const foreign::FormPlace& place);

// The forms that a kit's folder holds, and what they are called there.
struct KitForm {
  foreign::Form form;
  std::string_view path;
};
std::vector<KitForm> kit_forms(const Plan& plan);
// Of a kit, whose tools start in its folder: the model lies in kit/model.
foreign::FormPlace kit_place(const Plan& plan, std::string_view path);

// Whether the file names a ds_config.json: whoever writes it writes that, too.
bool names_ds_config(const Plan& plan, foreign::Form form);

}  // namespace zeroplan::tuner
