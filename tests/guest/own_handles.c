/* Before Linux' librdmacm in the guest: its datagram rsockets make an address handle for their own queue pair without a
 * GID, which RoCE refuses. Such a handle gets the GID of the own address. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>

/* The GID index of the own IPv4 address. */
#define OWN 1

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *(*create)(struct ibv_pd *, struct ibv_ah_attr *) =
		dlvsym(RTLD_NEXT, "ibv_create_ah", "IBVERBS_1.1");

	if (!attr->is_global && !ibv_query_gid(pd->context, attr->port_num, OWN, &attr->grh.dgid)) {
		attr->is_global = 1;
		attr->grh.sgid_index = OWN;
		attr->grh.hop_limit = 64;
	}
	return create(pd, attr);
}
