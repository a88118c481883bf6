// What `zeroplan validate --plot` shows: the scored values with their intervals, by source.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "evidence/validate.hpp"

namespace zeroplan::cli {

// zeroplan.validation-plot/1, what configs/report/validation.js and scatter.js read:
// {"schema","files","rows","scenarios","skipped","sources":[…],"points":[{"kind":"memory|time","id",
// "source","strategy","metric","measured","predicted","low","high","error"}],"errors":[{"metric",
// "rows",…}],"worst":[{…,"why"}]}. Bytes and seconds: a rate stands as the time of a step that it
// comes to. Points are in the order of the report; `worst` is of both kinds, largest error first.
Json validation_document(const evidence::ValidationReport& report, std::size_t worst);

// Can `path`, .svg or .html, be drawn and written? Throws InputError.
void require_validation_plot(const std::string& path);
// Precondition: require_validation_plot. Is there a point to show?
bool write_validation_plot(const Json& document, const std::string& path);

}  // namespace zeroplan::cli
