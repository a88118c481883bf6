// zeroplan.family/1: formulas over a config's keys, layers of several kinds, and what was not
// recorded; every class in data/families gives a document that is planned.
#include "model/families/recorded_class.hpp"

#include <string>
#include <utility>

#include "base/diagnostic.hpp"
#include "base/embedded.hpp"
#include "model/families/hf_config.hpp"
#include "model/families/recorded_sizes.hpp"
#include "model/graph/traced_graph.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Json json(const std::string& text) { return parse_json(text, "test").root; }

// Two kinds of layers, by a list or by how many come first; grouped heads; a window of 100.
Json family() {
  return json(R"({
    "schema": "zeroplan.family/1", "model_type": "toy", "class": "ToyForCausalLM", "attention": "sdpa",
    "blocks": [{"name": "a", "tensors": [1], "events": []}, {"name": "b", "tensors": [], "events": [0, 0]}],
    "tensors": [{"shape": []}, {"shape": ["=kv"]}], "events": [{"op": "add"}],
    "kinds": [
      {"modules": [{"name": "", "type": "One"}, {"name": ".mlp", "type": "M"}], "calls": [{"block": 0, "prefix": "", "layer": true}],
       "buffers": {".bias": {"shape": ["=heads"]}}},
      {"modules": [{"name": "", "type": "Two"}], "calls": [{"block": 1, "prefix": "", "layer": true}], "buffers": {}}],
    "documents": [{
      "when": {"tie_word_embeddings": false}, "fixed": {"hidden_act": "silu", "bias": true},
      "rope": {"types": ["default", "yarn"], "partial": 0.5}, "lists": {"heads_of_layers": [8]},
      "heads": {"key": "kv", "of": "heads", "grouped": true}, "windows": ["window"], "longer": false,
      "defaults": {"hidden": 64, "heads": 8, "kv": null, "depth": 3, "dense": 1, "window": 100, "bias": true, "tie_word_embeddings": false},
      "graph": {
        "blocks": [1, 0],
        "modules": [{"name": "embed"}, {"layers": true}, {"name": "head", "parameters": {"weight": ["=hidden*3/heads+2*kv-1", 7]}}],
        "calls": [{"block": 0, "prefix": "", "layer": false}, {"layers": true}],
        "share": "~kv/heads", "buffers": {"table": {"shape": [2]}},
        "layers": {
          "count": "depth", "prefix": "model.layers.",
          "rules": [{"by": ["types"], "values": [[["one"], 0], [["two"], 1]]}, {"by": ["<dense"], "values": [[[true], 0], [[false], 1]]}],
          "kinds": [0, 1]}}}]})");
}

RecordedClass asked(const std::string& config,
                    const std::string& attention = "",
                    std::int64_t sequence = 99) {
  return read_recorded(family(),
                       "test",
                       json(config),
                       ModelUse{.attention = attention, .sequence_length = sequence});
}

std::optional<Json> made(const std::string& config,
                         const std::string& attention = "",
                         std::int64_t sequence = 99) {
  return asked(config, attention, sequence).document;
}

std::string attention_in(const Json& document, const Json& family) {
  const Json* own = document.find("graph")->find("attention");
  return own != nullptr ? own->as_string() : family.find("attention")->as_string();
}

// "key: what was recorded", of a config that the class was not recorded for.
std::string missing(const std::string& config, std::int64_t sequence = 99) {
  const RecordedClass found = asked(config, "", sequence);
  return found.key + ": " + found.expected.english();
}

}  // namespace

TEST_CASE("a recorded class gives sizes by formulas and its layers one by one") {
  const auto document = made(R"({"kv": 2, "depth": 2, "types": ["two", "one"]})");
  REQUIRE(document);
  CHECK(
      document->find("blocks")->dump() ==
      R"([{"name":"b","tensors":[],"events":[{"op":"add"},{"op":"add"}]},{"name":"a","tensors":[{"shape":[2]}],"events":[]}])");
  CHECK(
      document->find("modules")->dump() ==
      R"([{"name":"embed"},{"name":"model.layers.0","type":"Two"},{"name":"model.layers.1","type":"One"},)"
      R"({"name":"model.layers.1.mlp","type":"M"},{"name":"head","parameters":{"weight":[27,7]}}])");
  CHECK(
      document->find("calls")->dump() ==
      R"([{"block":0,"prefix":"","layer":false},{"block":1,"prefix":"model.layers.0.","layer":true},)"
      R"({"block":0,"prefix":"model.layers.1.","layer":true}])");
  CHECK(document->find("buffers")->dump() ==
        R"({"table":{"shape":[2]},"model.layers.1.bias":{"shape":[8]}})");
  CHECK(*document->find("share") == Json(0.25));
  CHECK(document->find("layers") == nullptr);
}

