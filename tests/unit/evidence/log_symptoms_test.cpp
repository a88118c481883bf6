#include "evidence/log_symptoms.hpp"

#include "tests/catch.hpp"
#include "tests/support/small_models.hpp"

using namespace zeroplan;

namespace {

// DeepSpeed#5394
constexpr std::string_view kWatchdog =
    "[rank3]:[E ProcessGroupNCCL.cpp:523] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=9314, OpType=_REDUCE_SCATTER_BASE, NumelIn=131072000, NumelOut=32768000, "
    "Timeout(ms)=600000) ran for 600524 milliseconds before timing out.";

}  // namespace

TEST_CASE("A collective that timed out tells its size, its ranks and the weight of that size") {
  const auto alone = evidence::read_log_symptoms(kWatchdog);
  REQUIRE(alone.size() == 1);
  CHECK(alone[0].code == "collective-timeout");
  CHECK(alone[0].text ==
        "_REDUCE_SCATTER_BASE of 131072000 elements, an embedding of 32000 x 4096 as "
        "llama-2-7b has, over 4 ranks did not end in 600 s: a rank did not come to it; the "
        "watchdog speaks of rank 3, not of rank 0, 1, 2");
  const Model model = testing::llama({.hidden = 4096});
  const auto named = evidence::read_log_symptoms(kWatchdog, &model);
  CHECK(named[0].text.english().find("as many as model.embed_tokens.weight has") !=
        std::string::npos);
}

TEST_CASE("A collective whose numbers are missing or absurd is told without them") {
  for (const std::string_view rest : {"",
                                      ": WorkNCCL(OpType=ALLREDUCE, NumelIn=0, NumelOut=0, "
                                      "Timeout(ms)=5)",
                                      ": WorkNCCL(OpType=ALLREDUCE, NumelIn=-4, Timeout(ms)=x)"}) {
    CAPTURE(rest);
    const auto found = evidence::read_log_symptoms("Watchdog caught collective operation timeout" +
                                                   std::string(rest));
    REQUIRE(found.size() == 1);
    CHECK(found[0].text == "a collective did not end: a rank did not come to it");
  }
  const auto reduced = evidence::read_log_symptoms(
      "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, "
      "NumelIn=7, NumelOut=7, Timeout(ms)=1800000)");
  CHECK(reduced[0].text ==
        "ALLREDUCE of 7 elements did not end in 1800 s: a rank did not come to it");
}

TEST_CASE("Ranks that wait in different collectives are both named, and neither is absent") {
  const auto wait = [](int rank, const char* group, int number, const char* operation) {
    const std::string label = std::to_string(rank);
    return "[rank" + label + "]:[E ProcessGroupNCCL.cpp:616] " +
           (*group == '\0' ? "[Rank " + label + "]" : "[PG " + std::string(group) + " Rank 0]") +
           " Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" +
           std::to_string(number) + ", OpType=" + operation +
           ", NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600035 milliseconds\n";
  };
  const auto text_of = [](const std::string& log) {
    const auto found = evidence::read_log_symptoms(log);
    REQUIRE(found.size() == 1);
    return found[0].text.english();
  };
  constexpr const char* kAbsent =
      "ALLREDUCE of 8 elements did not end in 600 s: a rank did not come to it";
  CHECK(text_of(wait(3, "", 4123, "ALLREDUCE") + wait(0, "", 4122, "_ALLGATHER_BASE")) ==
        "ranks wait in different collectives: rank 0 in _ALLGATHER_BASE (SeqNum 4122), rank 3 in "
        "ALLREDUCE (SeqNum 4123): neither is absent, they called in another order");
  CHECK(text_of(wait(3, "", 7, "ALLREDUCE") + wait(0, "", 7, "BROADCAST")).starts_with("ranks "));
  CHECK(text_of(wait(3, "", 7, "ALLREDUCE") + wait(0, "", 7, "ALLREDUCE")) == kAbsent);
  // A rank's later waits follow from its first; groups count for themselves.
  CHECK(text_of(wait(3, "", 7, "ALLREDUCE") + wait(3, "", 8, "BROADCAST")) == kAbsent);
  CHECK(text_of(wait(3, "ID 1 PG GUID 2", 7, "ALLREDUCE") +
                wait(0, "ID 0 PG GUID 0(default_pg)", 9, "BROADCAST")) == kAbsent);
}

