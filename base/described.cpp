#include "base/described.hpp"

#include "base/diagnostic.hpp"

namespace zeroplan {

Phrase described(const Json& value) {
  const std::size_t items = value.items().size();
  const std::size_t members = value.members().size();
  switch (value.type()) {
    case Json::Type::string:
      return in_quotes(value.as_string());
    case Json::Type::array:
      return items == 1 ? phrase("an array of {} item", items)
                        : phrase("an array of {} items", items);
    case Json::Type::object:
      return members == 1 ? phrase("an object of {} member", members)
                          : phrase("an object of {} members", members);
    default:
      return value.dump();
  }
}

}  // namespace zeroplan