TEST_CASE("a list of layers that the config lacks is replaced by the number that come first") {
  const auto document = made(R"({"kv": 2, "dense": 2})");
  REQUIRE(document);
  std::string types;
  for (const Json& row : document->find("modules")->items()) {
    if (const Json* type = row.find("type")) types += type->as_string() + " ";
  }
  CHECK(types == "One M One M Two ");
}

TEST_CASE("a config without a list of layers has the kinds as the class repeats them") {
  Json repeated = family();
  Json& layers = repeated["documents"].items().front()["graph"]["layers"];
  layers["rules"] = json(R"([{"by": ["types"], "values": [[["one"], 0], [["two"], 1]]}])");
  layers["absent"] = json(R"({"types": {"cycle": ["one", "two", "two"], "by": {"every": 3}}})");
  const auto types = [&](const std::string& config) {
    const RecordedClass found =
        read_recorded(repeated, "test", json(config), ModelUse{.sequence_length = 99});
    std::string text;
    if (!found.document) return found.key;
    for (const Json& row : found.document->find("modules")->items()) {
      if (const Json* type = row.find("type")) text += type->as_string() + " ";
    }
    return text;
  };
  CHECK(types(R"({"kv": 2, "depth": 4})") == "One M Two Two One M ");
  CHECK(types(R"({"kv": 2, "depth": 2, "types": ["two", "one"]})") == "Two One M ");
  CHECK(types(R"({"kv": 2, "depth": 2, "types": ["two", "three"]})") == "types");
  // A key that the class reads for the list, and keeps nowhere: without the list it counts.
  CHECK(types(R"({"kv": 2, "depth": 4, "every": 3})") == "One M Two Two One M ");
  CHECK(types(R"({"kv": 2, "depth": 4, "every": 2})") == "every");
  CHECK(types(R"({"kv": 2, "depth": 2, "every": 2, "types": ["two", "one"]})") == "Two One M ");
  layers["absent"] = json(R"({"types": {"first": ["two"], "cycle": ["two", "one"]}})");
  CHECK(types(R"({"kv": 2, "depth": 4})") == "Two Two One M Two ");
}

TEST_CASE("the last layer of its type may be another kind") {
  Json last = family();
  Json& layers = last["documents"].items().front()["graph"]["layers"];
  const auto types = [&](std::int64_t first) {
    Json config = json(R"({"kv": 2, "depth": 4, "types": ["one", "two", "one", "one"]})");
    config["dense"] = Json(first);
    const RecordedClass found =
        read_recorded(last, "test", config, ModelUse{.sequence_length = 99});
    std::string text;
    if (!found.document) return found.key;
    for (const Json& row : found.document->find("modules")->items()) {
      if (const Json* type = row.find("type")) text += type->as_string() + " ";
    }
    return text;
  };
  layers["rules"] = json(R"([{"by": ["$types"], "values": [[[false], 0], [[true], 1]]}])");
  CHECK(types(1) == "One M Two One M Two ");
  // So many that come last take what the last of each type before them passes on.
  layers["rules"] =
      json(R"([{"by": ["-dense:types"], "values": [[["last"], 0], [["before"], 1], [[""], 0]]}])");
  CHECK(types(1) == "One M Two Two One M ");
  CHECK(types(2) == "Two Two One M One M ");
  CHECK(types(0) == "One M One M One M One M ");
  CHECK(types(5) == "dense");
}

TEST_CASE("what was not recorded is not made up") {
  CHECK(made(R"({"kv": 2})"));
  CHECK_FALSE(made(R"({"kv": 8})"));              // as many as heads
  CHECK_FALSE(made(R"({})"));                     // null is as many, too
  CHECK_FALSE(made(R"({"kv": 2, "heads": 0})"));  // divides by nothing
  CHECK_FALSE(made(R"({"kv": 2, "heads": 7})"));  // no whole number
  CHECK_FALSE(made(R"({"kv": 2, "hidden": "x"})"));
  CHECK_FALSE(made(R"({"kv": 0})"));  // no share of the heads
  CHECK_FALSE(made(R"({"kv": 2, "hidden": 9000000000000000000})"));
  CHECK_FALSE(made(R"({"kv": 2, "depth": 0})"));
  CHECK(made(R"({"kv": 2, "heads_of_layers": [8, 8, 8]})"));
  CHECK_FALSE(made(R"({"kv": 2, "heads_of_layers": [8, 4, 8]})"));
  CHECK_FALSE(made(R"({"kv": 2, "head_dim": 16})"));  // of a class that was recorded without
  CHECK_FALSE(made(R"({"kv": 2, "depth": 100000})"));
  CHECK_FALSE(made(R"({"kv": 2, "types": ["one", "one", "three"], "dense": null})"));
  CHECK_FALSE(made(R"({"kv": 2, "tie_word_embeddings": true})"));
  CHECK_FALSE(made(R"({"kv": 2, "hidden_act": "gelu"})"));
  CHECK(made(R"({"kv": 2, "bias": true})"));
  CHECK_FALSE(made(R"({"kv": 2, "bias": false})"));
  CHECK_FALSE(made(R"({"kv": 2, "architectures": ["ToyForSequenceClassification"]})"));
  CHECK(made(R"({"kv": 2, "rope_scaling": {"type": "yarn", "factor": 4}})"));
  CHECK(made(R"({"kv": 2, "rope_scaling": {"type": "longrope"}})"));
  CHECK_FALSE(made(R"({"kv": 2, "rope_scaling": {"rope_type": "llama3"}})"));
  CHECK_FALSE(made(R"({"kv": 2, "rope_parameters": {"full": {"rope_type": "llama3"}}})"));
  CHECK_FALSE(made(R"({"kv": 2, "partial_rotary_factor": 0.25})"));
  CHECK_FALSE(made(R"({"kv": 2})", "eager"));
  CHECK_FALSE(made(R"({"kv": 2})", "", 100));  // as long as the window
  CHECK(made(R"({"kv": 2, "window": 200})", "sdpa", 101));
  CHECK_FALSE(recorded_class(json(R"({"model_type": "nobody"})"), "nobody", {}));
}

