#include "model/families/traced_block_reader.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/described.hpp"

namespace zeroplan {

void TracedReader::problem(const std::string& at, Phrase expected, Phrase got, Phrase hint) {
  if (full()) return;
  const std::string where = pointer_ + at;
  problems_.push_back(
      {file_, where.empty() ? "/" : where, std::move(expected), std::move(got), std::move(hint)});
}

void TracedReader::throw_problems() const {
  if (!problems_.empty()) throw InputError(problems_);
}

namespace {

Phrase describe(const Json* value) { return value == nullptr ? "no such key" : described(*value); }

std::string below(const std::string& at, std::string_view key) {
  return at + "/" + pointer_token(key);
}

}  // namespace

std::string TracedReader::text(const Json& object, std::string_view key, const std::string& at) {
  const Json* value = object.find(key);
  if (value != nullptr && value->is_string()) return value->as_string();
  problem(below(at, key), "a text", describe(value));
  return "";
}

std::int64_t TracedReader::integer(const Json& object,
                                   std::string_view key,
                                   const std::string& at,
                                   std::int64_t least,
                                   std::int64_t most) {
  const Json* value = object.find(key);
  if (value != nullptr && value->is_integer() && value->as_integer() >= least &&
      value->as_integer() <= most)
    return value->as_integer();
  problem(below(at, key), phrase("a whole number from {} to {}", least, most), describe(value));
  return least;
}

bool TracedReader::flag(const Json& object,
                        std::string_view key,
                        const std::string& at,
                        bool otherwise) {
  const Json* value = object.find(key);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->as_boolean();
  problem(below(at, key), "true or false", described(*value));
  return otherwise;
}

SizeFormula TracedReader::size(const Json& value, const std::string& at) {
  constexpr double kMost = 1e13;
  const auto number = [](const Json& item) {
    return item.is_number() && std::abs(item.as_number()) <= kMost;
  };
  if (value.is_integer() && value.as_integer() >= 0 && number(value))
    return {static_cast<double>(value.as_integer()), 0.0, 0.0, 0.0};
  const auto& items = value.items();
  if (items.size() == 4 && std::all_of(items.begin(), items.end(), number)) {
    return {items[0].as_number(), items[1].as_number(), items[2].as_number(), items[3].as_number()};
  }
  problem(at,
          "a size: a whole number, or [constant, of batch, of sequence, of both]",
          described(value));
  return {};
}

namespace {

// Types without a place among those of the planner stand as the next wider one.
struct DTypeName {
  std::string_view name;
  DType dtype;
};
constexpr std::array kDTypes = {DTypeName{"bf16", DType::bf16},
                                DTypeName{"fp16", DType::fp16},
                                DTypeName{"fp32", DType::fp32},
                                DTypeName{"fp64", DType::fp64},
                                DTypeName{"complex64", DType::fp64},
                                DTypeName{"int64", DType::int64},
                                DTypeName{"int32", DType::int64},
                                DTypeName{"int16", DType::int64},
                                DTypeName{"int8", DType::int8},
                                DTypeName{"uint8", DType::uint8},
                                DTypeName{"bool", DType::boolean}};

}  // namespace

TracedTensor TracedReader::tensor(const Json& value, const std::string& at) {
  TracedTensor result;
  const std::string dtype = text(value, "dtype", at);
  result.of_model = dtype == "model";
  const auto found = std::find_if(
      kDTypes.begin(), kDTypes.end(), [&](const DTypeName& row) { return row.name == dtype; });
  if (found != kDTypes.end()) result.dtype = found->dtype;
  if (!result.of_model && found == kDTypes.end() && !dtype.empty()) {
    problem(at + "/dtype",
            "\"model\" or the name of a type, such as \"fp32\" or \"int64\"",
            in_quotes(dtype));
  }
  const Json* shape = value.find("shape");
  constexpr std::size_t kMostDimensions = 6;
  if (shape == nullptr || !shape->is_array() || shape->items().size() > kMostDimensions) {
    problem(at + "/shape", "a list of at most six sizes", describe(shape));
    return result;
  }
  std::size_t i = 0;
  for (const Json& item : shape->items())
    result.shape.push_back(size(item, at + "/shape/" + std::to_string(i++)));
  return result;
}

namespace {

class BlockReader {
 public:
  BlockReader(TracedReader& reader, std::string at, std::int32_t slots)
      : reader_(reader), at_(std::move(at)), slots_(slots) {}

