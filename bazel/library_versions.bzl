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
    repository.file("BUILD.bazel", 'exports_files(["BUILD_INFO"])\n')

# A repository @library_versions with the file BUILD_INFO: a line
# "package version" each. Asked anew when Bazel starts and when
# TRAINCHECK_PACKAGES, which tools/build.sh sets, is another.
library_versions = repository_rule(
    implementation = _library_versions_impl,
    environ = ["TRAINCHECK_PACKAGES"],
    local = True,
)