TEST_CASE("Symptoms come in the order of the log, repeats are counted") {
  const auto found = evidence::read_log_symptoms(
      "[WARNING] [runner.py:190:fetch_hostfile] Unable to find hostfile, will proceed with "
      "training\r\n"
      "[stage3.py:2069:step] 27 pytorch allocator cache flushes since last step. this happens\r\n"
      "[stage3.py:2069:step] 3 pytorch allocator cache flushes since last step. this happens\r\n"
      "Exception: Current loss scale already at minimum - cannot decrease scale anymore.\r\n");
  REQUIRE(found.size() == 2);  // the note on the hostfile is told where nothing else is
  CHECK(found[0].line == 2);
  CHECK(found[0].times == 2);
  CHECK(found[0].text.english().rfind("27 times in a step", 0) == 0);
  CHECK(found[1].code == "loss-scale");
  CHECK(evidence::read_log_symptoms("all is well").empty());
}

TEST_CASE("Versions, the Trainer's message and the rendezvous are read") {
  const auto cuda = evidence::read_log_symptoms(
      "CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 12.2 does not match "
      "the version torch was compiled with 11.7, unable to compile cuda/cpp extensions without a "
      "matching cuda version.");
  REQUIRE(cuda.size() == 1);
  CHECK(cuda[0].text.english().find("toolkit is 12.2 and torch was built with 11.7:") !=
        std::string::npos);
  CHECK(evidence::read_log_symptoms(
            "Please correct the following DeepSpeed config values that mismatch "
            "TrainingArguments values:")[0]
            .code == "trainer-mismatch");
  CHECK(evidence::read_log_symptoms(
            "Timed out after 1801 seconds waiting for clients. 1/2 clients joined.")[0]
            .text == "not all processes came to the rendezvous in 1801 s");
}

TEST_CASE("What stops a run before its first step is known by its message") {
  struct Case {
    std::string_view line;
    std::string_view code;
  };
  for (const Case& known : {
           Case{"RuntimeError: The size of tensor a (0) must match the size of tensor b (4096) at",
                "two-dimensional-weight"},
           Case{"RuntimeError: The expanded size of the tensor (0) must match the existing size "
                "(151936) at non-singleton dimension 0",
                "two-dimensional-weight"},
           Case{"RuntimeError: disagreement between rank0 and rank3: rank0: [1, 2] rank3: [2, 3]",
                "collective-mismatch"},
           Case{"RuntimeError: mat1 and mat2 shapes cannot be multiplied (4096x8192 and "
                "1x33554432)",
                "packed-weight"},
           Case{"RuntimeError: Ninja is required to load C++ extensions (pip install ninja)",
                "no-ninja"},
           Case{"RuntimeError: launcher 'pdsh' not installed.", "no-pdsh"},
           Case{"host:41:77 [0] proxy.cc:808 NCCL WARN Proxy Call to rank 0 failed (Connect)",
                "nccl-connect"},
           Case{"RuntimeError: Input tensor data type is not supported for NCCL process group: "
                "BFloat16",
                "nccl-bf16"},
           Case{"Failed to initialize NVML: Driver/library version mismatch", "driver-mismatch"},
           Case{"ValueError: ZeRO inference only makes sense with ZeRO Stage 3 - please adjust "
                "your config",
                "inference-stage"},
           Case{"ValueError: When using DeepSpeed `accelerate.prepare()` requires you to pass at "
                "least one of training or evaluation dataloaders or alternatively set an integer",
                "batch-unknown"},
       }) {
    CAPTURE(known.line);
    const auto found = evidence::read_log_symptoms(known.line);
    REQUIRE(found.size() == 1);
    CHECK(found[0].code == known.code);
    CHECK_FALSE(found[0].advice.empty());
  }
  CHECK(evidence::read_log_symptoms("host: Proxy Call to rank 0 failed (Connect)")[0]
            .text.english()
            .starts_with("NCCL's helper thread of rank 0 could not connect"));
  CHECK(evidence::read_log_symptoms(
            "ValueError: expected sequence of length 512 at dim 1 (got 304)")[0]
            .text ==
        "a batch holds sequences of different lengths (512 and 304 tokens) that nobody padded");
}