TEST_CASE("a config that was not recorded is told the key, and what was recorded") {
  CHECK(missing(R"({"kv": 2, "hidden_act": "gelu"})") == "hidden_act: \"silu\"");
  CHECK(missing(R"({"kv": 8})") == "kv: a number that divides heads");
  CHECK(missing(R"({"kv": 2, "heads": 7})") ==
        "hidden: sizes of which hidden*3/heads+2*kv-1 is a whole number, not 0");
  CHECK(missing(R"({"kv": 2, "depth": 100000})") == "depth: 1 to 1024");
  CHECK(missing(R"({"kv": 2, "rope_parameters": {"full": {"rope_type": "llama3"}}})") ==
        R"(rope_parameters/rope_type: ["default","yarn"])");
  CHECK(asked(R"({"kv": 2})", "eager").key == "attn_implementation");
}

TEST_CASE(
    "each attention has documents of its own; the class's choice is taken where nobody says") {
  Json two = family();
  Json eager = two["documents"].items().front();
  eager["graph"]["attention"] = "eager";
  eager["graph"]["share"] = 7;
  two["documents"].push_back(std::move(eager));
  const auto share = [&](const std::string& attention) {
    const RecordedClass found = read_recorded(
        two, "test", json(R"({"kv": 2})"), ModelUse{.attention = attention, .sequence_length = 99});
    return found.document ? found.document->find("share")->dump() : found.expected.english();
  };
  CHECK(share("") == "0.25");
  CHECK(share("sdpa") == "0.25");
  CHECK(share("eager") == "7");
  CHECK(share("flash_attention_2") == "sdpa, eager");
  Json& documents = two["documents"];
  documents.items().erase(documents.items().begin());
  two["attention"] = "eager";
  CHECK(share("flash_attention_2") == "7");  // of a class that has none but its own code
}

TEST_CASE(
    "a class of several releases of transformers is the newest that is not newer than the plan's") {
  Json several = family();
  Json& documents = several["documents"];
  documents.items().front()["graph"]["software"] = json(R"({"transformers": "5.17.0"})");
  const Json first = documents.items().front();
  const auto older = [&](const char* release, const char* attention, int share) {
    Json document = first;
    document["graph"]["software"] = Json::object({{"transformers", release}});
    document["graph"]["attention"] = attention;
    document["graph"]["share"] = share;
    documents.push_back(std::move(document));
  };
  older("4.50.3", "sdpa", 50);
  older("4.40.2", "eager", 40);
  const auto asked = [&](const std::optional<Version>& release) {
    return read_recorded(several,
                         "test",
                         json(R"({"kv": 2})"),
                         ModelUse{.sequence_length = 99, .transformers = release});
  };
  const auto share = [&](const std::optional<Version>& release) {
    return asked(release).document->find("share")->dump();
  };
  CHECK(share({}) == "0.25");
  CHECK(share(Version{5, 24, 0}) == "0.25");
  CHECK(share(Version{4, 57, 1}) == "50");
  CHECK(share(Version{4, 49, 0}) == "40");  // eager is what that class has by default
  CHECK(share(Version{4, 30, 0}) == "40");
  const ReleaseRange middle = asked(Version{4, 57, 1}).releases;
  CHECK_FALSE(middle.contains({4, 49, 9}));
  CHECK(middle.contains({4, 50, 0}));  // its minor number's first
  CHECK(middle.contains({4, 99, 0}));
  CHECK_FALSE(middle.contains({5, 0, 0}));  // the first of a series stands for all before it in it
  CHECK(middle.recorded == Version{4, 50, 3});
  CHECK(share(Version{5, 0, 0}) == "0.25");
  CHECK(asked({}).releases.contains({6, 0, 0}));
  CHECK(asked(Version{4, 40, 2}).releases.contains({4, 0, 0}));
}

