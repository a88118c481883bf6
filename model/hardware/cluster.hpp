// Reads what the user calls a cluster (docs/contract.md section 1) into a Cluster without gaps.
//
//   "2x4xA800-80G"            nodes x GPUs x name; "8xH100" is one node of eight, "H100" one GPU;
//                             also "8 A100", "2 nodes x 4 A800", "A100-80Gx8", "4x24G"
//   "2xaws_p4d.24xlarge"      nodes x a machine of profiles/nodes.json
//   "path/to/cluster.json"    anything with a '/' or ending in .json
//   "hostfile:PATH@A100-80G"  a DeepSpeed hostfile: `host slots=N` lines
//   {"nodes": 2, ...}         the inline form; docs of the keys in configs/clusters/README.md
//
// What is missing is filled from the usual machine of the GPU (profiles/nodes.json), scaled to the
// number of GPUs, or from documented defaults; each fill is a sentence in Cluster::assumptions.
// All errors of one document are collected into one InputError.
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan {

// `value` is a string or an object; `file` and `pointer` say where it stands, for messages. A path
// is looked for from the working directory, then from the folder of `file`.
Cluster parse_cluster(const Json& value, const std::string& file, const std::string& pointer);

// The same for text from the command line.
Cluster parse_cluster_text(std::string_view text,
                           const std::string& file = "command line",
                           const std::string& pointer = "--cluster");

// What was said of a cluster, in the inline form: nodes, GPUs and name of a text, the document of a
// file. Nothing is filled in. Throws InputError where the text cannot be read.
Json cluster_document(const Json& value, const std::string& file, const std::string& pointer);

// The inline form with every value. Reading it gives the same cluster, the same assumptions and no
// new ones.
Json to_json(const Cluster& cluster);

// "2x4xA800-80G-SXM": what a table or a message calls it.
std::string short_name(const Cluster& cluster);

}  // namespace zeroplan
