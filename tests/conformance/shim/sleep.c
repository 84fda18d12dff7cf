/*
 * A machine that sleeps, preloaded into a daemon: its clock since boot runs ahead of the one that stands still meanwhile.
 *
 * $SLEEP_SHIM_FILE has eight bytes, how many seconds the machine has slept, in the byte order of the machine. They may change at
 * any time. Where it is not set nothing is changed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const _Atomic int64_t never;
static _Atomic(const _Atomic int64_t *) slept;

static const _Atomic int64_t *find(void)
{
	const char *path = getenv("SLEEP_SHIM_FILE");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *there = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(never), PROT_READ, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (path && there == MAP_FAILED)
		_exit(99);
	return path ? there : &never;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
	int result = (int)syscall(SYS_clock_gettime, clock, out);
	if (result == 0 && clock == CLOCK_BOOTTIME) {
		const _Atomic int64_t *seconds = atomic_load(&slept);
		if (!seconds) {
			seconds = find();
			atomic_store(&slept, seconds);
		}
		out->tv_sec += atomic_load(seconds);
	}
	return result;
}
