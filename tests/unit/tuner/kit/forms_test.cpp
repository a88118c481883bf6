// tuner/kit/forms: what is written for other tools, read back by cli/from, is the plan.
#include "tuner/kit/forms.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "foreign/form_text.hpp"
#include "foreign/from_file.hpp"
#include "foreign/processes.hpp"
#include "foreign/yaml.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/plan/trainer.hpp"
#include "tests/catch.hpp"
#include "tests/support/yaml.hpp"

using namespace zeroplan;

namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("zeroplan_forms_" + std::to_string(getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  std::string add(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return (path_ / name).string();
  }

 private:
  fs::path path_;
};

struct Planned {
  Scenario scenario;
  Plan plan;
};

Planned planned(const Json& document) {
  Planned result;
  result.scenario = parse_scenario(document, "test");
  result.plan = resolve(result.scenario);
  return result;
}

std::string file_name(foreign::Form form) {
  switch (form) {
    case foreign::Form::trainer:
      return "trainer.json";
    case foreign::Form::shell:
      return "train.sh";
    case foreign::Form::sbatch:
      return "train.sbatch";
    default:
      return std::string(name(foreign::kFormNames, form)) + ".yaml";
  }
}

tuner::WrittenForm written(const Planned& it,
                           foreign::Form form,
                           const Folder& folder,
                           std::string& path) {
  const std::string config =
      folder.add("ds_config.json", emit(written_ds_config(it.plan)).dump(2) + "\n");
  const std::string model = it.scenario.find(ScenarioKey::model)->value.as_string();
  const tuner::WrittenForm form_text = tuner::write_form(
      it.plan, form, {.file = file_name(form), .ds_config = config, .model = model});
  path = folder.add(file_name(form), form_text.text);
  return form_text;
}

// As `zeroplan scenario --from FILE CLUSTER --deepspeed-version ...` has it.
Plan read_back(const std::string& path, const Planned& before, foreign::Meaning& meaning) {
  meaning = foreign::read_from(path);
  foreign::assume_engine(meaning);
  Scenario scenario = meaning.scenario;
  for (const ScenarioKey key : {ScenarioKey::cluster,
                                ScenarioKey::deepspeed_version,
                                ScenarioKey::torch_version,
                                ScenarioKey::transformers_version}) {
    if (const ExplicitValue* said = before.scenario.find(key))
      scenario.set(key, said->value, said->origin);
  }
  return resolve(scenario);
}

const char* const kKeys[] = {"sequence_length",
                             "micro_batch_size",
                             "gradient_accumulation_steps",
                             "method",
                             "precision",
                             "optimizer",
                             "attention",
                             "activation_checkpointing",
                             "checkpoint_reentrant",
                             "activation_offload",
                             "engine",
                             "frontend",
                             "fused_loss",
                             "tiled_mlp",
                             "compile",
                             "use_cache",
                             "outputs_held",
                             "optimizer_implementation",
                             "fsdp_version",
                             "loading",
                             "sync_each_batch",
                             "save_steps",
                             "logging_steps",
                             "dataloader_num_workers"};

// Without sections that are switched off, which the Trainer's rules add, and without the rate of
// learning, which is the Trainer's where the file says "auto" and no part of a scenario.
Json effective(Json config) {
  if (Json* optimizer = config.find("optimizer")) {
    if (Json* params = optimizer->find("params")) params->erase("lr");
  }
  for (const char* section : {"bf16", "fp16"}) {
    const Json* found = config.find(section);
    if (found != nullptr && *found == Json::object({{"enabled", false}})) config.erase(section);
  }
  return config;
}

std::string name_and(const char* key, const std::string& one, const std::string& other) {
  return std::string(key) + " " + one + " " + other;
}

// What of a plan's document another has otherwise. What has no effect does not count: reentrant
// where nothing is recomputed, a version of FSDP under other engines.
std::vector<std::string> differences(const Json& before, const Json& after) {
  std::vector<std::string> found;
  const Json& work = *before.find("workload");
  const bool recomputes = !(*work.find("activation_checkpointing") == Json("none"));
  const std::string engine = work.find("engine")->as_string();
  for (const char* key : kKeys) {
    const std::string_view name = key;
    if (name == "checkpoint_reentrant" && !recomputes) continue;
    if (name == "fsdp_version" && engine != "fsdp") continue;
    // States are one flat tensor under DeepSpeed, whose optimizer is its own or the Trainer's.
    if (name == "optimizer_implementation" && engine == "deepspeed") continue;
    const auto text = [&](const Json& workload) {
      const Json* value = workload.find(key);
      return value == nullptr ? std::string("nothing") : value->dump();
    };
    const std::string one = text(work), other = text(*after.find("workload"));
    // What no plan says is written as what a first run takes: no checkpoint, each step logged.
    if (one == "nothing" && (name == "save_steps" || name == "logging_steps")) continue;
    if (one != other) found.push_back(name_and(key, one, other));
  }
  const Json config = effective(*before.find("ds_config"));
  const Json other = effective(*after.find("ds_config"));
  const bool same = engine == "deepspeed"
                        ? config == other
                        : *config.find("zero_optimization") == *other.find("zero_optimization");
  if (!same) found.push_back(config.dump() + " " + other.dump());
  return found;
}

Json case_of(const char* workload, const char* config, const char* cluster = "2x4xA100-80G") {
  Json document = Json::object({{"model", "llama-3.2-1b"}, {"cluster", cluster}});
  document["workload"] = parse_json(workload, "workload").root;
  const Json ds_config = parse_json(config, "ds_config").root;
  if (!ds_config.is_null()) document["ds_config"] = ds_config;
  return document;
}

// A grid of what people run: method x engine with its sharding and offloads x checkpointing and
// the like.
std::vector<Json> cases() {
  const std::vector<const char*> methods = {
      R"("full")",
      R"({"lora":{"rank":16,"targets":["q_proj","v_proj"],"dropout":0.05}})",
      R"({"qlora":{"rank":64,"targets":["q_proj","k_proj","v_proj","o_proj"]}})",
      R"({"qlora":{"rank":8,"targets":["q_proj"],"quant":"fp4","double_quant":true}})"};
  struct Engine {
    const char* workload;
    const char* config;
  };
  const std::vector<Engine> engines = {
      {R"("engine":"deepspeed")", R"({"zero_optimization":{"stage":0}})"},
      {R"("engine":"deepspeed")", R"({"zero_optimization":{"stage":1}})"},
      {R"("engine":"deepspeed")",
       R"({"zero_optimization":{"stage":2,"offload_optimizer":{"device":"cpu"}}})"},
      {R"("engine":"deepspeed")", R"({"zero_optimization":{"stage":3}})"},
      {R"("engine":"deepspeed")",
       R"({"zero_optimization":{"stage":3,"offload_optimizer":{"device":"cpu","pin_memory":true},
           "offload_param":{"device":"cpu"}},"optimizer":{"type":"Adam","params":{"lr":1e-5}}})"},
      {R"("engine":"deepspeed")",
       R"({"zero_optimization":{"stage":3,"offload_optimizer":{"device":"nvme","nvme_path":"/nv"},
           "reduce_bucket_size":1e8}})"},
      {R"("engine":"fsdp")", "null"},
      {R"("engine":"fsdp")", R"({"zero_optimization":{"stage":2}})"},
      {R"("engine":"fsdp")", R"({"zero_optimization":{"stage":0}})"},
      {R"("engine":"fsdp")", R"({"zero_optimization":{"stage":3,"mics_shard_size":4}})"},
      {R"("engine":"fsdp")",
       R"({"zero_optimization":{"stage":3,"offload_param":{"device":"cpu"}}})"},
      {R"("engine":"fsdp","fsdp_version":2)", "null"},
      {R"("engine":"fsdp","fsdp_version":2)",
       R"({"zero_optimization":{"stage":3,"offload_param":{"device":"cpu"}}})"},
      {R"("engine":"ddp")", "null"},
      {R"("engine":"fsdp","loading":"every-rank")", "null"},
      {R"("engine":"fsdp","fsdp_version":2,"loading":"every-rank")", "null"}};
  const std::vector<const char*> rest = {
      R"("sequence_length":4096,"micro_batch_size":2,"gradient_accumulation_steps":8)",
      R"("sequence_length":1000,"activation_checkpointing":"full","checkpoint_reentrant":false,
         "attention":"flash","fused_loss":true,"precision":"fp16")",
      R"("activation_checkpointing":"full","checkpoint_reentrant":true,"attention":"eager",
         "precision":"fp32","optimizer":"adamw8bit")",
      R"("precision":"bf16","optimizer":"adafactor","compile":true)",
      R"("optimizer_implementation":"foreach","optimizer":"adamw","save_steps":"500",
         "logging_steps":"epoch","dataloader_num_workers":4)"};
  std::vector<Json> all;
  for (const char* method : methods) {
    for (const Engine& engine : engines) {
      // Every engine meets four of the five, every method all of them.
      const std::string workload = std::string(R"({"method":)") + method + "," + engine.workload +
                                   "," + rest[all.size() % rest.size()] + "}";
      all.push_back(case_of(workload.c_str(), engine.config));
    }
  }
  return all;
}

}  // namespace

