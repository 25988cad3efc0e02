/* A thread waits for an event of a channel while another one destroys the channel's identifier and the channel, as rping
 * does at its end: it gets the event, or waits for ever as with the kernel's channels, and never an error. Once for each
 * of many pauses between the event's request and the end. Arguments: an address of the own host. Prints one line; exit
 * status 1 with a sentence where something is wrong. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(true, what) do { if (!(true)) { perror(what); exit(1); } } while (0)
enum { ROUNDS = 400, STEP_NS = 500 };

static atomic_int events, waiter;

static void *wait_once(void *channel)
{
	struct rdma_cm_event *event;
	atomic_store(&waiter, gettid());
	CHECK(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event while the channel is destroyed");
	CHECK(!rdma_ack_cm_event(event), "rdma_ack_cm_event");
	atomic_fetch_add(&events, 1);
	return NULL;
}

/* Until the thread sleeps in its call: a channel that is destroyed before would be the program's mistake. */
static void until_it_waits(void)
{
	for (char state = 0; state != 'S';) {
		char path[64];
		FILE *stat;
		while (!atomic_load(&waiter))
			;
		snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&waiter));
		stat = fopen(path, "r");
		CHECK(stat && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1, path);
		fclose(stat);
	}
	atomic_store(&waiter, 0);
}

static long now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	CHECK(argc == 2 && inet_pton(AF_INET, argv[1], &to.sin_addr) == 1, "the address");
	for (int round = 0; round < ROUNDS; round++) {
		struct rdma_event_channel *channel = rdma_create_event_channel();
		struct rdma_cm_id *id;
		pthread_t thread;
		CHECK(channel, "rdma_create_event_channel");
		CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
		CHECK(!pthread_create(&thread, NULL, wait_once, channel), "pthread_create");
		CHECK(!pthread_detach(thread), "pthread_detach");
		until_it_waits();
		CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000), "rdma_resolve_addr");
		for (long until = now() + round % 200 * STEP_NS; now() < until;)
			;
		CHECK(!rdma_destroy_id(id), "rdma_destroy_id");
		rdma_destroy_event_channel(channel);
	}
	printf("%d channels destroyed under a waiting thread, %d events taken before\n", ROUNDS, atomic_load(&events));
	return 0;
}
