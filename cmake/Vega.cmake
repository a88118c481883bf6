# Vega, which draws the pages, as one script: ZEROPLAN_VEGA is the file that the build makes of it, empty where there is
# none. Included by a directory that has a target with it among its sources.
set(vega_modules util time format loader dataflow statistics scale canvas scenegraph expression
  event-selector selection functions runtime view parser transforms encode view-transforms label
  interpreter)
find_path(ZEROPLAN_VEGA_DIR vega-parser.min.js PATHS /usr/share/javascript/vega
          DOC "Folder with Vega's modules (Debian: libjs-vega)" NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
set(ZEROPLAN_VEGA)
if(ZEROPLAN_VEGA_DIR)
  set(ZEROPLAN_VEGA ${CMAKE_BINARY_DIR}/vega.js)
  set(vega_files ${vega_modules})
  list(TRANSFORM vega_files REPLACE "(.+)" "${ZEROPLAN_VEGA_DIR}/vega-\\1.min.js")
  add_custom_command(
    OUTPUT ${ZEROPLAN_VEGA}
    COMMAND ${CMAKE_COMMAND} -DVEGA_DIR=${ZEROPLAN_VEGA_DIR} "-DMODULES=${vega_modules}"
            -DOUTPUT=${ZEROPLAN_VEGA} -P ${CMAKE_SOURCE_DIR}/cmake/BundleVega.cmake
    DEPENDS ${vega_files} ${CMAKE_SOURCE_DIR}/cmake/BundleVega.cmake
    COMMENT "Joining Vega's modules"
    VERBATIM)
endif()
