"""Which versions of Debian's libraries the programs are built with."""

# Packages of what bazel/system.BUILD links statically or takes headers of, and
# of the compiler and libc, whose runtimes are in what goes into a training.
_PACKAGES = [
    "g++-12",
    "libabsl-dev",
    "libbz2-dev",
    "libc6-dev",
    "libc-ares-dev",
    "libcli11-dev",
    "libfmt-dev",
    "libgrpc++-dev",
    "libgrpc-dev",
    "liblz4-dev",
    "libprotobuf-dev",
    "libre2-dev",
    "librocksdb-dev",
    "libsnappy-dev",
    "libspdlog-dev",
    "libssl-dev",
    "libxxhash-dev",
    "libyaml-cpp-dev",
    "libzstd-dev",
    "nlohmann-json3-dev",
    "zlib1g-dev",
]

def _library_versions_impl(repository):
    query = ["dpkg-query", "-W", "-f=${Package} ${Version}\\n"]
    done = repository.execute(query + _PACKAGES)
    if done.return_code != 0:
        fail("tools/setup.sh comes first: " + done.stderr)
    repository.file(
        "BUILD_INFO",
        "# Debian packages whose libraries are compiled and linked into these" +
        " programs.\n" + done.stdout,
        executable = False,
    )
    repository.file("THIRD_PARTY", _licences(repository), executable = False)
    repository.file(
        "BUILD.bazel",
        'exports_files(["BUILD_INFO", "THIRD_PARTY"])\n',
    )

def _licences(repository):
    texts = []
    for package in _PACKAGES:
        text = repository.read("/usr/share/doc/%s/copyright" % package)
        texts.append("%s\n%s\n%s\n" % (package, "=" * len(package), text))
    return ("The programs contain parts of these Debian packages, under the " +
            "licences below.\n\n" + "\n".join(texts))

# A repository @library_versions with two files: BUILD_INFO, a line "package
# version" each, and THIRD_PARTY, the licences of these packages. Asked anew when
# Bazel starts and when TRAINCHECK_PACKAGES, which tools/build.sh sets, is
# another.
library_versions = repository_rule(
    implementation = _library_versions_impl,
    environ = ["TRAINCHECK_PACKAGES"],
    local = True,
)
