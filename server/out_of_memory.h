// What the daemon does when an allocation fails: it ends, as by the kernel's
// OOM killer. An exception would leave a change half made (gRPC's callbacks
// catch all), and later changes would be stored on top of it. What was
// acknowledged is in the store; relays keep the rest for the next daemon.
//
// Threads: to be called before the first other thread.
#ifndef TRAINCHECK_SERVER_OUT_OF_MEMORY_H_
#define TRAINCHECK_SERVER_OUT_OF_MEMORY_H_

namespace traincheck::server {

// From now on; the process says so on stderr and exits with 1.
void EndWhenOutOfMemory();

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_OUT_OF_MEMORY_H_
