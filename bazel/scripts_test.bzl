"""The test of a relation's scripts."""

load("@rules_cc//cc:defs.bzl", "cc_test")

def scripts_test():
    """Runs the scripts in testdata of the relation's folder.

    checker/testdata/SCRIPTS.md has their language.
    """
    cc_test(
        name = "scripts_test",
        size = "small",
        data = native.glob(["testdata/*.txt"]),
        deps = ["//checker:script_test"],
    )
