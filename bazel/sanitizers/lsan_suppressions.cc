// What LeakSanitizer finds in Debian's libraries.

// c-ares, in gRPC: the name of a host whose look-up has not ended when the
// process does.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:ares_strdup\n";
}
