// Model FLOPs of a token, 6 N + 12 L h s, through published pairs of throughput and MFU.
#include "model/families/hf_config.hpp"
#include "model/predict/model_flops.hpp"
#include "model/predict/step_time.hpp"
#include "tests/catch.hpp"
#include "tests/published/published_data.hpp"

using namespace zeroplan;
using namespace zeroplan::testing;

namespace {

// The rows train with learned positions, without biases, with the head tied to the embedding.
Json mpt(const Json& row, std::int64_t vocabulary) {
  return Json::object({{"model_type", "mpt"},
                       {"architectures", Json::array({"MPTForCausalLM"})},
                       {"d_model", whole(row, "d_model")},
                       {"n_layers", whole(row, "n_layers")},
                       {"n_heads", whole(row, "n_heads")},
                       {"expansion_ratio", 4},
                       {"vocab_size", vocabulary},
                       {"max_seq_len", whole(row, "sequence_length")},
                       {"no_bias", true},
                       {"tie_word_embeddings", true}});
}

}  // namespace

TEST_CASE("published throughput and model FLOPs give the published MFU") {
  const Json table = published("mfu.json");
  const double tolerance = number(table, "relative_tolerance");
  for (const Json& row : table.find("rows")->items()) {
    INFO(text(row, "model") << " at " << whole(row, "sequence_length"));
    const Model model = load_model(mpt(row, whole(table, "vocabulary")),
                                   "mfu.json",
                                   "/rows",
                                   {.implementation = Implementation::composer});
    Flops token = model_flops_per_token(model, whole(row, "sequence_length"));
    // Hugging Face's class has no table of positions (it uses ALiBi); the rows count one.
    token += Flops::of(6.0 * number(row, "sequence_length") * number(row, "d_model"));
    const double mfu =
        token.value() * number(row, "tokens_per_second_per_gpu") / number(table, "peak_flops");
    CHECK(mfu == Approx(number(row, "mfu")).epsilon(tolerance));
  }
}
