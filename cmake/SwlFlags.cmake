# swl_flags: warnings, include path, floating point rule and sanitizers; every target links it.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_package(Threads REQUIRED)

add_library(swl_flags INTERFACE)
target_include_directories(swl_flags INTERFACE "${PROJECT_SOURCE_DIR}"
                                               "${PROJECT_SOURCE_DIR}/include")
# Strict C11 hides POSIX; C++ compilers define it themselves.
target_compile_definitions(swl_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE>)
target_compile_options(
    swl_flags
    INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wvla;-Werror>"
              # g++ also objects to a function with the name of a struct, which C headers have
              $<IF:$<COMPILE_LANG_AND_ID:CXX,GNU>,-Wshadow=local,$<$<COMPILE_LANGUAGE:C,CXX>:-Wshadow>>
              "$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes>"
              $<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>
              # Device memory has no types: rows and slots are read and written as 16-byte words.
              $<$<COMPILE_LANGUAGE:C,CXX>:-fno-strict-aliasing>)
target_link_libraries(swl_flags INTERFACE Threads::Threads ${CMAKE_DL_LIBS})

# The emulator core opts out of TSan file by file (swl_without_tsan): it switches the fibers that TSan
# watches. Its library still links the sanitizer's runtime.
# The check of vtables opens a pipe to see whether memory is there: with few descriptors it finds none.
if(SWL_SANITIZE STREQUAL address)
    set(options -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined
                -fno-omit-frame-pointer)
elseif(SWL_SANITIZE STREQUAL thread)
    set(options -fsanitize=thread -fno-omit-frame-pointer)
elseif(SWL_SANITIZE)
    message(FATAL_ERROR "SWL_SANITIZE is '${SWL_SANITIZE}'; it must be empty, address or thread")
endif()
if(options)
    target_compile_options(swl_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:${options}>")
    target_link_options(swl_flags INTERFACE ${options})
endif()
