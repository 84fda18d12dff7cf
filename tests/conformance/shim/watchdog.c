/*
 * A pretended watchdog device, preloaded into the wdmd under test (wdmd.md A.9).
 *
 * /dev/watchdog0, /dev/watchdog1 and /dev/watchdog exist when the directory of that name exists in
 * $WATCHDOG_SHIM_DIR (`watchdog` may be a symbolic link to `watchdog0`); the machine's own devices
 * are never touched. /sys/class/watchdog/NAME/FILE is read from $WATCHDOG_SHIM_DIR/NAME/FILE, and
 * /sys/class/misc/watchdog/FILE from $WATCHDOG_SHIM_DIR/misc/FILE, and
 * /sys/module/ipmi_watchdog/parameters/FILE from $WATCHDOG_SHIM_DIR/ipmi_watchdog/FILE.
 *
 * In a device's directory:
 *   timeout   the driver's timeout in seconds; changed by SETTIMEOUT, outlives the open
 *   opened    locked while the device is open: a second open gets EBUSY
 *   faults    lines `NAME VALUE`, read at each call, all optional:
 *               open, getsupport, gettimeout, settimeout, keepalive, write, stat ERRNO  the call fails
 *               magic ERRNO  a write with a `V` fails
 *               max N        SETTIMEOUT above N fails with EINVAL
 *               takes N      SETTIMEOUT succeeds and takes N, whatever was asked
 *               delay N      every ioctl takes N milliseconds
 *               options N    the option bits GETSUPPORT reports (default: settimeout, magic close, keepalive)
 *
 * In $WATCHDOG_SHIM_DIR itself:
 *   thread_delay  every thread takes that many seconds to be started; thread_delayed is there once one does
 *
 * Every call is one line in $WATCHDOG_SHIM_DIR/log:
 *   MONOTONIC_SECONDS.NANOSECONDS PID DEVICE CALL ARGUMENT RESULT TIMEOUT
 * where RESULT is the value returned or the negative errno, and TIMEOUT the driver's timeout after it.
 *
 * What it hands out is a descriptor of /dev/null; what close and death mean is for the reader of the log.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define GETSUPPORT 0x80285700UL
#define KEEPALIVE 0x80045705UL
#define SETTIMEOUT 0xC0045706UL
#define GETTIMEOUT 0x80045707UL

#define DEFAULT_OPTIONS 0x8180 /* settimeout, magic close, keepalive */
#define MOST_OPENED 8

/* The open devices of this process. `fd` is 0 in a free entry. */
static struct opened {
	volatile int fd;
	int lock_fd;
	pid_t owner;
	char device[16];
} table[MOST_OPENED];

static const char *shim_dir(void)
{
	const char *dir = getenv("WATCHDOG_SHIM_DIR");
	if (!dir) {
		static const char message[] = "watchdog shim: WATCHDOG_SHIM_DIR is not set\n";
		syscall(SYS_write, 2, message, sizeof(message) - 1);
		_exit(99);
	}
	return dir;
}

/* The original of a replaced function. */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Programs try statx without a path to see whether it exists; headers promise that nobody does. */
static int is_null(const void *volatile pointer)
{
	return pointer == NULL;
}

/* The device's name when `path` is one of the three, else NULL. */
static const char *device_of(const char *path)
{
	static const char *const names[] = { "watchdog0", "watchdog1", "watchdog" };
	if (is_null(path) || strncmp(path, "/dev/", 5) != 0)
		return NULL;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(path + 5, names[i]) == 0)
			return names[i];
	return NULL;
}

/* `path`, or what stands for it when it lies in the watchdog part of sysfs. */
static const char *redirected(const char *path, char *buffer)
{
	static const char class[] = "/sys/class/watchdog", misc[] = "/sys/class/misc/watchdog";
	static const char ipmi[] = "/sys/module/ipmi_watchdog/parameters";
	if (is_null(path))
		return path;
	if (strncmp(path, class, sizeof(class) - 1) == 0)
		snprintf(buffer, PATH_MAX, "%s%s", shim_dir(), path + sizeof(class) - 1);
	else if (strncmp(path, misc, sizeof(misc) - 1) == 0)
		snprintf(buffer, PATH_MAX, "%s/misc%s", shim_dir(), path + sizeof(misc) - 1);
	else if (strncmp(path, ipmi, sizeof(ipmi) - 1) == 0)
		snprintf(buffer, PATH_MAX, "%s/ipmi_watchdog%s", shim_dir(), path + sizeof(ipmi) - 1);
	else
		return path;
	return buffer;
}

