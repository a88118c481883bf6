#include "model/predict/model_flops.hpp"

namespace zeroplan {

Flops model_flops_per_token(const Model& model, std::int64_t sequence_length) {
  double products = 0.0;
  for (const Parameter& parameter : model.parameters) {
    const double used =
        static_cast<double>(parameter.routed_active) / static_cast<double>(parameter.routed_of);
    products +=
        (parameter.trainable ? 6.0 : 4.0) * used * static_cast<double>(parameter.numel.count());
  }
  const double layers = static_cast<double>(model.shape.layers + model.shape.encoder_layers);
  return Flops::of(products + 12.0 * layers * static_cast<double>(model.shape.hidden) *
                                  static_cast<double>(sequence_length));
}

}  // namespace zeroplan
