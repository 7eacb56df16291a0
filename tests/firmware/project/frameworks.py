"""Stand-ins for frameworks: what Arduino, ESP-IDF and a debugger bring, as small as they can be."""

import subprocess
from pathlib import Path

from tests.support import require_tool

__all__ = [
    "ARDUINO_H",
    "ESPHOME_HEADERS",
    "ESPHOME_MAIN",
    "ESPHOME_MODULES",
    "ESP_PROJECT",
    "LINK",
    "SKETCH_MAIN",
    "STARTUP",
    "emulated",
    "run",
]

ARDUINO_H = """
#pragma once
#include <stdint.h>
struct Port {
    void begin(unsigned long);
    void print(const char *);
    void print(char);
    void print(long);
    void print(double);
    void println(const char *);
    void println();
    unsigned write(const uint8_t *, unsigned);
};
extern Port Serial;
void delay(unsigned long);
"""

SKETCH_MAIN = """
#include <Arduino.h>
#include <stdio.h>
#include <stdlib.h>
void setup();
void loop();
Port Serial;
void Port::begin(unsigned long) {}
void Port::print(const char *text) { printf("%s", text); }
void Port::print(char letter) { printf("%c", letter); }
void Port::print(long number) { printf("%ld", number); }
void Port::print(double number) { printf("%.3f", number); }
void Port::println(const char *text) { printf("%s\\n", text); }
void Port::println() { printf("\\n"); }
unsigned Port::write(const uint8_t *bytes, unsigned size) { return (unsigned)fwrite(bytes, 1, size, stdout); }
void delay(unsigned long) { exit(0); }
int main() { setup(); for (;;) loop(); }
"""

STARTUP = """
extern void _start(void);
static void reset(void)
{
    *(volatile unsigned *)0xe000ed88u |= 0xfu << 20; /* the FPU is on */
    __asm volatile("dsb\\nisb");
    _start();
}
__attribute__((section(".crt_vectors"), used))
const void *const vectors[] = {(void *)0x00400000, (void *)reset};
"""
"""For a C library that talks to a debugger, on a machine whose memory begins at 0."""

LINK = (
    "--specs=rdimon.specs",
    "-Wl,--gc-sections",
    "-Wl,--undefined=vectors",
    "-Wl,--section-start=.crt_vectors=0",
)

ESP_PROJECT = """
macro(project name)
  _project(${name} C CXX ASM)
  add_executable(${name} ${IDF_PATH}/main.c)
  foreach(folder ${EXTRA_COMPONENT_DIRS} ${CMAKE_CURRENT_LIST_DIR}/main)
    get_filename_component(component ${folder} NAME)
    set(COMPONENT_LIB ${component})
    add_subdirectory(${folder} ${component})
    target_link_libraries(${name} PRIVATE ${component} m)
  endforeach()
endmacro()
set(IDF_PATH $ENV{IDF_PATH})

function(idf_component_register)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "SRCS;INCLUDE_DIRS;PRIV_INCLUDE_DIRS;REQUIRES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${arg_UNPARSED_ARGUMENTS}")
  endif()
  add_library(${COMPONENT_LIB} STATIC ${arg_SRCS})
  target_include_directories(${COMPONENT_LIB} PUBLIC ${arg_INCLUDE_DIRS} PRIVATE ${arg_PRIV_INCLUDE_DIRS})
  if(COMPONENT_LIB STREQUAL main)
    foreach(folder ${EXTRA_COMPONENT_DIRS})
      get_filename_component(component ${folder} NAME)
      target_link_libraries(main PUBLIC ${component})
    endforeach()
  endif()
endfunction()
"""


ESPHOME_HEADERS = {
    "component.h": """
#pragma once
namespace esphome {
class Component {
 public:
  virtual void setup() {}
  virtual void dump_config() {}
  void mark_failed() { failed_ = true; }
  bool is_failed() const { return failed_; }
 private:
  bool failed_{false};
};
}
""",
    "log.h": """
#pragma once
#include <cstdio>
#define ESP_LOGCONFIG(tag, ...) (std::printf("%s: ", tag), std::printf(__VA_ARGS__), std::printf("\\n"))
#define ESP_LOGE ESP_LOGCONFIG
""",
}

ESPHOME_MAIN = """
#include "network.h"
int main() {
  esphome::crtgen_digits::Network network;
  network.setup();
  network.dump_config();
  return network.is_failed() ? 1 : 0;
}
"""

ESPHOME_MODULES = """
import sys, types
from unittest.mock import MagicMock, AsyncMock
called = {}
esp32 = types.ModuleType("esphome.components.esp32")
esp32.add_idf_component = lambda **words: called.update(words)
codegen, validation = MagicMock(), MagicMock()
codegen.register_component = AsyncMock()
const = types.ModuleType("esphome.const")
const.CONF_ID = "id"
for name, module in {
    "esphome": MagicMock(codegen=codegen, config_validation=validation), "esphome.codegen": codegen,
    "esphome.config_validation": validation, "esphome.components": MagicMock(), "esphome.const": const,
    "esphome.components.esp32": esp32,
}.items():
    sys.modules[name] = module
import asyncio, importlib.util
spec = importlib.util.spec_from_file_location("component", sys.argv[1])
component = importlib.util.module_from_spec(spec)
spec.loader.exec_module(component)
asyncio.run(component.to_code({"id": 1}))
print(component.DEPENDENCIES, called["name"], called["path"], codegen.register_component.await_count)
"""


def run(*command: object, where: Path, ok: bool = True) -> str:
    """What a program prints, which has to end well, or not."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=where, capture_output=True, text=True, timeout=240)
    assert (done.returncode == 0) == ok, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def emulated(elf: Path) -> list[str]:
    """The lines that an image for a Cortex-M4 prints by way of semihosting."""
    qemu = require_tool("qemu-system-arm", "apt install qemu-system-arm")
    machine = ("-machine", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "none")
    options = ("-semihosting-config", "enable=on,target=native", "-kernel", elf)
    return run(qemu, *machine, *options, where=elf.parent).splitlines()
