# NCCL of the cuda place: SWL_NCCL_LIBRARY and SWL_NCCL_INCLUDE_DIR. Looked up in NCCL_HOME (a CMake or
# environment variable; nothing else is tried then), else in the nvidia.nccl Python package, else where
# the compiler and the CUDA toolkit look. The newest of the machine's releases is often the package's.
if(NOT NCCL_HOME AND DEFINED ENV{NCCL_HOME})
    set(NCCL_HOME "$ENV{NCCL_HOME}")
endif()

# swl_nccl_in(<folder>): take the NCCL below <folder>, if there is one.
function(swl_nccl_in folder)
    find_library(SWL_NCCL_LIBRARY NAMES nccl libnccl.so.2 PATHS "${folder}"
                 PATH_SUFFIXES lib lib64 NO_DEFAULT_PATH)
    find_path(SWL_NCCL_INCLUDE_DIR nccl.h PATHS "${folder}" PATH_SUFFIXES include NO_DEFAULT_PATH)
endfunction()

if(NCCL_HOME)
    swl_nccl_in("${NCCL_HOME}")
    if(NOT SWL_NCCL_LIBRARY OR NOT SWL_NCCL_INCLUDE_DIR)
        message(FATAL_ERROR "NCCL_HOME is '${NCCL_HOME}', but it has no lib/libnccl.so.2 or no "
                            "include/nccl.h")
    endif()
elseif(NOT SWL_NCCL_LIBRARY)
    find_program(SWL_PYTHON python3)
    if(SWL_PYTHON)
        execute_process(
            COMMAND
                "${SWL_PYTHON}" -c
                "import importlib.util as u; print(u.find_spec('nvidia.nccl').submodule_search_locations[0])"
            OUTPUT_VARIABLE package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
        if(package)
            swl_nccl_in("${package}")
        endif()
    endif()
    if(NOT SWL_NCCL_LIBRARY OR NOT SWL_NCCL_INCLUDE_DIR)
        unset(SWL_NCCL_LIBRARY CACHE)
        unset(SWL_NCCL_INCLUDE_DIR CACHE)
    endif()
endif()
find_library(SWL_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS "${CUDAToolkit_LIBRARY_DIR}" REQUIRED)
find_path(SWL_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)

file(STRINGS "${SWL_NCCL_INCLUDE_DIR}/nccl.h" numbers
     REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
string(REGEX REPLACE "[^0-9;]" "" numbers "${numbers}")
string(REPLACE ";" "." SWL_NCCL_VERSION "${numbers}")
message(STATUS "NCCL ${SWL_NCCL_VERSION}: ${SWL_NCCL_LIBRARY}, headers in ${SWL_NCCL_INCLUDE_DIR}")
if(SWL_NCCL_VERSION VERSION_LESS 2.28)
    message(FATAL_ERROR "NCCL 2.28 or newer is needed")
endif()
