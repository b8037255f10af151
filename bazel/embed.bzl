"""Text files as C arrays, made with coreutils only."""

load("@rules_cc//cc:defs.bzl", "cc_library")

def embed_text(name, srcs, array, visibility = None):
    """A header NAME.h with one NUL-terminated array a file and a table of them.

    The table is `kARRAY[]` of struct EmbeddedText {name, text}, where name is
    the file's name without folder and suffix; an entry of two null pointers
    ends it.

    Args:
      name: the genrule; the header is NAME.h.
      srcs: the files; their names without suffix are C identifiers.
      array: the table's name.
      visibility: of the header; that of the package by default.
    """
    native.genrule(
        name = name + "_generate",
        srcs = srcs,
        outs = [name + ".h"],
        cmd = """(
  echo '#ifndef TRAINCHECK_EMBEDDED_TEXT'
  echo '#define TRAINCHECK_EMBEDDED_TEXT'
  echo 'struct EmbeddedText { const char* name; const char* text; };'
  echo '#endif'
  for file in $(SRCS); do
    stem=$$(basename $$file); stem=$${stem%%.*}
    echo "static const unsigned char embedded_$$stem[] = {"
    od -An -v -tu1 $$file | sed 's/\\([0-9]\\+\\)/\\1,/g'
    echo '0};'
  done
  echo "static const struct EmbeddedText %s[] = {"
  for file in $(SRCS); do
    stem=$$(basename $$file); stem=$${stem%%.*}
    echo "{\\"$$stem\\", (const char*)embedded_$$stem},"
  done
  echo '{0, 0}};'
) > $@""" % array,
    )
    cc_library(
        name = name,
        hdrs = [name + ".h"],
        visibility = visibility,
    )
