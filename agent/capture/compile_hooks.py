"""Compiles the hook modules for the Python that runs the build.

    compile_hooks.py FILE.py... > hooks_code.h

Writes a header with the array kHookCode of struct EmbeddedCode, ended by an entry
of null pointers, and kHookCodeMagic: what importlib.util.MAGIC_NUMBER is where
this code runs. Compiling the sources when torch is imported takes tens of
milliseconds; other versions of Python do that.
"""

import importlib.util
import marshal
import pathlib
import sys


def main(paths):
    print("#include <cstddef>")
    print("struct EmbeddedCode { const char* name; const char* bytes; size_t size; };")
    _array("kHookCodeMagic", importlib.util.MAGIC_NUMBER)
    rows = []
    for path in map(pathlib.Path, paths):
        # As bootstrap.py does it.
        file = f"<traincheck/{path.stem}>"
        code = marshal.dumps(compile(path.read_text(), file, "exec", dont_inherit=True))
        _array(f"code_{path.stem}", code)
        rows.append(f'{{"{path.stem}", (const char*)code_{path.stem}, {len(code)}}},')
    print("static const EmbeddedCode kHookCode[] = {")
    print("\n".join(rows))
    print("{nullptr, nullptr, 0}};")


def _array(name, content):
    numbers = ",".join(map(str, content))
    print(f"static const unsigned char {name}[] = {{{numbers}}};")


if __name__ == "__main__":
    main(sys.argv[1:])
