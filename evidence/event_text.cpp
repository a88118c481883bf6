#include "evidence/event_text.hpp"

#include <initializer_list>

namespace zeroplan::evidence {

namespace {

// ["name",field,...]: fields are given ready made.
std::string event(std::string_view name, std::initializer_list<std::string> fields = {}) {
  std::string text = "[\"";
  text += name;
  text += '"';
  for (const std::string& field : fields) {
    text += ',';
    text += field;
  }
  text += ']';
  return text;
}

std::string quoted(std::string_view word) {
  std::string text = "\"";
  text += word;
  text += '"';
  return text;
}

std::string number(std::int64_t value) { return std::to_string(value); }
std::string number(Elements value) { return std::to_string(value.count()); }

std::string_view stream_name(EngineStream stream) {
  switch (stream) {
    case EngineStream::compute:
      return "C";
    case EngineStream::reduce:
      return "R";
    case EngineStream::gather:
      return "A";
  }
  return "";
}

std::string_view collective_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return "ar";
    case CollectiveKind::reduce:
      return "red";
    case CollectiveKind::reduce_scatter:
      return "rs";
    case CollectiveKind::all_gather:
      return "ag";
    case CollectiveKind::broadcast:
      return "bc";
    case CollectiveKind::barrier:
      return "bar";
    case CollectiveKind::all_to_all:
      return "a2a";
  }
  return "";
}

std::string members_text(const EngineAction& action, const EngineActions& actions) {
  std::string text = "[";
  for (int member : actions.members_of(action)) {
    if (text.size() > 1) text += ',';
    text += std::to_string(member);
  }
  text += ']';
  return text;
}

std::string collective_text(const EngineAction& action) {
  const EngineCollective& collective = action.collective;
  std::string extra = "0";
  if (collective.kind == CollectiveKind::all_reduce) {
    extra = collective.operation == ReduceOperation::sum ? "\"SUM\"" : "\"MAX\"";
  } else if (collective.kind == CollectiveKind::reduce ||
             collective.kind == CollectiveKind::broadcast) {
    extra = number(collective.root);
  } else if (collective.in_place) {
    extra = "1";
  }
  return event(collective_name(collective.kind),
               {number(action.elements),
                quoted(recorded_dtype(action.dtype)),
                number(collective.ranks),
                collective.asynchronous ? "1" : "0",
                quoted(stream_name(action.stream)),
                extra});
}

std::string copy_text(std::string_view name, const EngineAction& action) {
  return event(
      name, {number(action.pieces), number(action.elements), quoted(recorded_dtype(action.dtype))});
}

}  // namespace

std::string event_text(const Json& value) {
  switch (value.type()) {
    case Json::Type::array: {
      std::string text = "[";
      for (const Json& item : value.items()) {
        if (text.size() > 1) text += ',';
        text += event_text(item);
      }
      text += ']';
      return text;
    }
    case Json::Type::integer:
      return std::to_string(value.as_integer());
    default:
      return value.dump();
  }
}

std::string_view recorded_dtype(DType dtype) {
  switch (dtype) {
    case DType::int64:
      return "i64";
    case DType::int8:
      return "i8";
    case DType::uint8:
      return "u8";
    case DType::boolean:
      return "b8";
    default:
      return name(dtype);
  }
}

std::string event_text(const EngineAction& action,
                       const EngineActions& actions,
                       int stage,
                       bool finished,
                       int& outstanding) {
  const std::string stream = quoted(stream_name(action.stream));
  switch (action.kind) {
    case ActionKind::gradient_ready:
      return event("g", {number(action.parameter)});
    case ActionKind::flush:
      return event("flush", {members_text(action, actions), number(action.elements)});
    case ActionKind::flatten:
      return copy_text("flat", action);
    case ActionKind::concatenate:
      return copy_text("cat", action);
    case ActionKind::collective:
      return collective_text(action);
    case ActionKind::keep_owned:
      return event("own", {number(action.parameter), number(action.elements)});
    case ActionKind::keep_partitions:
      return event("pg", {members_text(action, actions), number(action.pieces)});
    case ActionKind::accumulate_on_host:
      return event("acc_cpu", {number(action.parameter)});
    case ActionKind::gradient_to_master:
      return event(stage == 3 ? "off3" : "d2h32",
                   {number(action.parameter), number(action.elements)});
    case ActionKind::optimizer_step:
      return event(
          "opt",
          {number(action.group), number(action.elements), quoted(recorded_dtype(action.dtype))});
    case ActionKind::wait_stream:
      return event("ws", {stream, quoted(stream_name(action.other))});
    case ActionKind::host_wait_stream:
      return event("ss", {stream});
    case ActionKind::host_wait_device:
      return event("ds");
    case ActionKind::release_parameters:
      return event("gap");
    case ActionKind::record_event:
      ++outstanding;
      return event("er", {stream});
    case ActionKind::throttle:
      if (finished) outstanding = 0;
      if (outstanding <= action.pieces) return "";
      --outstanding;
      return event("es");
    default:
      return "";
  }
}

}  // namespace zeroplan::evidence