TEST_CASE("sizes that decide by being equal which modules there are have a document for each") {
  Json two = family();
  Json& documents = two["documents"];
  Json& unlike = documents.items().front();
  unlike["unlike"] = json(R"({"embedding": "hidden"})");
  unlike["defaults"]["embedding"] = "=hidden";
  const auto asked = [&](const char* config) {
    return read_recorded(two, "test", json(config), ModelUse{.sequence_length = 99});
  };
  CHECK(asked(R"({"kv": 2, "embedding": 32})").document);
  const RecordedClass equal = asked(R"({"kv": 2, "embedding": 64})");
  CHECK_FALSE(equal.document);
  CHECK(equal.key + ": " + equal.expected.english() == "embedding: another size than hidden");
  CHECK_FALSE(asked(R"({"kv": 2})").document);
}

// A model of text and a tower beside it that is not run, whose shared parts stand once.
Json family_of_parts() {
  return parse_family(R"({
    "schema": "zeroplan.family/1", "model_type": "toy", "class": "ToyForConditionalGeneration", "attention": "sdpa",
    "blocks": [{"tensors": [0], "events": []}], "tensors": [{"shape": ["=text_config.wide"]}], "events": [],
    "kinds": [{"modules": [{"name": ""}], "calls": [{"block": 0, "prefix": "", "layer": true}], "buffers": {}}],
    "aliases": {"text_config.layers": "text_config.depth"},
    "parts": [{"text_config.model_type": "t"},
              {"text_config.depth": 1, "text_config.wide": 8, "eye_config.depth": 1, "eye_config.image_size": 30,
               "eye_config.patch_size": 14, "text_config.heads": 2},
              [{"name": "eye"}, {"stack": "eye_config.depth"}, {"layers": true}],
              [{"count": "eye_config.depth", "prefix": "eye.", "modules": [
                {"name": ".w", "parameters": {"weight": ["=eye_config.image_size|eye_config.patch_size*2"]}}]}], {}],
    "documents": [{
      "when": {}, "fixed": 0, "defaults": 1, "lists": 4, "rope": {"types": ["default"]}, "text": "text_config.",
      "width": {"key": "text_config.wide", "of": "text_config.heads", "times": 4},
      "graph": {"blocks": [0], "modules": 2, "stacks": 3, "calls": [{"layers": true}], "buffers": 4,
        "layers": {"count": "text_config.depth", "prefix": "text.", "rules": [{"by": [], "values": []}], "kinds": [0]}}}]})",
                      "test");
}

TEST_CASE("a config of several gives the sizes of each, and towers their layers") {
  const Json family = family_of_parts();
  const auto asked = [&](const std::string& config) {
    return read_recorded(family, "test", json(config), {});
  };
  const auto found = asked(
      R"({"text_config": {"layers": 2, "wide": 16, "heads": 4}, "eye_config": {"depth": 2, "image_size": 43}})");
  REQUIRE(found.document);
  CHECK(found.document->find("modules")->dump() ==
        R"([{"name":"eye"},{"name":"eye.0.w","parameters":{"weight":[6]}},)"
        R"({"name":"eye.1.w","parameters":{"weight":[6]}},{"name":"text.0"},{"name":"text.1"}])");
  CHECK(found.document->find("blocks")->dump() == R"([{"tensors":[{"shape":[16]}],"events":[]}])");
  CHECK(found.document->find("stacks") == nullptr);
  // An older config says what is of the text among its own keys.
  CHECK(asked(R"({"wide": 16, "heads": 4})").document);
  const auto other = asked(R"({"text_config": {"wide": 16}})");
  CHECK_FALSE(other.document);
  CHECK(other.key == "text_config/wide");
  CHECK(asked(R"({"text_config": {"model_type": "u"}})").key == "text_config/model_type");
}

TEST_CASE("a part of a config may have another name, and say the kinds of its layers as a text") {
  Json family = family_of_parts();
  family["aliases"]["llm_config"] = Json("text_config");
  family["spelling"] = json(
      R"({"text_config.kinds": {"words": {"M": "mixer"}, "letters": "pattern", "count": "depth"}})");
  const auto found = read_recorded(
      family, "test", json(R"({"llm_config": {"pattern": "MMM", "wide": 16, "heads": 4}})"), {});
  REQUIRE(found.document);
  CHECK(found.document->find("modules")->items().back().find("name")->as_string() == "text.2");
}

TEST_CASE("a list may say each layer's own number, of however many layers") {
  Json said = family();
  said["documents"].items().front()["lists"] = json(R"({"sources": "own"})");
  const auto asked = [&](const std::string& config) {
    return read_recorded(said, "test", json(config), ModelUse{.sequence_length = 99});
  };
  CHECK(asked(R"({"kv": 2, "depth": 4, "sources": [0, 1, 2, 3]})").document);
  CHECK(asked(R"({"kv": 2, "depth": 4, "sources": [0, 1, 2, 2]})").key == "sources");
}

