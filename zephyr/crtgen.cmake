# crtgen for Zephyr applications:
#
#     crtgen_add_model(app models/kws.tflite)
#
# turns model files into C for the board of the build and links it to a target. An application names all its
# models in one call. Options: OPTIMIZE <speed|size|balanced>, KEEP_INPUTS, PROFILE. A model file that changes
# is turned into C again by the next build.
include_guard(GLOBAL)

function(crtgen_add_model target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "KEEP_INPUTS;PROFILE" "OPTIMIZE" "")
  if(NOT arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "crtgen_add_model: name a model file")
  endif()
  if(TARGET crt_model)
    message(FATAL_ERROR "crtgen_add_model: name all models in one call, they share one registry")
  endif()
  foreach(model ${arg_UNPARSED_ARGUMENTS})
    get_filename_component(file ${model} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
    if(NOT EXISTS ${file})
      message(FATAL_ERROR "crtgen_add_model: there is no file ${file}")
    endif()
    list(APPEND files ${file})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()

  set(options --type library --platform zephyr --board ${BOARD}${BOARD_QUALIFIERS})
  crtgen_core(core)
  if(core)
    list(APPEND options --core ${core})
  endif()
  if(arg_OPTIMIZE)
    list(APPEND options --optimize ${arg_OPTIMIZE})
  endif()
  if(arg_KEEP_INPUTS)
    list(APPEND options --keep-inputs)
  endif()
  if(arg_PROFILE)
    list(APPEND options --profile)
  endif()

  get_filename_component(beside_python "${PYTHON_EXECUTABLE}" DIRECTORY)
  find_program(CRTGEN crtgen HINTS ${beside_python})
  if(NOT CRTGEN)
    message(FATAL_ERROR "crtgen_add_model: crtgen is not installed; pip install crtgen")
  endif()
  set(directory ${CMAKE_CURRENT_BINARY_DIR}/crtgen)
  execute_process(
    COMMAND ${CRTGEN} generate ${files} ${directory} ${options}
    RESULT_VARIABLE status
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output
  )
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "crtgen_add_model: crtgen failed\n${output}")
  endif()
  message(STATUS "crtgen: ${output}")
  include(${directory}/crtgen.cmake)
  target_link_libraries(${target} PRIVATE crt_model)
endfunction()

# The core as crtgen names it, for a board that crtgen does not know; empty for a core that it does not know.
function(crtgen_core result)
  set(core "")
  foreach(known M0PLUS M3 M4 M7 M33 M55 M85)
    if(CONFIG_CPU_CORTEX_${known})
      string(TOLOWER cortex-${known} core)
    endif()
  endforeach()
  if(CONFIG_CPU_CORTEX_M0)
    set(core cortex-m0plus)
  endif()
  if(CONFIG_CPU_CORTEX_M33 AND NOT CONFIG_ARMV8_M_DSP)
    set(core cortex-m33+nodsp+nofp)
  endif()
  set(${result} ${core} PARENT_SCOPE)
endfunction()