TEST_CASE("what is written for another tool reads back as the plan") {
  if (!testing::has_yaml()) return;
  const Folder folder;
  int compared = 0;
  int impossible = 0;
  for (const Json& document : cases()) {
    Planned before;
    try {
      before = planned(document);
    } catch (const InputError&) {
      ++impossible;  // no plan: an optimizer that DeepSpeed does not offload, and the like
      continue;
    }
    const Json wanted = scenario_document(before.plan, before.scenario);
    for (const foreign::Form form : {foreign::Form::llama_factory,
                                     foreign::Form::axolotl,
                                     foreign::Form::trl,
                                     foreign::Form::shell,
                                     foreign::Form::sbatch}) {
      if (!tuner::beyond_form(before.plan, form).empty()) continue;
      std::string path;
      const tuner::WrittenForm text = written(before, form, folder, path);
      INFO(document.dump() << "\n" << text.text);
      foreign::Meaning meaning;
      const Plan after = read_back(path, before, meaning);
      INFO(foreign::describe(meaning).english());
      const bool scripted = form == foreign::Form::sbatch || form == foreign::Form::shell;
      const bool hybrid =
          before.plan.workload.engine == TrainingEngine::fsdp && before.plan.fsdp.shard_ranks == 4;
      std::string all;
      for (const std::string& key :
           differences(wanted, scenario_document(after, before.scenario))) {
        if (!hybrid || scripted || !key.starts_with("{")) all += key + "; ";
      }
      CHECK(all == "");
      // Groups of FSDP are those of a node, whose number of GPUs YAML does not say.
      if (hybrid) {
        CHECK(meaning.unknown.empty() == scripted);
      } else {
        CHECK(meaning.unknown.empty());
      }
      CHECK(text.notes.empty());
      CHECK(after.model->name == before.plan.model->name);
      if (scripted) {
        CHECK(foreign::cluster_of(meaning.processes) == "2x4");
      }
      ++compared;
    }
  }
  CHECK(compared > 200);
  CHECK(impossible < compared / 10);
}

