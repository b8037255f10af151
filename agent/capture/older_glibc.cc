// glibc has this variable since 2.32, and libstdc++, which is linked into the
// core, reads it to leave out atomic operations in processes of one thread. A
// variable of our own that says "there may be several threads", which is never
// wrong, lets the core load where torch does: its wheels ask for glibc 2.28.
extern "C" {
extern __attribute__((visibility("hidden"))) const char __libc_single_threaded;
const char __libc_single_threaded = 0;
}
