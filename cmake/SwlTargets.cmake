# Small helpers of the folders' CMake files.

# swl_kernel_sources(files...): in the sim place, compile .cu files as C++.
function(swl_kernel_sources)
    if(SWL_PLACE STREQUAL sim)
        # CMP0119: an explicit LANGUAGE adds -x c++.
        set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX)
    endif()
endfunction()

# swl_without_tsan(files...): the emulator core is never instrumented by TSan.
function(swl_without_tsan)
    if(SWL_SANITIZE STREQUAL thread)
        set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=thread)
    endif()
endfunction()

# A limit ends a hang and nothing else: ten times what a test may take on idle cores, as others use them too.
# Who may take longest starts first, so that no long test is left alone at the end.
function(swl_limit test seconds)
    math(EXPR limit "10 * ${seconds}")
    if(limit GREATER 5400)
        set(limit 5400)
    endif()
    if(limit LESS seconds)
        set(limit ${seconds})
    endif()
    set_tests_properties(${test} PROPERTIES TIMEOUT ${limit} COST ${seconds})
endfunction()

# swl_test(<name> SOURCES <file>... [LIBS <target>...] [LABELS <label>...] [TIMEOUT <s>]
#          [ENV <VAR=value>...]): one gtest program, registered as one ctest test. Called from a
# <group>.cmake file; relative sources are looked up beside that file.
function(swl_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;LIBS;LABELS;ENV")
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 120)
    endif()
    get_filename_component(here "${CMAKE_CURRENT_LIST_FILE}" DIRECTORY)
    set(sources "")
    foreach(source ${arg_SOURCES})
        if(NOT IS_ABSOLUTE "${source}" AND NOT source MATCHES "^\\$<")
            set(source "${here}/${source}")
        endif()
        list(APPEND sources "${source}")
    endforeach()
    find_package(GTest REQUIRED)
    add_executable(${name} ${sources})
    target_link_libraries(${name} PRIVATE swl_flags ${arg_LIBS} GTest::gtest_main)
    # nine tenths of a build are the code of tests, which runs for a small part of the time
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-O0>)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" ENVIRONMENT "${arg_ENV}")
    swl_limit(${name} ${arg_TIMEOUT})
endfunction()

# swl_shard(<test> <half> <seconds> <env>): a test that runs a share of a program by GTEST_SHARD_INDEX.
# A check with a sanitizer takes every second share (half_0 or half_1) of what is divided so.
function(swl_shard test half seconds env)
    set_tests_properties(${test} PROPERTIES LABELS "sim;half_${half}" ENVIRONMENT "${env}")
    swl_limit(${test} ${seconds})
endfunction()
