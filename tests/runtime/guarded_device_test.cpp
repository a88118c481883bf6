// The engine on a device that the host cannot touch, with queues that only fences order: the same
// losses, to the bit, as where everything is the host's. What a GPU asks of the engine, without
// one.
#include "tests/runtime/guarded_device.hpp"

#include <cstdlib>
#include <stdexcept>

#include <sys/wait.h>
#include <unistd.h>

#include "base/json.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/step_work.hpp"
#include "runtime/collectives/in_process.hpp"
#include "runtime/train/trainer.hpp"
#include "tests/catch.hpp"
#include "tests/runtime/plan_training.hpp"
#include "tests/runtime/swap_folder.hpp"
#include "tests/runtime/test_model.hpp"

namespace zeroplan::runtime {
namespace {

constexpr int kRows = 8;
constexpr int kSteps = 3;

struct Point {
  int stage = 0;
  int ranks = 2;
  int accumulation = 1;
  const char* precision = "fp32";
  bool overlap = true;
  bool offload_states = false;
  bool offload_weights = false;
  int bucket = 3'000;
  const char* checkpointing = "none";
  double clipping = 0.0;
  bool all_reduce_fetches = false;
  int secondary_partitions = 1;  // ranks that share one
  int shard = -1;
  bool on_drive = false;    // what is offloaded, of a model whose embeddings are large enough
  bool fused_loss = false;  // of sequences long enough for several chunks
};

Plan plan_of(const Point& point) {
  Json zero = Json::object({{"stage", point.stage},
                            {"overlap_comm", point.overlap},
                            {"reduce_bucket_size", point.bucket},
                            {"sub_group_size", 5'000},
                            {"stage3_prefetch_bucket_size", 1'000},
                            {"stage3_param_persistence_threshold", 40}});
  Json offload = Json::object({{"device", point.on_drive ? "nvme" : "cpu"}});
  if (point.on_drive) offload["buffer_count"] = 11;
  Json states = offload;
  if (point.on_drive) states["pipeline_read"] = states["pipeline_write"] = true;
  if (point.offload_states) zero["offload_optimizer"] = states;
  if (point.on_drive) offload["buffer_size"] = 600'000;
  if (point.on_drive) offload["max_in_cpu"] = 0;
  if (point.offload_weights) zero["offload_param"] = offload;
  if (point.all_reduce_fetches) zero["stage3_use_all_reduce_for_fetch_params"] = true;
  if (point.secondary_partitions > 1) zero["zero_hpz_partition_size"] = point.secondary_partitions;
  zero["mics_shard_size"] = point.shard;
  Json ds_config = Json::object({{"zero_optimization", zero}});
  if (point.clipping > 0.0) ds_config["gradient_clipping"] = point.clipping;
  const std::string format = point.precision;
  if (format != "fp32") ds_config[format] = Json::object({{"enabled", true}});
  const Json model = Json::object({{"model_type", "llama"},
                                   {"architectures", Json::array({"LlamaForCausalLM"})},
                                   {"hidden_size", point.on_drive ? 128 : 32},
                                   {"intermediate_size", 56},
                                   {"num_hidden_layers", 2},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"vocab_size", point.on_drive ? 4201 : 97},
                                   {"max_position_embeddings", 100},
                                   {"rms_norm_eps", 1e-5}});
  Json workload = Json::object({{"sequence_length", point.fused_loss ? 100 : 16},
                                {"fused_loss", point.fused_loss},
                                {"micro_batch_size", kRows / point.ranks / point.accumulation},
                                {"gradient_accumulation_steps", point.accumulation},
                                {"precision", point.precision},
                                {"engine", "embedded"},
                                {"frontend", "native"},
                                {"activation_checkpointing", point.checkpointing}});
  return resolve(
      parse_scenario(Json::object({{"model", model},
                                   {"cluster", "1x" + std::to_string(point.ranks) + "xcpu"},
                                   {"workload", workload},
                                   {"ds_config", ds_config}}),
                     "test"));
}

TrainingReport train_on(const Plan& plan, bool guarded, const std::string& save = "") {
  const test::SwapFolder drive;
  const StepWork work = step_work(plan);
  TrainingSetup setup = test::setup_of(plan, work);
  setup.loss_scaling.initial = plan.workload.precision == Precision::fp16 ? 256.0 : 1.0;
  setup.swap.optimizer_folder = setup.swap.parameter_folder = drive.path();
  if (guarded) {
    setup.hardware = [](Communicator& group, int threads, bool) {
      return test::guarded_hardware(group, cpu_kernels(threads));
    };
  }
  TrainingOptions options;
  options.steps = kSteps;
  options.patience = std::chrono::seconds(60);
  options.save = save;
  return train(setup, options, *random_tokens(1, 97, 16));
}

void check(const Point& point) {
  CAPTURE(point.stage,
          point.ranks,
          point.accumulation,
          point.precision,
          point.overlap,
          point.offload_states,
          point.offload_weights,
          point.bucket,
          point.checkpointing,
          point.fused_loss);
  const Plan plan = plan_of(point);
  const TrainingReport plain = train_on(plan, false);
  const TrainingReport guarded = train_on(plan, true);
  CHECK(guarded.losses == plain.losses);
  CHECK(guarded.gradient_norms == plain.gradient_norms);
  // The account is of what the engine asks for, not of what its device does with it.
  for (std::size_t r = 0; r < plain.ranks.size(); ++r) {
    CHECK(guarded.ranks[r].memory.of(Place::device).at_peak ==
          plain.ranks[r].memory.of(Place::device).at_peak);
    CHECK(guarded.ranks[r].use.reserved >= guarded.ranks[r].memory.of(Place::device).peak);
  }
}

TEST_CASE("no stage touches the device's memory from the host, or out of order") {
  const int stage = GENERATE(0, 1, 2, 3);
  const bool overlap = GENERATE(false, true);
  for (const int ranks : {1, 2, 4}) {
    for (const int accumulation : {1, 2}) {
      check({.stage = stage, .ranks = ranks, .accumulation = accumulation, .overlap = overlap});
    }
  }
}

TEST_CASE("nor do 16-bit weights, clipping, recomputation and buckets of any size") {
  const int stage = GENERATE(0, 1, 2, 3);
  const char* precision = GENERATE("bf16", "fp16");
  for (const int bucket : {1, 500, 100'000}) {
    check({.stage = stage,
           .accumulation = 2,
           .precision = precision,
           .bucket = bucket,
           .checkpointing = "full",
           .clipping = 0.5});
  }
}

TEST_CASE("nor do offloaded states and weights") {
  const int stage = GENERATE(1, 2, 3);
  for (const char* precision : {"fp32", "bf16"}) {
    for (const int accumulation : {1, 2}) {
      for (const bool overlap : {false, true}) {
        for (const bool weights : {false, true}) {
          if (weights && stage < 3) continue;
          check({.stage = stage,
                 .ranks = 4,
                 .accumulation = accumulation,
                 .precision = precision,
                 .overlap = overlap,
                 .offload_states = true,
                 .offload_weights = weights});
        }
      }
    }
  }
  check({.stage = stage, .ranks = 1, .offload_states = true, .offload_weights = stage == 3});
}

TEST_CASE("nor do states and weights on a drive") {
  Point point{.stage = 3, .offload_states = true, .bucket = 600'000, .on_drive = true};
  check(point);
  point.offload_weights = true;
  point.ranks = 1;
  point.precision = "bf16";
  check(point);
  point.offload_states = false;
  check(point);
}

TEST_CASE("nor does a fused loss") {
  const int stage = GENERATE(0, 1, 2, 3);
  for (const char* precision : {"fp32", "fp16"}) {
    for (const bool offload : {false, true}) {
      if (offload && stage == 0) continue;
      check({.stage = stage,
             .precision = precision,
             .offload_states = offload,
             .offload_weights = offload && stage == 3,
             .fused_loss = true});
    }
  }
}

TEST_CASE("nor do gathers by all-reduce") {
  check({.stage = 3, .ranks = 4, .all_reduce_fetches = true});
}

TEST_CASE("nor do shards and their replicas") {
  for (const bool overlap : {false, true}) {
    for (const char* precision : {"fp32", "bf16"}) {
      check({.stage = 3,
             .ranks = 4,
             .accumulation = 2,
             .precision = precision,
             .overlap = overlap,
             .shard = 2});
    }
  }
}

TEST_CASE("nor do secondary partitions of the weights") {
  for (const bool overlap : {false, true}) {
    for (const bool offload : {false, true}) {
      check({.stage = 3,
             .ranks = 4,
             .accumulation = 2,
             .overlap = overlap,
             .offload_weights = offload,
             .secondary_partitions = 2});
    }
  }
}

// --- the guard is one

struct Guarded {
  std::vector<std::unique_ptr<Communicator>> group = in_process_ranks(1);
  RankHardware hardware = test::guarded_hardware(*group.front(), cpu_kernels(1));
  Device& device = *hardware.device;
};

TEST_CASE("the host dies where it reads the device's memory, and reads what it downloads") {
  Guarded guarded;
  std::byte* data = guarded.device.allocate(Bytes::kib(4));
  const double said = 2.5;
  guarded.device.upload(data, &said, Bytes::of(8));
  double heard = 0.0;
  guarded.device.download(&heard, data, Bytes::of(8));
  CHECK(heard == said);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);
    ::_exit(*reinterpret_cast<volatile double*>(data) == said ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  guarded.device.release(data, Bytes::kib(4));
}

TEST_CASE("an access that nothing orders is noticed") {
  Guarded guarded;
  Device& device = guarded.device;
  std::byte* a = device.allocate(Bytes::kib(4));
  device.zero(a, Bytes::kib(4));
  device.use(Queue::reduce);
  CHECK_THROWS_AS(device.zero(a, Bytes::kib(4)), std::logic_error);
  device.wait(Queue::reduce, Queue::compute);
  CHECK_NOTHROW(device.zero(a, Bytes::kib(4)));
  device.use(Queue::compute);
  CHECK_THROWS_AS(device.add_squares_of(a, DType::fp32, Elements::of(8), Scalar::squares),
                  std::logic_error);
  device.synchronize();
  CHECK_NOTHROW(device.add_squares_of(a, DType::fp32, Elements::of(8), Scalar::squares));
  CHECK(device.take(Scalar::squares) == 0.0);
}

TEST_CASE("memory that another queue still uses is handed out in an order that does no harm") {
  Guarded guarded;
  Device& device = guarded.device;
  // All of a segment, so that the same bytes come again.
  std::byte* a = device.allocate(Bytes::kib(256));
  {
    const OnQueue queue(device, Queue::copy);
    device.zero(a, Bytes::kib(256));
  }
  device.release(a, Bytes::kib(256));
  std::byte* b = device.allocate(Bytes::kib(256));
  CHECK(b == a);
  CHECK_NOTHROW(device.zero(b, Bytes::kib(256)));
}

}  // namespace
}  // namespace zeroplan::runtime