TEST_CASE("an encoder and a decoder have layers of their own, and a key may follow another") {
  const Json family = parse_family(R"({
    "schema": "zeroplan.family/1", "model_type": "toy", "class": "ToyForConditionalGeneration", "attention": "sdpa",
    "blocks": [], "tensors": [], "events": [],
    "kinds": [{"modules": [{"name": ""}], "calls": [{"block": 0, "prefix": "", "layer": true}], "buffers": {}},
              {"modules": [{"name": ".w"}], "calls": [{"block": 1, "prefix": "", "layer": true}], "buffers": {}}],
    "parts": [{"target": "=words"}, {"layers": 2, "decoder_layers": "=layers", "words": 8}, {},
              [{"layers": true}, {"stack": "decoder_layers"}],
              [{"count": "decoder_layers", "prefix": "decoder.", "rules": [{"by": ["<1"], "values": [[[true], 0], [[false], 1]]}], "kinds": [0, 1]}]],
    "documents": [{
      "when": {}, "fixed": 0, "defaults": 1, "lists": 2, "rope": {"types": ["default"]},
      "graph": {"blocks": [], "modules": 3, "stacks": 4, "calls": [{"layers": true}, {"stack": "decoder_layers"}], "buffers": 2,
        "layers": {"count": "layers", "prefix": "encoder.", "rules": [{"by": [], "values": []}], "kinds": [0]}}}]})",
                                   "test");
  const auto asked = [&](const std::string& config) {
    return read_recorded(family, "test", json(config), {});
  };
  const auto names = [](const RecordedClass& found) {
    return found.document->find("modules")->dump();
  };
  REQUIRE(asked(R"({"decoder_layers": 1})").document);
  CHECK(names(asked(R"({"decoder_layers": 1})")) ==
        R"([{"name":"encoder.0"},{"name":"encoder.1"},{"name":"decoder.0"}])");
  CHECK(names(asked(R"({"layers": 1, "decoder_layers": 2})")) ==
        R"([{"name":"encoder.0"},{"name":"decoder.0"},{"name":"decoder.1.w"}])");
  CHECK(asked("{}").document->find("calls")->items().size() == 4);
  CHECK(asked(R"({"words": 9, "target": 9})").document);
  CHECK(asked(R"({"target": 9})").key == "target");
}

TEST_CASE("a layer may be called again, and layers of a tower may begin a period") {
  const Json family = parse_family(R"({
    "schema": "zeroplan.family/1", "model_type": "toy", "class": "ToyForMaskedLM", "attention": "sdpa",
    "blocks": [], "tensors": [], "events": [],
    "kinds": [{"modules": [], "calls": [{"block": 0, "prefix": "", "layer": true}], "buffers": {}},
              {"modules": [{"name": ""}], "calls": [], "buffers": {}},
              {"modules": [{"name": ".cross"}], "calls": [], "buffers": {}}],
    "parts": [{}, {"layers": 3, "eye.layers": 4, "eye.every": 2},
              [{"name": "layer.0"}, {"stack": "eye.layers"}],
              [{"count": "eye.layers", "prefix": "eye.", "kinds": [1, 2],
                "rules": [{"by": ["^eye.every"], "values": [[[true], 1], [[false], 0]]}]}]],
    "documents": [{
      "when": {}, "fixed": 0, "defaults": 1, "lists": 0, "rope": {"types": ["default"]},
      "graph": {"blocks": [], "modules": 2, "stacks": 3, "calls": [{"layers": true}], "buffers": 0,
        "layers": {"count": "layers", "prefix": "layer.", "again": true, "rules": [{"by": [], "values": []}], "kinds": [0]}}}]})",
                                   "test");
  const RecordedClass found = read_recorded(family, "test", json(R"({"eye": {"every": 3}})"), {});
  REQUIRE(found.document);
  CHECK(
      found.document->find("modules")->dump() ==
      R"([{"name":"layer.0"},{"name":"eye.0.cross"},{"name":"eye.1"},{"name":"eye.2"},{"name":"eye.3.cross"}])");
  CHECK(found.document->find("calls")->items().size() == 3);
  CHECK(*found.document->find("calls")->items().back().find("prefix") == Json("layer.0."));
}

TEST_CASE("Heads of keys that a config leaves out are its class's own, not as many as of queries") {
  const auto keys_of = [](const std::string& type) {
    return read_model(json(R"({"hidden_size": 512, "num_hidden_layers": 2, "vocab_size": 99,
        "num_attention_heads": 64, "intermediate_size": 128, "model_type": ")" +
                           type + "\"}"),
                      "config.json")
        .shape.kv_heads;
  };
  CHECK(keys_of("llama") == 64);
  CHECK(keys_of("mistral") == 8);
  CHECK(keys_of("qwen2") == 32);
  CHECK(keys_of("qwen3") == 32);
}

