"""Programs that need nothing of the system that they run on."""

load("@rules_cc//cc:defs.bzl", "cc_binary")

def static_program(name, srcs, deps, linkopts = []):
    """A static-pie: it runs in any container, whatever libraries are there.

    gold knows no static-pie, and bfd no --start-lib. What such a program asks of
    glibc must not need NSS, whose modules belong to the system's own glibc.

    Args:
      name: the program.
      srcs: as in every rule.
      deps: as in every rule.
      linkopts: further options.
    """
    cc_binary(
        name = name,
        srcs = srcs,
        additional_linker_inputs = ["@library_versions//:BUILD_INFO"],
        features = ["-supports_start_end_lib"],
        linkopts = linkopts + select({
            "//bazel:instrumented": [],  # sanitizers know no static programs
            "//conditions:default": [
                "-static-pie",
                "-fuse-ld=bfd",
            ],
        }),
        visibility = ["//visibility:public"],
        deps = deps,
    )
