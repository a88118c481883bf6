# Joins Vega's modules (Debian's libjs-vega has one UMD file each) into one script that defines the
# global `vega`:
#   cmake -DVEGA_DIR=<folder> -DMODULES="util;time;..." -DOUTPUT=<file> -P cmake/BundleVega.cmake
# The modules find each other by name through a loader as CommonJS has it. What index.js of the npm
# package vega re-exports is copied behind them.
set(script "(function () {\nconst makers = {}, made = {};
function load(name) {
  if (!(name in made)) {
    const module = made[name] = {exports: {}};
    makers[name](module, module.exports, load);
  }
  return made[name].exports;
}\n")
foreach(module IN LISTS MODULES)
  file(READ "${VEGA_DIR}/vega-${module}.min.js" text)
  string(REGEX REPLACE "//# sourceMappingURL=[^\n]*" "" text "${text}")
  # A <script> element of a page ends here, whatever JavaScript means by it.
  string(FIND "${text}" "</script" ends)
  string(FIND "${text}" "<!--" comments)
  if(NOT ends EQUAL -1 OR NOT comments EQUAL -1)
    message(FATAL_ERROR "vega-${module}.min.js cannot stand in a page")
  endif()
  string(APPEND script "makers['vega-${module}'] = function (module, exports, require) {\n${text}\n};\n")
endforeach()
string(APPEND script "makers['vega-selections'] = makers['vega-selection'];
const names = ['vega-util', 'vega-loader', 'vega-scenegraph', 'vega-dataflow', 'vega-view', 'vega-parser',
  'vega-interpreter'];
globalThis.vega = Object.assign({}, ...names.map(load));
const transforms = ['vega-transforms', 'vega-view-transforms', 'vega-encode', 'vega-label'];
Object.assign(load('vega-dataflow').transforms, ...transforms.map(load));
})();\n")
file(WRITE "${OUTPUT}" "${script}")
