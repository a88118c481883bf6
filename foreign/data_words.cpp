#include "foreign/data_words.hpp"

#include "foreign/yaml_scalar.hpp"

namespace zeroplan::foreign {

void DataWords::read(Role role, const Setting& setting) {
  const Json& value = setting.value;
  // "max_length" of a tokenizer's padding; true there pads to the longest.
  const bool to_the_end = text_of(value) == "max_length" || text_of(value) == "max" ||
                          (setting.name != "padding" && is_on(value));
  if (role == Role::padding && to_the_end && dataset_.find("padding") == nullptr) {
    dataset_["padding"] = "max";
  }
  if (role == Role::packing && is_on(value)) dataset_["padding"] = "packed";
  if (role == Role::epochs) {
    const Json number = value.is_string() ? plain_scalar(value.as_string()) : value;
    if (number.is_number() && number.as_number() > 0.0) dataset_["epochs"] = number;
  }
  said_ = setting;
}

void DataWords::finish(Meaning& meaning) const {
  const bool said = meaning.scenario.find(ScenarioKey::dataset) != nullptr;
  if (dataset_.members().empty() || said) return;
  meaning.scenario.set(ScenarioKey::dataset, dataset_, {said_->file, said_->name});
}

}  // namespace zeroplan::foreign