  TracedBlock read(const Json& block) {
    result_.name = printable(reader_.text(block, "name", at_));
    tensors(block);
    made_.assign(result_.tensors.size(), false);
    result_.input = optional_tensor(block, "input", at_);
    if (result_.input >= 0) made_[index(result_.input)] = true;
    result_.takes = slots(block, "takes");
    for (const SlotUse& use : result_.takes) made_[index(use.tensor)] = true;
    const Json* events = block.find("events");
    if (events == nullptr || !events->is_array())
      reader_.problem(at_ + "/events", "a list", describe(events));
    std::size_t i = 0;
    if (events != nullptr) {
      for (const Json& row : events->items()) {
        if (reader_.full()) break;
        event(row, at_ + "/events/" + std::to_string(i++));
      }
    }
    if (!open_.empty())
      reader_.problem(at_ + "/events",
                      "an end of every module that begins",
                      phrase("{} without one", in_quotes(open_.back())));
    result_.gives = slots(block, "gives");
    for (const SlotUse& use : result_.gives) {
      if (!is_made(use.tensor))
        reader_.problem(at_ + "/gives", "tensors that the block makes", std::to_string(use.tensor));
    }
    result_.output =
        static_cast<std::int32_t>(reader_.integer(block, "output", at_, 0, last_tensor()));
    if (reader_.clean() && (!is_made(result_.output) || result_.output == result_.input)) {
      reader_.problem(at_ + "/output",
                      "a tensor that the block makes and does not drop",
                      std::to_string(result_.output));
    }
    held(block);
    return std::move(result_);
  }

 private:
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  std::int64_t last_tensor() const { return static_cast<std::int64_t>(result_.tensors.size()) - 1; }
  bool is_made(std::int32_t tensor) const {
    return tensor >= 0 && index(tensor) < made_.size() && made_[index(tensor)];
  }

  void tensors(const Json& block) {
    const Json* list = block.find("tensors");
    if (list == nullptr || !list->is_array()) {
      reader_.problem(at_ + "/tensors", "a list", describe(list));
      return;
    }
    std::size_t i = 0;
    for (const Json& row : list->items()) {
      if (reader_.full()) return;
      const std::string at = at_ + "/tensors/" + std::to_string(i);
      result_.tensors.push_back(reader_.tensor(row, at));
      std::int32_t root = static_cast<std::int32_t>(i);
      const Json* of = row.find("of");
      if (of != nullptr && of->is_integer()) {
        root = static_cast<std::int32_t>(
            reader_.integer(row, "of", at, 0, static_cast<std::int64_t>(i) - 1));
        root = i == 0 ? 0 : result_.roots[index(root)];
      } else if (of != nullptr && !of->is_string()) {
        reader_.problem(at + "/of", "a tensor that stands before it, or a name", described(*of));
      }
      result_.roots.push_back(root);
      ++i;
    }
  }

  std::int32_t optional_tensor(const Json& object, std::string_view key, const std::string& at) {
    if (object.find(key) == nullptr || object.find(key)->is_null()) return -1;
    const auto tensor =
        static_cast<std::int32_t>(reader_.integer(object, key, at, 0, last_tensor()));
    return index(tensor) < result_.tensors.size() ? tensor : -1;
  }

