# Device runtime, stand-in CUDA runtime and NCCL, rank launcher.
if(SWL_PLACE STREQUAL sim)
    swl_test(
        sim_runtime_test
        SOURCES runtime_stream_test.cc runtime_memory_test.cc runtime_graph_test.cc
        LIBS swl_support
        LABELS sim tsan)
    swl_test(
        sim_nccl_test
        SOURCES runtime_nccl_test.cc runtime_ranks_test.cc
        LIBS swl_support
        LABELS sim tsan)
    swl_test(
        sim_wire_test
        SOURCES runtime_wire_test.cc
        LIBS swl_support
        LABELS sim
        TIMEOUT 120)
    # What libswl_nccl.so is made of in the cuda place.
    set(standin "")
    foreach(part call collective comm hub place_cuda reduce window wire)
        list(APPEND standin "${PROJECT_SOURCE_DIR}/sim/nccl_${part}.cc")
    endforeach()
    swl_test(
        sim_standin_cuda_test
        SOURCES standin_cuda_test.cc ${standin}
        LIBS swl_support
        LABELS sim tsan
        TIMEOUT 120)
    target_link_options(sim_standin_cuda_test PRIVATE
                        -Wl,--export-dynamic-symbol=swl_launcher_node)
endif()

# The stand-in headers against the real ones, on machines that have those.
if(SWL_PLACE STREQUAL sim)
    find_path(SWL_REAL_CUDA_INCLUDE cuda_runtime.h HINTS /usr/local/cuda/include NO_CACHE)
    find_path(SWL_REAL_NCCL_INCLUDE nccl.h HINTS /usr/local/cuda/include NO_CACHE)
    if(SWL_REAL_CUDA_INCLUDE AND SWL_REAL_NCCL_INCLUDE)
        add_library(standin_sim OBJECT "${CMAKE_CURRENT_LIST_DIR}/standin_values_sim.c")
        target_include_directories(standin_sim PRIVATE "${PROJECT_SOURCE_DIR}/sim/include")
        add_library(standin_real OBJECT "${CMAKE_CURRENT_LIST_DIR}/standin_values_real.c")
        target_include_directories(standin_real SYSTEM PRIVATE "${SWL_REAL_NCCL_INCLUDE}"
                                                               "${SWL_REAL_CUDA_INCLUDE}")
        swl_test(sim_standin_test SOURCES standin_test.cc $<TARGET_OBJECTS:standin_sim>
                                          $<TARGET_OBJECTS:standin_real>
                 LABELS unit)
    else()
        message(STATUS "no CUDA or NCCL headers: the stand-in headers are not compared with them")
    endif()
endif()