static int raw_open(const char *device, const char *file, int flags)
{
	char path[PATH_MAX];
	if (device)
		snprintf(path, sizeof(path), "%s/%s/%s", shim_dir(), device, file);
	else
		snprintf(path, sizeof(path), "%s/%s", shim_dir(), file);
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0644);
}

static void raw_close(int fd)
{
	syscall(SYS_close, fd);
}

static size_t read_file(const char *device, const char *file, char *text, size_t size)
{
	int fd = raw_open(device, file, O_RDONLY);
	long length = fd < 0 ? 0 : syscall(SYS_read, fd, text, size - 1);
	if (fd >= 0)
		raw_close(fd);
	text[length > 0 ? length : 0] = 0;
	return length > 0 ? (size_t)length : 0;
}

/* The value of a line in `faults`; `otherwise` when it is not there. */
static long fault(const char *device, const char *name, long otherwise)
{
	char text[1024];
	size_t length = strlen(name);
	read_file(device, "faults", text, sizeof(text));
	for (char *line = text; *line;) {
		char *end = strchrnul(line, '\n');
		if (strncmp(line, name, length) == 0 && line[length] == ' ')
			return strtol(line + length + 1, NULL, 0);
		line = *end ? end + 1 : end;
	}
	return otherwise;
}

static int timeout_of(const char *device)
{
	char text[32];
	read_file(device, "timeout", text, sizeof(text));
	return atoi(text);
}

static void set_timeout(const char *device, int seconds)
{
	char text[32];
	int length = snprintf(text, sizeof(text), "%d\n", seconds);
	int fd = raw_open(device, "timeout", O_WRONLY | O_CREAT | O_TRUNC);
	syscall(SYS_write, fd, text, length);
	raw_close(fd);
}

static void note(const char *device, const char *call, const char *argument, long result)
{
	struct timespec now;
	char line[256];
	int saved = errno;
	clock_gettime(CLOCK_MONOTONIC, &now);
	int length = snprintf(line, sizeof(line), "%lld.%09ld %ld %s %s %s %ld %d\n", (long long)now.tv_sec,
			      now.tv_nsec, (long)syscall(SYS_getpid), device, call, argument, result,
			      timeout_of(device));
	int fd = raw_open(NULL, "log", O_WRONLY | O_CREAT | O_APPEND);
	syscall(SYS_write, fd, line, length);
	raw_close(fd);
	errno = saved;
}

static int answer(const char *device, const char *call, const char *argument, int result)
{
	note(device, call, argument, result);
	if (result >= 0)
		return result;
	errno = -result;
	return -1;
}

static int exists(const char *device)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/%s", shim_dir(), device);
	return syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
}

static struct opened *entry_of(int fd)
{
	if (fd > 0)
		for (int i = 0; i < MOST_OPENED; i++)
			if (table[i].fd == fd)
				return &table[i];
	return NULL;
}

static int open_device(const char *device, int flags)
{
	const char *how = flags & O_CLOEXEC ? "cloexec" : "inherited";
	long failure = fault(device, "open", 0);
	if (!exists(device))
		failure = ENOENT;
	if (failure)
		return answer(device, "open", how, (int)-failure);
	int lock_fd = raw_open(device, "opened", O_RDWR | O_CREAT);
	if (lock_fd < 0 || flock(lock_fd, LOCK_EX | LOCK_NB) != 0) {
		if (lock_fd >= 0)
			raw_close(lock_fd);
		return answer(device, "open", how, -EBUSY);
	}
	struct opened *entry = NULL;
	for (int i = 0; i < MOST_OPENED && !entry; i++)
		if (table[i].fd == 0)
			entry = &table[i];
	int fd = entry ? (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_WRONLY | (flags & O_CLOEXEC)) : -1;
	if (fd < 0) {
		raw_close(lock_fd);
		return answer(device, "open", how, -EMFILE);
	}
	entry->lock_fd = lock_fd;
	entry->owner = (pid_t)syscall(SYS_getpid);
	snprintf(entry->device, sizeof(entry->device), "%s", device);
	entry->fd = fd;
	return answer(device, "open", how, fd);
}

