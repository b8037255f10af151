"""Everything outside the tree: Debian's libraries and offline rule shims."""

load("//bazel:library_versions.bzl", "library_versions")

def traincheckd_repositories():
    """Declares the system libraries and replaces Bazel's implicit downloads.

    Debian's packages are used through /usr. Bazel 4.2 would fetch rules_cc,
    rules_java and remote_coverage_tools, and knows no rules_shell; the shims
    forward to native rules, so that a build needs no network. MODULE.bazel says
    the same to current Bazel.
    """
    native.new_local_repository(
        name = "system",
        path = "/usr",
        build_file = "//bazel:system.BUILD",
    )
    library_versions(name = "library_versions")
    for shim in [
        "remote_coverage_tools",
        "rules_cc",
        "rules_java",
        "rules_shell",
    ]:
        native.local_repository(
            name = shim,
            path = "bazel/shims/" + shim,
        )