TEST_CASE("TRL's other trainers are written for TRL alone, and read back as they were") {
  if (!testing::has_yaml()) return;
  const Folder folder;
  for (const char* trainer :
       {R"({"dpo":{"beta":0.2}})",
        R"({"dpo":{"precompute_reference":true}})",
        R"({"kto":{"beta":0.05}})",
        R"({"grpo":{"completion_length":128,"completions":4,"beta":0.04,"generation_batches":2}})",
        R"({"grpo":{"completion_length":256,"completions":8,"generation":"colocated",
                    "memory_share":0.4,"sleeps":true,"generation_tensor_parallel":2}})"}) {
    const bool generates = std::string(trainer).find("grpo") != std::string::npos;
    const std::string workload =
        std::string(R"({"micro_batch_size":8,"trainer":)") + trainer +
        (std::string(trainer).find("128") != std::string::npos ? R"(,"sequence_length":640})"
         : generates                                           ? R"(,"sequence_length":768})"
                                                               : R"(,"sequence_length":1024})");
    const Planned before =
        planned(case_of(workload.c_str(), R"({"zero_optimization":{"stage":2}})"));
    for (const foreign::Form form :
         {foreign::Form::llama_factory, foreign::Form::axolotl, foreign::Form::trainer}) {
      CHECK_FALSE(tuner::beyond_form(before.plan, form).empty());
    }
    const Json wanted = scenario_document(before.plan, before.scenario);
    for (const foreign::Form form : {foreign::Form::shell, foreign::Form::sbatch}) {
      std::string path;
      const tuner::WrittenForm text = written(before, form, folder, path);
      INFO(text.text);
      foreign::Meaning meaning;
      const Json after = scenario_document(read_back(path, before, meaning), before.scenario);
      REQUIRE(after.find("workload")->find("trainer") != nullptr);
      CHECK(differences(wanted, after).empty());
      CHECK(after.find("workload")->find("trainer")->dump() ==
            wanted.find("workload")->find("trainer")->dump());
      // reward_funcs names code that the plan does not have.
      CHECK(meaning.unknown.empty());
    }
    std::string path;
    const std::string kind = wanted.find("workload")->find("trainer")->members()[0].first;
    CHECK(
        written(before, foreign::Form::trl, folder, path).start.find("trl " + kind + " --config") !=
        std::string::npos);
  }
}