static int device_ioctl(struct opened *entry, unsigned long request, void *argument)
{
	const char *device = entry->device;
	char asked[32] = "-";
	long failure, delay = fault(device, "delay", 0);
	struct timespec pause = { delay / 1000, delay % 1000 * 1000000 };
	if (delay)
		nanosleep(&pause, NULL);
	switch (request) {
	case GETSUPPORT: {
		struct {
			uint32_t options, firmware;
			uint8_t identity[32];
		} *info = argument;
		failure = fault(device, "getsupport", 0);
		if (failure)
			return answer(device, "getsupport", asked, (int)-failure);
		memset(info, 0, sizeof(*info));
		info->options = (uint32_t)fault(device, "options", DEFAULT_OPTIONS);
		read_file(device, "identity", (char *)info->identity, sizeof(info->identity));
		*strchrnul((char *)info->identity, '\n') = 0;
		return answer(device, "getsupport", asked, 0);
	}
	case GETTIMEOUT:
		failure = fault(device, "gettimeout", 0);
		if (failure)
			return answer(device, "gettimeout", asked, (int)-failure);
		*(int *)argument = timeout_of(device);
		return answer(device, "gettimeout", asked, 0);
	case SETTIMEOUT: {
		int seconds = *(int *)argument;
		snprintf(asked, sizeof(asked), "%d", seconds);
		failure = fault(device, "settimeout", 0);
		if (!failure && (seconds < 1 || seconds > fault(device, "max", INT_MAX)))
			failure = EINVAL;
		if (failure)
			return answer(device, "settimeout", asked, (int)-failure);
		*(int *)argument = (int)fault(device, "takes", seconds);
		set_timeout(device, *(int *)argument);
		return answer(device, "settimeout", asked, 0);
	}
	case KEEPALIVE:
		failure = fault(device, "keepalive", 0);
		return answer(device, "keepalive", asked, (int)-failure);
	default:
		snprintf(asked, sizeof(asked), "%#lx", request);
		return answer(device, "ioctl", asked, -ENOTTY);
	}
}

static void fill_times_and_kind(const char *device, mode_t *mode, unsigned *major_out, unsigned *minor_out)
{
	int misc = strcmp(device, "watchdog") == 0;
	*mode = S_IFCHR | 0600;
	*major_out = misc ? 10 : 246;
	*minor_out = misc ? 130 : (unsigned)(device[8] - '0');
}

static int stat_device(const char *device, struct stat *out)
{
	unsigned major_number, minor_number;
	long failure = exists(device) ? fault(device, "stat", 0) : ENOENT;
	if (failure) {
		errno = (int)failure;
		return -1;
	}
	memset(out, 0, sizeof(*out));
	fill_times_and_kind(device, &out->st_mode, &major_number, &minor_number);
	out->st_nlink = 1;
	out->st_rdev = makedev(major_number, minor_number);
	return 0;
}

/* ---- the replaced functions ---- */

#define OPEN_BODY(name, call)                                               \
	char buffer[PATH_MAX];                                              \
	mode_t mode = 0;                                                    \
	if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {        \
		va_list arguments;                                          \
		va_start(arguments, flags);                                 \
		mode = va_arg(arguments, mode_t);                           \
		va_end(arguments);                                          \
	}                                                                   \
	const char *device = device_of(path);                               \
	if (device)                                                         \
		return open_device(device, flags);                          \
	path = redirected(path, buffer);                                    \
	return REAL(name) call

int open(const char *path, int flags, ...) { OPEN_BODY(open, (path, flags, mode)); }
int open64(const char *path, int flags, ...) { OPEN_BODY(open64, (path, flags, mode)); }
int openat(int dir, const char *path, int flags, ...) { OPEN_BODY(openat, (dir, path, flags, mode)); }
int openat64(int dir, const char *path, int flags, ...) { OPEN_BODY(openat64, (dir, path, flags, mode)); }

FILE *fopen(const char *path, const char *mode)
{
	char buffer[PATH_MAX];
	return REAL(fopen)(redirected(path, buffer), mode);
}

FILE *fopen64(const char *path, const char *mode)
{
	char buffer[PATH_MAX];
	return REAL(fopen64)(redirected(path, buffer), mode);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;
	va_start(arguments, request);
	void *argument = va_arg(arguments, void *);
	va_end(arguments);
	struct opened *entry = entry_of(fd);
	return entry ? device_ioctl(entry, request & 0xffffffffUL, argument)
		     : REAL(ioctl)(fd, request, argument);
}

