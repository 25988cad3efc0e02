/* Extended reliable connections as programs use them: one connection, two shared receive queues of its domain, each
 * with a completion queue and a protection domain of its own; messages and writes, once by ibv_post_send, once by
 * ibv_wr_*. Each byte is compared. Prints one line; exit status 1 with a sentence where something is wrong. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(true, ...) do { if (!(true)) { fprintf(stderr, __VA_ARGS__); fputc('\n', stderr); exit(1); } } while (0)
enum { LEN = 65536, SIZE = 20000, GID = 1, QUEUES = 2 };

static struct ibv_context *context;
static union ibv_gid gid;

/* What messages come to. */
static struct queue {
	struct ibv_pd *domain;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *region;
	char *bytes;
	uint32_t number;
} queues[QUEUES];

static void make_queue(struct queue *queue, struct ibv_xrcd *xrcd)
{
	CHECK((queue->domain = ibv_alloc_pd(context)), "ibv_alloc_pd fails");
	CHECK((queue->cq = ibv_create_cq(context, 8, NULL, NULL, 0)), "ibv_create_cq fails");
	queue->bytes = aligned_alloc(4096, LEN);
	queue->region = ibv_reg_mr(queue->domain, queue->bytes, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(queue->region, "ibv_reg_mr fails");
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 4, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.pd = queue->domain, .cq = queue->cq, .xrcd = xrcd,
	};
	CHECK((queue->srq = ibv_create_srq_ex(context, &attr)), "ibv_create_srq_ex fails");
	CHECK(!ibv_get_srq_num(queue->srq, &queue->number), "ibv_get_srq_num fails");
}

static struct ibv_qp *make_half(enum ibv_qp_type type, struct ibv_cq *cq, struct ibv_pd *domain, struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = type, .send_cq = cq, .pd = domain, .xrcd = xrcd, .cap = { .max_send_wr = 8, .max_send_sge = 1 },
		.sq_sig_all = 1,
		.comp_mask = xrcd ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &attr);
	CHECK(qp, "ibv_create_qp_ex fails");
	return qp;
}

static void link_to(struct ibv_qp *qp, uint32_t peer, int sends)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = GID, .hop_limit = 64 } } };
	int serves = sends ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | serves),
		"RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1 };
	int asks = sends ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | asks), "RTS");
}

static struct ibv_wc next(struct ibv_cq *cq, const char *what)
{
	struct ibv_wc wc;
	int got;
	while (!(got = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(got == 1 && wc.status == IBV_WC_SUCCESS, "%s: %s", what, ibv_wc_status_str(wc.status));
	return wc;
}

static void post(struct ibv_qp *qp, struct queue *to, struct ibv_sge *sge, enum ibv_wr_opcode opcode, int by_calls)
{
	uint64_t address = (uintptr_t)to->bytes + LEN / 2;
	if (!by_calls) {
		struct ibv_send_wr *bad, wr = { .sg_list = sge, .num_sge = 1, .opcode = opcode,
			.qp_type.xrc.remote_srqn = to->number,
			.wr.rdma = { .remote_addr = address, .rkey = to->region->rkey } };
		CHECK(!ibv_post_send(qp, &wr, &bad), "ibv_post_send fails");
		return;
	}
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(ex);
	if (opcode == IBV_WR_SEND)
		ibv_wr_send(ex);
	else
		ibv_wr_rdma_write(ex, to->region->rkey, address);
	ibv_wr_set_xrc_srqn(ex, to->number);
	ibv_wr_set_sge(ex, sge->lkey, sge->addr, sge->length);
	CHECK(!ibv_wr_complete(ex), "ibv_wr_complete fails");
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0] && (context = ibv_open_device(list[0])), "there is no device");
	struct ibv_device_attr device;
	CHECK(!ibv_query_device(context, &device) && device.device_cap_flags & IBV_DEVICE_XRC, "the device has no XRC");
	CHECK(!ibv_query_gid(context, 1, GID, &gid), "there is no GID");
	struct ibv_xrcd_init_attr init = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1 };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &init);
	CHECK(xrcd, "ibv_open_xrcd fails");
	for (int i = 0; i < QUEUES; i++)
		make_queue(queues + i, xrcd);
	struct ibv_pd *domain = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	char *mine = aligned_alloc(4096, LEN);
	struct ibv_mr *own = ibv_reg_mr(domain, mine, LEN, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp *sender = make_half(IBV_QPT_XRC_SEND, cq, domain, NULL);
	struct ibv_qp *receiver = make_half(IBV_QPT_XRC_RECV, NULL, NULL, xrcd);
	link_to(receiver, sender->qp_num, 0);
	link_to(sender, receiver->qp_num, 1);
	struct ibv_recv_wr empty = { 0 }, *bad;
	CHECK(ibv_post_recv(receiver, &empty, &bad) == EINVAL && bad == &empty, "a half without a queue takes a receive");
	for (int round = 0; round < 8; round++) {
		struct queue *to = queues + round % QUEUES;
		struct ibv_sge into = { (uintptr_t)to->bytes, SIZE, to->region->lkey }, from = { (uintptr_t)mine, SIZE, own->lkey };
		struct ibv_recv_wr wr = { .wr_id = 100 + round, .sg_list = &into, .num_sge = 1 };
		CHECK(!ibv_post_srq_recv(to->srq, &wr, &bad), "ibv_post_srq_recv fails");
		for (int i = 0; i < SIZE; i++)
			mine[i] = i * 31 + round;
		post(sender, to, &from, IBV_WR_SEND, round & 2);
		next(cq, "send");
		struct ibv_wc wc = next(to->cq, "receive");
		CHECK(wc.wr_id == 100 + (uint64_t)round && wc.qp_num == receiver->qp_num && wc.byte_len == SIZE,
			"another message came");
		CHECK(!memcmp(to->bytes, mine, SIZE), "other bytes came");
		post(sender, to, &from, IBV_WR_RDMA_WRITE, round & 2);
		next(cq, "write");
		CHECK(!memcmp(to->bytes + LEN / 2, mine, SIZE), "other bytes were written");
	}
	CHECK(ibv_close_xrcd(xrcd) == EBUSY, "a domain with queues is closed");
	CHECK(!ibv_destroy_qp(sender) && !ibv_destroy_qp(receiver) && !ibv_dereg_mr(own), "something stays");
	for (int i = 0; i < QUEUES; i++) {
		CHECK(ibv_destroy_cq(queues[i].cq) == EBUSY, "the completion queue of a queue is destroyed");
		CHECK(!ibv_destroy_srq(queues[i].srq) && !ibv_destroy_cq(queues[i].cq), "a queue stays");
		CHECK(!ibv_dereg_mr(queues[i].region) && !ibv_dealloc_pd(queues[i].domain), "memory stays");
	}
	CHECK(!ibv_close_xrcd(xrcd) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(domain) && !ibv_close_device(context),
		"something stays");
	puts("messages and writes to two queues, by both kinds of calls");
	return 0;
}
