"""Forwards the shell rule to Bazel's native one."""

sh_test = native.sh_test
