"""Compiles .proto files with Debian's protoc and its gRPC plugin."""

load("@rules_cc//cc:defs.bzl", "cc_library")

def traincheck_proto_library(name, srcs, visibility, deps = []):
    """One C++ library of all messages and services in srcs.

    Args:
      name: the library.
      srcs: .proto files of this package.
      visibility: as in every rule.
      deps: further C++ libraries.
    """
    stems = [src[:-len(".proto")] for src in srcs]
    headers = [s + ext for s in stems for ext in [".pb.h", ".grpc.pb.h"]]
    sources = [s + ext for s in stems for ext in [".pb.cc", ".grpc.pb.cc"]]
    native.genrule(
        name = name + "_generate",
        srcs = srcs,
        outs = headers + sources,
        cmd = "$(location @system//:protoc) --proto_path=. " +
              "--cpp_out=$(GENDIR) --grpc_out=$(GENDIR) " +
              "--plugin=protoc-gen-grpc=$(location @system//:grpc_cpp_plugin) " +
              "$(SRCS)",
        tools = ["@system//:protoc", "@system//:grpc_cpp_plugin"],
    )
    cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        copts = ["-w"],
        visibility = visibility,
        deps = deps + ["@system//:grpc"],
    )
