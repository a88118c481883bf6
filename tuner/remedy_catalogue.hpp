// The changes that may make a run fit, as data: what each costs, which part of the memory it is
// about, how it is said and what it sets.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/phrase.hpp"
#include "model/memory_category.hpp"
#include "tuner/fit_answer.hpp"
#include "tuner/remedy_subject.hpp"
#include "tuner/variations.hpp"

namespace zeroplan::tuner {

struct RemedyCandidate {
  RemedyPrice price = RemedyPrice::nothing;
  MemoryCategory acts = MemoryCategory::activations;
  bool decides = false;  // what it is about is what does not fit: before others of its price
  // Sizes from that which surely spares most to that which spares least; empty: it has none.
  std::vector<std::int64_t> sizes;
  std::function<Phrase(std::int64_t)> say;
  std::function<Variation(std::int64_t)> make;
};

// The candidates while they are collected, each kind in a file of its own.
class RemedyCatalogue {
 public:
  explicit RemedyCatalogue(const RemedySubject& subject)
      : subject_(subject),
        plan_(subject.plan()),
        workload_(plan_.workload),
        free_(subject.chooses_strategy()),
        deepspeed_(runs_deepspeed(plan_.workload)),
        sharded_(runs_zero3(plan_)) {}

  std::vector<RemedyCandidate> all();

 private:
  bool says(ScenarioKey key) const { return subject_.scenario().find(key) != nullptr; }
  bool has_file() const { return says(ScenarioKey::ds_config); }
  const Json& trainer_said() const { return subject_.scenario().find(ScenarioKey::trainer)->value; }

  // Makers of candidates: remedy_catalogue.cpp
  RemedyCandidate& add(RemedyPrice price,
                       MemoryCategory acts,
                       Phrase text,
                       std::vector<Change> changes);
  void sort();

  // Candidates for which nothing is paid: remedy_catalogue_free.cpp
  void add_free();
  void add_fused_loss();
  void add_loss_alone();
  void add_attention();
  bool recomputes() const;
  void add_release();
  void add_reentrance();
  void add_expandable_segments();
  void add_no_tensor_ranks();
  void add_evaluation();
  bool evaluation_decides() const;
  void add_sixteen_bit_copy();
  void add_loading_on_host();
  void add_no_accumulation();
  void add_buckets();
  bool may_change_engine() const;
  std::vector<Change> changes_to(TrainingEngine engine) const;
  void add_engine();
  void add_trainer_alone();

  // Candidates for which speed is paid: remedy_catalogue_speed.cpp
  void add_slower();
  void add_checkpointing();
  void add_generation_in_parts();
  void add_colocated_server();
  void add_sequence_ranks();
  void add_precision();
  void add_sync();
  void add_stages();
  void add_micro_batch();
  bool logits_decide() const;
  void add_activation_offload();
  bool one_pool() const;
  void add_offload();
  void add_fsdp_offload();

  // Candidates that train otherwise: remedy_catalogue.cpp
  void add_other_training();
  void add_half_weights();
  void add_smaller_batch();
  void add_shorter_sequences();

  // Candidates of the host: remedy_catalogue_host.cpp
  void add_loading(Loading loading, Phrase text);
  void add_lighter_loading();
  void add_less_on_host();
  std::int64_t enough_for_a_weight() const;
  void add_buffers_for_weights(std::vector<Change>& changes) const;
  void add_leaner_offload(bool optimizer, bool weights);

  // Candidates that are bought: remedy_catalogue.cpp
  void add_more_host_memory();
  void add_more_nodes();

  static Json cpu();
  static Json none();

  const RemedySubject& subject_;
  const Plan& plan_;
  const Workload& workload_;
  bool free_;
  bool deepspeed_;
  bool sharded_;
  std::vector<RemedyCandidate> found_;
};

// Those that make sense for the subject, in the order in which they are tried.
std::vector<RemedyCandidate> remedy_candidates(const RemedySubject& subject);

}  // namespace zeroplan::tuner