TEST_CASE("a type that nobody knows is that of its class") {
  CHECK(class_stem("Qwen3MoeForCausalLM") == "Qwen3Moe");
  CHECK(class_stem("GPT2LMHeadModel") == "GPT2");
  CHECK(class_stem("BertModel") == "Bert");
  CHECK(is_same_class("KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"));
  CHECK_FALSE(is_same_class("Qwen3", "Qwen3Moe"));
  CHECK(recorded_type_of("MiniCPM3") == "minicpm3");
  CHECK(recorded_type_of("").empty());
  const auto type_of = [](const std::string& type, const std::string& name) {
    return read_model(json(R"({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 99, "model_type": ")" +
                           type + R"(", "architectures": [")" + name + "\"]}"),
                      "config.json")
        .model_type;
  };
  CHECK(type_of("a_fork", "Qwen3ForCausalLM") == "qwen3");
  CHECK(type_of("", "Qwen3ForCausalLM") == "qwen3");
  CHECK(type_of("llama", "Qwen3ForCausalLM") == "llama");  // as it says
  // A type whose config alone is its own names a class that transformers lacks.
  CHECK(recorded_type_of("Exaone") == "exaone");
  for (const std::string name : {"ExaoneForCausalLM", "LlamaForCausalLM"}) {
    CHECK(type_of("exaone", name) == "exaone");
  }
  CHECK(type_of("", "ExaoneForCausalLM") == "exaone");
  CHECK(type_of("a_fork", "LlamaForCausalLM") == "llama");
  CHECK_THROWS_AS(type_of("exaone", "OtherForCausalLM"), InputError);
  CHECK_THROWS_AS(type_of("a_fork", "ForkForCausalLM"), InputError);
}

TEST_CASE("a class beside its type's usual one has a recording of its own") {
  const auto is_planned = [](const std::string& name) {
    const auto found = recorded_class(
        json(R"({"model_type": "bart", "d_model": 64, "vocab_size": 99, "architectures": [")" +
             name + "\"]}"),
        "bart",
        {});
    return found && found->document && *found->document->find("name") == Json(name);
  };
  CHECK(is_planned("BartForCausalLM"));
  CHECK(is_planned("BartForConditionalGeneration"));
}

TEST_CASE("a document is of the sequences on its side of the windows") {
  const SequenceRange within = asked(R"({"kv": 2})").lengths;
  CHECK(within.contains(99));
  CHECK_FALSE(within.contains(100));
}

TEST_CASE("a window may be said in keys that stand for several tokens each") {
  Json of_keys = family();
  of_keys["documents"].items().front()["windows"] = json(R"(["=4*window"])");
  const auto found = [&](std::int64_t sequence) {
    return read_recorded(
        of_keys, "test", json(R"({"kv": 2, "window": 25})"), ModelUse{.sequence_length = sequence});
  };
  CHECK(found(99).document);
  CHECK(found(99).lengths.contains(99));
  CHECK_FALSE(found(99).lengths.contains(100));
  CHECK_FALSE(found(100).document);
  CHECK(found(100).key == "window");
}

TEST_CASE("a document may be of sequences of whole blocks alone, or of powers of two of heads") {
  Json of_blocks = family();
  Json& document = of_blocks["documents"].items().front();
  document["whole_blocks"] = json(R"({"key": "block", "tokens": 32, "fewest": 64})");
  const auto found = [&](std::int64_t sequence, const std::string& heads) {
    return read_recorded(of_blocks,
                         "test",
                         json(R"({"kv": 2, "window": 999, "heads": )" + heads + "}"),
                         ModelUse{.sequence_length = sequence});
  };
  CHECK(found(96, "8").document);
  CHECK(found(96, "8").lengths.contains(96));
  CHECK_FALSE(found(96, "8").lengths.contains(95));
  for (const std::int64_t other : {32, 97}) {
    CHECK(found(other, "8").key == "block");
    CHECK(found(other, "8").expected.english() ==
          "sequences of whole blocks of 32 tokens, at least 64");
  }
  document["powers"] = json(R"(["heads"])");
  CHECK(found(96, "8").document);
  CHECK(found(96, "12").expected.english() == "a power of two");
}

TEST_CASE("a value that a config says for all layers is that of each") {
  CHECK(made(R"({"kv": 2, "heads_of_layers": 8})"));
  CHECK(missing(R"({"kv": 2, "heads_of_layers": 7})") == "heads_of_layers: [8]");
  // And the other way round: a size that is said for each.
  CHECK(made(R"({"kv": 2, "hidden": [64, 64, 64]})")->dump() == made(R"({"kv": 2})")->dump());
  CHECK_FALSE(made(R"({"kv": 2, "hidden": [64, 32, 64]})"));
}

