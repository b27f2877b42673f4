/*
 * Preloaded into the gateway: sockets and files take and give a few bytes a call, and calls are interrupted or put off,
 * as POSIX lets every system do at any call (read(2), write(2)). Event descriptors and the like are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static __thread unsigned calls;

static int is_short(int fd) {
  struct stat at;
  if (fd == 2 || fstat(fd, &at) != 0) return 0;
  return S_ISSOCK(at.st_mode) || S_ISREG(at.st_mode) || fd == 1;
}

static size_t few(size_t length) {
  size_t most = 1 + (calls * 7919u) % 1021u;
  return length < most ? length : most;
}

/* Linux interrupts no call on a file of a disk, and puts none off. */
static int is_off(int fd, int may_put_off) {
  struct stat at;
  if (!is_short(fd)) return 0;
  calls++;
  if (fstat(fd, &at) != 0 || S_ISREG(at.st_mode)) return 0;
  errno = calls % 5 == 0 ? EINTR : EAGAIN;
  return calls % 5 == 0 || (may_put_off && S_ISSOCK(at.st_mode) && calls % 7 == 0);
}

ssize_t read(int fd, void *into, size_t length) {
  static ssize_t (*real)(int, void *, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "read");
  if (is_off(fd, 0)) return -1;
  return real(fd, into, is_short(fd) ? few(length) : length);
}

ssize_t write(int fd, const void *from, size_t length) {
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "write");
  if (is_off(fd, 1)) return -1;
  return real(fd, from, is_short(fd) ? few(length) : length);
}

ssize_t writev(int fd, const struct iovec *all, int count) {
  static ssize_t (*real)(int, const struct iovec *, int);
  if (!real) real = dlsym(RTLD_NEXT, "writev");
  if (is_off(fd, 1)) return -1;
  if (!is_short(fd) || count == 0) return real(fd, all, count);
  struct iovec first = { all[0].iov_base, few(all[0].iov_len) };
  return real(fd, &first, 1);
}
