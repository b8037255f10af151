"""Forwards the Java rules to Bazel's native ones."""

java_binary = native.java_binary
java_import = native.java_import
java_runtime = native.java_runtime
java_library = native.java_library
java_test = native.java_test
java_toolchain = native.java_toolchain
