#include "model/known_names.hpp"

#include <array>

#include "base/diagnostic.hpp"
#include "model/families/hf_config.hpp"
#include "model/hardware/hardware.hpp"
#include "model/hardware/known_hardware.hpp"
#include "model/hardware/node_names.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

TEST_CASE("no known preset or GPU is said to be unknown") {
  for (const ModelPreset& preset : model_presets()) {
    CAPTURE(preset.name);
    // A reason is given for a name that is not found: of a family that has presets it names them.
    const std::string reason = why_no_model(preset.name);
    CHECK((reason.empty() || reason.find("built in") != std::string::npos));
  }
  for (const Gpu& gpu : all_gpus()) {
    CAPTURE(gpu.name);
    CHECK(why_no_gpu(gpu.name).empty());
    CHECK(why_no_gpu(gpu.product_name).empty());
  }
}

TEST_CASE("other makers' GPUs and GPUs without numbers have their reasons") {
  for (const char* other : {"AMD Instinct MI250", "Gaudi2", "TPU v4", "Ascend 910A"}) {
    CAPTURE(other);
    CHECK(why_no_gpu(other) == "only NVIDIA's GPUs are modelled");
  }
  for (const char* said : {"MI300X", "AMD Instinct MI325X", "MI355X-288G", "Ascend 910B", "910C"}) {
    CAPTURE(said);
    CHECK(why_no_gpu(said).find("rehearsals emulate CUDA alone") != std::string::npos);
  }
  for (const char* mac : {"M4 Max", "m1", "Apple M3 Ultra", "Mac Studio", "MacBook Pro M5"}) {
    CAPTURE(mac);
    CHECK(why_no_gpu(mac).starts_with("a Mac has no CUDA"));
  }
  for (const char* halo : {"Strix Halo", "Ryzen AI Max+ 395", "AMD Ryzen AI Max 395", "gfx1151"}) {
    CAPTURE(halo);
    CHECK(why_no_gpu(halo).starts_with("Strix Halo"));
  }
  CHECK(why_no_gpu("M40").starts_with("its numbers are not built in"));
  for (const char* gpu : {"RTX 2070", "NVIDIA GeForce RTX 2060 12GB", "RTX 4000", "GTX 1080 Ti"}) {
    CAPTURE(gpu);
    CHECK(why_no_gpu(gpu).starts_with("its numbers are not built in"));
  }
  CHECK(why_no_gpu("A900-80G").empty());
  CHECK(why_no_gpu("NVIDIA GeForce RTX 4090 Laptop GPU").starts_with("a laptop's GPU"));
}

TEST_CASE("another number is another product") {
  constexpr std::array<std::string_view, 3> kNames = {"llama-2-7b", "llama-1-7b", "llama-2-70b"};
  CHECK(did_you_mean_same_number("lama-2-7b", kNames) == "did you mean llama-2-7b?");
  CHECK(did_you_mean_same_number("lama-3-7b", kNames).empty());
}

TEST_CASE("a machine is found by its key, without its provider and by its product's name") {
  CHECK(find_node("aws_p4d.24xlarge")->node.key == "aws_p4d.24xlarge");
  CHECK(find_node("p4d.24xlarge")->node.key == "aws_p4d.24xlarge");
  CHECK(find_node("DGX H100")->node.key == "dgx_h100");
  CHECK(find_node("dgx-a100")->node.key == "dgx_a100_640");
  CHECK_FALSE(find_node("dgx-a100")->assumption.empty());
  CHECK_FALSE(find_node("generic_hgx_server"));
  CHECK_FALSE(find_node(""));
}

TEST_CASE("every machine with GPUs can be named, and its key is its own") {
  for (const NodeProfile& node : all_nodes()) {
    if (node.gpus.empty() || node.key.starts_with("generic_")) continue;
    CAPTURE(node.key);
    REQUIRE(find_node(node.key));
    CHECK(find_node(node.key)->node.key == node.key);
    CHECK_FALSE(find_gpu(node.key, 1));
  }
}
