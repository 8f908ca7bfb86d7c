# swl_place: headers of CUDA and NCCL, or their stand-ins.
add_library(swl_place INTERFACE)
if(SWL_PLACE STREQUAL sim)
    target_include_directories(swl_place INTERFACE "${PROJECT_SOURCE_DIR}/sim"
                                                   "${PROJECT_SOURCE_DIR}/sim/include")
else()
    # NCCL's first: the toolkit's folder may hold another release's header.
    target_include_directories(swl_place SYSTEM INTERFACE "${SWL_NCCL_INCLUDE_DIR}"
                                                          ${CUDAToolkit_INCLUDE_DIRS})
endif()