  std::vector<SlotUse> slots(const Json& block, std::string_view key) {
    std::vector<SlotUse> uses;
    const Json* list = block.find(key);
    if (list == nullptr) return uses;
    const std::string at = at_ + "/" + std::string(key);
    if (!list->is_array()) reader_.problem(at, "a list of [slot, tensor]", described(*list));
    for (const Json& pair : list->items()) {
      const auto& items = pair.items();
      const auto in_range = [](const Json& item, std::int64_t end) {
        return item.is_integer() && item.as_integer() >= 0 && item.as_integer() < end;
      };
      if (items.size() != 2 || !in_range(items[0], slots_) ||
          !in_range(items[1], last_tensor() + 1)) {
        reader_.problem(
            at, "pairs [slot, tensor] below the number of slots and of tensors", described(pair));
        continue;
      }
      uses.push_back({static_cast<std::int32_t>(items[0].as_integer()),
                      static_cast<std::int32_t>(items[1].as_integer())});
    }
    return uses;
  }

  void held(const Json& block) {
    const Json* list = block.find("held");
    if (list == nullptr) return;
    for (const Json& item : list->items()) {
      const bool good =
          item.is_integer() && is_made(static_cast<std::int32_t>(
                                   std::clamp<std::int64_t>(item.as_integer(), -1, last_tensor())));
      if (!good) {
        reader_.problem(
            at_ + "/held", "tensors that the block makes and does not drop", described(item));
        return;
      }
      result_.held.push_back(static_cast<std::int32_t>(item.as_integer()));
    }
  }

  void event(const Json& row, const std::string& at) {
    TracedEvent event;
    if (const Json* module = row.find("enter"); module != nullptr && module->is_string()) {
      event.kind = TracedEvent::Kind::enter;
      event.name = module->as_string();
      event.tensor = optional_tensor(row, "tensor", at);
      open_.push_back(event.name);
    } else if (const Json* left = row.find("leave"); left != nullptr && left->is_string()) {
      event.kind = TracedEvent::Kind::leave;
      event.name = left->as_string();
      event.tensor = optional_tensor(row, "tensor", at);
      if (open_.empty() || open_.back() != event.name) {
        reader_.problem(at + "/leave", "the module that began last", in_quotes(event.name));
        return;
      }
      open_.pop_back();
    } else if (const Json* dropped = row.find("drop")) {
      event.kind = TracedEvent::Kind::drop;
      drop(*dropped, at, event);
    } else if (const Json* category = row.find("category");
               category != nullptr && category->is_string()) {
      event.kind = TracedEvent::Kind::category;
      event.name = category->as_string();
      if (event.name != "logits" && event.name != "activations") {
        reader_.problem(at + "/category", "\"logits\" or \"activations\"", in_quotes(event.name));
      }
    } else if (const Json* name = row.find("op"); name != nullptr && name->is_string()) {
      operation(row, at, event);
    } else {
      reader_.problem(at, "an event: enter, leave, drop, category or op", described(row));
      return;
    }
    const bool given =
        event.kind == TracedEvent::Kind::enter || event.kind == TracedEvent::Kind::leave;
    if (given && event.tensor >= 0 && !is_made(event.tensor)) {
      reader_.problem(at + "/tensor", "a tensor that is there", std::to_string(event.tensor));
    }
    result_.events.push_back(std::move(event));
  }

  void drop(const Json& list, const std::string& at, TracedEvent& event) {
    for (const Json& item : list.items()) {
      if (!item.is_integer() || item.as_integer() < 0 || item.as_integer() > last_tensor() ||
          !is_made(static_cast<std::int32_t>(item.as_integer()))) {
        reader_.problem(at + "/drop", "tensors that are there", described(item));
        continue;
      }
      const auto root = static_cast<std::int32_t>(item.as_integer());
      event.dropped.push_back(root);
      for (std::size_t i = 0; i < made_.size(); ++i) {
        if (result_.roots[i] == root) made_[i] = false;
      }
    }
  }

