"""Forwards the shell rule to Bazel's native one."""

sh_library = native.sh_library
