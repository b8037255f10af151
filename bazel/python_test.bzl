"""Tests written in Python that run under the torch environment."""

load("@rules_shell//shell:sh_test.bzl", "sh_test")

def python_test(name, src, data = [], tags = [], size = "medium", usual_torch = False, **kwargs):
    """A sh_test that runs src with the interpreter of the torch environment.

    The interpreter comes from TRAINCHECK_TEST_PYTHON (tools/setup.sh prints
    it); unittest's cases are reported one by one.

    Args:
      name: the test.
      src: the Python file, a module with unittest cases.
      data: further files.
      tags: as in every test.
      size: as in every test.
      usual_torch: without what tests/quick replaces in torch.
      **kwargs: passed on.
    """
    sh_test(
        name = name,
        srcs = ["//tests:run_python.sh"],
        args = (["--usual-torch"] if usual_torch else []) + ["$(location %s)" % src],
        data = data + [src, "//tests:python_support"],
        tags = tags,
        size = size,
        **kwargs
    )
