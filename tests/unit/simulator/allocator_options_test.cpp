// The allocator's sizes and the text of PYTORCH_CUDA_ALLOC_CONF.
#include "simulator/allocator_options.hpp"

#include "base/diagnostic.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

simulator::AllocatorOptions read(std::string_view text, Version torch = {2, 6}) {
  return simulator::parse_alloc_conf(text, "PYTORCH_CUDA_ALLOC_CONF", torch);
}

std::string refusal(std::string_view text, Version torch = {2, 6}) {
  try {
    read(text, torch);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

std::int64_t rounded(std::int64_t bytes, const simulator::AllocatorOptions& options) {
  return simulator::round_size(Bytes::of(bytes), options).count();
}

}  // namespace

// DeviceCachingAllocator::round_size
TEST_CASE("requests are rounded up to multiples of 512 bytes") {
  const simulator::AllocatorOptions options;
  CHECK(rounded(1, options) == 512);
  CHECK(rounded(511, options) == 512);
  CHECK(rounded(512, options) == 512);
  CHECK(rounded(513, options) == 1024);
  CHECK(rounded((5 << 20) + 1, options) == (5 << 20) + 512);
}

// DeviceCachingAllocator::roundup_power2_next_division: the example in PyTorch's documentation of
// the option, 1200 between 1024 and 2048 with four divisions, times 1024.
TEST_CASE("roundup_power2_divisions rounds to steps between powers of two") {
  const simulator::AllocatorOptions options = read("roundup_power2_divisions:4");
  CHECK(rounded(1200 << 10, options) == 1280 << 10);
  CHECK(rounded(1280 << 10, options) == 1280 << 10);
  CHECK(rounded((1280 << 10) + 1, options) == 1536 << 10);
  CHECK(rounded(2047 << 10, options) == 2048 << 10);
  CHECK(rounded(2048 << 10, options) == 2048 << 10);
  // Up to 512 * divisions the usual rounding holds.
  CHECK(rounded(2048, options) == 2048);
  CHECK(rounded(1537, options) == 2048);
  CHECK(rounded(2049, options) == 2560);
  // More divisions than a size can have leave it alone.
  CHECK(rounded(513, read("roundup_power2_divisions:4611686018427387904")) == 1024);
  // One division would be the power of two itself, and is off.
  CHECK(rounded(1200 << 10, read("roundup_power2_divisions:1")) == 1200 << 10);
}

// AcceleratorAllocatorConfig::roundup_power2_divisions(size): intervals from 1 MiB to 64 GiB.
TEST_CASE("each interval between powers of two has divisions of its own") {
  const simulator::AllocatorOptions options = read("roundup_power2_divisions:[4:2,16:4,>:8]");
  CHECK(options.roundup_power2_divisions[0] == 2);  // below the first named interval too
  CHECK(options.roundup_power2_divisions[2] == 2);
  CHECK(options.roundup_power2_divisions[3] == 0);  // named nowhere
  CHECK(options.roundup_power2_divisions[4] == 8);  // ">" begins at the last named interval
  CHECK(options.roundup_power2_divisions[15] == 8);
  CHECK(rounded(1200 << 10, options) == 1536 << 10);
  CHECK(rounded((9 << 20) + 1, options) == (9 << 20) + 512);
  CHECK(rounded((17 << 20) + 1, options) == 18 << 20);
  // Half a MiB belongs to the first interval, 100 GiB to the last.
  CHECK(rounded(600 << 10, options) == 768 << 10);
  CHECK(rounded((100LL << 30) + 1, options) == 104LL << 30);
}

TEST_CASE("torch 1.13 leaves sizes above roundup_bypass_threshold_mb alone") {
  const simulator::AllocatorOptions options =
      read("roundup_power2_divisions:4,roundup_bypass_threshold_mb:2", {1, 13});
  CHECK(rounded(1200 << 10, options) == 1280 << 10);
  CHECK(rounded((2 << 20) + 1, options) == (2 << 20) + 512);
}

// DeviceCachingAllocator::get_allocation_size
TEST_CASE("segments are 2 MiB, 20 MiB, or the size in steps of 2 MiB") {
  const simulator::AllocatorOptions options;
  CHECK(simulator::segment_size(512_B, options) == 2_MiB);
  CHECK(simulator::segment_size(1_MiB, options) == 2_MiB);
  CHECK(simulator::segment_size(1_MiB + 512_B, options) == 20_MiB);
  CHECK(simulator::segment_size(10_MiB - 512_B, options) == 20_MiB);
  CHECK(simulator::segment_size(10_MiB, options) == 10_MiB);
  CHECK(simulator::segment_size(10_MiB + 512_B, options) == 12_MiB);
  CHECK(simulator::segment_size(21_MiB, options) == 22_MiB);
  CHECK(simulator::segment_size(2_MiB, read("large_segment_size_mb:40")) == 40_MiB);
}

TEST_CASE("allocator settings are read as torch reads them") {
  const simulator::AllocatorOptions options = read(
      "max_split_size_mb:128, garbage_collection_threshold:0.6,expandable_segments:True,"
      "max_non_split_rounding_mb:64,backend:native,pinned_use_background_threads:True");
  CHECK(options.max_split_size == 128_MiB);
  CHECK(options.garbage_collection_threshold == 0.6);
  CHECK(options.expandable_segments);
  CHECK(options.max_non_split_rounding == 64_MiB);
  CHECK(read("").max_split_size.is_infinite());
  CHECK_FALSE(read("expandable_segments:False").expandable_segments);
  CHECK(read("expandable_segments:true", {2, 9}).expandable_segments);
}

TEST_CASE("allocator settings that torch refuses are refused with a reason") {
  CHECK(refusal("max_split_size_mb:19") ==
        "error: PYTORCH_CUDA_ALLOC_CONF: max_split_size_mb: expected an integer of at least 21, "
        "got \"19\"");
  CHECK(refusal("max_split_size_mb") ==
        "error: PYTORCH_CUDA_ALLOC_CONF: allocator settings: expected \":\", got the end");
  CHECK(refusal("garbage_collection_threshold:1.5") ==
        "error: PYTORCH_CUDA_ALLOC_CONF: garbage_collection_threshold: expected a number between 0 "
        "and 1, got \"1.5\"");
  CHECK(refusal("expandable_segments:yes") ==
        "error: PYTORCH_CUDA_ALLOC_CONF: expandable_segments: expected True or False, got \"yes\"");
  CHECK(refusal("expandable_segments:true") != "accepted");
  CHECK(refusal("roundup_power2_divisions:3") ==
        "error: PYTORCH_CUDA_ALLOC_CONF: roundup_power2_divisions: expected a power of two, got "
        "\"3\"");
  CHECK(refusal("roundup_power2_divisions:[3:4]") != "accepted");
  CHECK(refusal("roundup_power2_divisions:[4:4") != "accepted");
  CHECK(refusal("max_split_size:128") ==
        "error: PYTORCH_CUDA_ALLOC_CONF: max_split_size: expected an allocator option, got "
        "\"max_split_size\"\nhint: did you mean max_split_size_mb?");
  CHECK(refusal("backend:cudaMallocAsync") ==
        "error: PYTORCH_CUDA_ALLOC_CONF: backend: expected native, got \"cudaMallocAsync\"\n"
        "hint: other allocators are not described");
  CHECK(refusal("max_split_size_mb:128 expandable_segments:True") != "accepted");
}

TEST_CASE("allocator settings know the releases that have them") {
  CHECK(refusal("expandable_segments:True", {2, 0}) != "accepted");
  CHECK(refusal("expandable_segments:True", {2, 1}) == "accepted");
  CHECK(refusal("roundup_power2_divisions:[256:4]", {1, 13}) != "accepted");
  CHECK(refusal("roundup_power2_divisions:4", {1, 13}) == "accepted");
  CHECK(refusal("max_non_split_rounding_mb:40", {2, 5}) != "accepted");
  CHECK(refusal("max_split_size_mb:20", {2, 8}) != "accepted");
  CHECK(refusal("max_split_size_mb:20", {2, 9}) == "accepted");
}

// DeviceCachingAllocator::setMemoryFraction
TEST_CASE("a memory fraction allows the whole bytes of its share of the device") {
  simulator::AllocatorOptions device;
  device.device_total = Bytes::of(1001);
  CHECK(simulator::fraction_of(device.device_total, 0.5) == Bytes::of(500));
  CHECK(simulator::parse_alloc_conf("per_process_memory_fraction:0.5", "settings", {2, 10}, device)
            .allowed == Bytes::of(500));
  CHECK_FALSE(device.allowed);
}
