// DeepSpeed's AutoTP: a class of transformers on the ranks of tensor parallelism. Linear layers are
// cut to a rank's part as the class's own plan says (base_model_tp_plan of its config, _tp_plan of
// its head), everything else is whole on every rank; the layer's code runs on a rank's heads.
//
// Sources: DeepSpeed runtime/engine.py _apply_autotp_partitioning, module_inject/auto_tp.py AutoTP,
// module_inject/layers.py LinearLayer and LinearAllreduce; transformers' configuration_*.py.
// Checked by rehearsals: tests/reference/rehearsal/matrix/autotp.jsonl.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/phrase.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

// How ranks hold a linear layer: its outputs cut ("colwise"), the same with the results joined on
// every rank ("colwise_gather_output"), or its inputs cut ("rowwise").
enum class TensorShard { whole, columns, gathered_columns, rows };

// The shard of the linear layer `module`, a name within its layer ("self_attn.q_proj") or the
// head's.
TensorShard tensor_shard(const Model& model, std::string_view module);

// Whether a head's queries and keys pass through a norm with a weight of its own.
bool has_head_norms(const Model& model);

// Which of heads and feed-forward width tensor ranks do not divide; empty: none.
Phrase uneven_shares(const TransformerShape& shape, std::int64_t ranks);

// Why a class or its sizes cannot be cut for so many ranks; empty: they can.
Phrase autotp_refusal(const Model& model, std::int64_t ranks);

// The parameters that one of `ranks` ranks holds, and the shape of a model with its share of the
// heads and of the feed-forward width. `cuts_head`: the release cuts an output layer of its own,
// too. Precondition: autotp_refusal() is empty.
Model autotp_model(const Model& model, std::int64_t ranks, bool cuts_head);

}  // namespace zeroplan