TEST_CASE("a launcher's configuration reads back as engine, sharding and processes") {
  if (!testing::has_yaml()) return;
  const Folder folder;
  for (const Json& document : cases()) {
    Planned before;
    try {
      before = planned(document);
    } catch (const InputError&) {
      continue;
    }
    if (!tuner::beyond_form(before.plan, foreign::Form::accelerate).empty()) continue;
    std::string path;
    const tuner::WrittenForm text = written(before, foreign::Form::accelerate, folder, path);
    INFO(document.dump() << "\n" << text.text);
    foreign::Meaning meaning = foreign::read_from(path);
    foreign::assume_engine(meaning);
    const ExplicitValue* engine = meaning.scenario.find(ScenarioKey::engine);
    REQUIRE(engine != nullptr);
    CHECK(engine->value == Json(name(kTrainingEngineNames, before.plan.workload.engine)));
    CHECK(foreign::cluster_of(meaning.processes) == "2x4");
    CHECK(text.notes.size() == 1);  // all the rest is the script's
    const ExplicitValue* config = meaning.scenario.find(ScenarioKey::ds_config);
    if (before.plan.workload.engine != TrainingEngine::fsdp) continue;
    const std::int64_t stage = before.plan.ds_config.integer(Knob::zero_stage).value_or(3);
    if (config == nullptr) {
      CHECK((stage == 3 && !before.plan.fsdp.offload));
      continue;
    }
    const Json& zero = *config->value.find("zero_optimization");
    CHECK(*zero.find("stage") == Json(stage));
    CHECK((zero.find("offload_param") != nullptr) == before.plan.fsdp.offload);
    CHECK((zero.find("mics_shard_size") != nullptr) == (before.plan.fsdp.shard_ranks == 4));
  }
}

