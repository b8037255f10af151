"""Forwards the shell rule to Bazel's native one."""

sh_binary = native.sh_binary
