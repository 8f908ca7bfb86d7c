# The cuda place: nvcc, ahead-of-time code for every supported GPU, and PTX for later ones.
if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90-real 100-real 103-real 120-real 120-virtual)
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
find_package(CUDAToolkit REQUIRED)
target_compile_options(
    swl_flags
    INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xptxas;--warn-on-spills,--warn-on-local-memory-usage;-Xcompiler;-Wall,-ffp-contract=off;-fmad=false>"
)
