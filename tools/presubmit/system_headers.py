"""Headers of the C and C++ standard libraries, POSIX and Linux."""

_CPP = """
algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat
charconv chrono cinttypes climits clocale cmath compare complex concepts
condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint cstdio
cstdlib cstring ctime cuchar cwchar cwctype cxxabi.h deque exception execution
filesystem forward_list fstream functional future initializer_list iomanip ios
iosfwd iostream istream iterator latch limits list locale map memory
memory_resource mutex new numbers numeric optional ostream queue random ranges
ratio regex scoped_allocator semaphore set shared_mutex source_location span
sstream stack stdexcept stop_token streambuf string string_view system_error
thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility
valarray variant vector version
"""

_C = """
assert.h complex.h ctype.h errno.h fenv.h float.h inttypes.h iso646.h limits.h
locale.h math.h setjmp.h signal.h stdalign.h stdarg.h stdatomic.h stdbool.h
stddef.h stdint.h stdio.h stdlib.h stdnoreturn.h string.h tgmath.h threads.h
time.h uchar.h wchar.h wctype.h
"""

_LINUX = """
alloca.h cpuid.h dirent.h dlfcn.h elf.h endian.h execinfo.h fcntl.h features.h
fnmatch.h getopt.h grp.h immintrin.h libgen.h link.h malloc.h mntent.h netdb.h nmmintrin.h
poll.h pthread.h pty.h pwd.h regex.h sched.h semaphore.h smmintrin.h spawn.h
strings.h syscall.h syslog.h termios.h ucontext.h ulimit.h unistd.h utime.h
wait.h wordexp.h x86intrin.h
"""

_NAMES = frozenset((_CPP + _C + _LINUX).split())
_FOLDERS = ("sys/", "linux/", "asm/", "arpa/", "net/", "netinet/")


def is_system(path: str) -> bool:
    return path in _NAMES or path.startswith(_FOLDERS)
