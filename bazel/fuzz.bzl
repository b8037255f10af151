"""Fuzz targets: a corpus test for everybody, a libFuzzer binary for clang."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

def fuzz_target(name, deps, srcs = None, linkstatic = False):
    """A function LLVMFuzzerTestOneInput and the inputs in corpus/NAME.

    Args:
      name: NAME. The test NAME_corpus_test replays the corpus; NAME_fuzzer is
        the fuzzer, built by tests/fuzz/run.sh with --config=fuzz.
      deps: what the target needs.
      srcs: default: NAME_fuzzer.cc.
      linkstatic: of what hides its symbols from other libraries.
    """
    cc_library(
        name = name + "_target",
        testonly = True,
        srcs = srcs or [name + "_fuzzer.cc"],
        linkstatic = linkstatic,
        deps = deps,
        alwayslink = True,
    )
    cc_test(
        name = name + "_corpus_test",
        size = "small",
        args = ["tests/fuzz/corpus/" + name],
        data = native.glob(["corpus/" + name + "/*"]),
        linkstatic = linkstatic,
        deps = [
            ":" + name + "_target",
            ":replay_main",
        ],
    )
    cc_binary(
        name = name + "_fuzzer",
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = [":" + name + "_target"],
    )