TEST_CASE("what a form cannot say is a note, and a comment where there are comments") {
  const Folder folder;
  std::string path;
  const Planned four_bits = planned(case_of(
      R"({"method":{"qlora":{"rank":8,"targets":["q_proj"]}},"attention":"eager",
          "sequence_length":4096})",
      "null"));
  const tuner::WrittenForm trainer = written(four_bits, foreign::Form::trainer, folder, path);
  CHECK(trainer.notes.size() == 3);  // attention, adapters, four bits
  CHECK(trainer.text.find("lora") == std::string::npos);
  CHECK(parse_json(trainer.text, "trainer.json").root.find("block_size")->as_integer() == 4096);
  const Planned it = planned(case_of(R"({"tiled_mlp":true})", "null"));
  const tuner::WrittenForm factory = written(it, foreign::Form::llama_factory, folder, path);
  REQUIRE(factory.notes.size() == 1);
  CHECK(factory.text.find("# Not said here: " + factory.notes[0] + "\n") != std::string::npos);
  CHECK(written(it, foreign::Form::axolotl, folder, path).notes.empty());
}

TEST_CASE("accelerate's file alone says that no zero.Init is entered at stage 3") {
  const Folder folder;
  for (const char* loading : {"every-rank", "usual"}) {
    const std::string workload = std::string(R"({"loading":")") + loading + "\"}";
    const Planned it = planned(case_of(workload.c_str(), R"({"zero_optimization":{"stage":3}})"));
    const bool every = std::string_view(loading) == "every-rank";
    std::string path;
    for (const foreign::Form form : {foreign::Form::trl, foreign::Form::shell}) {
      CHECK(written(it, form, folder, path).notes.size() == (every ? 1U : 0U));
    }
    const std::string text = written(it, foreign::Form::accelerate, folder, path).text;
    CHECK(text.find(every ? "zero3_init_flag: false" : "zero3_init_flag: true") !=
          std::string::npos);
    if (!testing::has_yaml()) continue;
    const foreign::Meaning meaning = foreign::read_from(path);
    CHECK((meaning.scenario.find(ScenarioKey::loading) != nullptr) == every);
  }
}

TEST_CASE("plans that no Trainer starts are beyond the forms") {
  const Planned pipeline = planned(case_of(R"({"frontend":"native","pipeline_parallel":2})",
                                           R"({"zero_optimization":{"stage":1}})"));
  const Planned loop = planned(case_of(R"({"frontend":"native"})", "null"));
  const Planned bert = [] {
    Json document = case_of("{}", "null", "1xA100-80G");
    document["model"] = "bert-base-uncased";
    return planned(document);
  }();
  for (const foreign::Form form : {foreign::Form::llama_factory,
                                   foreign::Form::axolotl,
                                   foreign::Form::trl,
                                   foreign::Form::shell}) {
    CHECK_FALSE(tuner::beyond_form(pipeline.plan, form).empty());
    CHECK_FALSE(tuner::beyond_form(loop.plan, form).empty());
    CHECK_FALSE(tuner::beyond_form(bert.plan, form).empty());
  }
  CHECK_FALSE(tuner::beyond_form(pipeline.plan, foreign::Form::accelerate).empty());
  CHECK(tuner::beyond_form(loop.plan, foreign::Form::accelerate).empty());
  CHECK(tuner::beyond_form(bert.plan, foreign::Form::trainer).empty());
}

TEST_CASE("the user's own settings go over what no plan has, and not over the plan") {
  if (!testing::has_yaml()) return;
  const Planned it = planned(case_of(R"({"micro_batch_size":2,"sequence_length":512})", "null"));
  const foreign::FormSettings kept = {{"dataset", "alpaca_en"},
                                      {"learning_rate", 2e-5},
                                      {"warmup_ratio", 0.1},
                                      {"per_device_train_batch_size", 64}};
  const tuner::WrittenForm text =
      tuner::write_form(it.plan,
                        foreign::Form::llama_factory,
                        {.file = "a.yaml", .ds_config = "ds.json", .model = "m", .kept = kept});
  const Json root = foreign::parse_yaml(text.text, "a.yaml");
  CHECK(*root.find("dataset") == Json("alpaca_en"));
  CHECK(*root.find("learning_rate") == Json(2e-5));
  CHECK(*root.find("warmup_ratio") == Json(0.1));
  CHECK(*root.find("per_device_train_batch_size") == Json(2));
}

