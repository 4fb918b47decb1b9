// The clocks of a C program, by package clock's page: for LD_PRELOAD. It calls
// nothing that allocates memory.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct page {
	uint64_t sequence;
	int64_t since, base, parts, ahead;
};

static const struct page *page;

__attribute__((constructor)) static void attach(void) {
	const char *path = getenv("TEST_CLOCK_FILE");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (p != MAP_FAILED)
		page = p;
}

static int64_t machine(clockid_t id) {
	struct timespec ts;
	syscall(SYS_clock_gettime, id, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static int64_t clocked(clockid_t id) {
	int64_t now = machine(CLOCK_MONOTONIC), mono, ahead;
	if (!page)
		return machine(id);
	for (;;) {
		uint64_t before = __atomic_load_n(&page->sequence, __ATOMIC_ACQUIRE);
		int64_t passed = now - page->since;
		mono = page->base + passed + (((passed >> 16) * page->parts) >> 16);
		ahead = page->ahead;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (!(before & 1) && __atomic_load_n(&page->sequence, __ATOMIC_RELAXED) == before)
			break;
	}
	return id == CLOCK_MONOTONIC ? mono : machine(id) + mono - now + ahead;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	if (id == CLOCK_REALTIME_COARSE)
		id = CLOCK_REALTIME;
	if (id == CLOCK_MONOTONIC_COARSE)
		id = CLOCK_MONOTONIC;
	if (id != CLOCK_REALTIME && id != CLOCK_MONOTONIC)
		return syscall(SYS_clock_gettime, id, ts);
	int64_t now = clocked(id);
	ts->tv_sec = now / 1000000000;
	ts->tv_nsec = now % 1000000000;
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	(void)zone;
	int64_t now = clocked(CLOCK_REALTIME);
	tv->tv_sec = now / 1000000000;
	tv->tv_usec = now % 1000000000 / 1000;
	return 0;
}

time_t time(time_t *t) {
	time_t now = clocked(CLOCK_REALTIME) / 1000000000;
	if (t)
		*t = now;
	return now;
}