  std::optional<TracedOperand> operand(const Json& value) {
    TracedOperand result;
    if (value.is_null()) return result;
    if (value.is_integer()) {
      if (value.as_integer() < 0 || value.as_integer() > last_tensor()) return std::nullopt;
      result.kind = TracedOperand::Kind::tensor;
      result.tensor = static_cast<std::int32_t>(value.as_integer());
      return result;
    }
    if (!value.is_string()) return std::nullopt;
    const std::string& text = value.as_string();
    const std::size_t colon = text.find(':');
    const std::string kind = text.substr(0, colon == std::string::npos ? 0 : colon);
    if (kind == "parameter") result.kind = TracedOperand::Kind::parameter;
    if (kind == "buffer") result.kind = TracedOperand::Kind::buffer;
    if (kind == "own") result.kind = TracedOperand::Kind::own_buffer;
    if (kind == "input") result.kind = TracedOperand::Kind::input;
    if (result.kind == TracedOperand::Kind::none) return std::nullopt;
    result.name = text.substr(colon + 1);
    return result;
  }

  std::vector<TracedOperand> operands(const Json& row,
                                      std::string_view key,
                                      const std::string& at,
                                      bool there) {
    std::vector<TracedOperand> result;
    const Json* list = row.find(key);
    if (list == nullptr) return result;
    if (!list->is_array()) reader_.problem(below(at, key), "a list", described(*list));
    for (const Json& item : list->items()) {
      const std::optional<TracedOperand> one = operand(item);
      const bool missing =
          one && there && one->kind == TracedOperand::Kind::tensor && !is_made(one->tensor);
      if (!one || missing) {
        reader_.problem(
            below(at, key),
            "tensors that are there, null, or parameter:, buffer:, own: or input: with a name",
            described(item));
        continue;
      }
      result.push_back(*one);
    }
    return result;
  }

  void operation(const Json& row, const std::string& at, TracedEvent& event) {
    event.kind = TracedEvent::Kind::operation;
    event.name = row.find("op")->as_string();
    event.in = operands(row, "in", at, true);
    const Json* outs = row.find("out");
    if (outs == nullptr || !outs->is_array())
      reader_.problem(at + "/out", "a list of tensors", describe(outs));
    if (outs != nullptr) {
      for (const Json& item : outs->items()) {
        if (!item.is_integer() || item.as_integer() < 0 || item.as_integer() > last_tensor()) {
          reader_.problem(at + "/out", "tensors of the block", described(item));
          continue;
        }
        event.out.push_back(static_cast<std::int32_t>(item.as_integer()));
        // In place an operation gives what it takes.
        if (is_made(event.out.back()) && !event.name.ends_with('_')) {
          reader_.problem(at + "/out", "tensors that are not there yet", described(item));
        }
        made_[index(event.out.back())] = true;
      }
    }
    event.saves = operands(row, "saves", at, false);
    if (const Json* dims = row.find("dims")) {
      for (const Json& dim : dims->items()) {
        constexpr std::int64_t kMost = 64;
        if (!dim.is_integer() || std::abs(dim.as_integer()) > kMost) {
          reader_.problem(at + "/dims", "numbers of dimensions", described(dim));
          break;
        }
        event.dims.push_back(dim.as_integer());
      }
    }
    if (const Json* p = row.find("p")) {
      if (p->is_number())
        event.p = p->as_number();
      else
        reader_.problem(at + "/p", "a number", described(*p));
    }
    constexpr std::int64_t kMostStep = 1 << 20;
    if (row.find("step") != nullptr) event.step = reader_.integer(row, "step", at, 1, kMostStep);
    event.causal = reader_.flag(row, "causal", at, false);
    event.grouped = reader_.flag(row, "grouped", at, false);
    event.contiguous = reader_.flag(row, "contiguous", at, false);
    event.no_grad = reader_.flag(row, "no_grad", at, false);
  }

  TracedReader& reader_;
  std::string at_;
  std::int32_t slots_;
  TracedBlock result_;
  std::vector<bool> made_;  // by tensor: it is there
  std::vector<std::string> open_;
};

}  // namespace

TracedBlock read_traced_block(TracedReader& reader,
                              const Json& block,
                              const std::string& at,
                              std::int32_t slots) {
  return BlockReader(reader, at, slots).read(block);
}

}  // namespace zeroplan