TEST_CASE("texts of users stand in YAML, JSON and words of sh as they were said") {
  if (!testing::has_yaml()) return;
  for (const std::string text :
       {"plain", "yes", "1e-5", "a: b #c", "$(touch x)", "it's \"q\"", "\\n"}) {
    INFO(text);
    const foreign::FormSettings settings = {
        {"a", text}, {"b", Json::array({text, 1})}, {"c", Json::object({{"k", text}})}};
    const Json root = foreign::parse_yaml(foreign::yaml_lines(settings), "f");
    CHECK(*root.find("a") == Json(text));
    CHECK(root.find("b")->items()[0] == Json(text));
    CHECK(*root.find("c")->find("k") == Json(text));
    CHECK(*parse_json(foreign::json_text(settings), "f").root.find("a") == Json(text));
  }
  CHECK(foreign::yaml_lines({{"rate", 1e-5}, {"big", 1e20}}) == "rate: 1.0e-05\nbig: 1.0e+20\n");
  CHECK(foreign::argument_words({{"a", "x y"}, {"b", Json::array({"q", "v"})}}, " ") ==
        "--a 'x y' --b q v");
}

TEST_CASE("an evaluation is written, and read back") {
  if (!foreign::reads_yaml()) return;
  const Folder folder;
  Json document = case_of(
      R"({"sequence_length":1024,"micro_batch_size":2,"eval_steps":"200",
          "evaluation":{"loss":{"batch_size":3,"accumulation_steps":4,"samples":500}}})",
      R"({"zero_optimization":{"stage":2}})");
  const Planned it = planned(document);
  for (const foreign::Form form : {foreign::Form::llama_factory,
                                   foreign::Form::axolotl,
                                   foreign::Form::trl,
                                   foreign::Form::trainer,
                                   foreign::Form::shell}) {
    INFO(name(foreign::kFormNames, form));
    std::string path;
    written(it, form, folder, path);
    foreign::Meaning meaning;
    const Plan after = read_back(path, it, meaning);
    REQUIRE(after.evaluation != nullptr);
    CHECK(after.evaluation->batch_size == 3);
    CHECK(after.evaluation->accumulation_steps == 4);
    CHECK_FALSE(after.evaluation->keeps_logits);
    REQUIRE(after.loop.evaluate);
    CHECK(to_string(*after.loop.evaluate) == "200");
  }
}

TEST_CASE("what is evaluated goes over with the rest of the user's file") {
  if (!foreign::reads_yaml()) return;
  const Folder folder;
  const std::string text =
      "model_name_or_path: llama-3.2-1b\nfinetuning_type: full\ncutoff_len: 512\nval_size: 0.07\n"
      "eval_strategy: epoch\n";
  const foreign::Meaning meaning = foreign::read_from(folder.add("mine.yaml", text));
  const bool carried =
      std::any_of(meaning.kept.begin(), meaning.kept.end(), [](const foreign::Setting& setting) {
        return setting.name == "val_size";
      });
  CHECK(carried);
}

TEST_CASE("a note that quotes a line break of the user's file stays a comment") {
  const Planned it = planned(Json::object({{"model", "llama-3.2-1b"}, {"cluster", "2xA100-40G"}}));
  foreign::FormPlace place{.file = "a.sh", .ds_config = "ds.json", .model = "m"};
  place.notes.emplace_back("run.sh:1: template $X\ntouch owned, which a shell alone knows");
  const std::string text = tuner::write_form(it.plan, foreign::Form::shell, place).text;
  INFO(text);
  CHECK(text.find("\ntouch") == std::string::npos);
  CHECK(text.find("$X touch owned") != std::string::npos);
}