TEST_CASE("a table of what layers of one kind have otherwise says it of all of them") {
  Json tables = family();
  tables["tables"] = json(
      R"({"sizes": {"list": "types", "kind": "two", "keys": {"hidden": "heads", "kv": "window"}}})");
  const auto made = [&](const std::string& said) {
    const Json config = json(
        R"({"kv": 2, "hidden": 64, "depth": 3, "types": ["two", "one", "two"], )" + said + "}");
    return spelled_out(tables, config).dump();
  };
  // Layers 0 and 2 have 16 heads in the place of 64; what the rows leave out is as elsewhere.
  const std::string taken = made(R"("sizes": {"0": {"hidden": 16}, "2": {"hidden": 16}})");
  CHECK(json(taken).find("heads")->as_integer() == 16);
  CHECK(json(taken).find("window")->as_integer() == 2);
  CHECK(json(taken).find("sizes")->is_null());
  for (const char* other :
       {R"("sizes": {"0": {"hidden": 16}})",
        R"("sizes": {"0": {"hidden": 16}, "2": {"hidden": 32}})",
        R"("sizes": {"0": {"hidden": 16}, "1": {"hidden": 16}, "2": {"hidden": 16}})"}) {
    CHECK(json(made(other)).find("sizes")->is_object());  // stays, and is refused
  }
}

TEST_CASE("a class beside its type's usual one is taken from its own recording") {
  const auto model_of = [](const std::string& type, const std::string& name) {
    return read_model(json(R"({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 99, "model_type": ")" +
                           type + R"(", "architectures": [")" + name + "\"]}"),
                      "config.json");
  };
  for (const auto& [type, name] :
       {std::pair{"bert", "BertLMHeadModel"}, std::pair{"roberta", "RobertaForCausalLM"}}) {
    const Model model = model_of(type, name);
    CHECK(model.architecture == name);
    CHECK(model.planned);
    CHECK(traced_graph_of(model) != nullptr);
  }
}

TEST_CASE("the class of a text alone is made of that part of a config of several") {
  const Json config = json(R"({"model_type": "qwen3_5", "architectures": ["Qwen3_5ForCausalLM"],
      "dtype": "float16", "vision_config": {"depth": 2}, "text_config": {"model_type": "qwen3_5_text",
      "hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 128, "vocab_size": 99,
      "num_attention_heads": 4, "num_key_value_heads": 2}})");
  const Model model = read_model(config, "config.json");
  CHECK(is_planned(config));
  CHECK(model.architecture == "Qwen3_5ForCausalLM");
  CHECK(model.torch_dtype == "float16");
  CHECK(model.shape.layers == 4);
}

TEST_CASE("wide heads have documents of their own where a fused kernel would share keys") {
  Json wide = family();
  Json& document = wide["documents"].items().front();
  document["defaults"]["head_dim"] = 512;
  const auto key = [&](const std::string& config) {
    const RecordedClass found =
        read_recorded(wide, "test", json(config), ModelUse{.sequence_length = 99});
    return found.document ? "" : found.key + ": " + found.expected.english();
  };
  CHECK(key(R"({"kv": 2, "head_dim": 256})").empty());
  CHECK(key(R"({"kv": 2, "head_dim": 257})") == "head_dim: 256 at most");
  document["wide_heads"] = json(R"(["head_dim"])");
  CHECK(key(R"({"kv": 2})").empty());
  CHECK(key(R"({"kv": 2, "head_dim": 256})") == "head_dim: more than 256");
  document["graph"]["attention"] = "eager";
  CHECK(key(R"({"kv": 2, "head_dim": 256})").empty());
}

TEST_CASE("kinds of layers may be said by numbers, or by how many come first") {
  Json said = family();
  said["documents"].items().front()["graph"]["layers"]["rules"] =
      json(R"([{"by": ["types"], "values": [[["one"], 0], [["two"], 1]]}])");
  const auto types = [&](const std::string& how, const std::string& config) {
    said["spelling"] = json(R"({"types": )" + how + "}");
    const RecordedClass found =
        read_recorded(said, "test", json(config), ModelUse{.sequence_length = 99});
    std::string text;
    if (!found.document) return found.key;
    for (const Json& row : found.document->find("modules")->items()) {
      if (const Json* type = row.find("type")) text += type->as_string() + " ";
    }
    return text;
  };
  const std::string numbers =
      R"({"words": {"0": "one", "128": "two"}, "numbers": "ratios", "layers": "depth"})";
  // The list goes on after the layers of the model.
  CHECK(types(numbers, R"({"kv": 2, "depth": 2, "ratios": [128, 0, 0]})") == "Two One M ");
  CHECK(types(numbers, R"({"kv": 2, "depth": 2, "ratios": [128, 4]})") == "types");
  CHECK(types(numbers, R"({"kv": 2, "depth": 2, "ratios": [0, 0], "types": ["two", "two"]})") ==
        "Two Two ");
  const std::string first =
      R"({"words": {}, "first": {"by": "hashed", "kinds": ["two", "one"]}, "layers": "depth"})";
  CHECK(types(first, R"({"kv": 2, "depth": 3, "hashed": 1})") == "Two One M One M ");
  CHECK(types(first, R"({"kv": 2, "depth": 1, "hashed": 3})") == "Two ");
}

