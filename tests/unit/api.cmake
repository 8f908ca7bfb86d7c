# Tests of the base, of the public functions and of their checks, against a fake device and a fake
# group; of the library file; of headers and includes.
add_library(fake_place OBJECT "${swl_test_support}/fake_place.cc"
            "${PROJECT_SOURCE_DIR}/src/runtime/result.c")
target_link_libraries(fake_place PRIVATE swl_flags swl_place GTest::gtest)
foreach(test error options api_group api_handle api_data tensor)
    swl_test(${test}_test SOURCES ${test}_test.cc LIBS swl_base swl_api fake_place LABELS unit)
endforeach()
# it asks for more memory than there is; a sanitizer ends the program then, unless it is told otherwise
set_tests_properties(error_test PROPERTIES ENVIRONMENT
                     "ASAN_OPTIONS=allocator_may_return_null=1;TSAN_OPTIONS=allocator_may_return_null=1")

swl_test(door_test SOURCES door_test.cc ${PROJECT_SOURCE_DIR}/src/base/door.c
         ${PROJECT_SOURCE_DIR}/src/base/socket.c LIBS swl_flags LABELS unit)

add_executable(options_doc "${CMAKE_CURRENT_LIST_DIR}/options_doc.cc")
target_link_libraries(options_doc PRIVATE swl_flags swl_base swl_api fake_place GTest::gtest)
add_test(NAME options_doc COMMAND options_doc "${PROJECT_SOURCE_DIR}/docs/tuning.md")
set_tests_properties(options_doc PROPERTIES LABELS unit TIMEOUT 600)

swl_test(abi_test SOURCES abi_test.cc LIBS swl_place LABELS unit
         ENV "SWL_TEST_LIBRARY=$<TARGET_FILE:nccl_ep>")
add_dependencies(abi_test nccl_ep)
add_executable(abi_load "${CMAKE_CURRENT_LIST_DIR}/abi_load.c")
target_link_libraries(abi_load PRIVATE swl_flags)
add_test(NAME abi_check
         COMMAND "${CMAKE_CURRENT_LIST_DIR}/abi_check.sh" $<TARGET_FILE:nccl_ep>
                 $<TARGET_FILE:nccl_ep_static> $<TARGET_FILE:abi_load> ${SWL_PLACE})
set_tests_properties(abi_check PROPERTIES LABELS unit TIMEOUT 3000)

# The real CUDA and NCCL headers and nvcc, where this machine has them.
find_program(SWL_NVCC nvcc HINTS /usr/local/cuda/bin)
find_path(SWL_CUDA_HEADERS nccl.h HINTS /usr/local/cuda/include)
if(NOT EXISTS "${SWL_CUDA_HEADERS}/cuda.h" OR NOT EXISTS "${SWL_CUDA_HEADERS}/cuda_runtime.h")
    set(SWL_CUDA_HEADERS SWL_CUDA_HEADERS-NOTFOUND)
endif()
# Of the sources alone, with compilers of their own: no preset makes a difference, so one has them.
if(SWL_PLACE STREQUAL sim AND NOT SWL_SANITIZE)
    add_test(NAME check_parts COMMAND "${CMAKE_CURRENT_LIST_DIR}/check_parts_test.sh" "${PROJECT_SOURCE_DIR}")
    set_tests_properties(check_parts PROPERTIES LABELS unit TIMEOUT 1200)
    add_test(NAME include_rules COMMAND "${CMAKE_CURRENT_LIST_DIR}/include_rules.sh")
    add_test(NAME headers_alone
             COMMAND "${CMAKE_CURRENT_LIST_DIR}/headers_alone.sh"
                     "$<$<BOOL:${SWL_CUDA_HEADERS}>:${SWL_CUDA_HEADERS}>"
                     "$<$<BOOL:${SWL_NVCC}>:${SWL_NVCC}>")
    set_tests_properties(include_rules headers_alone PROPERTIES LABELS unit TIMEOUT 3000 COST 3000)
endif()

# What the cuda place is built for; once, wherever there is an nvcc.
if(SWL_NVCC AND SWL_PLACE STREQUAL sim AND NOT SWL_SANITIZE)
    add_test(NAME targets_test COMMAND "${CMAKE_CURRENT_LIST_DIR}/targets_test.sh" "${SWL_NVCC}")
    set_tests_properties(targets_test PROPERTIES TIMEOUT 5400 LABELS unit)
endif()

# Sanitizers want their runtime in the program, which a plain compiler does not put there.
if(TARGET nccl_ep AND SWL_PLACE STREQUAL sim AND NOT SWL_SANITIZE)
    add_test(NAME install_test COMMAND "${CMAKE_CURRENT_LIST_DIR}/install_test.sh"
                                       "${PROJECT_BINARY_DIR}" "${CMAKE_C_COMPILER}")
    set_tests_properties(install_test PROPERTIES TIMEOUT 1200 LABELS unit SKIP_RETURN_CODE 77)
endif()
