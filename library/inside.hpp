// The public header as the library's own sources read it: its types are v1::Scenario and so on.
#pragma once

#define ZEROPLAN_INSIDE
#include "include/zeroplan/zeroplan.hpp"
