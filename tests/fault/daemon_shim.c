// Preloaded into a daemon under test: makes its disk slow and moves its clock.
// A file named by FAULT_SHIM holds two numbers, "FSYNC_MS CLOCK_S"; it is read
// again at every sync, and at most every 100 ms for the clock.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long fsync_ms;
static long clock_s;
static struct timespec read_at;

static int (*real_clock)(clockid_t, struct timespec*);

static void find_clock(void) {
  if (!real_clock) {
    real_clock =
        (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  }
}

static void read_settings(void) {
  const char* path = getenv("FAULT_SHIM");
  FILE* file = path ? fopen(path, "re") : NULL;
  if (!file) return;
  long milliseconds, seconds;
  if (fscanf(file, "%ld %ld", &milliseconds, &seconds) == 2) {
    fsync_ms = milliseconds;
    clock_s = seconds;
  }
  fclose(file);
}

static void slow(void) {
  read_settings();
  if (fsync_ms > 0) usleep((useconds_t)fsync_ms * 1000);
}

int fsync(int fd) {
  slow();
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  return real(fd);
}

int fdatasync(int fd) {
  slow();
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  return real(fd);
}

// The threads of the daemon may race here: both would read the same file.
int clock_gettime(clockid_t clock, struct timespec* out) {
  find_clock();
  const int result = real_clock(clock, out);
  if (result != 0 || clock != CLOCK_REALTIME) return result;
  struct timespec now;
  real_clock(CLOCK_MONOTONIC, &now);
  if ((now.tv_sec - read_at.tv_sec) * 1000 +
          (now.tv_nsec - read_at.tv_nsec) / 1000000 >
      100) {
    read_at = now;
    read_settings();
  }
  out->tv_sec += clock_s;
  return 0;
}

int gettimeofday(struct timeval* restrict out, void* restrict zone) {
  (void)zone;
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return (time_t)-1;
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
