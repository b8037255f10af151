"""Everything outside the tree: Debian's libraries and offline rule shims."""

def traincheckd_repositories():
    """Declares the system libraries and replaces Bazel's implicit downloads.

    Debian's packages are used through /usr. Bazel 4.2 would fetch rules_cc,
    rules_java and remote_coverage_tools; the shims forward to native rules, so
    that a build needs no network.
    """
    native.new_local_repository(
        name = "system",
        path = "/usr",
        build_file = "//bazel:system.BUILD",
    )
    for shim in ["rules_cc", "rules_java", "remote_coverage_tools"]:
        native.local_repository(
            name = shim,
            path = "bazel/shims/" + shim,
        )