ssize_t write(int fd, const void *data, size_t length)
{
	struct opened *entry = entry_of(fd);
	if (!entry)
		return REAL(write)(fd, data, length);
	const char *what = length && memchr(data, 'V', length) ? "V" : "plain";
	long failure = fault(entry->device, "write", *what == 'V' ? fault(entry->device, "magic", 0) : 0);
	return answer(entry->device, "write", what, failure ? (int)-failure : (int)length);
}

int close(int fd)
{
	struct opened *entry = entry_of(fd);
	/* A forked child closing its copy closes nothing. */
	if (!entry || entry->owner != (pid_t)syscall(SYS_getpid))
		return REAL(close)(fd);
	entry->fd = 0;
	note(entry->device, "close", "-", 0);
	raw_close(entry->lock_fd);
	return REAL(close)(fd);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument)
{
	char text[32];
	struct timespec pause = { 0, 0 };
	if (read_file(NULL, "thread_delay", text, sizeof(text))) {
		pause.tv_sec = atoi(text);
		raw_close(raw_open(NULL, "thread_delayed", O_WRONLY | O_CREAT));
		nanosleep(&pause, NULL);
	}
	return REAL(pthread_create)(thread, attributes, body, argument);
}

#define STAT_BODY(name, ...)                                                \
	char buffer[PATH_MAX];                                              \
	const char *device = device_of(path);                               \
	if (device)                                                         \
		return stat_device(device, (struct stat *)out);             \
	path = redirected(path, buffer);                                    \
	return REAL(name)(__VA_ARGS__)

int stat(const char *path, struct stat *out) { STAT_BODY(stat, path, out); }
int stat64(const char *path, struct stat64 *out) { STAT_BODY(stat64, path, out); }
int lstat(const char *path, struct stat *out) { STAT_BODY(lstat, path, out); }
int lstat64(const char *path, struct stat64 *out) { STAT_BODY(lstat64, path, out); }
int fstatat(int dir, const char *path, struct stat *out, int flags) { STAT_BODY(fstatat, dir, path, out, flags); }
int fstatat64(int dir, const char *path, struct stat64 *out, int flags) { STAT_BODY(fstatat64, dir, path, out, flags); }

int fstat(int fd, struct stat *out)
{
	struct opened *entry = entry_of(fd);
	return entry ? stat_device(entry->device, out) : REAL(fstat)(fd, out);
}

int fstat64(int fd, struct stat64 *out)
{
	struct opened *entry = entry_of(fd);
	return entry ? stat_device(entry->device, (struct stat *)out) : REAL(fstat64)(fd, out);
}

int statx(int dir, const char *path, int flags, unsigned mask, struct statx *out)
{
	char buffer[PATH_MAX];
	struct opened *entry = !is_null(path) && !*path && (flags & AT_EMPTY_PATH) ? entry_of(dir) : NULL;
	const char *device = entry ? entry->device : device_of(path);
	struct stat plain;
	mode_t mode;
	if (!device)
		return REAL(statx)(dir, redirected(path, buffer), flags, mask, out);
	if (stat_device(device, &plain) != 0)
		return -1;
	memset(out, 0, sizeof(*out));
	fill_times_and_kind(device, &mode, &out->stx_rdev_major, &out->stx_rdev_minor);
	out->stx_mask = STATX_BASIC_STATS;
	out->stx_mode = (uint16_t)mode;
	out->stx_nlink = 1;
	return 0;
}

int access(const char *path, int mode)
{
	char buffer[PATH_MAX];
	const char *device = device_of(path);
	if (device) {
		if (exists(device))
			return 0;
		errno = ENOENT;
		return -1;
	}
	return REAL(access)(redirected(path, buffer), mode);
}

ssize_t readlink(const char *path, char *out, size_t size)
{
	char buffer[PATH_MAX];
	return REAL(readlink)(redirected(path, buffer), out, size);
}

char *realpath(const char *path, char *out)
{
	char buffer[PATH_MAX];
	return REAL(realpath)(redirected(path, buffer), out);
}

DIR *opendir(const char *path)
{
	char buffer[PATH_MAX];
	return REAL(opendir)(redirected(path, buffer));
}
