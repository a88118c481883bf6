#include "cli/foreign_flags.hpp"

#include <array>

#include "base/written_names.hpp"

namespace zeroplan::cli {
namespace {

struct ForeignFlag {
  std::string_view names;  // folded, with '|' between them
  std::string_view ours;
};

constexpr std::array kForeign = {
    ForeignFlag{"perdevicetrainbatchsize|perdevicebatchsize|batchsize|batch|microbatch|bs|bsz",
                "--mbs N"},
    ForeignFlag{"accumulation|gradaccum|gradientaccumulation|accumulationsteps", "--gas N"},
    ForeignFlag{"maxseqlength|maxlength|modelmaxlength|cutofflen|maxseqlen|seqlen|seqlength|"
                "contextlength|context|ctx|blocksize|length",
                "--seq N"},
    ForeignFlag{"gradientcheckpointing|checkpointing|usegradientcheckpointing|recompute",
                "--ckpt full"},
    ForeignFlag{"bf16", "--precision bf16"},
    ForeignFlag{"fp16", "--precision fp16"},
    ForeignFlag{"fp32", "--precision fp32"},
    ForeignFlag{"dtype|torchdtype|mixedprecision", "--precision bf16|fp16|fp32"},
    ForeignFlag{"flashattn|attnimplementation|useflashattention2|flashattention|useflashattn",
                "--attention flash"},
    ForeignFlag{"lora|uselora|peft|finetuningtype", "--method lora"},
    ForeignFlag{"rank", "--lora-rank N"},
    ForeignFlag{"numtrainepochs|numepochs", "--epochs N"},
    ForeignFlag{"qlora|loadin4bit|quantizationbit|bits", "--method qlora"},
    ForeignFlag{"numsamples|samples|datasetsize",
                "--dataset '{\"samples\":20000,\"epochs\":3,\"mean_tokens\":512}'"},
    ForeignFlag{"gpus|gpu|numgpus|ngpus|nprocpernode|nnodes|nodes|numnodes|worldsize|numprocesses",
                "--cluster 2x4xA100-80G"},
    ForeignFlag{"optim", "--optimizer adamw"},
    ForeignFlag{"ram|memory|hostram|cpumemory|cpuram|mem", "--host-memory 512G"},
    ForeignFlag{"bandwidth|interconnect|infiniband|ib|ethernet|net", "--network 100"},
    ForeignFlag{"cpus|cores|cpu", "--cpu-cores 64"},
    ForeignFlag{"modelnameorpath|modelname|config|modelpath", "--model NAME, or a path"},
    ForeignFlag{"pp|pipelineparallelsize", "--pipeline-parallel N"},
    ForeignFlag{"tp|tensorparallelsize|tensormodelparallelsize", "--tensor-parallel N"},
    ForeignFlag{"sp|cp|ulysses|contextparallel|contextparallelsize|sequenceparallelsize|"
                "sequenceparalleldegree",
                "--sequence-parallel N"},
    ForeignFlag{"deepspeedconfig|dsconfigfile|deepspeedconfigfile", "--ds-config FILE"},
    ForeignFlag{"liger|useliger|useligerkernel|enableligerkernel|fusedlinearcrossentropy",
                "--fused-loss true"},
    ForeignFlag{"torchcompile", "--compile true"},
    ForeignFlag{"packing|padtomaxlength|groupbylength",
                "--padding packed, beside --dataset or --lengths"},
    ForeignFlag{"launcher", "-o DIR"},  // whose run.sh starts the ranks
    ForeignFlag{"language|locale", "--lang en|zh"},
    ForeignFlag{"out|outputdir|o|outdir", "--output"},
};

}  // namespace

std::string our_flag_for(std::string_view flag) {
  const std::string word = folded(flag, "-_");
  if (word.empty()) return "";
  for (const ForeignFlag& row : kForeign) {
    const bool known =
        !first_name(row.names, [&](std::string_view name) { return name == word; }).empty();
    if (known) return std::string(row.ours);
  }
  return "";
}

}  // namespace zeroplan::cli
