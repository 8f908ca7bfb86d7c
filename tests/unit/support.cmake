# Helpers of the tools.
swl_test(oracle_test SOURCES oracle_test.cc LIBS swl_support LABELS unit)
swl_test(support_test SOURCES support_test.cc LIBS swl_support LABELS unit)
swl_test(launch_test SOURCES launch_test.cc LIBS swl_support LABELS unit)
swl_test(meeting_test SOURCES meeting_test.cc meeting_file_test.cc meeting_strangers_test.cc
         LIBS swl_support ${CMAKE_DL_LIBS} LABELS unit)
find_package(Python3 COMPONENTS Interpreter)
if(TARGET swimlane-info AND Python3_FOUND)
    add_test(NAME info_test COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/info_test.py"
                                    $<TARGET_FILE:swimlane-info>)
    set_tests_properties(info_test PROPERTIES LABELS unit TIMEOUT 5400)
    if(NOT SWL_SANITIZE) # a sanitizer has a dlopen of its own
        add_library(hide_rdma MODULE "${CMAKE_CURRENT_LIST_DIR}/hide_rdma.c")
        target_link_libraries(hide_rdma PRIVATE swl_flags ${CMAKE_DL_LIBS})
        set_target_properties(hide_rdma PROPERTIES C_EXTENSIONS ON)
        add_dependencies(swimlane-info hide_rdma)
        set_tests_properties(info_test PROPERTIES ENVIRONMENT HIDE_RDMA=$<TARGET_FILE:hide_rdma>)
    endif()
endif()
# Who needs whom among the files of a folder.
if(Python3_FOUND AND SWL_PLACE STREQUAL sim AND TARGET swl_bench AND NOT SWL_SANITIZE)
    set(objects "")
    foreach(part swl_base swl_runtime swl_api swl_core swl_kernels swl_transport swl_sim swl_support swl_bench
                 swimlane-bench swimlane-info)
        string(APPEND objects "$<JOIN:$<TARGET_OBJECTS:${part}>,\n>\n")
    endforeach()
    file(GENERATE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/objects.txt" CONTENT "${objects}")
    add_test(NAME circles_test COMMAND Python3::Interpreter
                                       "${CMAKE_CURRENT_LIST_DIR}/circles_test.py" ${CMAKE_NM}
                                       "${CMAKE_CURRENT_BINARY_DIR}/objects.txt")
    set_tests_properties(circles_test PROPERTIES LABELS unit TIMEOUT 1200)
endif()
# What tools/lint says of the sources without a compiler.
if(Python3_FOUND AND SWL_PLACE STREQUAL sim AND NOT SWL_SANITIZE)
    add_test(NAME functions_test COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/functions_test.py")
    set_tests_properties(functions_test PROPERTIES LABELS unit TIMEOUT 600)
    add_test(NAME words_test COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/words_test.py")
    set_tests_properties(words_test PROPERTIES LABELS unit TIMEOUT 600)
    add_test(NAME sentences_test COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/sentences_test.py")
    set_tests_properties(sentences_test PROPERTIES LABELS unit TIMEOUT 600)
    add_test(NAME columns_test COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/columns_test.py")
    set_tests_properties(columns_test PROPERTIES LABELS unit TIMEOUT 600)
    if(EXISTS "${PROJECT_SOURCE_DIR}/.git")
        add_test(NAME rules_test COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/tools/support/rules.py"
                 WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
        set_tests_properties(rules_test PROPERTIES LABELS unit TIMEOUT 600)
        add_test(NAME retired_words_test COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/tools/support/words.py"
                 WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
        set_tests_properties(retired_words_test PROPERTIES LABELS unit TIMEOUT 600)
        add_test(NAME docs_sentences_test
                 COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/tools/support/sentences.py"
                 WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
        set_tests_properties(docs_sentences_test PROPERTIES LABELS unit TIMEOUT 600)
    endif()
endif()
