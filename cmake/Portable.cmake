# The libraries that come as source or headers, as targets: nlohmann_json::nlohmann_json, fmt::fmt, Eigen3::Eigen.
#
# ZEROPLAN_PORTABLE makes a program for other machines: nothing is linked but the C library, so that a wheel holds one
# file. The headers are reached through a folder of links, because a compiler for an older C library (scripts/
# build_wheel.sh) must not see the rest of /usr/include.
option(ZEROPLAN_PORTABLE "Link nothing but the C library: the program runs on other machines" OFF)

if(NOT ZEROPLAN_PORTABLE)
  find_package(nlohmann_json 3.11 REQUIRED)
  find_package(fmt REQUIRED)
  find_package(Eigen3 3.4 REQUIRED NO_MODULE)
  return()
endif()

set(portable_include ${CMAKE_BINARY_DIR}/portable_include)
file(MAKE_DIRECTORY ${portable_include})

# zeroplan_headers(TARGET HEADER PACKAGE SUFFIXES...): the interface library TARGET with the headers around HEADER of this
# machine. PACKAGE is Debian's: who runs `pip install .` without it reads its name last.
function(zeroplan_headers target header package)
  string(MAKE_C_IDENTIFIER "ZEROPLAN_${header}_FOLDER" folder)
  find_path(${folder} ${header} PATH_SUFFIXES ${ARGN})
  if(NOT ${folder})
    message(FATAL_ERROR "${header} was not found, which the build needs. Debian and Ubuntu: sudo apt-get install "
                        "nlohmann-json3-dev libfmt-dev libeigen3-dev libyaml-dev (${package} has this one)")
  endif()
  get_filename_component(name ${header} DIRECTORY)
  file(CREATE_LINK ${${folder}}/${name} ${portable_include}/${name} SYMBOLIC)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} INTERFACE ${portable_include})
endfunction()

zeroplan_headers(nlohmann_json::nlohmann_json nlohmann/json.hpp nlohmann-json3-dev)
zeroplan_headers(fmt::fmt fmt/format.h libfmt-dev)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
zeroplan_headers(Eigen3::Eigen Eigen/Core libeigen3-dev eigen3)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_link_options(-static-libstdc++ -static-libgcc)
endif()