TEST_CASE("endings of 2025 and 2026 are known by the lines that people posted") {
  struct Case {
    std::string_view line;
    std::string_view code;
  };
  for (const Case& known : {
           Case{"(EngineCore_DP0 pid=39535) ERROR 03-03 19:38:29 [core.py:708] RuntimeError: CUDA "
                "out "
                "of memory occurred when warming up sampler with 1024 dummy requests. Please try "
                "lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
                "vllm-sampler"},
           Case{"ValueError: To serve at least one request with the models's max seq len (40960), "
                "(10.00 GiB KV cache is needed, which is larger than the available KV cache memory "
                "(1.25 GiB). Based on the available memory,  Try increasing "
                "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the "
                "engine.",
                "vllm-length"},
           Case{"AssertionError: Expandable segments are not compatible with memory pool. Please "
                "track https://github.com/pytorch/pytorch/issues/147851 for the latest updates.",
                "vllm-segments"},
           Case{"[rank3]: KeyError: 'use_muon'", "muon-groups"},
           Case{"AttributeError: 'Parameter' object has no attribute 'use_muon'", "muon-groups"},
           Case{"ValueError: Muon and reduce scatter cannot be used together", "muon-scatter"},
           Case{"RuntimeError: MPS backend out of memory (MPS allocated: 17.36 GB, other "
                "allocations: 613.56 MB, max allowed: 18.13 GB). Tried to allocate 192.00 MB on "
                "private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for "
                "memory allocations (may cause system failure).",
                "mps-memory"},
           Case{"ImportError: cannot import name 'HybridCache' from 'transformers' "
                "(/usr/local/lib/python3.12/dist-packages/transformers/__init__.py)",
                "hybrid-cache"},
           Case{"TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'",
                "trainer-tokenizer"},
           Case{"TypeError: SFTTrainer.__init__() got an unexpected keyword argument "
                "'max_seq_length'",
                "sft-length"},
           Case{
               "RuntimeError: aten.mm.default: got mixed torch.Tensor and DTensor, need to convert "
               "all torch.Tensor to DTensor before calling distributed operators!",
               "mixed-dtensor"},
       }) {
    CAPTURE(known.line);
    const auto found = evidence::read_log_symptoms(known.line);
    REQUIRE(found.size() == 1);
    CHECK(found[0].code == known.code);
    CHECK_FALSE(found[0].advice.empty());
  }
  CHECK(evidence::read_log_symptoms("(1.25 GiB KV cache is needed, which is larger than the "
                                    "available KV cache memory (0.5 GiB). Based on")[0]
            .text ==
        "vLLM's cache has 0.5 GiB, which is less than one sequence of max_model_len takes");
}

TEST_CASE("DeepSpeed's batch assertion tells one rank from a loader that differs from the file") {
  const std::string head =
      "AssertionError: Check batch related parameters. train_batch_size is not equal to "
      "micro_batch_per_gpu * gradient_acc_step * world_size ";
  CHECK(evidence::read_log_symptoms(head + "256 != 4 * 8 * 1")[0].text ==
        "DeepSpeed counts one rank (4 x 8 x 1 = 32), and train_batch_size 256 is meant for 8");
  CHECK(
      evidence::read_log_symptoms(head + "256 != 2 * 18 * 7")[0].text ==
      "train_batch_size is 256, and micro-batch x accumulation x ranks 2 x 18 x 7 = 252: the file "
      "has the one, the data loader or the script's arguments the other; 256 is no multiple of 2 x "
      "7: 252 or 266 is");
  CHECK(evidence::read_log_symptoms(head + "64 != 2 * 8 * 8")[0].text.english().ends_with(
      "; 64 is 2 x 8 with an accumulation of 4"));
  CHECK(evidence::read_log_symptoms(head + "8 != 2 * 1 * 8")[0].text.english().ends_with(
      "; 8 is no multiple of 2 x 8: 16 is"));
  CHECK(evidence::read_log_symptoms(head + "99999999999999999999 != 0 * -3 * x")[0].text ==
        "train_batch_size of ds_config.json is not micro-batch x accumulation x ranks");
}

