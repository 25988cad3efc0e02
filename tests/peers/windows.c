/* Memory windows of type 2 as programs use them: two connected queue pairs of one device; one binds a part of a region
 * that grants peers nothing, the other one writes there, reads it, gives it back, and is refused from then on. Once by
 * ibv_post_send, once by ibv_wr_*. Prints one line; exit status 1 with a sentence where something is wrong. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(true, ...) do { if (!(true)) { fprintf(stderr, __VA_ARGS__); fputc('\n', stderr); exit(1); } } while (0)
enum { LEN = 65536, AT = 1000, SIZE = 20000, GID = 1 };

static struct ibv_context *context;
static struct ibv_pd *domain;
static struct ibv_cq *cq;
static union ibv_gid gid;

static struct ibv_qp *make(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .pd = domain,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &attr);
	CHECK(qp, "ibv_create_qp_ex fails");
	return qp;
}

static void link_to(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = GID, .hop_limit = 64 } } };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void ends(const char *what, enum ibv_wc_status status, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;
	int got;
	while (!(got = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(got == 1 && wc.status == status, "%s: %s instead of %s", what, ibv_wc_status_str(wc.status),
		ibv_wc_status_str(status));
	CHECK(status != IBV_WC_SUCCESS || wc.opcode == opcode, "%s: completion of another operation, %d", what, wc.opcode);
}

static void post(struct ibv_qp *qp, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad;
	CHECK(!ibv_post_send(qp, &wr, &bad), "ibv_post_send fails");
}

static void access_to(struct ibv_qp *qp, struct ibv_sge sge, enum ibv_wr_opcode opcode, uint64_t to, uint32_t key)
{
	post(qp, (struct ibv_send_wr){ .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.wr.rdma = { .remote_addr = to, .rkey = key } });
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0] && (context = ibv_open_device(list[0])), "there is no device");
	struct ibv_device_attr device;
	CHECK(!ibv_query_device(context, &device) && device.max_mw > 0, "max_mw is 0");
	CHECK(device.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B, "no windows of type 2B");
	CHECK(!ibv_query_gid(context, 1, GID, &gid) && (domain = ibv_alloc_pd(context)), "no domain");
	CHECK((cq = ibv_create_cq(context, 64, NULL, NULL, 0)), "no completion queue");
	char *theirs = aligned_alloc(4096, LEN), *mine = aligned_alloc(4096, LEN);
	memset(theirs, 0, LEN);
	struct ibv_mr *region = ibv_reg_mr(domain, theirs, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mr *own = ibv_reg_mr(domain, mine, LEN, IBV_ACCESS_LOCAL_WRITE);
	CHECK(region && own, "memory cannot be registered");
	CHECK(!ibv_alloc_mw(domain, IBV_MW_TYPE_1), "a window of type 1 is given out");
	struct ibv_mw *window = ibv_alloc_mw(domain, IBV_MW_TYPE_2);
	CHECK(window, "ibv_alloc_mw fails");
	struct ibv_sge sge = { (uintptr_t)mine, SIZE, own->lkey };
	uint64_t at = (uintptr_t)theirs + AT;
	struct ibv_mw_bind_info info = { region, at, SIZE, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	uint32_t key = window->rkey;
	for (int round = 0; round < 2; round++) {
		struct ibv_qp *granting = make(), *using = make();
		link_to(granting, using->qp_num);
		link_to(using, granting->qp_num);
		key = ibv_inc_rkey(key);
		if (round == 0) {
			post(granting, (struct ibv_send_wr){ .opcode = IBV_WR_BIND_MW,
				.bind_mw = { .mw = window, .rkey = key, .bind_info = info } });
		} else {
			struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(granting);
			ibv_wr_start(ex);
			ibv_wr_bind_mw(ex, window, key, &info);
			CHECK(!ibv_wr_complete(ex), "ibv_wr_bind_mw fails");
		}
		ends("bind", IBV_WC_SUCCESS, IBV_WC_BIND_MW);
		for (int i = 0; i < SIZE; i++)
			mine[i] = i * 31 + round;
		access_to(using, sge, IBV_WR_RDMA_WRITE, at, key);
		ends("write", IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		CHECK(!memcmp(theirs + AT, mine, SIZE) && !theirs[AT - 1] && !theirs[AT + SIZE], "other bytes were written");
		memset(mine, 0, SIZE);
		access_to(using, sge, IBV_WR_RDMA_READ, at, key);
		ends("read", IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
		CHECK(!memcmp(theirs + AT, mine, SIZE), "other bytes were read");
		if (round == 0) {
			struct ibv_recv_wr receive = { .wr_id = 7 }, *bad;
			CHECK(!ibv_post_recv(granting, &receive, &bad), "ibv_post_recv fails");
			post(using, (struct ibv_send_wr){ .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key });
			struct ibv_wc wc[2];
			for (int got = 0; got < 2;)
				got += ibv_poll_cq(cq, 2 - got, wc + got);
			struct ibv_wc *received = wc[0].opcode & IBV_WC_RECV ? wc : wc + 1;
			CHECK(received->wr_id == 7 && received->status == IBV_WC_SUCCESS, "no message came");
			CHECK(received->wc_flags & IBV_WC_WITH_INV && received->invalidated_rkey == key, "another key was given back");
		} else {
			struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(granting);
			ibv_wr_start(ex);
			ibv_wr_local_inv(ex, key);
			CHECK(!ibv_wr_complete(ex), "ibv_wr_local_inv fails");
			ends("take back", IBV_WC_SUCCESS, IBV_WC_LOCAL_INV);
		}
		access_to(using, sge, IBV_WR_RDMA_WRITE, at, key);
		ends("write afterwards", IBV_WC_REM_ACCESS_ERR, 0);
		CHECK(!ibv_destroy_qp(granting) && !ibv_destroy_qp(using), "a queue pair stays");
	}
	CHECK(ibv_dealloc_pd(domain), "a domain with a window is freed");
	CHECK(!ibv_dealloc_mw(window) && !ibv_dereg_mr(region) && !ibv_dereg_mr(own), "something stays");
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(domain) && !ibv_close_device(context), "something stays");
	puts("bound, used, given back and taken back, by both kinds of calls");
	return 0;
}