// The value of a key, which may be of a config inside the config.
Json& place(Json& config, const std::string& key) {
  const std::size_t dot = key.find('.');
  return dot == std::string::npos ? config[key] : config[key.substr(0, dot)][key.substr(dot + 1)];
}

TEST_CASE("every class of data/families gives a document that is planned") {
  const std::string listed = read_text_file(std::string(ZEROPLAN_SOURCE_DIR) + "/docs/coverage.md");
  int classes = 0;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.starts_with("data/families/")) continue;
    const Json recorded = parse_family(file.text, std::string(file.path));
    INFO(file.path);
    CHECK(listed.find("| " + recorded.find("model_type")->as_string() + " |") != std::string::npos);
    ++classes;
    int documents = 0;
    std::string missing;
    for (const Json& document : recorded.find("documents")->items()) {
      Json config = Json::object({{"model_type", *recorded.find("model_type")}});
      const std::string text =
          document.find("text") != nullptr ? document.find("text")->as_string() : "";
      for (const auto& [key, value] : document.find("when")->members()) place(config, key) = value;
      for (const auto& [key, value] : document.find("fixed")->members()) {
        const bool is_of_another = value.is_string() && value.as_string().starts_with("=");
        if (!is_of_another) place(config, key) = value;
      }
      for (const char* name :
           {"hidden_size", "intermediate_size", "vocab_size", "num_attention_heads"}) {
        const std::string key = text + name;
        const Json* usual = document.find("defaults")->find(key);
        if (usual != nullptr && !usual->is_string()) place(config, key) = *usual;
      }
      for (const auto& [key, usual] : document.find("defaults")->members()) {
        if (usual.is_null() && key.find("_head") == std::string::npos) place(config, key) = 16;
        if (usual.is_null() && key.ends_with(".dim_head")) place(config, key) = 16;
        if (usual.is_null() && key.starts_with("linear_")) place(config, key) = 16;
        if (usual.is_null() && key.find("global_") != std::string::npos) place(config, key) = 8;
      }
      // A few layers of each kind, and sizes that divide each other.
      const Json& layers = *document.find("graph")->find("layers");
      place(config, layers.find("count")->as_string()) = 2;
      if (const Json* heads = document.find("heads")) {
        const std::string& of = heads->find("of")->as_string();
        const Json* fixed = document.find("fixed")->find(of);
        const std::int64_t count = fixed != nullptr ? fixed->as_integer() : 16;
        place(config, of) = count;
        place(config, heads->find("key")->as_string()) =
            heads->find("grouped")->as_boolean() ? count / 4 : count;
      }
      if (const Json* wide = document.find("wide_values")) {
        const Json* turned = document.find("fixed")->find(text + "qk_rope_head_dim");
        const std::int64_t rotary = turned != nullptr ? turned->as_integer() : 32;
        place(config, text + "qk_nope_head_dim") = 64;
        place(config, text + "qk_rope_head_dim") = rotary;
        place(config, text + "v_head_dim") = wide->as_boolean() ? 64 + rotary : 64;
      }
      if (const Json* width = document.find("width")) {
        place(config, width->find("of")->as_string()) = 16;
        place(config, width->find("key")->as_string()) = 16 * width->find("times")->as_integer();
      }
      const bool longer =
          document.find("longer") != nullptr && document.find("longer")->as_boolean();
      const Json* blocks = document.find("whole_blocks");
      const std::int64_t sequence = blocks != nullptr ? blocks->find("fewest")->as_integer()
                                    : longer          ? 1024
                                                      : 256;
      if (const Json* windows = document.find("windows")) {
        for (const Json& key : windows->items()) place(config, key.as_string()) = 512;
      }
      for (const Json& key : layers.find("rules")->items().front().find("by")->items()) {
        const std::string& name = key.as_string();
        if (name.front() == '-') place(config, name.substr(1, name.find(':') - 1)) = 0;
        if (name.find_first_of("<>%$-") == 0) continue;
        Json types = Json::array();
        for (int i = 0; i < 2; ++i) {
          const Json& row =
              layers.find("rules")->items().front().find("values")->items().front().items()[0];
          types.push_back(row.items()[static_cast<std::size_t>(
              &key - layers.find("rules")->items().front().find("by")->items().data())]);
        }
        place(config, name) = std::move(types);
      }
      const RecordedClass found = read_recorded(
          recorded,
          std::string(file.path),
          config,
          {.attention = attention_in(document, recorded), .sequence_length = sequence});
      const std::optional<Json>& graph = found.document;
      missing += found.key + " ";
      if (!graph) continue;
      ++documents;
      const Model model = read_model(*graph, std::string(file.path));
      CHECK(count_parameters(model).total.count() > 0);
      REQUIRE(traced_graph_of(model) != nullptr);
    }
    INFO(missing);
    CHECK(documents > 0);
  }
  CHECK(classes > 0);
}
