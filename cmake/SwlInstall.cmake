# cmake --install: library, public headers, swimlane.pc. In the sim place also the emulator, and the
# stand-ins of the CUDA and NCCL headers in a folder of their own.
include(GNUInstallDirs)

set(pc_libs "-lnccl_ep")
# What a program needs beside the static library, which names nothing itself.
set(pc_private "-lm -ldl -lpthread")
set(pc_cflags "-I\${includedir}")
set(pc_description "expert-parallel dispatch and combine behind the ncclEp interface")
if(SWL_PLACE STREQUAL sim)
    set(stand_ins "${CMAKE_INSTALL_INCLUDEDIR}/swimlane-emulator")
    string(APPEND pc_libs " -lswl_sim")
    string(PREPEND pc_private "-lstdc++ ") # kernels are C++ here
    string(APPEND pc_cflags " -I\${includedir}/swimlane-emulator")
    string(APPEND pc_description ", emulated")
    install(TARGETS swl_sim LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/sim/include/" DESTINATION "${stand_ins}")
    # Each library finds the other beside itself.
    set_target_properties(nccl_ep swl_sim PROPERTIES INSTALL_RPATH "$ORIGIN")
else()
    get_filename_component(nccl_folder "${SWL_NCCL_LIBRARY}" DIRECTORY)
    get_filename_component(nccl_file "${SWL_NCCL_LIBRARY}" NAME)
    string(PREPEND pc_private "-L${nccl_folder} -l:${nccl_file} -L${CUDAToolkit_LIBRARY_DIR} "
                              "-lcudart_static -lrt ")
endif()

install(TARGETS nccl_ep nccl_ep_static
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/include/nccl_ep.h" "${PROJECT_SOURCE_DIR}/include/swimlane.h"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/nccl_ep"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")

# The prefix is where the file lies, so that an installed tree can be moved.
file(RELATIVE_PATH pc_prefix "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
configure_file("${CMAKE_CURRENT_LIST_DIR}/swimlane.pc.in" "${PROJECT_BINARY_DIR}/swimlane.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/swimlane.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
