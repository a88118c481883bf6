// Places in a JSON document by their pointers (RFC 6901).
#pragma once

#include <string_view>

#include "base/json.hpp"

namespace zeroplan {

// The place of a pointer, "" for the root; objects on the way are made. Precondition: no array and
// no plain value is on the way.
Json& json_at(Json& root, std::string_view pointer);

}  // namespace zeroplan