TEST_CASE("A log that ends where an operator would be built may wait for a lock") {
  const std::string root =
      "Using /root/.cache/torch_extensions/py310_cu118 as PyTorch extensions "
      "root...\n";
  const auto waits = evidence::read_log_symptoms("some text\n" + root + root);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].code == "extension-lock");
  CHECK(waits[0].kind == evidence::FailureKind::note);
  CHECK(waits[0].line == 3);
  CHECK(evidence::read_log_symptoms(
            "UserWarning: Waited on lock file \"/x/py310/fused_adam/lock\" for 300 "
            "seconds.")[0]
            .advice == "end all of the job's processes, rm /x/py310/fused_adam/lock, start again");
}

TEST_CASE("A healthy log waits for nothing") {
  const std::string root =
      "Using /root/.cache/torch_extensions/py310_cu118 as PyTorch extensions root...\n";
  for (const std::string_view rest :
       {"Loading extension module cpu_adam...\n",
        "No modifications detected for re-loaded extension module utils, skipping build step...\n",
        "Time to load fused_adam op: 0.07 seconds\n",
        "[INFO] [stage_1_and_2.py:148:__init__] Reduce bucket size 500000000\n",
        "{'loss': 1.9, 'grad_norm': 0.4, 'learning_rate': 1e-05, 'epoch': 0.1}\n"}) {
    CAPTURE(rest);
    CHECK(evidence::read_log_symptoms(root + std::string(rest)).empty());
  }
}

TEST_CASE("A value that is 8 in the file and 8 in the arguments is a quoted number") {
  const std::string head =
      "ValueError: Please correct the following DeepSpeed config values that mismatch "
      "TrainingArguments values:\n";
  const auto quoted = evidence::read_log_symptoms(
      head +
      "- ds gradient_accumulation_steps=8 vs hf gradient_accumulation_steps=8\nThe easiest\n");
  REQUIRE(quoted.size() == 1);
  CHECK(quoted[0].text ==
        "gradient_accumulation_steps is 8 in both: the file has it in quotes, as text, and the "
        "arguments as a number");
  const auto differs = evidence::read_log_symptoms(
      head +
      "- ds gradient_accumulation_steps=4 vs arg gradient_accumulation_steps=2\n- ds "
      "train_micro_batch_size_per_gpu=1 vs hf per_device_train_batch_size=2\n");
  CHECK(differs[0].text ==
        "the Trainer's arguments and ds_config.json disagree: gradient_accumulation_steps is 4 in "
        "the file and 2 in the arguments, train_micro_batch_size_per_gpu is 1 in the file and 2 in "
        "the arguments");
}

TEST_CASE("An embedding with added words is told by its shape, without a model") {
  const auto found = evidence::read_log_symptoms(
      "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, "
      "OpType=_ALLGATHER_BASE, NumelIn=65556480, NumelOut=131112960, Timeout(ms)=1800000)\n"
      "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)\n");
  REQUIRE(found.size() == 1);
  CHECK(found[0].times == 2);
  CHECK(found[0].text.english().starts_with(
      "_ALLGATHER_BASE of 131112960 elements, an embedding of 32010 x 4096 (llama-2-7b has"));
}

TEST_CASE("What a log tells in consequence is told where nothing else is") {
  const std::string launcher =
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
      "E0101 api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: /usr/bin/python\n";
  const evidence::LogReading alone = evidence::read_log(launcher);
  CHECK(alone.failures.empty());
  REQUIRE(alone.consequences.size() == 1);
  CHECK(alone.consequences[0].code == "rank-failed");
  const evidence::LogReading explained = evidence::read_log(
      "Traceback (most recent call last):\n  File \"a.py\"\nRuntimeError: CUDA error: no kernel "
      "image is available for execution on the device\n" +
      launcher);
  REQUIRE(explained.failures.size() == 1);
  CHECK(explained.failures[0].code == "no-kernel-image");
  CHECK_FALSE(explained.unknown);
}

TEST_CASE("An error that nobody knows is named, the first of its log") {
  const evidence::LogReading reading = evidence::read_log(
      "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", line 3, in f\n"
      "[rank1]: zeta.QuuxError: no bar in foo\n[rank1]: During handling of the above\n"
      "[rank1]: ValueError: other\n");
  CHECK(reading.failures.empty());
  REQUIRE(reading.unknown);
  CHECK(reading.unknown->line == 3);
  CHECK(reading.unknown->text == "zeta.QuuxError: no bar in foo");
  CHECK(reading.lines == 5);
}
