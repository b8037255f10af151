// What tests say to the driver that driver_for_testing.cc is.
//
// Threads: externally synchronised.
#ifndef TRAINCHECK_AGENT_DEVICE_DRIVER_FOR_TESTING_H_
#define TRAINCHECK_AGENT_DEVICE_DRIVER_FOR_TESTING_H_

extern "C" {

// The agent takes tensors in this process's memory for device 0's.
int traincheck_testing_cpu_is_device();

// What torch does first: the device's primary context comes to be, and is
// current on this thread.
void testing_initialise(int device);
void testing_forget(int device);  // before that
// On this thread: a context of nobody's device, or none.
void testing_set_other_context(int on);

// What the program's own kernels do: behind what the stream has to do already,
// `bytes` bytes at `to` become `value`.
void testing_write(void* stream, void* to, unsigned char value,
                   unsigned long long bytes);
// Runs what the stream has to do, at most `count` pieces. Returns how many.
int testing_run(void* stream, int count);

// What streams still have to do never happens.
void testing_drop();

// From now on kernels run when they are launched, as if the stream had nothing
// to do, but their results become visible only after so many further calls of
// the driver; below 0: streams wait for testing_run, as at first.
void testing_run_at_once(int calls_until_seen);

// Every later call of this function fails; 0: no longer. "*": every function.
void testing_fail(const char* function, int error);

// 1: the stream records a graph from now on, in mode global; 0: no longer.
void testing_capture(void* stream, int on);
// How often something was done that breaks a capture in progress or gets into
// one.
int testing_captures_hurt();

int testing_launches();
int testing_uploads();
int testing_allocations();
}

#endif  // TRAINCHECK_AGENT_DEVICE_DRIVER_FOR_TESTING_H_
